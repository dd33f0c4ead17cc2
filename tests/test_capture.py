"""A capture from end to end on this machine: what hangs or fails costs only itself, and nothing is left behind."""

from __future__ import annotations

import ast
import base64
import compileall
import hashlib
import io
import json
import os
import py_compile
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import probes
from fingerprint import capture as captures
from fingerprint.capture import Store, capture, capture_many
from fingerprint.errors import HostProgramError, SnapshotError, TargetError
from fingerprint.host import BOOT, HostProgram, _bytecode, archive, payload
from fingerprint.targets.local import LocalTarget, ProcessChannel
from probes import capture as probing
from snapshots import Packages, Snapshot, Startup, load, save

NO_SERVER = 2**22 + 1
"""A process id that no kernel gives: whoever serves on this machine is none of these tests' business."""


def gone(pid: int) -> bool:
    """Whether a process ends within ten seconds (a zombie has ended)."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def host() -> Iterator[HostProgram]:
    with HostProgram(LocalTarget()) as program:
        yield program


def test_a_capture_has_every_section_and_makes_a_file(host: HostProgram, tmp_path: Path) -> None:
    heard: list[str] = []
    snapshot = capture(
        host, {"python": sys.executable, "pid": os.getpid()}, on_section=lambda name, _section: heard.append(name)
    )
    assert set(heard) == set(snapshot.sections()) == set(probing.PROBES)
    assert snapshot.packages.distributions["pytest"].version == pytest.__version__
    assert snapshot.packages.interpreter is not None
    assert snapshot.packages.interpreter.executable == sys.executable
    save(snapshot, tmp_path / "a.json")
    assert load(tmp_path / "a.json") == snapshot


def test_two_captures_of_one_host_are_the_same(host: HostProgram) -> None:
    wanted = {"python": sys.executable, "sections": ["packages", "startup", "host", "topology"], "pid": os.getpid()}
    assert capture(host, wanted).id == capture(host, wanted).id


def test_what_travels_is_small() -> None:
    assert len(payload()) < 200_000


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where bytecode lies instead of beside the sources; none is there yet."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "caches"))
    payload.cache_clear()
    yield tmp_path / "caches"
    payload.cache_clear()


@pytest.mark.parametrize("compiled", [False, True])
def test_this_interpreter_gets_the_bytecode_that_is_there_and_what_was_not_compiled_as_it_is(
    caches: Path, *, compiled: bool
) -> None:
    folder = Path(probes.__path__[0])
    if compiled:
        compileall.compile_dir(folder, quiet=2)
    before = sorted(caches.rglob("*"))
    names = {Path(name) for name in zipfile.ZipFile(io.BytesIO(archive(compiled=True))).namelist()}
    ours = {name for name in names if name.parent.name == "probes"}
    assert {name.stem for name in ours} == {path.stem for path in folder.glob("*.py")}
    assert {name.suffix for name in ours} == {".pyc" if compiled else ".py"}
    with HostProgram(LocalTarget()) as host:
        assert capture(host, {"sections": ["host"]}).host.status in {"ok", "partial"}
    assert sorted(caches.rglob("*")) == before  # a capture leaves none


def test_only_bytecode_of_this_very_source_and_interpreter_is_sent(caches: Path, tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("answer = 1\n")
    assert _bytecode(source) is None
    made = Path(str(py_compile.compile(str(source))))
    assert _bytecode(source) == made.read_bytes()
    assert caches in made.parents
    made.write_bytes(bytes(4) + made.read_bytes()[4:])  # another version's
    assert _bytecode(source) is None
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert _bytecode(source) is None
    py_compile.compile(str(source))
    source.write_text("answer = 22\n")
    assert _bytecode(source) is None


def test_only_the_wanted_sections_are_read(host: HostProgram) -> None:
    snapshot = capture(host, {"sections": ["host"]})
    assert [name for name, section in snapshot.sections().items() if section.status != "absent"] == ["host"]


def test_a_command_that_hangs_costs_its_own_section_and_is_not_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin/git"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec sleep 600\n")
    fake.chmod(0o755)
    (tmp_path / "tree/.git").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "tree"))
    with HostProgram(LocalTarget()) as host:
        snapshot = capture(
            host,
            {"python": sys.executable, "pid": NO_SERVER, "sections": ["trees", "startup", "host"], "deadline_s": 2},
        )
        assert (snapshot.trees.status, snapshot.trees.reason) == ("failed", "did not finish within 2 s")
        assert (snapshot.startup.status, snapshot.host.status) == ("ok", "ok")
    started = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert started
    assert all(gone(pid) for pid in started)


def test_the_end_of_input_ends_the_program_in_the_middle_of_a_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "git"
    fake.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.new && mv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 600\n"
    )
    fake.chmod(0o755)
    (tmp_path / "tree/.git").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "tree"))
    host = HostProgram(LocalTarget())
    program = host.greeting["pid"]
    host._write(
        json.dumps({"id": 1, "call": "capture", "args": {"python": sys.executable, "pid": NO_SERVER}}).encode() + b"\n"
    )
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    host.close()
    assert gone(program)
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_probe_that_fails_is_a_reason_and_the_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_context: dict[str, Any]) -> Any:  # noqa: ANN401
        raise ZeroDivisionError("by nature")

    monkeypatch.setitem(probing.PROBES, "gpu", fails)
    sections: dict[str, Any] = {}
    probing.capture(
        {"sections": ["gpu", "host"]}, lambda _event, value: sections.update({value["name"]: value["section"]})
    )
    assert (sections["gpu"]["status"], sections["gpu"]["reason"]) == ("failed", "ZeroDivisionError: by nature")
    assert sections["host"]["status"] == "ok"


def test_an_unread_value_makes_a_section_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(probing.PROBES, "host", lambda _context: {"preload": {"unread": "no"}})
    sections: dict[str, Any] = {}
    probing.capture({"sections": ["host"]}, lambda _event, value: sections.update({value["name"]: value["section"]}))
    assert sections["host"]["status"] == "partial"


def test_an_answer_that_does_not_fit_is_a_failed_section() -> None:
    section = captures._section("packages", {"distributions": 7, "status": "ok"})
    assert isinstance(section, Packages)
    assert section.status == "failed"
    assert section.reason is not None
    assert "distributions" in section.reason
    with pytest.raises(HostProgramError, match="'nonsense' that does not exist"):
        captures._section("nonsense", {})


class Talking:
    """A target on which something else than the program answers."""

    name = "talking"

    def __init__(self, code: str) -> None:
        self._code = code

    def start(self, _argv: list[str]) -> ProcessChannel:
        """Start what answers."""
        return ProcessChannel([sys.executable, "-c", self._code])


READ = """
import sys
out = sys.stdin.buffer
for _ in range(2):
    out.read(int(out.readline()))
nonce = out.readline().strip().decode()
"""


def test_whatever_else_a_host_prints_does_no_harm() -> None:
    code = READ + (
        "print('Welcome {to} node-x! {\"id\": 1}')\n"
        'print(\'a prompt\' + nonce + \'{"event":"hello","value":{"python":"3","pid":1}}\', flush=True)\n'
        'out.readline()\nprint(\'fp0000:{"id":1,"result":"forged"}\')\n'
        'print(nonce + \'{"id":1,"result":"true"}\', flush=True)\nout.readline()\n'
    )
    with HostProgram(Talking(code)) as host:
        assert host.call("capture", {}) == "true"


def test_the_first_question_does_not_wait_for_the_program() -> None:
    code = READ + (
        "asked = out.readline()\n"
        'print(nonce + \'{"event":"hello","value":{"python":"3","pid":7}}\')\n'
        'print(nonce + \'{"id":1,"result":"\' + str(len(asked)) + \'"}\', flush=True)\nout.readline()\n'
    )
    with HostProgram(Talking(code)) as host:
        assert host.call("capture", {}) == str(len('{"id": 1, "call": "capture", "args": {}}\n'))
        assert host.greeting["pid"] == 7


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.exit('sh: 1: python3: not found')", "python3: not found"),
        (READ, "ended without a word"),
        (READ + "print(nonce + '{\"event\":\"hel', end='', flush=True)", "ended without a word"),
    ],
)
def test_a_program_that_ends_is_a_sentence(code: str, words: str) -> None:
    with pytest.raises(TargetError, match=words), HostProgram(Talking(code)) as host:
        host.call("capture", {})


def test_a_program_that_is_killed_is_a_sentence() -> None:
    host = HostProgram(LocalTarget())
    os.kill(host.greeting["pid"], signal.SIGKILL)
    with pytest.raises(TargetError, match="local: the program on the host ended"):
        host.call("capture", {})
    host.close()


def test_an_unknown_call_is_a_failure_of_the_call_and_not_of_the_program(host: HostProgram) -> None:
    with pytest.raises(HostProgramError, match="KeyError"):
        host.call("nonsense", {})
    assert host.call("capture", {"sections": ["host"]}) == {"sections": 2}


def test_kept_files_are_named_by_their_contents(tmp_path: Path) -> None:
    store = Store(tmp_path)
    name = store.put(b"a wheel's file")
    assert name == hashlib.sha256(b"a wheel's file").hexdigest()
    assert (store.has(name), store.get(name)) == (True, b"a wheel's file")
    assert store.put(b"a wheel's file") == name
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_kept_packages_go_into_the_store_as_they_come(host: HostProgram, tmp_path: Path) -> None:
    store = Store(tmp_path)
    snapshot = capture(
        host, {"python": sys.executable, "pid": NO_SERVER, "sections": ["packages"], "keep": ["iniconfig"]}, store=store
    )
    files = snapshot.packages.files["iniconfig"]
    location = Path(snapshot.packages.distributions["iniconfig"].location)
    assert files
    for path, digest in files.items():
        assert store.get(digest) == (location / path).read_bytes()


def test_a_file_name_that_is_no_text_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("# \N{SNOWMAN}\u2028\n")
    (Path(os.fsdecode(bytes(tmp_path) + b"/odd-\xff.dist-info"))).mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with HostProgram(LocalTarget()) as host:
        snapshot = capture(host, {"python": sys.executable, "pid": NO_SERVER, "sections": ["packages", "startup"]})
    assert snapshot.packages.leftovers[f"{tmp_path}/odd-?.dist-info"] == "has no METADATA"
    assert snapshot.startup.files["sitecustomize.py"].text == "# \N{SNOWMAN}\u2028\n"


def test_the_program_runs_on_an_interpreter_without_site_packages() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import probes.program", "."],
        cwd=Path(probing.__file__).parents[1], capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_snapshots_survive_the_file_whole(tmp_path: Path) -> None:
    answer = {"files": {"x.pth": {"path": "/x.pth", "sha256": "0", "text": base64.b64encode(os.urandom(99)).decode()}}}
    startup = Startup.model_validate({**answer, "status": "ok"})
    snapshot = Snapshot(tool="test", taken_at="2031-01-01T00:00:00Z", target="x", startup=startup)
    save(snapshot, tmp_path / "x.json")
    assert load(tmp_path / "x.json") == snapshot


def test_the_reference_has_every_section_with_every_field() -> None:
    text = (Path(__file__).parents[1] / "docs/capture.md").read_text()
    sections = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    for name, section in Snapshot(tool="", taken_at="2031-01-01T00:00:00Z", target="").sections().items():
        missing = [field for field in type(section).model_fields if f"`{field}`" not in sections[name]]
        assert [field for field in missing if field not in {"status", "reason", "seconds"}] == [], name


@pytest.mark.parametrize("path", sorted(Path(probing.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_the_host_program_is_python_3_9_and_standard_library_only(path: Path) -> None:
    module = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(module):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []  # only the type checker reads it
    imported = {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(module) if isinstance(node, ast.ImportFrom)}
    ours = {*sys.stdlib_module_names, "probes", "pynvml"}  # the binding of NVML travels along
    foreign = {name for name in imported if name.partition(".")[0] not in ours}
    assert foreign == set()


def test_an_interpreter_that_is_too_old_is_a_sentence() -> None:
    old = sorted(Path(sys.base_prefix).parent.glob("3.[678].*/bin/python3"))  # where several are installed together
    if not old:
        pytest.skip("no Python before 3.9 on this machine")
    sentence = r"its python3 is 3\.\d, too old. Name one of the host, Python 3.9 or later"
    with pytest.raises(TargetError, match=sentence), HostProgram(LocalTarget(), str(old[0])) as host:
        host.call("capture", {})


def test_a_capture_runs_on_python_3_9() -> None:
    beside = sorted(Path(sys.base_prefix).parent.glob("3.9.*/bin/python3.9"))  # where several are installed together
    python = str(beside[0]) if beside else shutil.which("python3.9")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip("no Python 3.9 on this machine")
    with HostProgram(LocalTarget(), python) as host:
        snapshot = capture(host, {"python": sys.executable, "pid": os.getpid()})
    assert host.greeting["python"].startswith("3.9.")
    assert {name for name, section in snapshot.sections().items() if section.status == "failed"} == set()


def test_several_hosts_at_once_and_one_that_fails_costs_the_others_nothing() -> None:
    heard: dict[int, Snapshot] = {}

    def hear(number: int, snapshot: Snapshot) -> None:
        heard[number] = snapshot
        if number == 2:
            raise SnapshotError("no space")

    outcomes = capture_many(
        [LocalTarget(), Talking("import sys; sys.exit('no')"), LocalTarget()], {"sections": ["host"]}, on_snapshot=hear
    )
    assert [type(outcome) for outcome in outcomes] == [Snapshot, TargetError, SnapshotError]
    assert heard[0] is outcomes[0]
    assert sorted(heard) == [0, 2]


def test_every_login_shell_passes_the_program_s_start_on_unharmed() -> None:
    words = shlex.join(["python3", "-I", "-S", "-c", BOOT])
    assert words.count("'") == 2  # one quoted word, no quote inside
    assert not set(BOOT) & set("\"'\\!\n$`")
