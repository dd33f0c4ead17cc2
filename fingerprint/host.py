"""The planner's end of the host program: sends it, asks it, hears its answers.

The program is `probes/` in one zip, sent over the standard input of one `python3` on the target. Nothing is installed
there: the zip lives in an anonymous memory file of that process and vanishes with it.

Nothing here waits for the program before it has something to do: it is started, then put together, and the first
question lies behind it in the pipe. To the interpreter that runs us, which need not compile it again, it goes as the
bytecode that an installation has left beside its sources.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
import json
import os
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import probes
from fingerprint.errors import HostProgramError, TargetError
from fingerprint.targets.base import Channel, Target
from fingerprint.targets.local import PYTHON, LocalTarget

BOOT = "import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
"""Free of quotes, backslashes, exclamation marks and newlines, so that every login shell passes it on unharmed."""

LARGEST_LINE_BYTES = 1 << 29
"""No host makes us keep more than this at once."""

LOADER = """
import os, sys
if sys.version_info < (3, 9):
    sys.exit("its python3 is %d.%d, too old" % sys.version_info[:2])
import zlib
memory = os.memfd_create("fingerprint")
left = memoryview(zlib.decompress(sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))))
while left:
    left = left[os.write(memory, left):]
sys.path.insert(0, "/proc/self/fd/%d" % memory)
sys.dont_write_bytecode = True
from probes.program import main
main(memory)
"""

if TYPE_CHECKING:
    from typing_extensions import Self

Handler = Callable[[str, Any], None]


@functools.cache
def payload(*, compiled: bool = False) -> bytes:
    """What travels: the archive, compressed as a whole, a tenth smaller than file by file; `compiled`, only framed."""
    return zlib.compress(archive(compiled=compiled), 0 if compiled else 6)


def archive(*, compiled: bool = False) -> bytes:
    """The host program as a zip, with the one module of others that it needs; equal sources give equal bytes.

    Args:
        compiled: for the interpreter that runs us: instead of a module its bytecode, where there is one.
    """
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:

        def add(name: str, path: Path) -> None:
            code = _bytecode(path) if compiled else None
            made.writestr(zipfile.ZipInfo(f"{name}c" if code else name), code or path.read_bytes())

        root = Path(probes.__path__[0])
        for path in sorted(root.rglob("*.py")):
            add(f"probes/{path.relative_to(root).as_posix()}", path)
        binding = importlib.util.find_spec("pynvml")
        if binding is not None and binding.origin:
            add("pynvml.py", Path(binding.origin))
    return buffer.getvalue()


def _bytecode(source: Path) -> bytes | None:
    """The bytecode beside a module, where it was made by this interpreter of this very source. None is ever written."""
    about = source.stat()
    made_of = struct.pack("<3I", 0, int(about.st_mtime) & 0xFFFFFFFF, about.st_size & 0xFFFFFFFF)  # as in PEP 552
    try:
        code = Path(importlib.util.cache_from_source(source)).read_bytes()
    except (OSError, NotImplementedError):  # the latter: this interpreter keeps none
        return None
    return code if code.startswith(importlib.util.MAGIC_NUMBER + made_of) else None


class HostProgram:
    """A conversation with the host program on one target; a context manager that ends it."""

    def __init__(self, target: Target, python: str = PYTHON) -> None:
        self.target = target
        self._nonce = f"fp{os.urandom(8).hex()}:"
        self._number = 0
        self._channel: Channel = target.start([python, "-I", "-S", "-c", BOOT])
        try:
            loader, blob = LOADER.encode(), payload(compiled=python == PYTHON and isinstance(target, LocalTarget))
            self._write(b"%d\n%s%d\n%s%s\n" % (len(loader), loader, len(blob), blob, self._nonce.encode()))
        except BaseException:
            self._channel.close()
            raise

    @functools.cached_property
    def greeting(self) -> dict[str, Any]:
        """What the program says of itself first: `python` (its version) and `pid`.

        Raises:
            TargetError: it did not start, or is gone.
        """
        return cast("dict[str, Any]", self._hear(None, lambda _event, _value: None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the program's input; it ends everything it started and leaves."""
        self._channel.close()

    def call(self, name: str, args: dict[str, Any], on_event: Handler = lambda _event, _value: None) -> Any:  # noqa: ANN401 - JSON
        """Ask for one thing and wait for its result.

        Args:
            name: `capture`, `try`, `prepare` or `restore`.
            args: JSON.
            on_event: called with every event that comes before the result.

        Raises:
            HostProgramError: the program failed or the way to it broke; `kind` of the answer is in its `kind`.
        """
        self._number += 1
        self._write(json.dumps({"id": self._number, "call": name, "args": args}).encode() + b"\n")
        importlib.import_module("snapshots")  # what answers are read with, loaded while the host is at work
        _ = self.greeting
        return self._hear(self._number, on_event)

    def _write(self, data: bytes) -> None:
        try:
            self._channel.stdin.write(data)
            self._channel.stdin.flush()
        except OSError:
            raise self._broken() from None

    def _hear(self, number: int | None, on_event: Handler) -> Any:  # noqa: ANN401 - JSON
        nonce = self._nonce.encode()
        while True:
            try:
                line = self._channel.stdout.readline(LARGEST_LINE_BYTES)
            except OSError:
                line = b""
            if not line.endswith(b"\n"):
                raise self._broken()
            start = line.find(nonce)
            if start < 0:
                continue  # a banner, a message of the day
            message = cast("dict[str, Any]", json.loads(line[start + len(nonce) :]))
            if message.get("event") == "hello" and number is None:
                return message["value"]
            if message.get("id") != number:
                continue
            if "event" in message:
                on_event(message["event"], message["value"])
            elif "error" in message:
                raise HostProgramError(message["error"], kind=message.get("kind", "fault"), where=message.get("where"))
            else:
                return message["result"]

    def _broken(self) -> TargetError:
        time.sleep(0.05)  # its last words may still be on their way
        words = self._channel.complaint()
        if "python" in words and any(
            sign in words for sign in ("not found", "nknown command", "No such file", "too old")
        ):
            from fingerprint.pythons import another

            there = another(self.target)
            return TargetError(
                f"{self.target.name}: {words}. Name one of the host, Python 3.9 or later, with --host-python"
                + (f": {there} is there." if there else ".")
            )
        return TargetError(
            f"{self.target.name}: the program on the host ended" + (f": {words}" if words else " without a word") + "."
        )
