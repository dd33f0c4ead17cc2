"""A host whose `python3` is missing or too old: which other Python it has, so that the next step can be named.

A serving host has one, if only the one that serves. It is looked for once the first try has failed, by one `ls`.
"""

from __future__ import annotations

import contextlib
import re

from fingerprint.errors import FingerprintError
from fingerprint.targets.base import Target

LOOK = (
    "ls -l /proc/[0-9]*/exe /usr/bin/python3.* /usr/local/bin/python3.* /opt/*/bin/python3.* /opt/*/*/bin/python3.*"
    " /root/*/bin/python3.* /home/*/*/bin/python3.* 2>/dev/null"
)
"""Free of quotes, backslashes and newlines, so that every login shell passes it on to `sh` unharmed."""
_RUNS = re.compile(r"/proc/\d+/exe -> (/[\w./+-]*/python3\.(\d{1,3}))$", re.MULTILINE)
_LIES = re.compile(r" (/(?!proc/)[\w./+-]*/python3\.(\d{1,3}))(?: -> .*)?$", re.MULTILINE)
_OLDEST = 9
_MOST_BYTES = 1 << 20


def another(target: Target) -> str | None:
    """The newest Python of the host that will do, one that runs already before others; None where none is found."""
    told = ""
    with contextlib.suppress(FingerprintError, OSError):
        channel = target.start(["sh", "-c", LOOK])
        try:
            told = channel.stdout.read(_MOST_BYTES).decode("utf-8", "replace")
        finally:
            channel.close()
    for pattern in (_RUNS, _LIES):
        found = [(int(one[2]), one[1]) for one in pattern.finditer(told) if int(one[2]) >= _OLDEST]
        if found:
            return max(found)[1]
    return None
