"""What a process of the server is called in `ps`, and that it ends with its parent.

A title is written over the argument area of the process, as setproctitle does. That library also takes the
environment area behind it and so empties /proc/PID/environ, unless SPT_NOENV is set; so does this one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_ARG_START = 48  # fields of /proc/PID/stat, counted from 1 as proc(5) does: arg_start, arg_end, env_start, env_end


def set_title(title: str) -> None:
    """Show `title` as the command line and, cut to 15 bytes, as the name of this process."""
    text = title.encode()
    stat = Path("/proc/self/stat").read_text()
    after_name = stat[stat.rindex(")") + 2 :].split()  # starts with field 3
    start, arg_end, _env_start, env_end = (int(value) for value in after_name[_ARG_START - 3 : _ARG_START + 1])
    end = arg_end
    if "SPT_NOENV" not in os.environ:
        # The C library still points into the area: let it take copies before the area is overwritten.
        for name, value in os.environ.items():
            os.putenv(name, value)
        end = env_end
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, min(len(text), arg_end - start - 1))
    _prctl(_PR_SET_NAME, ctypes.c_char_p(text[:15]))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, which started it, ends."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before the line above
        sys.exit(1)


def _prctl(option: int, value: ctypes.c_char_p | ctypes.c_ulong) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
