"""A snapshot's packages as a CycloneDX bill of materials, for tools that know vulnerabilities and licences.

Made by CycloneDX's own library, which is an extra: `pip install 'fingerprint[sbom]'`. What could not be read stays
visible as a property; it is never a made-up version.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from fingerprint.errors import UsageError
from fingerprint.report.words import clean

if TYPE_CHECKING:
    from snapshots import Distribution, Snapshot

_NAMESPACE = uuid.UUID("5f1f5d5e-7c2b-5a0e-9d5f-0b6f6f7a8c11")
_PREFIX = "fingerprint:"


def render_sbom(snapshot: Snapshot) -> str:
    """The packages of a snapshot as CycloneDX 1.6 JSON; equal snapshots give equal serial numbers.

    Raises:
        UsageError: the library is not installed, or the snapshot has no packages.
    """
    try:
        from cyclonedx.model import Property
        from cyclonedx.model.bom import Bom, BomMetaData
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.model.tool import ToolRepository
        from cyclonedx.output.json import JsonV1Dot6
        from packageurl import PackageURL
    except ImportError:
        raise UsageError("A bill of materials needs CycloneDX's library: pip install 'fingerprint[sbom]'.") from None
    packages = snapshot.packages
    if packages.status in {"failed", "absent"}:
        reason = packages.reason or "they were not captured"
        raise UsageError(f"This snapshot of {snapshot.target} has no packages ({reason}).")

    def component(name: str, distribution: Distribution) -> Component:
        version = distribution.version if isinstance(distribution.version, str) else None
        return Component(
            name=clean(name),
            version=version and clean(version),
            type=ComponentType.LIBRARY,
            bom_ref=f"pypi:{clean(name)}",
            purl=PackageURL(type="pypi", name=clean(name), version=version and clean(version)),
            properties=[Property(name=_PREFIX + key, value=value) for key, value in _facts(distribution)],
        )

    tool = Component(
        name="fingerprint", version=clean(snapshot.tool), type=ComponentType.APPLICATION, bom_ref="fingerprint"
    )
    target = Component(name=clean(snapshot.target), type=ComponentType.DEVICE, bom_ref="host")
    bom = Bom(
        serial_number=uuid.uuid5(_NAMESPACE, snapshot.id),
        metadata=BomMetaData(
            timestamp=snapshot.taken_at,
            component=target,
            tools=ToolRepository(components=[tool]),
            properties=[Property(name=f"{_PREFIX}snapshot", value=snapshot.id)],
        ),
        components=[component(name, packages.distributions[name]) for name in sorted(packages.distributions)],
    )
    bom.register_dependency(target, list(bom.components))
    return str(JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"


def _facts(distribution: Distribution) -> list[tuple[str, str]]:
    """What CycloneDX has no field for."""
    facts = [("location", distribution.location)]
    if not isinstance(distribution.version, str):
        facts.append(("version", f"not read: {distribution.version.unread}"))
    for name in ("origin", "installer", "record", "contents"):
        value = getattr(distribution, name)
        if isinstance(value, str):
            facts.append((name, value))
    if distribution.editable:
        facts.append(("editable", "true"))
    facts += [("altered", f"{path}: {marks}") for path, marks in sorted(distribution.altered.items())]
    return [(name, clean(value)) for name, value in facts]
