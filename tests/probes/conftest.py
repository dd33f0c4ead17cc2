"""A server that looks like SGLang from outside: real processes, real titles, a real environment, a real answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.ports import free_port
from probes.secrets import Keeper

LAUNCH_SERVER = textwrap.dedent(
    """
    import ctypes, http.server, json, multiprocessing.resource_tracker, os, sys, time

    def title(text):
        fields = open("/proc/self/stat").read().rpartition(")")[2].split()
        start, env_end = int(fields[45]), int(fields[48])
        for name, value in os.environ.items():
            os.putenv(name, value)
        last = open("/proc/self/environ", "rb").read().rstrip(b"\\0").rpartition(b"\\0")[2]
        left = len(last) + 1 if text.endswith("TP1") else 0  # SGLang's ranks leave the end of theirs as it was
        ctypes.memset(start, 0, env_end - start - left)
        ctypes.memmove(start, text.encode(), len(text))

    def work(text, ready):
        os.environ["SET_IN_RANK"] = text
        title(text)
        ready.set()
        time.sleep(600)

    def option(flag, default):
        return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else default

    if __name__ == "__main__":
        os.environ["NCCL_CUMEM_ENABLE"] = "0"
        context = multiprocessing.get_context("spawn")
        children = []
        for text in ["sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"]:
            ready = context.Event()
            child = context.Process(target=work, args=(text, ready), daemon=True)
            child.start()
            children.append(ready)
        for ready in children:
            ready.wait()
        tracker = multiprocessing.resource_tracker._resource_tracker._pid
        while "_posixshmem" not in open(f"/proc/{tracker}/maps").read():  # the last that it loads
            time.sleep(0.01)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                key = option("--api-key", None)
                if key and self.headers.get("Authorization") != f"Bearer {key}":
                    self.send_error(401)
                    return
                body = json.dumps({
                    "attention_backend": "triton", "tp_size": 2, "port": 1, "nccl_port": 2, "random_seed": 3,
                    "api_key": key, "startup_time": 4.5, "max_total_num_tokens": 9,
                    "internal_states": [{"attention_backend": "fa3", "last_gen_throughput": 7.1}],
                }).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", int(option("--port", "0"))), Handler)
        print("ready", flush=True)
        server.serve_forever()
    """
)


class Running:
    """The server's launcher."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, root: Path) -> None:
        self.pid = process.pid
        self.port = port
        self.root = root


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process group that the tests started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real virtual environment."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(place, symlinks=True)
    return place


def serving(tmp_path: Path, environment: Path) -> Iterator[Callable[..., Running]]:
    """Gives a way to start servers from a source tree on PYTHONPATH, then ends them."""
    tree = tmp_path / "tree" / "python"
    (tree / "sglang").mkdir(parents=True)
    (tree / "sglang" / "__init__.py").write_text("")
    (tree / "sglang" / "launch_server.py").write_text(LAUNCH_SERVER)
    started: list[subprocess.Popen[bytes]] = []

    def start(*flags: str, **variables: str) -> Running:
        port = free_port()
        process = subprocess.Popen(
            [str(environment / "bin" / "python"), "-m", "sglang.launch_server", "--port", str(port), *flags],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **variables},
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd=tmp_path,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return Running(process, port, tmp_path)

    yield start
    for process in started:
        end(process)


@pytest.fixture
def start_server(tmp_path: Path, environment: Path) -> Iterator[Callable[..., Running]]:
    """Starts servers for one test."""
    yield from serving(tmp_path, environment)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, environment: Path) -> Iterator[Running]:
    """One server for all tests that only look."""
    for start in serving(tmp_path_factory.mktemp("running"), environment):
        yield start("--tp", "2", NCCL_PROTO="Simple")


@pytest.fixture
def context() -> Callable[..., dict[str, Any]]:
    """A probe's context for one request."""

    def make(**ask: object) -> dict[str, Any]:
        emitted: list[tuple[str, Any]] = []
        return {
            "ask": ask,
            "keeper": Keeper(b"a key of the tests"),
            "emit": lambda event, value: emitted.append((event, value)),
            "emitted": emitted,
        }

    return make


@pytest.fixture
def sleeper() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts small Python processes that print a line when they are ready."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str, executable: str = sys.executable, **variables: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [executable, "-c", code + "\nprint('ready', flush=True)\nimport time\ntime.sleep(600)"],
            env=variables,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        end(process)
