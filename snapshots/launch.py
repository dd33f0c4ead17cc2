"""A launch: its command line taken apart, and what of it and of its variables is identity.

Two launches are alike in all that counts when their settings are, in whatever order and spelling they are written, on
whichever port they listen, and from whichever session they were started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from snapshots.spellings import Words, by_setting, canonical

INERT_FLAGS = frozenset({"--port", "--host", "--nccl-port", "--dist-init-addr"})
"""Where a server listens: a trial listens somewhere else."""

_FLAG = re.compile(r"--?[A-Za-z]")


@dataclass(frozen=True)
class CommandLine:
    """A command line taken apart: the program with its positional words, then flags with their words in order."""

    program: Words
    flags: dict[str, Words]

    @classmethod
    def of(cls, argv: Sequence[str]) -> CommandLine:
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


_INERT_VARIABLES = re.compile(
    r"""
    # a shell, a terminal, a login
    _ | PWD | OLDPWD | SHLVL | CONDA_SHLVL | HOSTNAME | LOGNAME | USER | MAIL | EDITOR | PAGER | HIST\w* |
    PS[1-4] | PROMPT_COMMAND | VIRTUAL_ENV_PROMPT | CONDA_PROMPT_MODIFIER | LC_\w+ | LANG | LANGUAGE |
    TERM | TERM_\w+ | COLORTERM | COLUMNS | LINES | LS_COLORS | DISPLAY | WINDOWID | TMUX | TMUX_PANE | STY |
    SSH_\w+ | SUDO_\w+ | XDG_\w+ | DBUS_\w+ | KRB5CCNAME | VSCODE_\w+ | \w+_SESSION_ID |
    # one start
    INVOCATION_ID | JOURNAL_STREAM | NOTIFY_SOCKET | \w+_PID | MAINPID |
    \w+_RUN_ID | PROMETHEUS_MULTIPROC_DIR | SPT_NOENV |
    # a job, a pod, a task
    SLURM_(JOB|STEP|TASK|SUBMIT|LAUNCH|SRUN|TOPOLOGY|GTIDS|LOCALID|PROCID|NODEID)\w* | PBS_\w+ | LSB_\w+ |
    PMIX?_\w+ | OMPI_MCA_(orte|ess)_\w+ | KUBERNETES_\w+ | (POD|NODE)_(NAME|IPS?|UID|NAMESPACE) |
    RUNPOD_(POD|PUBLIC|TCP)_\w+ | ECS_\w*METADATA_URI\w* | AWS_CONTAINER_CREDENTIALS_\w+ |
    # where other services listen
    \w+_SERVICE_(HOST|PORT)(_\w+)? | \w+_PORT(_\d+_(TCP|UDP)(_\w+)?)?
    """,
    re.VERBOSE,
)
"""Variables of a session, a terminal, a job or a single run: they differ between any two launches and change no speed.

From the manuals of systemd (environment variables in spawned processes), Slurm, PBS, LSF, PMIx, Kubernetes' downward
API, ECS and RunPod; SGLang and torchrun give each start a run id, and prometheus_client a directory."""


@lru_cache(maxsize=4096)
def is_inert(name: str) -> bool:
    """Whether a variable says something of the session that launched, not of the launch."""
    return _INERT_VARIABLES.fullmatch(name) is not None


def is_inert_flag(name: str) -> bool:
    """Whether a flag, however it is spelled, says only where a server listens."""
    return canonical(name) in INERT_FLAGS


INERT_ARGUMENTS = frozenset(
    {flag[2:].replace("-", "_") for flag in INERT_FLAGS} | {"api_key", "pid", "random_seed", "served_model_name"}
)
"""Resolved arguments that say where a server listens and what it is called."""


def without_a_session(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that are a launch's own."""
    return {name: value for name, value in variables.items() if not is_inert(name)}


def without_a_name(arguments: Mapping[str, object]) -> dict[str, object]:
    """The resolved arguments that decide how a server works."""
    return {name: value for name, value in arguments.items() if name not in INERT_ARGUMENTS}


def settings(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line as its settings: each under the name that stands for all of its spellings, sorted.

    A setting that is written under two names stays under both: which of them counts is the parser's affair.
    """
    line = CommandLine.of(argv)
    words = list(line.program)
    for setting, names in sorted(by_setting(line.flags).items()):
        if not is_inert_flag(setting):
            for name in sorted(names):
                words += [setting if len(names) == 1 else name, *line.flags[name]]
    return tuple(words)
