"""One case of every kind of verdict, made once and only read by tests."""

from __future__ import annotations

import pytest
from made_cases import KINDS, story

from fingerprint.case import Case
from fingerprint.report import write_reports
from fingerprint.report.build import of_case
from fingerprint.report.model import Report


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    made = {}
    for kind in KINDS:
        made[kind], _ = story(tmp_path_factory.mktemp("incident") / "case", kind)
        write_reports(made[kind])
    return made


@pytest.fixture(scope="session")
def reports(cases: dict[str, Case]) -> dict[str, Report]:
    return {kind: of_case(case) for kind, case in cases.items()}
