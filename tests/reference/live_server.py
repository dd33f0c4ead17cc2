"""Starting, asking and watching real servers of the reference world."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fingerprint.reference.world import World
from probes.ports import free_port


@dataclass
class Live:
    """A server that runs."""

    world: World
    process: subprocess.Popen[bytes]
    port: int

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        return self._ask(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}"))

    def post(self, path: str, body: Any) -> tuple[int, str]:  # noqa: ANN401 - any JSON value
        """Status and body."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data))

    def generate(self, prompt: str, tokens: int) -> dict[str, Any]:
        """The whole answer."""
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        status, body = self.post("/generate", {"text": prompt, "sampling_params": sampling})
        assert status == 200, body
        answer: dict[str, Any] = json.loads(body)
        return answer

    def metrics(self) -> dict[str, float]:
        """Values by name and first label, as `cuda_graph_passes_total decode_none`."""
        values = {}
        for line in self.get("/metrics")[1].splitlines():
            if not line.startswith("#"):
                name, _, rest = line.removeprefix("sglang:").partition("{")
                label, value = rest.rpartition("} ")[0].split(",")[0], rest.rpartition("} ")[2]
                kind = label.partition("=")[2].strip('"') if label.startswith(("category=", "mode=")) else ""
                values[f"{name} {kind}".strip()] = float(value)
        return values

    def _ask(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()


@contextmanager
def serving(world: World, *flags: str, **variables: str) -> Iterator[Live]:
    """A server of the world's present state, with flags added (the last one counts) and variables set."""
    with serving_at(free_port(), world, *flags, **variables) as live:
        yield live


@contextmanager
def serving_at(port: int, world: World, *flags: str, **variables: str) -> Iterator[Live]:
    """The same on a given port."""
    command = world.launch(port)
    log = world.root / f"server-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command.argv, *flags],
            cwd=command.cwd,
            env=command.variables | variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    live = Live(world, process, port)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert process.poll() is None, log.read_text()
            try:
                if live.get("/ready")[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.02)
        else:
            raise AssertionError(log.read_text())
        yield live
    finally:
        world.stop(process)


def children(pid: int) -> dict[int, str]:
    """Command lines of the children of a process by id, without trailing NULs."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        line = Path(f"/proc/{child}/cmdline").read_bytes()
        found[int(child)] = line.rstrip(b"\0").replace(b"\0", b" ").decode()
    return found


def wait_gone(pids: list[int]) -> list[int]:
    """Wait until processes have ended; those that have not after ten seconds."""
    end = time.monotonic() + 10
    left = pids
    while left and time.monotonic() < end:
        left = [pid for pid in left if _alive(pid)]
        time.sleep(0.01)
    return left


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
