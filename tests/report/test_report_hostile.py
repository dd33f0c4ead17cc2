"""Text from a host is data: whatever it is made of, no format is harmed by it."""

from __future__ import annotations

import html.parser
import json
import os
import random
import re
import xml.etree.ElementTree as ET
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_cases import MORNING, NOW, snapshot
from markdown_it import MarkdownIt

from fingerprint.bisect.decisions import Decision
from fingerprint.bisect.journal import CaseLine, FactorLine, TrialLine
from fingerprint.bisect.verdict import Culprit, Suspicion
from fingerprint.case import Outcome
from fingerprint.diff import compare
from fingerprint.report.build import build
from fingerprint.report.charts import pictures
from fingerprint.report.html import render_html
from fingerprint.report.markdown import LARGEST_BYTES, code, escape, render_markdown
from fingerprint.report.model import Report
from fingerprint.report.terminal import render
from fingerprint.report.words import clean

NASTY = (
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "</style><script>", "]]>", "<!--", "{{ 7*7 }}",
    "{% raw %}", "\x1b[31mred\x1b]0;title\x07", "\u202egnp.exe", "\u2066x\u2069", "a\x00b", "\r\nInjected: yes",
    "`code` ``more``", "| cell | cell |", "[x](javascript:alert(1))", "![x](http://evil.example/x.png)", "@everyone",
    "#1 GH-1", "</details>", "**bold** _it_ ~~x~~", "[bold red]markup[/]", "\\", "$(reboot)", "&lt;b&gt; &amp;", "'\"",
    "http://evil.example", "\ud800", "\ufffe\uffff", "e\u0301" * 50, "- item", "# heading", "1. one", "    indented",
    "x" * 5000, "\u05d0\u05d1", "😀" * 40, "    ", "", "<svg onload=alert(1)>", "--><b>", "=====", "---", "\n\n# head",
)  # fmt: skip
HOSTILE = st.one_of(st.sampled_from(NASTY), st.text(st.characters(codec=None), max_size=40))


EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "25"))


def hostile_report(words: list[str], seed: int) -> Report:
    """A report in which every text that a host or a file decides is taken from `words`."""
    rng = random.Random(seed)

    def say() -> str:
        return rng.choice(words)

    names = [f"variable:{say()}{n}" for n in range(4)]
    lines = [FactorLine(id=name, old=say(), new=say(), revert=say()) for name in names]
    fixed = [FactorLine(id=f"host:{say()}", old=say(), new=say(), reason=say())]
    case = CaseLine(
        at=NOW, tool=say(), target=say(), old=say(), new=say(), seed=1, engine=say(), factors=lines, fixed=fixed,
        prior=dict.fromkeys(names, 0.5), then_old_ms=10.0, then_new_ms=12.0, conditions=[say()], compared=say(),
    )  # fmt: skip
    trials = [
        TrialLine(
            number=n + 1, at=NOW + timedelta(minutes=n), hours=n / 60, new=names[:n], reason=say(), marks=[say()],
            status="measured" if n % 5 else "void", value_ms=10.0 + n / 2 if n % 5 else None, metric="verify_ms",
            figures={
                "verify_ms": 10.0 + n, "cycle_ms": 20.0 + n, "draft_ms": 3.0, "extend_ms": 2.0, "host_ms": 4.0,
                "accept_length": 2.9, "tokens_per_second": 140.0, "outputs": say(), "sources": {"verify_ms": say()},
                "samples": [{say(): 1.5, "verify_ms": 10.0}, {say(): float("nan")}],
            },
            facts={say(): say()},
            proof=[{"factor": say(), "ok": n % 2 == 0, "seen": say()}],
            watch={say(): 0.5, "steal_share": 0.01}, isolation=say(), seconds={say(): 1.0, "launch": 2.0},
        )
        for n in range(5)
    ]  # fmt: skip
    outcome = Outcome(
        kind=rng.choice(["attributed", "phantom", "undecided", "not switchable"]), structure="single", launches=5,
        measured=4, old_ms=(9.9, 10.0, 10.1), new_ms=(11.9, 12.0, 12.1), gap_ms=(1.9, 2.0, 2.1),
        sigma_ms=(0.05, 0.1, 0.2), remainder_ms=(-0.1, 0.0, 0.1), smallest_effect_ms=0.3, evidence=99.0,
        culprits=(Culprit(factors=frozenset({names[0]}), share=(0.9, 0.98, 1.05)),),
        posterior=(Suspicion(structure="single", factors=frozenset({names[0]}), probability=0.98),),
        eliminated={names[1]: 0.01}, fixed=fixed, unseen=[say() for _ in range(5)], revert=[say(), say()], next=say(),
        metric=rng.choice(["verify_ms", say() or "m"]), source=say(), host_before=say(), host_after=say(),
        host_differences=[say()], reasons=(say(),), compared=say(),
        decisions=[Decision(factors=[names[0]], name=say(), old=say(), new=say(), launches=[1, 2])],
    )  # fmt: skip
    named = {f"V{n}" + say().replace("=", ""): say() for n in range(3)}
    old = snapshot({"PATH": say()}, at=MORNING, target=say() or "t", measured=10.0)
    new = snapshot(named, patches={say() or "p": say()}, packages={say() or "q": say()}, target=say() or "t")
    moments = [(n, {f"{say()}{k}": 0.3 for k in range(2)}) for n in (2,)]
    moments.append((5, dict.fromkeys(moments[0][1], 0.4)))
    return build(outcome, case, trials, None, old, new, compare(old, new), moments)


class Page(html.parser.HTMLParser):
    """Notes what a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts = 0
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One tag."""
        self.tags.add(tag)
        self.scripts += tag == "script"
        for name, value in attrs:
            self.attributes.add(name)
            if name in {"href", "src"}:
                self.links.append(value or "")

    handle_startendtag = handle_starttag


HTML_TAGS = {
    "html", "head", "meta", "link", "title", "style", "body", "a", "header", "h1", "h2", "h3", "span", "p", "div",
    "pre", "bdi", "ul", "li", "ol", "main", "section", "dl", "dt", "dd", "figure", "figcaption", "svg", "desc",
    "rect", "line", "text", "circle", "path", "polyline", "table", "caption", "thead", "tbody", "tr", "th", "td",
    "details", "summary", "code", "strong", "footer", "script",
}  # fmt: skip
HTML_ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "rel", "href", "class", "id", "aria-labelledby",
    "aria-label", "role", "tabindex", "scope", "viewbox", "xmlns", "x", "y", "x1", "x2", "y1", "y2", "width",
    "height", "rx", "cx", "cy", "r", "d", "points", "text-anchor",
}  # fmt: skip


@settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "40")), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(HOSTILE, min_size=1, max_size=12), st.integers(0, 9))
def test_no_format_is_harmed_by_hostile_text(words: list[str], seed: int) -> None:
    report = hostile_report(words, seed)
    drawn = pictures(report)
    check_page(render_html(report, drawn))
    for picture in drawn:
        check_picture(picture.file())
    check_markdown(render_markdown(report, drawn))
    check_terminal(render(report), color=False)
    check_terminal(render(report, color=True), color=True)
    json.loads(report.model_dump_json()).items()


def check_page(text: str) -> None:
    page = Page()
    page.feed(text)
    text.encode()
    assert page.tags <= HTML_TAGS
    assert page.attributes <= HTML_ATTRIBUTES
    assert page.scripts == 1
    assert all(link.startswith("#") or link == "data:," for link in page.links)
    assert len(text) < 1_000_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", text)


def check_picture(text: str) -> None:
    root = ET.fromstring(text)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "rect", "line", "text", "circle", "path", "polyline"}
    names = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in names if name.startswith("on") or "href" in name or name == "style"}
    assert len(re.findall("<style>", text)) == 1


PLAIN = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
APART = MarkdownIt("commonmark", {"html": True}).enable("table").disable("text_join")
MARKDOWN_TAGS = {
    "h2", "h3", "p", "strong", "pre", "code", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "details",
    "summary", "img",
}  # fmt: skip


def check_markdown(text: str) -> None:
    assert len(text.encode()) < LARGEST_BYTES
    page = Page()
    page.feed(PLAIN.render(text))
    assert page.tags <= MARKDOWN_TAGS
    assert all(re.fullmatch(r"pictures/[a-z-]+\.svg", link) for link in page.links)
    assert page.attributes <= {"src", "alt", "class"}
    # Text that stands there as it is, neither code nor an escape, makes no mention and no link.
    plain = [part.content for token in APART.parse(text) for part in token.children or () if part.type == "text"]
    assert not [words for words in plain if "@" in words or "://" in words or "www." in words or "GH-" in words]


def check_terminal(text: str, *, color: bool) -> None:
    left = re.sub(r"\x1b\[[0-9;]*m", "", text) if color else text
    assert all(c.isprintable() or c == "\n" for c in left)


@given(st.text(st.characters(codec=None), max_size=60))
def test_a_code_span_shows_its_text_and_nothing_else(text: str) -> None:
    shown = clean(text)
    if not shown.strip():
        return
    page = PLAIN.render(f"x {code(shown, 10_000)} x")
    inner = re.search(r"(?s)<code>(.*)</code>", page)
    assert inner is not None
    assert html.unescape(inner.group(1)) == shown


@given(st.text(st.characters(codec=None), max_size=60))
def test_an_escaped_sentence_shows_its_text_and_nothing_else(text: str) -> None:
    shown = " ".join(clean(text).split())
    page = PLAIN.render(escape(shown)) if shown else "<p></p>\n"
    assert html.unescape(page) == f"<p>{shown}</p>\n"


NUMBERS = st.one_of(st.floats(-1e9, 1e9), st.floats(0, 100), st.sampled_from([0.0, -1.0, 1e-300, 1e9]))
INTERVALS = st.one_of(st.none(), st.tuples(NUMBERS, NUMBERS, NUMBERS))


@settings(max_examples=4 * EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_format_is_harmed_by_hostile_numbers(data: st.DataObject) -> None:
    draw = data.draw
    names = ["variable:A", "variable:B"]
    case = CaseLine(
        at=NOW, tool="1", target="t", old="a", new="b", seed=1, engine="reference",
        factors=[FactorLine(id=name, old="0", new="1") for name in names], fixed=[],
        prior=dict.fromkeys(names, 0.5), then_old_ms=draw(st.none() | NUMBERS), then_new_ms=draw(st.none() | NUMBERS),
        expected_launches=draw(st.none() | NUMBERS),
    )  # fmt: skip
    keys = ["verify_ms", "cycle_ms", "draft_ms", "extend_ms", "host_ms", "accept_length", "tokens_per_second"]
    trials = [
        TrialLine(
            number=n + 1, at=NOW + timedelta(minutes=draw(st.integers(-(10**6), 10**6))), hours=draw(NUMBERS),
            new=names[: n % 3], status="measured", value_ms=draw(NUMBERS), metric="verify_ms",
            figures={**{key: draw(NUMBERS) for key in keys}, "samples": [{"verify_ms": draw(NUMBERS)}]},
            watch={"clock": draw(NUMBERS), "idle_share": draw(NUMBERS)}, seconds={"whole": draw(NUMBERS)},
        )
        for n in range(draw(st.integers(0, 4)))
    ]  # fmt: skip
    kind = draw(st.sampled_from(["attributed", "several", "phantom", "healed", "unstable", "undecided"]))
    share = draw(st.tuples(NUMBERS, NUMBERS, NUMBERS))
    outcome = Outcome(
        kind=kind, structure=draw(st.sampled_from(["single", "adds", "or", "and"])), launches=len(trials),
        culprits=(Culprit(factors=frozenset(names[:1]), share=share),) if kind in {"attributed", "several"} else (),
        old_ms=draw(INTERVALS), new_ms=draw(INTERVALS), gap_ms=draw(INTERVALS), sigma_ms=draw(INTERVALS),
        remainder_ms=draw(INTERVALS), smallest_effect_ms=draw(st.none() | NUMBERS), evidence=draw(st.none() | NUMBERS),
        posterior=(Suspicion(structure="none", factors=frozenset(), probability=draw(NUMBERS)),),
    )  # fmt: skip
    old, new = snapshot({"PATH": "/bin"}, at=MORNING, measured=10.0), snapshot({"A": "1"})
    moments = [(n, {"x": draw(st.floats(0, 1))}) for n in (1, 2)]
    report = build(outcome, case, trials, None, old, new, compare(old, new), moments)
    drawn = pictures(report)
    check_page(render_html(report, drawn))
    for picture in drawn:
        check_picture(picture.file())
        assert not re.search(r'="-?(?:nan|inf)"', picture.file())
    check_markdown(render_markdown(report, drawn))
    check_terminal(render(report), color=False)


@pytest.mark.parametrize("text", ["x" * 5000, "\u202e" * 5000, "<&>" * 2000, "`|" * 3000, "\U0001f600" * 3000])
def test_markdown_keeps_its_size_and_its_first_screen_whatever_comes(text: str) -> None:
    report = hostile_report([text], 0)
    report = report.model_copy(update={"suspects": report.suspects * 100, "actions": (report.actions[0],) * 50})
    shown = render_markdown(report)
    assert len(shown.encode()) < LARGEST_BYTES
    assert "**How sure:**" in shown
    assert "more lines in `report.html`" in shown


def test_lines_to_type_stay_one_line_each() -> None:
    report = hostile_report(["unset A\nrm -rf /", "\u202e"], 0)
    assert "unset A\\nrm -rf /" in render_markdown(report)
    assert all("\n" not in line for line in report.actions)
