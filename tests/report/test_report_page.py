"""The page in a real browser: it asks for nothing, complains of nothing, works without scripts, and all can read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from chromium import Browser, program
from made_cases import KINDS
from test_report_hostile import NASTY, hostile_report

from fingerprint.case import Case
from fingerprint.report.charts import pictures
from fingerprint.report.html import render_html

pytestmark = pytest.mark.skipif(program() is None, reason="no chromium on this machine")
AXE = Path(__file__).parents[2] / ".cache" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
CHECKS = Path(__file__).with_name("page_checks.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with closing(Browser(tmp_path_factory.mktemp("profile"))) as browser:
        yield browser


@pytest.fixture
def pages(cases: dict[str, Case]) -> dict[str, Path]:
    return {kind: case.folder / "report.html" for kind, case in cases.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_asks_for_nothing_and_complains_of_nothing(
    browser: Browser, pages: dict[str, Path], kind: str
) -> None:
    browser.open(pages[kind])
    browser.evaluate("1")
    assert browser.requests() == []
    assert browser.complaints() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["wide", "narrow"])
def test_everybody_can_read_it(browser: Browser, pages: dict[str, Path], kind: str, dark: bool, width: int) -> None:
    browser.open(pages[kind], width=width, dark=dark)
    assert browser.evaluate(CHECKS) == []


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core here: npm install --prefix .cache/axe axe-core")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_to_object_to(browser: Browser, pages: dict[str, Path], kind: str, dark: bool) -> None:
    browser.open(pages[kind], dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    browser.evaluate(AXE.read_text(encoding="utf-8") + "; 1")
    violations = "axe.run().then(found => found.violations.map(one => one.id + ': ' + one.nodes[0].html.slice(0, 200)))"
    assert browser.evaluate(violations) == []


def test_it_is_complete_without_scripts(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["attributed"], script=False)
    shown = "getComputedStyle(document.querySelector({}))"
    assert browser.evaluate("document.querySelector('.answer').innerText").startswith("NCCL_PROTO=Simple explains")
    assert browser.evaluate(f"{shown.format(repr('svg.chart'))}.display") == "block"
    assert browser.evaluate("document.querySelectorAll('#suspects ~ .wide tbody tr').length") == 11
    assert browser.evaluate("document.querySelectorAll('input, th button').length") == 0


def test_tables_sort_and_filter_when_scripts_run(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["attributed"])
    column = "[...document.querySelectorAll('#suspects ~ .wide tbody tr')].map(row => row.cells[{}].textContent)"
    browser.evaluate("document.querySelectorAll('#suspects ~ .wide th button')[6].click()")
    ranks = [int(text) for text in browser.evaluate(column.format(6))]
    assert ranks == sorted(ranks)
    browser.evaluate("document.querySelectorAll('#suspects ~ .wide th button')[6].click()")
    assert [int(text) for text in browser.evaluate(column.format(6))] == sorted(ranks, reverse=True)
    browser.evaluate(
        "{const f = document.querySelector('#suspects ~ .filter input'); f.value = 'PROTO'; "
        "f.dispatchEvent(new Event('input')); }"
    )
    left = "[...document.querySelectorAll('#suspects ~ .wide tbody tr')].filter(r => !r.hidden).length"
    assert browser.evaluate(left) == 1


def test_in_print_the_paper_is_white_and_details_are_open(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["attributed"], dark=True, media="print")
    assert browser.evaluate("getComputedStyle(document.querySelector('.answer')).color") == "rgb(11, 11, 11)"
    assert browser.evaluate("document.querySelector('details.part dl').getBoundingClientRect().height > 50")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_of_hostile_text_runs_nothing_and_asks_for_nothing(browser: Browser, tmp_path: Path, width: int) -> None:
    page = tmp_path / "hostile.html"
    for seed in range(4):
        report = hostile_report(list(NASTY[seed::2]), seed)
        page.write_text(render_html(report, pictures(report)), encoding="utf-8")
        browser.open(page, width=width)
        assert browser.evaluate("document.scripts.length") == 1
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert browser.evaluate("document.querySelectorAll('img, iframe, object, [onload], [onerror]').length") == 0
        assert browser.requests() == []
        assert browser.complaints() == []


def test_a_link_to_a_launch_opens_its_table(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["attributed"])
    browser.evaluate("document.querySelector('a[href^=\"#launch-\"]').click()")
    assert browser.evaluate("document.getElementById('launch-1').closest('details').open")
