"""The report of a case: one model, several formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fingerprint.case import Case


def write_reports(case: Case) -> None:
    """Write `report.md` with its pictures and `report.html` into the case folder, each whole or not at all.

    Raises:
        CaseError: there is no case, or the folder cannot be written.
        SnapshotError: one of its snapshots is damaged.
    """
    from fingerprint.errors import CaseError
    from fingerprint.report.build import of_case
    from fingerprint.report.charts import pictures
    from fingerprint.report.html import render_html
    from fingerprint.report.markdown import render_markdown

    report = of_case(case)
    drawn = pictures(report)
    files = {f"pictures/{picture.name}.svg": picture.file() for picture in drawn}
    files["report.md"] = render_markdown(report, drawn)
    files["report.html"] = render_html(report, drawn)
    try:
        (case.folder / "pictures").mkdir(exist_ok=True)
        for name, text in files.items():
            partial = case.folder / f"{name}.part"
            partial.write_text(text, encoding="utf-8")
            partial.replace(case.folder / name)
    except OSError as error:
        raise CaseError(f"The report cannot be written into {case.folder}: {error.strerror}.") from None
