"""Write the JSON schemas of everything that other programs may read: `python docs/schema/generate.py`.

A test compares the files with the models, so a change of a format is seen in the change itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fingerprint.report.checks import CheckDocument
from fingerprint.report.differences import ComparisonDocument
from fingerprint.report.factors import FactorsDocument
from fingerprint.report.fleets import FleetDocument
from snapshots import Snapshot

HERE = Path(__file__).parent
DOCUMENTS: dict[str, type[BaseModel]] = {
    "snapshot": Snapshot,
    "comparison": ComparisonDocument,
    "factors": FactorsDocument,
    "fleet": FleetDocument,
    "check": CheckDocument,
}


def schema(name: str) -> dict[str, Any]:
    """The schema of one document, as JSON Schema 2020-12."""
    made = DOCUMENTS[name].model_json_schema(by_alias=True, mode="validation")
    if name == "snapshot":
        told = {
            "id": "SHA-256 of the identity part.",
            "digest": "SHA-256 of all else in the file as JSON with sorted keys, no blanks, and ASCII only.",
        }
        made["properties"] = {
            **{
                name: {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": words}
                for name, words in told.items()
            },
            **made["properties"],
        }
        made["required"] = ["schema", *told, *made["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def text(name: str) -> str:
    """The schema's file."""
    return json.dumps(schema(name), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    for document in DOCUMENTS:
        (HERE / f"{document}.json").write_text(text(document), encoding="utf-8")
