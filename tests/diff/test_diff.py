"""Comparing two snapshots: a join that loses nothing, and differences as people call them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.diff import Comparison, Difference, apply, compare, join
from fingerprint.factors import Evidence, Fixed, startup
from snapshots import (
    CondaPackage,
    Declared,
    Distribution,
    Gpu,
    Gpus,
    Key,
    Leaf,
    LocalFile,
    Log,
    Model,
    ModelFile,
    Models,
    NamedFile,
    Nccl,
    NetworkInterface,
    Packages,
    Process,
    Running,
    Section,
    Server,
    SettingsFile,
    Snapshot,
    Startup,
    StartupFile,
    Topology,
    Tree,
    Trees,
    Unread,
    leaves,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)

plain = st.one_of(
    st.text("ab1", max_size=3),
    st.integers(-3, 3),
    st.booleans(),
    st.floats(-2, 2),
    st.builds(Unread, unread=st.sampled_from("xy")),
)
leaf: st.SearchStrategy[Leaf] = st.one_of(plain, st.lists(plain, max_size=2).map(tuple))
keys = st.tuples(st.sampled_from(["a", "b"]), st.text("xyz", min_size=1, max_size=2))
sides = st.dictionaries(keys, leaf, max_size=8)


def snapshot(**sections: Section) -> Snapshot:
    return Snapshot(tool="test", taken_at=NOON, target="here", **sections)


def server(*processes: tuple[str, dict[str, Any]]) -> Server:
    made = {}
    for role, values in processes:
        kind = role.split()[0]
        defaults: dict[str, Any] = {
            "role": kind,
            "rank": int(role.split()[1]) if kind == "rank" else None,
            "pid": 1,
            "parent": 0,
            "title": role,
            "argv": ["python"],
            "executable": "/venv/bin/python",
            "cwd": "/srv",
            "started": 1.0,
            "at_exec": {},
            "variables": {},
        }
        made[role] = Process(**{**defaults, **values})
    return Server(status="ok", engine="sglang", processes=made)


names = st.sampled_from(["torch", "triton", "numpy", "sglang"])
versions = st.sampled_from(["1.0", "1.1", "2.0rc1", "local"])
distributions = st.dictionaries(
    names,
    st.builds(
        Distribution,
        version=st.one_of(versions, st.builds(Unread, unread=st.just("gone"))),
        location=st.sampled_from(["/a", "/b"]),
        record=st.sampled_from([None, "0" * 64, "1" * 64]),
        requires=st.lists(
            st.sampled_from(["triton==1.1", "numpy<2", "not a requirement ((", "torch; extra == 'x'"]), max_size=2
        ),
    ),
)
variables = st.dictionaries(
    st.sampled_from(["NCCL_PROTO", "PWD", "HF_TOKEN"]), st.sampled_from(["", "a", "<secret:00:11>", "<secret:22:33>"])
)
processes = st.dictionaries(
    st.sampled_from(["launcher", "rank 0", "rank 1"]),
    st.fixed_dictionaries(
        {
            "at_exec": st.one_of(variables, st.builds(Unread, unread=st.just("overwritten"))),
            "variables": variables,
            "argv": st.lists(st.sampled_from(["python", "--tp", "2", "--port", "--x=1", "-m"]), max_size=4),
            "affinity": st.sampled_from(["", "0-3", "0,1,2,3", "1-2"]),
        }
    ),
).map(lambda made: server(*made.items()))
files = st.dictionaries(
    names, st.dictionaries(st.sampled_from(["a.py", "b.so", "c"]), st.sampled_from(["0", "1"]), max_size=3), max_size=3
)
statuses = st.sampled_from(["ok", "partial", "failed", "absent"])
local_files = st.builds(
    lambda change, sha256, patch: LocalFile(change=change, sha256=sha256, patch=patch),
    st.sampled_from(["modified", "untracked", "deleted"]),
    st.sampled_from([None, "0", "1"]),
    st.sampled_from([None, "@@ -1 +1 @@\n+x\n", "@@ -9 +9 @@\n+x\n@@ -2 +2 @@\n-y\n", "text", ""]),
)
trees = st.dictionaries(
    st.sampled_from(["/a/sglang", "/b/sglang", "/c/other"]),
    st.builds(
        Tree,
        commit=st.sampled_from(["1" * 40, "2" * 40]),
        shallow=st.booleans(),
        files=st.dictionaries(st.sampled_from(["a.py", "b.py"]), local_files, max_size=2),
    ),
    max_size=3,
)
startup_files = st.dictionaries(
    st.sampled_from(["sitecustomize.py", "x.pth"]),
    st.builds(StartupFile, path=st.sampled_from(["/a", "/b"]), sha256=st.sampled_from(["0" * 64, "1" * 64])),
    max_size=2,
)
nccl = st.builds(
    lambda settings, origin: Nccl(status="ok", settings=settings, origins=dict.fromkeys(settings, origin)),
    st.dictionaries(st.sampled_from(["NCCL_PROTO", "NCCL_ALGO"]), st.sampled_from(["LL", "Ring"])),
    st.sampled_from(["variable", "system"]),
)
model_files = st.dictionaries(
    st.sampled_from(["config.json", "w.safetensors"]),
    st.builds(ModelFile, size_bytes=st.sampled_from([1, 2]), sha256=st.sampled_from([None, "0"])),
    max_size=2,
)
models = st.dictionaries(
    st.sampled_from(["target", "draft"]),
    st.builds(Model, name=st.sampled_from(["a", "b"]), files=model_files),
    max_size=2,
)
gpus = st.dictionaries(
    st.sampled_from(["0000:17:00.0", "0000:65:00.0"]),
    st.builds(Gpu, index=st.just(0), power_limit_w=st.sampled_from([500.0, 700.0]), mig=st.sampled_from([0, None])),
    max_size=2,
)
snapshots = st.builds(
    lambda status, dists, listed, host, worked, started, settings, served, boards: snapshot(
        packages=Packages(status=status, distributions=dists, files=listed),
        server=host,
        trees=Trees(status="ok", trees=worked),
        startup=Startup(status="ok", files=started),
        nccl=settings,
        models=Models(status="ok", models=served),
        gpu=Gpus(status="ok", gpus=boards),
    ),
    statuses,
    distributions,
    files,
    processes,
    trees,
    startup_files,
    nccl,
    models,
    gpus,
)


@given(sides)
def test_nothing_differs_from_itself(values: dict[Key, Leaf]) -> None:
    assert join(values, dict(reversed(values.items()))) == []


@given(sides, sides)
def test_applying_a_difference_to_the_old_side_gives_the_new_one(old: dict[Key, Leaf], new: dict[Key, Leaf]) -> None:
    changes = join(old, new)
    assert join(apply(changes, old), new) == []
    assert join(dict(reversed(old.items())), dict(reversed(new.items()))) == changes


@given(snapshots, snapshots)
def test_ids_are_equal_exactly_when_no_identity_value_differs(old: Snapshot, new: Snapshot) -> None:
    assert (old.id == new.id) == (not compare(old, new).changes)


WAYS_TO_WRITE = {
    "tp": (["--tp", "2"], ["--tp=2"], ["--tensor-parallel-size", "2"]),
    "model": (["--model-path", "/m"], ["--model=/m"]),
    "overlap": (["--disable-overlap-schedule"],),
    "port": ([], ["--port", "30000"], ["--port=30001"], ["--host", "0.0.0.0", "--port", "1"]),
}
sessions = st.dictionaries(
    st.sampled_from(["SSH_CONNECTION", "SGLANG_RUN_ID", "PROMETHEUS_MULTIPROC_DIR", "SHLVL", "LANG"]),
    st.sampled_from(["", "1", "/tmp/tmp1", "/tmp/tmp2"]),
)


@st.composite
def launches(draw: st.DrawFn) -> Server:
    """One server, started from any session, its command line written in any order and spelling."""
    written = [draw(st.sampled_from(WAYS_TO_WRITE[name])) for name in draw(st.permutations(list(WAYS_TO_WRITE)))]
    argv = ["python", "-m", "sglang.launch_server", *(word for words in written for word in words)]
    session = {"NCCL_PROTO": "LL", **draw(sessions)}
    told = {"tp_size": 2, "served_model_name": draw(st.sampled_from(["a", "b"]))}
    launched = server(
        ("launcher", {"argv": argv, "at_exec": session, "variables": session, "pid": draw(st.integers(1, 9))}),
        ("rank 0", {"argv": ["sglang::scheduler_TP0"], "variables": {**session, **draw(sessions)}}),
    )
    return launched.model_copy(update={"arguments": told})


@given(launches(), launches())
def test_a_server_that_was_started_again_is_the_same_environment(old: Server, new: Server) -> None:
    before, after = snapshot(server=old), snapshot(server=new)
    told = compare(before, after, state=True)
    assert before.id == after.id
    assert told.equal
    was, now = (side.processes["launcher"] for side in (old, new))
    assert isinstance(was.at_exec, dict)
    assert isinstance(now.at_exec, dict)
    moved = {name for name, _ in was.at_exec.items() ^ now.at_exec.items()}
    assert moved <= {item.title for item in told.state}
    assert was.argv == now.argv or {"--port", "--host", "launch command"} & {item.title for item in told.state}


@given(snapshots, snapshots)
def test_the_changes_are_those_of_a_plain_join_of_all_leaves(old: Snapshot, new: Snapshot) -> None:
    comparison = compare(old, new)
    plain = join(dict(leaves_of(old)), dict(leaves_of(new)))
    assert sorted(comparison.changes, key=lambda change: change.key) == plain
    for section, number in comparison.same.items():
        assert number == sum(key[0] == section for key, _ in leaves_of(old)) - sum(
            change.key[0] == section and change.old is not None for change in plain
        )


@given(snapshots)
def test_a_snapshot_equals_itself_whatever_it_could_not_read(one: Snapshot) -> None:
    comparison = compare(one, one)
    assert comparison.equal
    assert not comparison.differences


@given(snapshots, snapshots)
def test_every_change_is_in_exactly_one_difference(old: Snapshot, new: Snapshot) -> None:
    comparison = compare(old, new, state=True)
    shown = (*comparison.differences, *comparison.not_comparable, *comparison.state)
    identity = {key for key, _ in leaves_of(old)} | {key for key, _ in leaves_of(new)}
    counted = [change.key for item in shown for change in item.changes if change.key in identity]
    spelled_alike = {key for key in {change.key for change in comparison.changes} if key[-1] == "affinity"}
    assert {change.key for change in comparison.changes} - set(counted) - spelled_alike - unseen(comparison) == set()
    assert all(counted.count(key) == 1 for key in counted if key[-1] != "argv")


def leaves_of(one: Snapshot) -> list[tuple[Key, Leaf]]:
    return list(leaves(one))


def unseen(comparison: Comparison) -> set[Key]:
    return {change.key for change in comparison.changes if change.key[0] in comparison.unseen}


@given(snapshots, snapshots)
def test_every_difference_is_on_exactly_one_line(old: Snapshot, new: Snapshot) -> None:
    comparison = compare(old, new)
    listed = [item.key for line in comparison.lines() for item in line.members()]
    assert sorted(listed) == sorted(item.key for item in comparison.differences)


def one(comparison: Comparison) -> Difference:
    assert len(comparison.differences) == 1, [item.name for item in comparison.differences]
    return comparison.differences[0]


def test_a_variable_is_one_difference_that_says_where_it_shows() -> None:
    was = {"at_exec": {"NCCL_PROTO": "LL"}, "variables": {"NCCL_PROTO": "LL"}}
    now: dict[str, Any] = {"at_exec": {}, "variables": {}}
    rank = {"at_exec": Unread(unread="overwritten by a title")}
    old = snapshot(server=server(("launcher", was), ("rank 0", {**was, **rank}), ("rank 1", {**was, **rank})))
    new = snapshot(server=server(("launcher", now), ("rank 0", {**now, **rank}), ("rank 1", {**was, **rank})))
    difference = one(compare(old, new))
    assert difference.factor == "variable:NCCL_PROTO"
    assert difference.verdict == "only in old"
    assert difference.where == ("launch", "launcher", "rank 0")
    assert difference.details == ("rank 1: unchanged (LL)",)


def test_a_variable_that_the_launch_did_not_change_is_no_factor() -> None:
    old = snapshot(server=server(("launcher", {}), ("rank 0", {"variables": {"OMP_NUM_THREADS": "1"}})))
    new = snapshot(server=server(("launcher", {}), ("rank 0", {})))
    difference = one(compare(old, new))
    assert difference.factor is None
    assert difference.note == "the same at launch: something set it later"


def test_files_that_one_side_did_not_verify_are_unknown_and_not_changed() -> None:
    def host(contents: str | None, altered: dict[str, str]) -> Snapshot:
        dists = {
            name: Distribution(version="1", location="/x", record="r", contents=contents, altered=altered)
            for name in ("torch", "triton")
        }
        return snapshot(packages=Packages(status="ok", distributions=dists))

    for comparison in (compare(host(None, {}), host("c", {"a.py": "5"})), compare(host("c", {}), host(None, {}))):
        assert not comparison.differences
        (unknown,) = comparison.not_comparable
        assert unknown.where == ("torch", "triton")
        assert Unread(unread="the files were not verified") in (unknown.old, unknown.new)
        assert not comparison.equal


def test_a_startup_file_that_one_side_could_not_read_is_unknown_and_no_factor() -> None:
    def host(sha256: str | Unread, text: str | Unread) -> Snapshot:
        files = {"sitecustomize.py": StartupFile(path="/s/sitecustomize.py", sha256=sha256, text=text)}
        return snapshot(startup=Startup(status="ok", files=files))

    read, dark = host("a" * 64, "x = 1\n"), host(Unread(unread="denied"), Unread(unread="denied"))
    for old, new in ((read, dark), (dark, read)):
        comparison = compare(old, new)
        assert not comparison.differences
        assert {item.title for item in comparison.not_comparable} == {"sha256", "text"}
        assert not comparison.equal
        (held,) = startup.find(old, new, Evidence())
        assert isinstance(held, Fixed)


def test_threads_that_moved_to_other_processors_are_named_and_their_numbers_are_no_difference() -> None:
    def host(affinity: list[str], names: dict[str, dict[str, int]]) -> Snapshot:
        rank = {"thread_affinity": affinity, "thread_names": names, "threads": 40}
        return snapshot(server=server(("rank 0", rank), ("rank 1", rank)))

    before, more = host(["0-7"], {"0-7": {"pool": 8}}), host(["0-7"], {"0-7": {"pool": 9}})
    moved = host(["0-7", "8"], {"0-7": {"pool": 7}, "8": {"NCCL Progress": 2}})
    assert not compare(before, more).differences
    found = one(compare(before, moved))
    assert (found.old, found.new, found.where) == (("0-7",), ("0-7", "8"), ("rank 0", "rank 1"))
    assert found.details == (
        "rank 0 before: 8 pool on 0-7",
        "rank 0 now: 7 pool on 0-7",
        "rank 0 now: 2 NCCL Progress on 8",
    )
    assert found.likelihood > 0.5


def test_a_declaration_is_told_below_the_variable_that_it_brought_and_ranks_low_alone() -> None:
    def host(declared: str, live: str) -> Snapshot:
        made = server(("launcher", {"at_exec": {"NCCL_PROTO": live}, "variables": {"NCCL_PROTO": live}}))
        unit = Declared(by="systemd", name="s.service", files=["/etc/s.service"], variables={"NCCL_PROTO": declared})
        return snapshot(server=made.model_copy(update={"declared": unit}))

    (line,) = compare(host("LL", "LL"), host("Simple", "Simple")).lines()
    assert [item.title for item in line.members()] == ["NCCL_PROTO", "NCCL_PROTO as it is declared"]
    assert line.difference.factor == "variable:NCCL_PROTO"
    alone = one(compare(host("LL", "LL"), host("Simple", "LL")))
    assert (alone.old, alone.new, alone.factor) == ("LL", "Simple", None)
    assert alone.details[-1] == "now: systemd s.service (/etc/s.service)"
    assert alone.likelihood < 0.1
    bare = snapshot(server=server(("launcher", {})))
    both = snapshot(server=bare.server.model_copy(update={"declared": host("LL", "LL").server.declared}))
    whole = one(compare(bare, both))
    assert (whole.title, whole.old, whole.new) == ("what starts the server", None, "systemd, 1 variables")


def test_a_file_of_settings_is_told_by_its_lines_with_the_arguments_that_follow() -> None:
    def host(sha256: str, text: str, backend: str) -> Snapshot:
        files = {"--config": SettingsFile(path="/srv/s.yaml", sha256=sha256 * 64, text=text)}
        made = server(("launcher", {})).model_copy(update={"files": files, "arguments": {"attention_backend": backend}})
        return snapshot(server=made)

    old = host("a", "tp-size: 1\nattention-backend: fa3\n", "fa3")
    (line,) = compare(old, host("b", "tp-size: 1\nattention-backend: triton\n", "triton")).lines()
    assert line.difference.details == ("-attention-backend: fa3", "+attention-backend: triton")
    assert [item.title for item in line.members()] == ["file of --config", "resolved argument attention_backend"]
    assert any("attention kernel" in reason.text for reason in line.difference.reasons)
    assert line.difference.likelihood > 0.7
    port = one(compare(old, host("b", "tp-size: 1\nattention-backend: fa3\nlog-level: info\n", "fa3")))
    assert port.likelihood < 0.3
    hidden = one(compare(old, host("b", "tp-size: 1\nattention-backend: fa3\n", "fa3")))
    assert hidden.note == "only secrets in it differ"
    assert compare(old, host("a", "tp-size: 1\nattention-backend: fa3\n", "fa3")).equal
    many = one(compare(host("a", "", "x"), host("b", "\n".join(map(str, range(100))), "x")))
    assert len(many.details) == 61
    assert many.details[-1] == "and 40 more lines"


def test_a_model_s_configuration_is_told_by_its_lines() -> None:
    def host(sha256: str, text: str | None) -> Snapshot:
        files = {"config.json": ModelFile(size_bytes=40, sha256=sha256 * 64, text=text)}
        return snapshot(models=Models(status="ok", models={"draft": Model(name="/m/draft", files=files)}))

    old = host("a", '{\n "rope_theta": 10000,\n "num_hidden_layers": 1\n}')
    found = one(compare(old, host("b", '{\n "rope_theta": 500000,\n "num_hidden_layers": 1\n}')))
    assert found.details == (
        "config.json",
        'config.json: - "rope_theta": 10000,',
        'config.json: + "rope_theta": 500000,',
    )
    assert one(compare(old, host("b", None))).details == ("config.json",)


def test_a_topology_file_of_nccl_is_told_by_its_lines() -> None:
    def host(sha256: str, width: int) -> Snapshot:
        text = f'<system>\n<pci link_width="{width}"/>\n</system>\n'
        return snapshot(
            nccl=Nccl(status="ok", named_files={"NCCL_TOPO_FILE": NamedFile(path="/t", sha256=sha256, text=text)})
        )

    found = one(compare(host("a", 16), host("b", 8)))
    assert (found.title, found.details) == (
        "file of NCCL_TOPO_FILE",
        ('-<pci link_width="16"/>', '+<pci link_width="8"/>'),
    )


def test_of_a_long_file_the_first_lines_are_told_and_how_many_more_there_are() -> None:
    def host(sha256: str, word: str) -> Snapshot:
        text = "".join(f"--{word}-{number}\n" for number in range(50))
        files = {"config.json": ModelFile(size_bytes=1, sha256=sha256 * 64, text=text)}
        return snapshot(
            nccl=Nccl(status="ok", named_files={"NCCL_CONF_FILE": NamedFile(path="/t", sha256=sha256, text=text)}),
            models=Models(status="ok", models={"draft": Model(name="/m/draft", files=files)}),
        )

    for found in compare(host("a", "tp"), host("b", "dp")).differences:
        shown = [line.removeprefix("config.json: ") for line in found.details if line != "config.json"]
        assert shown[0] == "---tp-0"
        assert shown[-2:] == ["+--dp-9", "and 40 more lines"]
        assert len(shown) == 61


def test_another_packet_size_matters_between_nodes_and_hardly_on_one() -> None:
    def host(mtu: int, *argv: str) -> Snapshot:
        cards = {"ens1": NetworkInterface(mtu=mtu, speed_mbps=100_000, state="up")}
        launcher = {"argv": ["python", "-m", "sglang.launch_server", *argv]}
        topology = Topology(status="ok", network=cards)
        return snapshot(topology=topology, server=server(("launcher", launcher), ("rank 0", {}), ("rank 1", {})))

    found = one(compare(host(9000), host(1500)))
    assert (found.old, found.new, found.where) == (9000, 1500, ("ens1",))
    several = one(compare(host(9000, "--nnodes", "2"), host(1500, "--nnodes", "2")))
    assert found.likelihood < 0.3 < several.likelihood


def test_conda_s_packages_are_compared_by_version_build_and_contents() -> None:
    def host(libcublas: CondaPackage, torch: str) -> Snapshot:
        dists = {"torch": Distribution(version=torch, location="/x")}
        conda = {"libcublas": libcublas, "pytorch": CondaPackage(version=torch, build="0")}
        return snapshot(packages=Packages(status="ok", distributions=dists, conda=conda))

    looked, not_looked = CondaPackage(version="12.4", build="0", record="r"), CondaPackage(version="12.4", build="0")
    other = CondaPackage(version="12.4", build="0", record="s")
    assert one(compare(host(looked, "2"), host(other, "2"))).note == "same version and build, other contents"
    assert not compare(host(looked, "2"), host(not_looked, "2")).differences
    newer = one(compare(host(looked, "2"), host(CondaPackage(version="12.6", build="1", record="t"), "2")))
    assert (newer.old, newer.new) == ("12.4 (0)", "12.6 (1)")
    (line,) = compare(host(looked, "2"), host(looked, "3")).lines()
    assert [item.title for item in line.members()] == ["torch", "pytorch"]


def test_many_changes_of_nothing_but_permission_bits_are_one_difference() -> None:
    def host(number: int) -> Snapshot:
        bits = {f"a{n}.py": LocalFile(change="mode", sha256="0", patch="old mode 100644") for n in range(number)}
        bits["b.py"] = LocalFile(change="modified", sha256="0", patch="")
        return snapshot(trees=Trees(status="ok", trees={"/srv/x": Tree(commit="c", files=bits)}))

    noise = one(compare(host(0), host(40)))
    assert (noise.new, noise.factor) == ("40 files with other permission bits", None)
    assert len(noise.changes) >= 40
    assert len(compare(host(0), host(2)).differences) == 2


def test_one_setting_under_two_names_is_one_difference() -> None:
    old = snapshot(server=server(("launcher", {"argv": ["py", "-m", "srv", "--tensor-parallel-size", "2"]})))
    new = snapshot(server=server(("launcher", {"argv": ["py", "-m", "srv", "--tp=4"]})))
    difference = one(compare(old, new))
    assert (difference.title, difference.old, difference.new) == ("--tp", "2", "4")
    assert difference.note == "written --tensor-parallel-size before"
    assert difference.factor == "flag:--tp"


def test_inert_variables_show_only_where_state_is_asked_for() -> None:
    old = snapshot(server=server(("launcher", {"at_exec": {"SSH_TTY": "/dev/pts/1"}})))
    new = snapshot(server=server(("launcher", {"at_exec": {"SSH_TTY": "/dev/pts/7"}})))
    assert compare(old, new).equal
    assert [item.title for item in compare(old, new, state=True).state] == ["SSH_TTY"]


def test_flags_are_compared_one_by_one_and_resolved_arguments_follow_them() -> None:
    old = snapshot(
        server=server(
            ("launcher", {"argv": ["py", "-m", "srv", "--port", "1", "--attention-backend=fa3", "--tp", "2"]})
        )
    )
    new = snapshot(
        server=server(
            ("launcher", {"argv": ["py", "-m", "srv", "--attention-backend", "triton", "--tp-size=2", "--port=2"]})
        )
    )
    resolved = [{"attention_backend": "fa3", "port": 1}, {"attention_backend": "triton", "port": 2}]
    old, new = (
        side.model_copy(update={"server": side.server.model_copy(update={"arguments": arguments})})
        for side, arguments in zip((old, new), resolved, strict=True)
    )
    difference = one(compare(old, new))
    assert difference.factor == "flag:--attention-backend"
    assert (difference.old, difference.new) == ("fa3", "triton")
    assert difference.details == ("resolved attention_backend: fa3 → triton",)


def test_secrets_compare_without_being_shown_and_never_across_keys() -> None:
    def with_token(value: str) -> Snapshot:
        return snapshot(server=server(("launcher", {"at_exec": {"HF_TOKEN": value}})))

    assert compare(with_token("<secret:aa:01>"), with_token("<secret:aa:01>")).equal
    assert one(compare(with_token("<secret:aa:01>"), with_token("<secret:aa:02>"))).verdict == "changed"
    apart = compare(with_token("<secret:aa:01>"), with_token("<secret:bb:01>"))
    assert not apart.differences
    assert [item.title for item in apart.not_comparable] == ["HF_TOKEN"]
    assert not apart.equal


def test_a_section_that_one_side_lacks_is_one_entry_that_says_which_side_and_why() -> None:
    full = Packages(status="ok", distributions={f"p{n}": Distribution(version="1", location="/x") for n in range(300)})
    failed = Packages(status="failed", reason="no interpreter was found")
    comparison = compare(snapshot(packages=full), snapshot(packages=failed))
    assert not comparison.differences
    (entry,) = comparison.not_comparable
    assert entry.new == Unread(unread="no interpreter was found")
    assert "new snapshot" in entry.note
    assert not comparison.equal


def test_what_one_side_could_not_read_is_one_entry_and_not_one_for_each_value_below() -> None:
    many = {f"NAME_{n}": "1" for n in range(50)}
    lost = {"variables": Unread(unread="permission denied")}
    old = snapshot(server=server(("launcher", {}), ("rank 0", {"variables": many}), ("rank 1", {"variables": many})))
    new = snapshot(server=server(("launcher", {}), ("rank 0", lost), ("rank 1", lost)))
    comparison = compare(old, new)
    assert not comparison.differences
    (entry,) = comparison.not_comparable
    assert entry.where == ("processes/rank 0", "processes/rank 1")


def test_a_cpu_list_equals_its_long_form() -> None:
    old = snapshot(server=server(("launcher", {"affinity": "0,2-8"})))
    new = snapshot(server=server(("launcher", {"affinity": "0,2,3,4,5,6,7,8"})))
    assert compare(old, new).equal


def test_a_requirement_hangs_what_it_forced_below_its_owner() -> None:
    def packages(torch: str, triton: str, free: str) -> Snapshot:
        dists = {
            "torch": Distribution(
                version=torch, location="/x", requires=[f"triton=={triton}; platform_system == 'Linux'"]
            ),
            "triton": Distribution(version=triton, location="/x"),
            "numpy": Distribution(version=free, location="/x"),
        }
        return snapshot(packages=Packages(status="ok", distributions=dists))

    comparison = compare(packages("2.2.0", "2.2.0", "1.0"), packages("2.3.0", "2.3.0", "1.1"))
    lines = {line.difference.title: [item.title for item in line.members()] for line in comparison.lines()}
    assert lines == {"torch": ["torch", "triton"], "numpy": ["numpy"]}
    assert {item.note for item in comparison.differences} == {"newer"}


def test_the_same_version_with_other_contents_is_said_in_those_words() -> None:
    def build(record: str, digest: str) -> Snapshot:
        return snapshot(
            packages=Packages(
                status="ok",
                distributions={"triton": Distribution(version="3.4.0", location="/x", record=record)},
                files={"triton": {"triton/a.so": digest, "triton/b.py": "0" * 64}},
            )
        )

    difference = one(compare(build("a" * 64, "1" * 64), build("b" * 64, "2" * 64)))
    assert difference.note == "same version, other contents"
    assert "triton/a.so changed" in difference.details


def test_file_lists_explain_a_difference_and_are_none_by_themselves() -> None:
    def build(record: str, files: dict[str, str]) -> Snapshot:
        dists = {"triton": Distribution(version="3.4.0", location="/x", record=record)}
        return snapshot(packages=Packages(status="ok", distributions=dists, files={"triton": files}))

    assert compare(build("a" * 64, {"a.py": "1"}), build("a" * 64, {"a.py": "2"})).equal
    told = compare(build("a" * 64, {"a.py": "1"}), build("b" * 64, {"a.py": "2"}), state=True)
    assert "a.py changed" in one(told).details
    assert not told.state


def test_hunks_are_matched_by_content_and_not_by_line() -> None:
    hunk = "@@ -{0},1 +{0},2 @@ def verify():\n context\n+    sync()\n"

    def patched(*parts: str) -> Snapshot:
        file = {"change": "modified", "sha256": "0" * 64, "patch": "".join(parts)}
        return snapshot(trees=Trees(status="ok", trees={"/src/sglang": Tree(commit="c" * 40, files={"a.py": file})}))

    moved = one(compare(patched(hunk.format(10)), patched(hunk.format(12))))
    assert moved.note == "the same local change, on another version of the file"
    other = one(compare(patched(hunk.format(10)), patched(hunk.format(12), "@@ -90,1 +92,1 @@\n-old\n+new\n")))
    assert other.details == ("new only +1 -1: + new",)
    assert other.factor == "tree:a.py"


def test_a_tree_at_another_path_is_compared_with_itself() -> None:
    hunk = "@@ -1,1 +1,2 @@\n+{}\n"

    def at(root: str, commit: str, line: str) -> Snapshot:
        kept = {"change": "modified", "sha256": "0" * 64, "patch": hunk.format("kept")}
        mine = {"change": "modified", "sha256": line, "patch": hunk.format(line)}
        files = {"kept.py": kept, "mine.py": mine}
        return snapshot(trees=Trees(status="ok", trees={root: Tree(commit=commit, files=files)}))

    comparison = compare(at("/home/a/sglang", "1" * 40, "one"), at("/srv/b/sglang", "2" * 40, "two"))
    assert {item.title: item.factor for item in comparison.differences} == {
        "place of sglang": None,
        "commit of sglang": None,
        "mine.py": None,
    }
    assert comparison.find("mine.py")[0].details == ("old only +1 -0: + one", "new only +1 -0: + two")
    covered = [change for item in comparison.differences for change in item.changes]
    assert sorted(covered, key=lambda change: change.key) == list(comparison.changes)


def test_a_local_change_that_only_moved_with_its_commit_hangs_below_it() -> None:
    def at(commit: str) -> Snapshot:
        file = {"change": "modified", "sha256": commit, "patch": "@@ -1,1 +1,2 @@\n+mine\n"}
        return snapshot(trees=Trees(status="ok", trees={"/srv/t": Tree(commit=commit, files={"a.py": file})}))

    (line,) = compare(at("1" * 40), at("2" * 40)).lines()
    assert [(item.title, item.factor) for item in line.members()] == [("commit of t", "tree:commit"), ("a.py", None)]


def test_a_process_that_only_one_side_has_is_one_difference() -> None:
    variables = {"variables": {"A": "1", "B": "2"}}
    old = snapshot(server=server(("launcher", {"argv": ["py", "--tp", "1"]}), ("rank 0", {})))
    new = snapshot(server=server(("launcher", {"argv": ["py", "--tp", "2"]}), ("rank 0", {}), ("rank 1", variables)))
    (line,) = compare(old, new).lines()
    assert line.difference.factor == "flag:--tp"
    assert [item.title for item in line.members()] == ["--tp", "processes rank 1"]


def test_explaining_takes_a_factor_a_key_or_a_name() -> None:
    old = snapshot(server=server(("launcher", {"at_exec": {"NCCL_PROTO": "LL"}})))
    comparison = compare(old, snapshot(server=server(("launcher", {}))))
    for wanted in (
        "variable:NCCL_PROTO",
        "server/variables/NCCL_PROTO",
        "NCCL_PROTO",
        "server/processes/launcher/at_exec/NCCL_PROTO",
    ):
        assert [item.title for item in comparison.find(wanted)] == ["NCCL_PROTO"]
    assert comparison.find("nothing of the kind") == ()


def test_the_order_of_the_input_never_matters() -> None:
    def build(order: Callable[[Any], Any]) -> Snapshot:
        dists = {name: Distribution(version=name, location="/x") for name in order(["a", "b", "c"])}
        return snapshot(packages=Packages(status="ok", distributions=dists))

    empty = snapshot(packages=Packages(status="ok"))
    forward, backward = compare(build(list), empty), compare(build(lambda names: list(reversed(names))), empty)
    assert forward == backward


def test_a_server_that_has_not_decoded_yet_is_not_another_server() -> None:
    waiting = snapshot(log=Log(status="ok"))
    served = snapshot(log=Log(status="ok", running=Running(graph=False, accept_length=2.0, tokens_per_second=60.0)))
    assert compare(waiting, served).equal
    assert waiting.id == served.id


@pytest.mark.parametrize(
    ("fact", "flags", "variables", "packages", "cause"),
    [
        ("verify graph", ("--disable-cuda-graph",), {}, "1", "flag:--disable-cuda-graph"),
        ("attention backend", ("--speculative-eagle-topk", "4"), {}, "1", "flag:--speculative-eagle-topk"),
        ("attention backend", (), {}, "2", "package:flashinfer-python"),
        ("all-reduce fusion", (), {}, "2", "package:flashinfer-python"),
        ("custom all-reduce", ("--disable-custom-all-reduce",), {}, "1", "flag:--disable-custom-all-reduce"),
        ("nccl", (), {"SGLANG_NCCL_SO_PATH": "/opt/libnccl.so"}, "1", "variable:SGLANG_NCCL_SO_PATH"),
        ("moe config", (), {"SGLANG_MOE_CONFIG_DIR": "/opt/tuned"}, "1", "variable:SGLANG_MOE_CONFIG_DIR"),
    ],
)
def test_what_the_server_says_that_it_decided_stands_below_what_brought_it(
    fact: str, flags: tuple[str, ...], variables: dict[str, str], packages: str, cause: str
) -> None:
    def side(said: str, argv: tuple[str, ...], named: dict[str, str], version: str) -> Snapshot:
        launcher = {"argv": ["python", "-m", "sglang.launch_server", *argv], "at_exec": named, "variables": named}
        return snapshot(
            server=server(("launcher", launcher)),
            packages=Packages(
                status="ok", distributions={"flashinfer-python": Distribution(version=version, location="/x")}
            ),
            log=Log(status="ok", facts={fact: [said]}),
        )

    comparison = compare(side("before", (), {}, "1"), side("since", flags, variables, packages))
    [line] = [one for one in comparison.differences if one.key == ("log", "facts", fact)]
    [brought] = [one for one in comparison.differences if one.key == line.group]
    assert brought.factor == cause
