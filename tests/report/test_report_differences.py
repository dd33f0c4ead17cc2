"""The forms of a comparison: everything is said, nothing that a host wrote gets through raw."""

from __future__ import annotations

import io
import json
import re
import runpy
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from fingerprint.diff import Reason, compare
from fingerprint.diff.fleet import fleet
from fingerprint.errors import UsageError
from fingerprint.factors import Evidence, Found, Need, find, with_the_rest
from fingerprint.findings import check, unread_part
from fingerprint.report import checks, contents, differences, factors, fleets
from snapshots import Distribution, Gpus, Packages, Process, Server, Snapshot, Unread

ROOT = Path(__file__).parents[2]
HOSTILE = (
    "\x1b[31mred\x1b]8;;http://evil\x07 [link](http://evil) <img src=x> |cell| `code`"
    " \u202eabc\u2066 @all\n# title\r\x9b2J"
)


def snapshot(
    value: str = "1",
    name: str = "NAME",
    version: str = "1.0",
    target: str = "here",
    dists: Sequence[str] = ("d",),
    requires: Sequence[str] = (),
) -> Snapshot:
    launcher = Process(
        role="launcher",
        pid=1,
        parent=0,
        title="t",
        argv=["python", "--flag", value],
        executable="/py",
        cwd="/",
        started=0.0,
        at_exec={name: value},
        variables={name: value},
    )
    installed = {dist: Distribution(version=version, location="/x", requires=list(requires)) for dist in dists}
    return Snapshot(
        tool="test",
        taken_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
        target=target,
        packages=Packages(status="ok", distributions=installed),
        server=Server(status="ok", processes={"launcher": launcher}),
    )


def printed(renderable: RenderableType) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100, force_terminal=False, color_system=None).print(renderable)
    return stream.getvalue()


def assert_harmless(text: str) -> None:
    bad = {character for character in text if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs"}} - {
        "\n"
    }
    assert not bad


@given(st.text(max_size=40), st.text(max_size=20), st.text(max_size=12))
def test_no_text_of_a_host_can_colour_move_or_turn_a_terminal(value: str, name: str, version: str) -> None:
    old, new = snapshot(), snapshot(value + HOSTILE, name + HOSTILE, version + HOSTILE, target=HOSTILE)
    comparison = compare(old, new, state=True)
    many = fleet({HOSTILE: new, "a": old})
    found = find(old, new, Evidence())
    for text in (
        printed(factors.terminal(found)),
        factors.markdown(found),
        factors.as_json(found),
        printed(differences.terminal(comparison, most=None, opened=True)),
        *(printed(differences.explain(item)) for item in comparison.differences),
        printed(fleets.terminal(many)),
        printed(checks.terminal(check(new), unread_part(new))),
        printed(contents.terminal(new)),
        printed(contents.terminal(new, "server", opened=True)),
        differences.as_json(differences.document(comparison)),
        differences.as_json(fleets.document(many)),
        contents.text(new, "server"),
        differences.markdown(comparison),
        fleets.markdown(many),
        checks.markdown(check(new), unread_part(new)),
    ):
        assert_harmless(text)


@pytest.mark.parametrize("form", ["comparison", "factors"])
def test_no_text_of_a_host_is_markdown(form: str) -> None:
    old, new = snapshot(), snapshot(HOSTILE, HOSTILE, HOSTILE, dists=("d", "e"), requires=(f"d=={HOSTILE}",))
    text = (
        differences.markdown(compare(old, new))
        if form == "comparison"
        else factors.markdown(find(old, new, Evidence()))
    )
    outside_code = re.sub(r"(`+).+?\1", "", text)
    assert "<img" not in outside_code
    assert not re.search(r"(?<!\\)\[link\]\(", outside_code)
    assert "\n# title" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_a_value_is_bounded_and_a_secret_is_not_shown() -> None:
    assert len(differences.value("x" * 10_000)) < 200
    assert "deadbeef" not in differences.value("<secret:0011:deadbeef> and more")
    assert differences.value(Unread(unread="no right")) == "not read: no right"
    assert differences.value(None) == "absent"
    assert differences.value(("a", "b")) == "a, b"


def test_a_family_that_moved_together_is_one_row_that_opens() -> None:
    names = [f"nvidia-{part}-cu12" for part in ("cufft", "curand", "nvtx", "cusolver", "cusparse")]
    pins = [f"{name}==1.0" for name in names]
    pair = [
        snapshot(version=version, dists=["torch", *names], requires=[pin.replace("1.0", version) for pin in pins])
        for version in ("1.0", "2.0")
    ]
    comparison = compare(*pair)
    closed = printed(differences.terminal(comparison))
    assert "5 nvidia-* packages" in closed
    assert closed.count("package:") == 1
    assert printed(differences.terminal(comparison, opened=True)).count("package:") == 6


def test_what_is_cut_is_counted() -> None:
    pair = [snapshot(version=version, dists=[f"p{n}" for n in range(30)]) for version in ("1", "2")]
    assert "and 25 less likely" in printed(differences.terminal(compare(*pair), most=5))
    assert "and 25 less likely" in differences.markdown(compare(*pair), most=5)


def test_every_reason_is_printed_with_its_source() -> None:
    comparison = compare(snapshot(), snapshot(name="NCCL_PROTO"))
    (difference,) = comparison.find("variable:NCCL_PROTO")
    text = " ".join(printed(differences.explain(difference)).split())
    for reason in difference.reasons:
        assert f"{reason.text} [{reason.source}]" in text


@pytest.mark.parametrize(
    ("weights", "shown"),
    [((1.8, -1.5, -1.2), (1.8, -1.5)), ((1.8, -0.5), (1.8,)), ((-3.0, 2.0, -1.5), (-3.0,)), ((), ())],
)
def test_the_short_list_says_the_strongest_reason_and_a_strong_one_against(
    weights: tuple[float, ...], shown: tuple[float, ...]
) -> None:
    comparison = compare(snapshot(), snapshot(version="2"))
    reasons = tuple(Reason(f"{weight}", weight, "a source") for weight in weights)
    judged = replace(comparison, differences=(replace(comparison.differences[0], reasons=reasons),))
    (row,) = differences.rows(judged)
    assert row.why == tuple(f"{weight} [a source]" for weight in shown)


def test_equal_snapshots_are_said_to_be_equal() -> None:
    text = printed(differences.terminal(compare(snapshot(), snapshot())))
    assert "No differences" in text
    assert "all of packages, server" in text


def test_a_section_of_which_something_is_not_known_is_not_the_same_as_a_whole() -> None:
    whole = snapshot()
    launcher = whole.server.processes["launcher"].model_copy(update={"cwd": Unread(unread="no right")})
    dark = whole.model_copy(update={"server": Server(status="ok", processes={"launcher": launcher})})
    partial = whole.model_copy(update={"server": whole.server.model_copy(update={"status": "partial"})})
    pasted = whole.model_copy(update={"method": "imported"})
    assert differences.same_words(compare(whole, whole)) == "all of packages, server"
    for other in (dark, partial):
        assert re.fullmatch(r"all of packages; values of server \d+", differences.same_words(compare(other, other)))
    assert "all of" not in differences.same_words(compare(pasted, pasted))


def test_a_section_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="no section 'nonsense'; it has packages"):
        contents.terminal(snapshot(), "nonsense")


def test_the_json_of_a_comparison_is_read_back_by_its_own_model() -> None:
    made = differences.document(compare(snapshot(), snapshot(HOSTILE)))
    again = differences.ComparisonDocument.model_validate(json.loads(differences.as_json(made)))
    assert again == made


def test_the_published_schema_of_snapshots_allows_what_a_file_has_and_asks_for_nothing_else() -> None:
    published = json.loads((ROOT / "docs" / "schema" / "snapshot.json").read_text(encoding="utf-8"))
    written = json.loads(snapshot().text())
    assert written.keys() <= published["properties"].keys()
    assert set(published["required"]) <= written.keys()


def test_the_published_schemas_are_those_of_the_models() -> None:
    generate = runpy.run_path(str(ROOT / "docs" / "schema" / "generate.py"))
    for name in generate["DOCUMENTS"]:
        published = (ROOT / "docs" / "schema" / f"{name}.json").read_text(encoding="utf-8")
        assert published == generate["text"](name), f"run docs/schema/generate.py: {name}.json is out of date"


def test_factors_tell_what_a_switch_costs_and_what_does_not_go_without_another() -> None:
    need = Need("package:flashinfer", "new", "package:tvm-ffi", "tvm-ffi<1")
    found = Found(find(snapshot(), snapshot("2"), Evidence()).factors, [], (need,))
    words = "package:flashinfer at its new value needs package:tvm-ffi at its new value: tvm-ffi<1"
    assert words in " ".join(printed(factors.terminal(found)).split())
    assert words.replace("<", "&#60;").replace(":", "&#58;") in factors.markdown(found).replace(":", "&#58;")
    assert "a relaunch" in printed(factors.terminal(found))
    assert "| a relaunch |" in factors.markdown(found)
    told = json.loads(factors.as_json(found))
    assert {one["cost"] for one in told["factors"]} == {"a relaunch"}
    assert [one["requirement"] for one in told["needs"]] == ["tvm-ffi<1"]


def test_every_line_of_a_comparison_is_a_factor_or_fixed_with_a_reason() -> None:
    old = snapshot().model_copy(update={"gpu": Gpus(status="ok", driver="595.84")})
    new = snapshot("2", version="2.0").model_copy(update={"gpu": Gpus(status="ok", driver="595.91")})
    comparison = compare(old, new)
    found = with_the_rest(find(old, new, Evidence()), comparison)
    told = [*(one.id for one in found.factors), *(one.id for one in found.fixed)]
    assert sorted(told) == sorted(line.difference.factor or line.difference.name for line in comparison.lines())
    assert "gpu/driver: it is of the machine" in " ".join(printed(factors.terminal(found)).split())
    assert with_the_rest(find(old, old, Evidence()), compare(old, old)).fixed == []
