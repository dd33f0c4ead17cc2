"""Every reason of the ranking, seen in a pair that differs in one thing."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.diff import Difference, compare, knowledge
from fingerprint.diff.ranking import START
from snapshots import (
    Distribution,
    Gpu,
    Gpus,
    Library,
    LocalFile,
    Measured,
    Packages,
    Process,
    Server,
    Snapshot,
    Startup,
    StartupFile,
    Tree,
    Trees,
    Unread,
)

SITE = "/venv/lib/python3.12/site-packages"


def host(
    launch: dict[str, str] | None = None,
    ranks: list[dict[str, str] | Unread] | None = None,
    argv: list[str] | None = None,
    mapped: list[str] | None = None,
    dists: dict[str, str] | None = None,
    requires: dict[str, list[str]] | None = None,
    files: dict[str, dict[str, str]] | None = None,
    patches: dict[str, str] | None = None,
    startup: dict[str, str] | None = None,
    gpus: dict[str, float] | None = None,
    accept_length: float | None = None,
) -> Snapshot:
    def process(role: str, number: int | None, variables: dict[str, str] | Unread) -> Process:
        return Process.model_validate(
            {
                "role": role,
                "rank": number,
                "pid": 1,
                "parent": 0,
                "title": role,
                "argv": ["python", *(argv or [])],
                "executable": "/venv/bin/python",
                "cwd": "/",
                "started": 0.0,
                "at_exec": launch or {},
                "variables": variables,
                "libraries": {path: Library(path=path) for path in mapped or []},
            }
        )

    processes = {"launcher": process("launcher", None, launch or {})}
    for number, variables in enumerate(ranks if ranks is not None else [launch or {}, launch or {}]):
        processes[f"rank {number}"] = process("rank", number, variables)
    installed = {
        name: Distribution(version=version, location=SITE, requires=(requires or {}).get(name, []))
        for name, version in (dists or {}).items()
    }
    locals_ = {path: LocalFile(change="modified", sha256="0", patch=patch) for path, patch in (patches or {}).items()}
    starts = {
        name: StartupFile(path=f"{SITE}/{name}", sha256=str(len(text)), text=text, runs_code="import" in text)
        for name, text in (startup or {}).items()
    }
    measured = (
        None if accept_length is None else Measured(metric="m", value=1.0, source="s", accept_length=accept_length)
    )
    return Snapshot(
        tool="test",
        taken_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
        target="here",
        measured=measured,
        packages=Packages(status="ok", distributions=installed, files=files or {}),
        server=Server(status="ok", processes=processes),
        trees=Trees(status="ok", trees={"/srv/t": Tree(commit="c", imports=["python"], files=locals_)}),
        startup=Startup(status="ok", files=starts),
        gpu=Gpus(
            status="ok",
            gpus={
                address: Gpu(index=number, power_limit_w=watts)
                for number, (address, watts) in enumerate((gpus or {}).items())
            },
        ),
    )


def the(old: Snapshot, new: Snapshot, name: str) -> Difference:
    (found,) = compare(old, new).find(name)
    return found


def says(difference: Difference, words: str) -> bool:
    return any(words in reason.text for reason in difference.reasons)


def patched(*added: str, removed: tuple[str, ...] = ()) -> str:
    body = "".join(f"-{line}\n" for line in removed) + "".join(f"+{line}\n" for line in added)
    return f"--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@ def f():\n{body}"


def test_a_variable_that_no_rank_has_is_less_likely_and_that_is_called_evidence() -> None:
    reached = the(host(), host(launch={"NCCL_PROTO": "LL"}), "variable:NCCL_PROTO")
    lost = the(host(), host(launch={"NCCL_PROTO": "LL"}, ranks=[{}, {}]), "variable:NCCL_PROTO")
    dark: list[dict[str, str] | Unread] = [Unread(unread="no right"), Unread(unread="no right")]
    unknown = the(host(ranks=dark), host(launch={"NCCL_PROTO": "LL"}, ranks=dark), "variable:NCCL_PROTO")
    assert lost.likelihood < unknown.likelihood < reached.likelihood
    assert says(lost, "evidence")
    assert not says(unknown, "rank")


def test_nothing_of_the_all_reduce_matters_with_one_rank() -> None:
    two = the(host(), host(launch={"NCCL_ALGO": "Ring"}), "variable:NCCL_ALGO")
    one = the(host(ranks=[{}]), host(launch={"NCCL_ALGO": "Ring"}, ranks=[{"NCCL_ALGO": "Ring"}]), "variable:NCCL_ALGO")
    assert one.likelihood < 0.2 < two.likelihood
    assert says(one, "one rank on both sides")


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NCCL_IB_TIMEOUT"])
def test_one_rank_here_says_nothing_of_a_launch_over_several_hosts(name: str) -> None:
    ranks: list[list[dict[str, str] | Unread]] = [[{}], [{name: "1"}]]
    alone = the(host(ranks=ranks[0]), host(launch={name: "1"}, ranks=ranks[1]), f"variable:{name}")
    argv = ["--nnodes", "2", "--node-rank", "0"]
    wide = the(host(ranks=ranks[0], argv=argv), host(launch={name: "1"}, ranks=ranks[1], argv=argv), f"variable:{name}")
    assert says(alone, "one rank on both sides")
    assert not says(wide, "one rank")
    assert not says(wide, "all ranks are on one host")
    assert wide.likelihood > 0.5 > 0.2 > alone.likelihood


def test_a_misspelt_name_points_from_the_one_that_went_to_the_one_that_came() -> None:
    old, new = host(launch={"NCCL_NET_GDR_LEVEL": "PHB"}), host(launch={"CCL_NET_GDR_LEVEL": "PHB"})
    gone, come = (the(old, new, f"variable:{name}") for name in ("NCCL_NET_GDR_LEVEL", "CCL_NET_GDR_LEVEL"))
    assert says(gone, "CCL_NET_GDR_LEVEL came in its place")
    assert says(come, "NCCL_NET_GDR_LEVEL is close")
    assert gone.likelihood > come.likelihood


def test_a_package_that_a_rank_has_mapped_is_likelier_than_one_whose_libraries_none_has() -> None:
    files = {"flashinfer-python": {"flashinfer/ops.so": "1"}}
    path = f"{SITE}/flashinfer/ops.so"
    old = {"dists": {"flashinfer-python": "0.6.7"}, "files": files}
    new = {"dists": {"flashinfer-python": "0.6.8"}, "files": files}
    used = the(host(**old, mapped=[path]), host(**new, mapped=[path]), "package:flashinfer-python")  # type: ignore[arg-type]
    idle = the(host(**old, mapped=["/lib/x.so"]), host(**new, mapped=["/lib/x.so"]), "package:flashinfer-python")  # type: ignore[arg-type]
    assert says(used, "mapped in a rank")
    assert says(idle, "no rank has one mapped")
    assert idle.likelihood < used.likelihood


def test_a_package_that_the_engine_does_not_ask_for_is_less_likely() -> None:
    requires = {"sglang": ["triton", "numpy"]}
    old = host(dists={"sglang": "1", "numpy": "1", "left-pad": "1"}, requires=requires)
    new = host(dists={"sglang": "1", "numpy": "2", "left-pad": "2"}, requires=requires)
    assert not says(the(old, new, "package:numpy"), "nothing that the engine requires")
    assert says(the(old, new, "package:left-pad"), "nothing that the engine requires")


def test_a_change_of_comments_alone_is_last() -> None:
    path = "python/layers/attention/a.py"
    comment = the(host(), host(patches={path: patched("    # faster", "")}), f"tree:{path}")
    code = the(host(), host(patches={path: patched("    x = y.item()")}), f"tree:{path}")
    assert comment.likelihood < 0.2 < 0.8 < code.likelihood
    assert says(code, "it touches a wait: x = y.item()")


@pytest.mark.parametrize(
    "line",
    [
        "if os.environ.get('SGLANG_NEW_PATH'):",
        'if get_bool_env_var("SGLANG_NEW_PATH"):',
        "if envs.SGLANG_NEW_PATH.get():",
        "if os.environ['SGLANG_NEW_PATH'] == '1':",
    ],
)
def test_code_behind_an_unset_variable_is_evidence_and_not_proof(line: str) -> None:
    path = "python/models/llama.py"
    patch = {path: patched(line, "    slow()")}
    closed = the(host(), host(patches=patch), f"tree:{path}")
    switched = {"SGLANG_NEW_PATH": "1"}
    opened = the(host(launch=switched), host(launch=switched, patches=patch), f"tree:{path}")
    assert says(closed, "evidence, not proof")
    assert says(opened, "on SGLANG_NEW_PATH=1, which is set here")
    assert closed.likelihood < opened.likelihood


def test_code_that_is_on_without_its_variable_is_not_called_gated() -> None:
    path = "python/models/llama.py"
    patch = {path: patched("if get_bool_env_var('SGLANG_NEW_PATH', 'true'):", "    slow()")}
    assert not says(the(host(), host(patches=patch), f"tree:{path}"), "SGLANG_NEW_PATH")


def test_the_variables_that_the_capture_found_around_a_hunk_count() -> None:
    path = "python/models/llama.py"
    new = host(patches={path: patched("    slow()")})
    plain = the(host(), new, f"tree:{path}")
    tree = new.trees.trees["/srv/t"]
    file = tree.files[path].model_copy(update={"gates": {"1": ["SGLANG_NEW_PATH"], "2": ["OTHER"]}})
    trees = Trees(status="ok", trees={"/srv/t": tree.model_copy(update={"files": {path: file}})})
    gated = the(host(), new.model_copy(update={"trees": trees}), f"tree:{path}")
    assert says(gated, "depends on SGLANG_NEW_PATH, which neither")
    assert gated.likelihood < plain.likelihood


def test_a_file_outside_the_imported_directories_is_less_likely() -> None:
    inside, outside = "python/models/llama.py", "other/models/llama.py"
    patch = patched("x = 1")
    new = host(patches={inside: patch, outside: patch})
    assert the(host(), new, f"tree:{outside}").likelihood < the(host(), new, f"tree:{inside}").likelihood


def test_startup_code_is_likely_and_what_packaging_writes_is_not() -> None:
    code = "import os; os.environ['NCCL_PROTO'] = 'Simple'\n"
    new = host(startup={"sitecustomize.py": code, "distutils-precedence.pth": "import os\n", "paths.pth": "/more\n"})
    mine, packaging, paths = (
        the(host(), new, f"startup:{name}") for name in ("sitecustomize", "distutils-precedence.pth", "paths.pth")
    )
    assert mine.likelihood > 0.6 > paths.likelihood > packaging.likelihood
    assert says(mine, "it names NCCL_PROTO")


def test_where_the_accept_length_moved_the_draft_comes_first() -> None:
    draft = ["--speculative-draft-model-path"]
    argv = [[*draft, name, "--attention-backend", backend] for name, backend in (("a", "fa3"), ("b", "triton"))]
    steady = compare(host(argv=argv[0], accept_length=2.8), host(argv=argv[1], accept_length=2.8))
    fallen = compare(host(argv=argv[0], accept_length=2.8), host(argv=argv[1], accept_length=1.0))
    assert fallen.differences[0].factor == "flag:--speculative-draft-model-path"
    gain = [comparison.find("flag:--speculative-draft-model-path")[0].likelihood for comparison in (steady, fallen)]
    assert gain[0] < gain[1]
    assert says(fallen.differences[0], "from 2.80 to 1.00")


def test_a_gpu_in_another_slot_is_the_same_gpu() -> None:
    old = host(gpus={"0000:17:00.0": 700.0, "0000:65:00.0": 650.0})
    new = host(gpus={"0000:9a:00.0": 650.0, "0000:17:00.0": 700.0})
    (difference,) = compare(old, new).differences
    assert difference.note == "the same under another name"
    assert (difference.old, difference.new) == ("0000:65:00.0", "0000:9a:00.0")
    assert difference.likelihood < 0.2


def test_the_same_change_on_every_gpu_is_one_difference() -> None:
    addresses = [f"0000:{n:02x}:00.0" for n in range(8)]
    old, new = (host(gpus=dict.fromkeys(addresses, watts)) for watts in (700.0, 500.0))
    (difference,) = compare(old, new).differences
    assert difference.where == tuple(addresses)
    assert difference.likelihood > 0.6


def test_the_likelihood_is_exactly_the_sum_of_the_printed_reasons() -> None:
    new = host(launch={"NCCL_PROTO": "LL", "HF_TOKEN": "<secret:00:11>"}, argv=["--disable-cuda-graph"])
    for difference in compare(host(), new).differences:
        odds = START + sum(reason.weight for reason in difference.reasons)
        assert difference.likelihood == pytest.approx(1 / (1 + 2.718281828**-odds), abs=1e-3)


@given(st.text(min_size=1, max_size=30))
def test_every_name_has_a_row_in_every_table(name: str) -> None:
    for table in (knowledge.VARIABLES, knowledge.PACKAGES, knowledge.PATHS, knowledge.PROCESSES, knowledge.ELSEWHERE):
        assert knowledge.first(table, name) is not None
    assert knowledge.first(knowledge.FLAGS, f"--{name}") is not None


def test_every_row_can_be_reached_and_has_a_source() -> None:
    tables = (knowledge.VARIABLES, knowledge.FLAGS, knowledge.PACKAGES, knowledge.PATHS, knowledge.ELSEWHERE)
    for table in tables:
        assert table[-1].pattern == ".*"
        for row in table:
            assert row.source
            assert -3.0 <= row.weight <= 3.0
            assert row.text
