"""The `fingerprint` command: parse, call, print.

Results go to standard output, messages to standard error. Exit codes: 0 same or done, 1 differences or a regression
attributed, 2 trouble; 130 and 143 after Ctrl-C and SIGTERM, with everything put back.
"""

from __future__ import annotations

import gc
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING

from fingerprint.errors import FingerprintError

if TYPE_CHECKING:
    from typer import Typer

    from fingerprint.host import HostProgram


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)


def _alone(app: Typer, name: str) -> None:
    """Leave the one command that the line names, if it names one: to describe them all takes longer than most run."""
    named = [one for one in app.registered_commands if one.callback and name == (one.name or one.callback.__name__)]
    app.registered_commands = named or app.registered_commands


def _ahead(words: list[str]) -> AbstractContextManager[HostProgram | None]:
    """The host program of a line that captures this machine: it gets ready while the line is still being read.

    A host's bare name is taken to stand before the options: behind them only somebody who knows them all could tell. A
    program that nobody asks anything just ends.
    """
    here = words[1:2] in ([], ["local"]) or words[1].startswith("-")
    otherwise = any(word.startswith(("-h", "--help", "--host-python", "--sudo")) for word in words)
    elsewhere = any(":" in word or "@" in word[1:] for word in words)
    if words[:1] != ["capture"] or not here or otherwise or elsewhere:
        return nullcontext()
    from fingerprint.host import HostProgram
    from fingerprint.targets.local import LocalTarget

    return HostProgram(LocalTarget())


def main() -> None:
    """Run the command; expected failures become one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGHUP, _terminate)
    gc.set_threshold(200_000, 20, 50)  # snapshots are large trees without cycles: looking for some costs a tenth
    try:
        with _ahead(sys.argv[1:]) as program:
            from fingerprint.commands import app

            _alone(app, sys.argv[1] if len(sys.argv) > 1 else "")
            app(obj=program)
    except FingerprintError as error:
        from fingerprint.report.words import clean

        sys.stderr.write(f"fingerprint: {clean(str(error), 4000)}\n")  # some of it was said by a host
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        sys.stderr.write("fingerprint: interrupted; everything was put back\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
    finally:
        gc.freeze()  # nor is there anything to be found in them at the end


if __name__ == "__main__":
    main()
