"""The live server, read from outside."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import caches, limits, models, nccl, packages, processes, server, startup, surroundings, tree
from probes.secrets import Keeper
from snapshots import Process, Server, identity_digest, leaves

Context = Callable[..., dict[str, Any]]
Start = Callable[..., "Running"]


class Running(Protocol):
    """The launcher of a server that the tests started."""

    pid: int
    port: int


def test_a_server_is_found_with_its_roles_and_its_own_account(running: Running, context: Context) -> None:
    section = server.read(context(pid=running.pid))
    model = Server.model_validate(section)
    assert set(model.processes) == {"launcher", "rank 0", "rank 1", "detokenizer", "tracker"}
    assert model.engine == "sglang"
    assert model.url == f"http://127.0.0.1:{running.port}"
    assert [model.processes[key].rank for key in ("launcher", "rank 0", "rank 1")] == [None, 0, 1]
    assert model.processes["rank 1"].title == "sglang::scheduler_TP1"
    # As resolved in the rank; ports, times and an unpinned seed say nothing of the configuration.
    assert model.arguments == {"attention_backend": "fa3", "tp_size": 2}


def test_variables_are_told_apart_at_exec_and_now_and_behind_a_title(running: Running, context: Context) -> None:
    found = server.read(context(pid=running.pid))["processes"]
    assert found["launcher"]["at_exec"]["NCCL_PROTO"] == "Simple"
    assert "NCCL_CUMEM_ENABLE" not in found["launcher"]["at_exec"]
    assert found["launcher"]["variables"]["NCCL_CUMEM_ENABLE"] == "0"
    assert found["tracker"]["at_exec"]["NCCL_CUMEM_ENABLE"] == "0"
    for key in ("rank 0", "rank 1", "detokenizer"):
        assert found[key]["at_exec"]["unread"].startswith("clobbered by a title")
        assert found[key]["variables"]["NCCL_PROTO"] == "Simple"
        assert found[key]["variables"]["NCCL_CUMEM_ENABLE"] == "0"
        assert found[key]["variables"]["SET_IN_RANK"].startswith("sglang::")


def test_two_servers_are_listed_and_not_guessed_between(start_server: Start, context: Context) -> None:
    one, other = start_server(), start_server("--api-key", "sk-abcdefghijklmnopqrstuvwxyz")
    section = server.read(context())
    assert section["status"] == "failed"
    chosen = {(choice["pid"], choice["port"]) for choice in section["choices"]}
    assert chosen >= {(one.pid, one.port), (other.pid, other.port)}  # others may serve on this machine
    assert "sk-abcdefghijkl" not in repr(section["choices"])
    for running in (one, other):
        assert f"pid {running.pid} port {running.port}" in section["reason"]
    assert "sk-abcdefghijkl" not in section["reason"]
    chosen = server.read(context(port=other.port))
    assert chosen["processes"]["launcher"]["pid"] == other.pid


def test_a_rank_s_pid_names_its_server(running: Running, context: Context) -> None:
    rank = server.read(context(pid=running.pid))["processes"]["rank 1"]["pid"]
    assert server.read(context(pid=rank))["processes"]["launcher"]["pid"] == running.pid


def test_a_wrong_port_lists_what_is_there(running: Running, context: Context) -> None:
    section = server.read(context(port=1))
    assert section["status"] == "failed"
    assert f"pid {running.pid} port {running.port}" in section["reason"]
    assert "no server on port 1: " in section["reason"]


def test_no_server_is_absent_with_a_reason() -> None:
    section = server.choose({}, {})
    assert isinstance(section, dict)
    assert section["status"] == "absent"
    assert "no server runs here" in section["reason"]


def test_a_missing_process_is_a_reason(context: Context) -> None:
    assert server.read(context(pid=2**22 + 1))["reason"] == f"there is no process {2**22 + 1}"


def test_the_api_key_opens_server_info_and_never_leaves(start_server: Start, context: Context) -> None:
    secret = "a-very-private-key-1234"
    running = start_server("--api-key", secret, OPENAI_API_KEY=secret, COPY_OF_IT=f"x{secret}y")
    section = server.read(context(pid=running.pid))
    assert section["arguments"]["attention_backend"] == "fa3"
    assert section["arguments"]["api_key"].startswith("<secret:")
    assert secret not in repr(section)
    token = section["arguments"]["api_key"]
    assert section["processes"]["launcher"]["argv"][-1] == token
    assert section["processes"]["rank 0"]["variables"]["COPY_OF_IT"] == f"x{token}y"


def test_two_starts_of_the_same_server_have_the_same_identity(start_server: Start, context: Context) -> None:
    seen = []
    for _ in range(2):
        section = Server.model_validate(server.read(context(pid=start_server().pid)))
        launcher = section.processes["launcher"]
        # The port is the one thing that the two were told differently.
        same = launcher.model_copy(update={"argv": launcher.argv[:4] if isinstance(launcher.argv, list) else []})
        seen.append(section.model_copy(update={"processes": {**section.processes, "launcher": same}}))
    assert dict(leaves(seen[0])) == dict(leaves(seen[1]))
    assert identity_digest(seen[0]) == identity_digest(seen[1])


def test_wrappers_and_shells_are_not_launchers() -> None:
    assert server.engine_of(["python3", "-m", "sglang.launch_server", "--port", "1"]) == "sglang"
    assert server.engine_of(["/v/bin/python3.12", "-u", "-m", "tinyserve.launch_server"]) == "tinyserve"
    assert server.engine_of(["/v/bin/python", "/v/bin/sglang", "serve", "--model-path", "m"]) == "sglang"
    assert server.engine_of(["timeout", "60", "python3", "-m", "sglang.launch_server"]) is None
    assert server.engine_of(["bash", "-c", "python3 -m sglang.launch_server"]) is None
    assert server.engine_of(["grep", "sglang::"]) is None
    assert server.engine_of([]) is None


def test_a_rank_that_outlived_its_server_does_not_make_a_launcher_of_the_supervisor() -> None:
    def process(pid: int, parent: int, *argv: str) -> server.Process:
        return server.Process(processes.Stat(pid, "S", parent, 0, pid), list(argv))

    supervisor = process(1, 0, "python3", "supervise.py")
    launcher = process(20, 1, "python3", "-m", "sglang.launch_server", "--port", "1")
    others = [process(10, 1, "sglang::scheduler_TP0"), process(21, 20, "sglang::scheduler_TP0")]
    (found,) = server.find({one.stat.pid: one for one in (supervisor, launcher, *others)})
    assert found.launcher == launcher
    assert {one.stat.pid for one in found.members} == {20, 21}


def test_data_parallel_ranks_have_keys_of_their_own() -> None:
    def process(pid: int, parent: int, *argv: str) -> server.Process:
        return server.Process(processes.Stat(pid, "S", parent, 0, pid), list(argv))

    table = {
        one.stat.pid: one
        for one in (
            process(1, 0, "init"),
            process(10, 1, "python3", "-m", "sglang.launch_server"),
            process(11, 10, "sglang::data_parallel_controller"),
            process(12, 11, "sglang::scheduler_DP0_TP0"),
            process(13, 11, "sglang::scheduler_DP1_TP0"),
            process(16, 11, "sglang::scheduler_PP1_ATTN_CP0_MOE_DP1_TP3_EP3"),
            process(17, 11, "sglang::scheduler_TP02"),
            process(18, 11, "sglang::scheduler_of_something_else"),
            process(14, 10, "sglang::detokenizer"),
            process(15, 10, "ninja"),
        )
    }
    (found,) = server.find(table)
    assert found.launcher.stat.pid == 10
    roles = server._roles(found)
    assert {key for key, (_process, role, _rank) in roles.items() if role == "rank"} == {
        "rank DP0 TP0", "rank DP1 TP0", "rank PP1 ATTN_CP0 MOE_DP1 TP3 EP3", "rank 2",
    }  # fmt: skip
    assert roles["rank PP1 ATTN_CP0 MOE_DP1 TP3 EP3"][2] == 3
    assert {"launcher", "data_parallel_controller", "detokenizer", "scheduler_of_something_else"} < set(roles)


@pytest.mark.parametrize(
    ("text", "port", "key", "secure"),
    [
        ("api-key: sk-1\nssl_certfile: /etc/tls/cert.pem  # ours\nport: 8000\n", "8000", "sk-1", True),
        ("api_key: 'sk-1 #2'\nssl-certfile: null\nnested:\n  port: 7\n", None, "sk-1 #2", False),
        ('# api-key: sk-0\napi-key: "sk-1"\r\n', None, "sk-1", False),
        ("- a\n: b\nport:\n", None, None, False),
    ],
)
def test_what_a_configuration_file_says_counts_and_what_is_typed_counts_more(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]], text: str, port: str, key: str, secure: bool
) -> None:
    (tmp_path / "serve.yaml").write_text(text)
    child = sleeper(f"import os\nos.chdir({str(tmp_path)!r})")
    typed = ["python3", "-m", "sglang.launch_server", "--config", "serve.yaml"]
    words = server.configured(typed, child.pid)
    assert (server.option(words, "--port"), server.key_of(words), server.is_secure(words)) == (port, key, secure)
    assert server.option(server.configured([*typed, "--port", "1"], child.pid), "--port") == "1"
    assert words[-len(typed) :] == typed
    os.mkfifo(tmp_path / "pipe.yaml")
    piped = [*typed[:-1], "pipe.yaml"]
    assert server.configured(piped, child.pid) == piped
    absent = [*typed[:-1], "absent.yaml"]
    assert server.configured(absent, child.pid) == absent


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what others may not, and starts processes of others")
def test_a_file_that_only_root_may_read_is_not_read_for_a_process_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text("api-key: sk-of-root\n")
    typed = ["python3", "-m", "sglang.launch_server", "--config", str(path)]
    child = subprocess.Popen(["sleep", "60"], user=65534)
    try:
        path.chmod(0o600)
        assert server.configured(typed, child.pid) == typed
        path.chmod(0o644)
        assert server.key_of(server.configured(typed, child.pid)) == "sk-of-root"
    finally:
        child.kill()
        child.wait()


def test_an_engine_inside_a_script_is_a_server_too(sleeper: Callable[..., subprocess.Popen[bytes]]) -> None:
    def process(pid: int, parent: int, *argv: str) -> server.Process:
        return server.Process(processes.Stat(pid, "S", parent, 0, pid), list(argv))

    table = {
        one.stat.pid: one for one in (process(5, 1, "/v/bin/python", "serve.py"), process(6, 5, "sglang::scheduler"))
    }
    (found,) = server.find(table)
    assert (found.launcher.stat.pid, found.engine) == (5, "sglang")


def test_an_emptied_environment_is_empty_and_not_unread(sleeper: Callable[..., subprocess.Popen[bytes]]) -> None:
    quiet = sleeper("pass")
    assert processes.variables_at_exec(quiet.pid) == {}
    assert processes.variables_now(quiet.pid).keys() <= {"LC_CTYPE"}


def test_deleted_variables_are_gone_and_long_ones_are_whole(sleeper: Callable[..., subprocess.Popen[bytes]]) -> None:
    long = "x" * 100_000
    child = sleeper("import os\ndel os.environ['GONE']\nos.environ['NEW'] = 'é' * 5000", GONE="1", LONG=long)
    now = processes.variables_now(child.pid)
    assert "GONE" not in now
    assert now["LONG"] == long
    assert now["NEW"] == "é" * 5000
    assert "GONE" in processes.variables_at_exec(child.pid)


def test_a_library_replaced_on_disk_is_deleted_with_the_build_id_that_runs(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    first, second = tmp_path / "libone.so", tmp_path / "libtwo.so"
    source = tmp_path / "one.c"
    for path, value in ((first, 1), (second, 2)):
        source.write_text(f"int answer(void) {{ return {value}; }}\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,--build-id", "-o", path, source], check=True)
    child = sleeper(f"import ctypes\nkeep = ctypes.CDLL({str(first)!r})")
    before = processes.libraries(child.pid)["libone.so"]
    assert before["deleted"] is False
    second.replace(first)
    after = processes.libraries(child.pid)["libone.so"]
    assert after["deleted"] is True
    assert after["build_id"] == before["build_id"]
    assert len(after["build_id"]) == 40


def test_versions_that_cuda_libraries_tell_are_read_from_outside(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    source = tmp_path / "part.c"
    names = {"libcudnn_graph.so.9": "9.28.1", "libcublasLt.so.12.4.5.8": "12.4.5.8", "libcudart.so.12": None}
    for name in names:
        code = "const unsigned char cudnn_graph_version[4] = {1, 28, 9, 0};" if "cudnn" in name else "int other;"
        source.write_text(code)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / name, source], check=True)
    child = sleeper(f"import ctypes\nkeep = [ctypes.CDLL({str(tmp_path)!r} + '/' + name) for name in {list(names)}]")
    found = processes.libraries(child.pid)
    assert {name: found[name].get("version") for name in names} == names


def test_kernels_compiled_at_run_time_are_no_part_of_the_identity(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    source, cache = tmp_path / "kernel.c", tmp_path / "cache/abc"
    cache.mkdir(parents=True)
    source.write_text("int kernel;")
    for path in (cache / "kernel.so", tmp_path / "plain.so"):
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, source], check=True)
    paths = [str(cache / "kernel.so"), str(tmp_path / "plain.so")]
    code = f"import ctypes\nkeep = [ctypes.CDLL(path) for path in {paths}]"
    child = sleeper(code, TRITON_CACHE_DIR=str(tmp_path / "cache"))
    variables = server.current_variables(child.pid)
    kept, jit = server._compiled_apart(processes.libraries(child.pid), variables, child.pid)
    assert jit == [str(cache / "kernel.so")]
    assert "plain.so" in kept
    assert "kernel.so" not in kept


def test_what_the_compiler_sets_for_itself_says_only_how_far_a_server_has_come(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    source, first = tmp_path / "kernel.c", tmp_path / ".triton/cache/abc"
    first.mkdir(parents=True)
    source.write_text("int kernel;")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", first / "kernel.so", source], check=True)
    code = f"""import ctypes, os
keep = ctypes.CDLL({str(first / "kernel.so")!r})
os.environ["TRITON_CACHE_DIR"] = "/tmp/torchinductor_me/triton/0"
os.environ["TRITON_PTXAS_PATH"] = "/torch/bin/ptxas"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = "/elsewhere"
"""
    child = sleeper(code, HOME=str(tmp_path), TORCHINDUCTOR_CACHE_DIR="/asked")
    variables = server.current_variables(child.pid)
    _, jit = server._compiled_apart(processes.libraries(child.pid), variables, child.pid)
    assert jit == [str(first / "kernel.so")]
    wiped = {"unread": "wiped"}
    for at_exec in (processes.variables_at_exec(child.pid), wiped):
        launcher = {"variables": {"TORCHINDUCTOR_CACHE_DIR": "/asked"}}
        entry = {"at_exec": at_exec, "variables": dict(variables)}
        assert server._set_when_compiling(entry, launcher) == ["TRITON_CACHE_DIR", "TRITON_PTXAS_PATH"]
        assert entry["variables"]["TORCHINDUCTOR_CACHE_DIR"] == "/elsewhere"
        assert "TRITON_CACHE_DIR" not in entry["variables"]
    nobody = {"at_exec": wiped, "variables": dict(variables)}
    assert server._set_when_compiling(nobody, {"variables": wiped}) == []


def test_namespaces_that_a_process_does_not_share_are_told() -> None:
    apart = subprocess.Popen(["unshare", "--user", "--uts", "sleep", "600"])
    try:
        own = processes.namespaces(os.getpid())
        assert set(own) == {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}
        assert all(number.isdecimal() for number in own.values())
        for _ in range(200):
            told = server._apart(apart.pid, os.getpid())
            if told:
                break
            time.sleep(0.01)
        assert told == ["user", "uts"]
        assert server._apart(os.getpid(), os.getpid()) == []
    finally:
        apart.kill()
        apart.wait()


def test_listening_ports_are_read_from_outside(running: Running) -> None:
    assert processes.listeners(running.pid) == [processes.Listener("127.0.0.1", running.port)]


def test_a_process_that_ended_is_a_reason_everywhere() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert "unread" in server.current_variables(child.pid)
    assert server.rank_of(child.pid) is None


def can_unshare() -> bool:
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
    return done.returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="needs the right to make a mount namespace")
def test_a_server_with_a_file_system_of_its_own_is_said_to_have_one(
    tmp_path: Path, context: Context, environment: Path
) -> None:
    base = subprocess.run([environment / "bin/python", "-c", "import sys; print(sys.base_prefix)"], capture_output=True)
    prefix = base.stdout.decode().strip()
    root = tmp_path / "root"
    places = [place for place in (prefix, "/usr", "/lib", "/lib64", "/proc", "/dev") if Path(place).exists()]
    binds = " && ".join(f"mkdir -p {root}{place} && mount --rbind {place} {root}{place}" for place in places)
    script = f"mkdir -p {root} && mount -t tmpfs none {root} && {binds} && exec chroot {root} {prefix}/bin/python3 -c "
    child = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script + "'print(1, flush=True); input()'"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        request = context(pid=child.pid)
        request["server"] = server.read(request)
        for probe in (packages, startup, tree, nccl, caches, models):
            section = probe.read(request)
            assert section["status"] == "failed"
            assert f"via:'nsenter --target {child.pid} --mount'" in section["reason"]
    finally:
        child.kill()
        child.communicate()


def test_sections_that_need_a_server_say_why_they_have_none(start_server: Start, context: Context) -> None:
    start_server(), start_server()
    request = context()
    request["server"] = server.read(request)
    for probe in (packages, nccl, caches, models, limits):
        section = probe.read(dict(request))
        assert section["status"] == "failed"
        assert "choose by port or pid" in section["reason"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_another_user_s_server_is_partly_told_and_why(running: Running) -> None:
    """The whole capture as `nobody`, in a child that gives up its rights."""
    code = (
        "import json, os, sys\n"
        "from probes import capture\n"
        "import ast, base64, csv, hashlib, http.client, pwd, ssl\n"  # before the rights to read them are gone
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "found = {}\n"
        f"ask = {{'pid': {running.pid}}}\n"
        "capture.capture(ask, lambda _event, value: found.update({value['name']: value['section']}))\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    launcher = found["server"]["processes"]["launcher"]
    assert "belongs to user id 0" in found["server"]["reason"]
    assert launcher["argv"][1:3] == ["-m", "sglang.launch_server"]
    assert "Permission denied" in launcher["at_exec"]["unread"]
    assert "may not be read" in launcher["variables"]["unread"]
    for name in ("nccl", "caches"):  # better nothing than defaults that are not the server's
        assert found[name]["status"] == "failed"
    assert found["host"]["status"] == "ok"


def test_where_and_how_a_process_may_run_is_told() -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        os.sched_setaffinity(child.pid, {0})
        os.sched_setscheduler(child.pid, os.SCHED_BATCH, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, child.pid, 7)
        entry = server._raw(server.snapshot_of_processes()[child.pid], "launcher", None, child.pid)
    finally:
        child.kill()
        child.wait()
    assert (entry["affinity"], entry["nice"], entry["policy"]) == ("0", 7, "batch")
    assert entry["memory_nodes"]


def test_threads_bound_to_other_processors_than_their_process_are_named(
    sleeper: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """Two of one pool and one more, as a collective library binds its own; a thread without a binding says nothing."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one processor")
    child = sleeper(
        textwrap.dedent(f"""
        import ctypes, os, threading, time
        bound = threading.Barrier(5)
        def work(name, cpu):
            ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
            if cpu is not None:
                os.sched_setaffinity(threading.get_native_id(), {{cpu}})
            bound.wait()
            time.sleep(600)
        for one in ((b"pool", {cpus[1]}), (b"pool", {cpus[1]}), (b"NCCL Progress", {cpus[0]}), (b"watch", None)):
            threading.Thread(target=work, args=one, daemon=True).start()
        bound.wait()
        """)
    )
    found = Process.model_validate(server._raw(server.snapshot_of_processes()[child.pid], "rank", 0, child.pid))
    assert found.threads == 5
    assert found.thread_affinity == sorted([str(cpus[0]), str(cpus[1])])
    assert found.thread_names == {str(cpus[1]): {"pool": 2}, str(cpus[0]): {"NCCL Progress": 1}}
    other = server._raw(server.snapshot_of_processes()[child.pid], "launcher", None, child.pid)
    assert "thread_affinity" not in other


@given(st.sets(st.integers(0, 300)))
def test_processors_are_written_as_the_kernel_writes_them(numbers: set[int]) -> None:
    text = processes.cpu_list(numbers)
    assert surroundings.numbers(text) == numbers
    assert text.count("-") + text.count(",") < max(2 * len(numbers), 1)


def test_files_of_settings_that_the_launch_names_are_told_without_their_secrets(
    start_server: Start, context: Context, tmp_path: Path
) -> None:
    (tmp_path / "settings.yaml").write_text(f"tp-size: 2\nhf_token: hf_{'a' * 24}\n")
    (tmp_path / "lm.yaml").write_text("chunk_size: 256\n")
    (tmp_path / "account.json").write_text('{"client_id": "1234567890"}')
    (tmp_path / "long.json").write_text("[" + "1," * 10_000 + "1]")
    os.mkfifo(tmp_path / "pipe.json")
    tuned = tmp_path / "tuned/configs/triton_3_5_1/E=8,N=1024.json"
    tuned.parent.mkdir(parents=True)
    tuned.write_text('{"1": {"BLOCK_SIZE_M": 16}}')
    (tuned.parent / "README.md").write_text("of no account")
    started = start_server(
        "--config", "settings.yaml", "--deepep-config=long.json", "--other", "pipe.json", "--more", "absent.yaml",
        "--files", "lm.yaml", "lm.yaml", LMCACHE_CONFIG_FILE=str(tmp_path / "lm.yaml"), INLINE="{}.json",
        GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path / "account.json"), SGLANG_MOE_CONFIG_DIR=str(tmp_path / "tuned"),
        XDG_CONFIG_DIR=str(tmp_path / "none"),
    )  # fmt: skip
    section = server.read(context(pid=started.pid))
    assert "a" * 24 not in json.dumps(section)
    assert "1234567890" not in json.dumps(section)
    found = Server.model_validate(section).files
    assert list(found) == [
        "--config",
        "--deepep-config",
        "--files",
        "--files (2)",
        "LMCACHE_CONFIG_FILE",
        "SGLANG_MOE_CONFIG_DIR",
    ]
    digest = hashlib.sha256(tuned.read_bytes()).hexdigest()[:16]
    assert found["SGLANG_MOE_CONFIG_DIR"].text == f"{digest} configs/triton_3_5_1/E=8,N=1024.json\n"
    config = found["--config"]
    assert isinstance(config.text, str)
    assert config.text.startswith("tp-size: 2\nhf_token: <secret:")
    assert config.sha256 == hashlib.sha256((tmp_path / "settings.yaml").read_bytes()).hexdigest()
    assert config.path == str(tmp_path / "settings.yaml")
    assert (found["--deepep-config"].text, len(str(found["--deepep-config"].sha256))) == (None, 64)
    assert found["LMCACHE_CONFIG_FILE"].text == "chunk_size: 256\n"


def test_files_of_settings_are_bounded(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.json" for number in range(30)]
    for path in paths:
        path.write_text(" " * 10_000)
    paths[0].write_bytes(b" " * (9 << 20))
    found = server._files(((path.name, str(path)) for path in paths), None, Keeper(b"k"))
    assert len(found) == 16
    assert "larger than 8 MiB" in found["0.json"]["sha256"]["unread"]
    assert sum(len(one["text"]) for one in found.values() if isinstance(one["text"], str)) == 60_000
    apart = server._files([("--config", "/there/only.yaml")], "elsewhere", Keeper(b"k"))
    assert apart["--config"]["sha256"] == {"unread": "elsewhere"}
