"""A launch as a snapshot has it: the command line taken apart, and the variables without those of a session."""

from __future__ import annotations

import re
from dataclasses import dataclass

from snapshots import Process

INERT_FLAGS = frozenset({"--port", "--host", "--nccl-port", "--dist-init-addr"})
"""Where a server listens: a trial listens somewhere else."""

_FLAG = re.compile(r"--?[A-Za-z]")

Words = tuple[str, ...]


@dataclass(frozen=True)
class CommandLine:
    """A command line taken apart: the program with its positional words, then flags with their words in order."""

    program: Words
    flags: dict[str, Words]

    @classmethod
    def of(cls, argv: list[str]) -> CommandLine:
        """Take a command line apart. Words before the first `--flag` are the program (`python -m module`)."""
        first = next((place for place, word in enumerate(argv) if word.startswith("--")), len(argv))
        flags: dict[str, Words] = {}
        current: str | None = None
        for word in argv[first:]:
            if _FLAG.match(word):
                name, mark, value = word.partition("=")
                current = name
                flags[name] = (*flags.get(name, ()), value) if mark else flags.get(name, ())
            elif current is not None:
                flags[current] = (*flags[current], word)
        return cls(tuple(argv[:first]), flags)

    def argv(self) -> list[str]:
        """The command line again, each flag with its words after it."""
        words = list(self.program)
        for name, values in self.flags.items():
            words += [name, *values]
        return words

    def with_flag(self, name: str, values: Words | None) -> CommandLine:
        """The same with one flag given other words, or taken away."""
        flags = {flag: words for flag, words in self.flags.items() if flag != name or values is not None}
        if values is not None:
            flags[name] = values
        return CommandLine(self.program, flags)


def command_line(process: Process | None) -> CommandLine | None:
    """A launcher's command line taken apart; None when it was not readable."""
    return CommandLine.of(process.argv) if process is not None and isinstance(process.argv, list) else None


_INERT_VARIABLES = re.compile(
    r"""_|PWD|OLDPWD|SHLVL|HOSTNAME|LOGNAME|USER|MAIL|TERM|COLORTERM|COLUMNS|LINES|LS_COLORS|EDITOR|PAGER|
    PS[1-4]|PROMPT_COMMAND|DISPLAY|WINDOWID|TMUX|TMUX_PANE|STY|INVOCATION_ID|JOURNAL_STREAM|PROMETHEUS_MULTIPROC_DIR|
    SGLANG_RUN_ID|SPT_NOENV|HIST\w*|SSH_\w+|XDG_\w+|DBUS_\w+|SUDO_\w+|LC_\w+|LANG|LANGUAGE|VSCODE_\w+|TERM_\w+|
    SLURM_(JOB|STEP|TASK|SUBMIT|LAUNCH|SRUN|TOPOLOGY|GTIDS|LOCALID|PROCID|NODEID)\w*|KUBERNETES_\w+|
    \w+_SERVICE_(HOST|PORT)(_\w+)?|\w+_PORT(_\d+_(TCP|UDP)(_\w+)?)?""",
    re.VERBOSE,
)
"""Variables of a session, a terminal or a single run: they differ between any two launches and change no speed."""


def is_inert(name: str) -> bool:
    """Whether a variable says something of the session that launched, not of the launch."""
    return _INERT_VARIABLES.fullmatch(name) is not None


def launch_variables(process: Process | None) -> dict[str, str]:
    """The variables that a launcher was started with, or has now where that is not readable; without the inert ones."""
    if process is None:
        return {}
    variables = process.at_exec if isinstance(process.at_exec, dict) else process.variables
    return (
        {name: value for name, value in variables.items() if not is_inert(name)} if isinstance(variables, dict) else {}
    )
