"""The report as one HTML file: no request, no dependency, complete without scripts.

Every value is escaped by the template engine. As a second wall the page's own policy lets nothing load, and lets only
the one script run whose digest it names: sorting and filtering of tables.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from fingerprint.report.words import duration, ms, number, percent

if TYPE_CHECKING:
    from fingerprint.report.charts import Picture
    from fingerprint.report.model import Report


def render_html(report: Report, drawn: Sequence[Picture] = ()) -> str:
    """The report as a page."""
    style, script = (_own("colors.css") + _own("report.css")), _own("report.js")
    return _template().render(
        report=report,
        pictures={picture.name: picture for picture in drawn},
        style=Markup(style),  # noqa: S704 - files of this package
        script=Markup(script),  # noqa: S704
        style_digest=_digest(style),
        script_digest=_digest(script),
    )


@functools.cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("fingerprint.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"ms": ms, "number": number, "percent": percent, "duration": duration}
    return environment.get_template("report.html.j2")


def _own(name: str) -> str:
    """A file of this package."""
    return files("fingerprint.report").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
