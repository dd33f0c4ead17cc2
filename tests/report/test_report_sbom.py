"""The bill of materials: every package, nothing made up."""

from __future__ import annotations

import json
import sys

import pytest
from made_cases import snapshot

from fingerprint.errors import UsageError
from fingerprint.report.sbom import render_sbom
from snapshots import Distribution, Packages, Unread


def test_every_package_is_a_component_with_its_package_url() -> None:
    pytest.importorskip("cyclonedx", reason="the sbom extra is not installed")
    held = {
        "numpy": Distribution(version="2.1.0", location="/lib", record="a" * 64, altered={"numpy/x.py": "5"}),
        "odd": Distribution(
            version=Unread(unread="no METADATA"), location="/lib", origin="https://example.com/odd.whl"
        ),
        "<script>": Distribution(version="1\x1b[0m", location="/lib", editable=True),
    }
    shot = snapshot({}).model_copy(update={"packages": Packages(status="ok", distributions=held)})
    made = json.loads(render_sbom(shot))
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["name"]: part for part in made["components"]}
    assert parts["numpy"]["purl"] == "pkg:pypi/numpy@2.1.0"
    assert {"name": "fingerprint:altered", "value": "numpy/x.py: 5"} in parts["numpy"]["properties"]
    assert "version" not in parts["odd"]
    assert {"name": "fingerprint:version", "value": "not read: no METADATA"} in parts["odd"]["properties"]
    assert parts["<script>"]["version"] == "1\\x1b[0m"
    assert made["serialNumber"] == json.loads(render_sbom(shot))["serialNumber"]
    assert made["metadata"]["component"]["name"] == "gpu-17"


def test_a_snapshot_without_packages_says_why() -> None:
    pytest.importorskip("cyclonedx", reason="the sbom extra is not installed")
    shot = snapshot({}).model_copy(update={"packages": Packages(status="failed", reason="no interpreter")})
    with pytest.raises(UsageError, match="no interpreter"):
        render_sbom(shot)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cyclonedx.model", None)
    with pytest.raises(UsageError, match="pip install"):
        render_sbom(snapshot({}))
