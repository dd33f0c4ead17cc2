"""The report of a case: one model, several formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fingerprint.case import Case
    from fingerprint.report.charts import Picture
    from fingerprint.report.model import Report

Format = Literal["html", "markdown", "json"]


def write_reports(case: Case) -> None:
    """Write `report.md` with its pictures and `report.html` into the case folder, each whole or not at all.

    Raises:
        CaseError: there is no case, or the folder cannot be written.
        SnapshotError: one of its snapshots is damaged.
    """
    report, drawn = _made(case)
    _write(case.folder / "report.md", "markdown", report, drawn)
    _write(case.folder / "report.html", "html", report, drawn)


def write_report(case: Case, path: Path, form: Format) -> None:
    """Write the report in one format to a path of its own; raises as `write_reports` does."""
    _write(path, form, *_made(case))


def _made(case: Case) -> tuple[Report, list[Picture]]:
    from fingerprint.report.build import of_case
    from fingerprint.report.charts import pictures

    report = of_case(case)
    return report, pictures(report)


def _write(path: Path, form: Format, report: Report, drawn: list[Picture]) -> None:
    from fingerprint.errors import CaseError
    from fingerprint.report.html import render_html
    from fingerprint.report.markdown import render_markdown

    files = {}
    if form == "markdown":
        files = {path.parent / "pictures" / f"{picture.name}.svg": picture.file() for picture in drawn}
        files[path] = render_markdown(report, drawn)
    elif form == "html":
        files[path] = render_html(report, drawn)
    else:
        files[path] = report.model_dump_json(indent=1) + "\n"
    try:
        for place, text in files.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            partial = place.with_name(f"{place.name}.part")
            partial.write_text(text, encoding="utf-8")
            partial.replace(place)
    except OSError as error:
        raise CaseError(f"The report cannot be written to {path}: {error.strerror}.") from None
