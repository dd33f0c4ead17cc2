"""Measure the live server of a snapshot, from its own host."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fingerprint.engines import engine_of, figure_of
from fingerprint.errors import LaunchError
from snapshots import Measured

if TYPE_CHECKING:
    from fingerprint.host import HostProgram
    from snapshots import Snapshot


def measure(host: HostProgram, snapshot: Snapshot) -> Measured:
    """Measure the server that the snapshot describes, with the same requests as every trial.

    Raises:
        UsageError: its engine is not known.
        LaunchError: it does not answer, or nothing could be measured.
    """
    engine = engine_of(snapshot.server.engine)
    url = snapshot.server.url
    port = urlsplit(url).port if url else None
    if port is None:
        raise LaunchError("The live server cannot be measured: no port of it is known; is it listening?")
    figures = host.call("measure", {"port": port, **engine.measurement()})
    figure = figure_of(figures, engine.metrics)
    if isinstance(figure, str):
        raise LaunchError(f"The live server cannot be measured: {figure}.")

    def number(name: str) -> float | None:
        value = figures.get(name)
        return float(value) if isinstance(value, (int, float)) else None

    return Measured(
        metric=figure.metric,
        value=figure.value,
        source=figure.source,
        accept_length=number("accept_length"),
        tokens_per_second=number("tokens_per_second"),
        requests=engine.requests,
    )
