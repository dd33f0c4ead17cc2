"""Measure a live server from its own host, and what its figures say about plain decoding.

The requests are those of every trial, so a figure taken on the live server can be compared with a bisect's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import ValidationError

from fingerprint.engines import SGLANG, Engine, engine_of, figure_of
from fingerprint.errors import HostProgramError, LaunchError, UsageError
from fingerprint.files import load_snapshot, save_snapshot
from fingerprint.speed import accept_length_for, tokens_per_second
from snapshots import Batch, Measured, Unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fingerprint.host import HostProgram
    from snapshots import Snapshot


KEY_VARIABLE = "FINGERPRINT_API_KEY"
"""On the operator's machine; a key on a command line would be read by everybody there."""


@dataclass(frozen=True)
class Address:
    """Where a server answers, as its own host calls it."""

    host: str
    port: int
    secure: bool = False

    @classmethod
    def of(cls, url: str) -> Address:
        """Read `http://HOST:PORT`, `https://HOST:PORT`, `HOST:PORT` or `:PORT`.

        Raises:
            UsageError: it is none of these.
        """
        parts = urlsplit(url if "://" in url else f"//{url}")
        if "@" in parts.netloc:
            raise UsageError(f"No password belongs in an address; the server's key is read from {KEY_VARIABLE}.")
        try:
            port = parts.port or (443 if parts.scheme == "https" else None)
        except ValueError:
            port = None
        if parts.scheme not in {"", "http", "https"} or port is None or parts.path not in {"", "/"}:
            known = f"{parts.scheme or 'http'}://{parts.netloc}" if port is not None else "http://127.0.0.1:30000"
            raise UsageError(f"{url} is no address that can be measured; write {known} (or https).")
        return cls(parts.hostname or "127.0.0.1", port, parts.scheme == "https")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"


def key_in(variables: Mapping[str, str]) -> str | None:
    """The key that a server wants to see, where the operator's variables hold it.

    Raises:
        UsageError: what they hold cannot be sent as one.
    """
    key = variables.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"{KEY_VARIABLE} holds what no key can be: a line break, a control or a letter beyond ASCII.")
    return key or None


def measure(host: HostProgram, snapshot: Snapshot, concurrency: Iterable[int] = (), key: str | None = None) -> Measured:
    """Measure the server that the snapshot describes, with the same requests as every trial.

    Raises:
        UsageError: its engine is not known.
        LaunchError: it does not answer, or nothing could be measured.
    """
    url = snapshot.server.url
    if url is None:
        raise LaunchError("The live server cannot be measured: no port of it is known; is it listening?")
    return measure_at(host, Address.of(url), engine_of(snapshot.server.engine), concurrency, key)


def with_figures(host: HostProgram, snapshot: Snapshot, key: str | None) -> tuple[Snapshot, str | None]:
    """The snapshot with the figures of its server; or as it was, and why they cannot be had.

    What was read is not lost for a server that does not answer.
    """
    try:
        return snapshot.model_copy(update={"measured": measure(host, snapshot, key=key)}), None
    except (UsageError, LaunchError) as error:
        return snapshot, str(error)


def measure_at(
    host: HostProgram, at: Address, engine: Engine, concurrency: Iterable[int] = (), key: str | None = None
) -> Measured:
    """Measure a server by its address: one request at a time, then so many at once as `concurrency` says.

    `key` is what the server wants to see; without one, what its own command line on the host names.

    Raises:
        LaunchError: it does not answer, or nothing could be measured.
    """
    batches: dict[str, Batch] = {}
    numbers = sorted({*concurrency} - {1})
    asked = {**at.__dict__, "key": key, **engine.measurement(), "together": max(numbers, default=1)}

    def answer(together: int) -> dict[str, object]:
        try:
            said: dict[str, object] = host.call("measure", {**asked, "concurrency": together})
        except HostProgramError as error:
            if error.kind != "measure":
                raise
            raise LaunchError(f"{at} on {host.target.name} cannot be measured: {error}.") from None
        return said

    alone = answer(1)
    figure = figure_of(alone, engine.metrics)
    if isinstance(figure, str):
        raise LaunchError(f"{at} on {host.target.name} cannot be measured: {figure}.")
    batches["1"] = _batch(alone)
    for number in numbers:
        batches[str(number)] = _batch(answer(number))

    def number_of(name: str) -> float | None:
        value = batches["1"].figures.get(name)
        return value if isinstance(value, float) else None

    return Measured(
        metric=figure.metric,
        value=figure.value,
        source=figure.source,
        accept_length=number_of("accept_length"),
        most_accepted=most if type(most := alone.get("most_accepted")) is int else None,
        tokens_per_second=number_of("tokens_per_second"),
        requests=engine.requests,
        max_new_tokens=engine.max_new_tokens,
        batches=batches,
    )


def _batch(answer: dict[str, object]) -> Batch:
    sources = answer.get("sources")
    figures = {name: answer.get(name) for name in sources} if isinstance(sources, dict) else {}
    try:
        return Batch.model_validate({"figures": figures, "sources": sources, "ranks": answer.get("ranks")})
    except ValidationError as error:
        raise HostProgramError(f"the host measured what is no figure: {error.errors()[0]['msg']}.") from None


def attach(path: Path, at: Address, measured: Measured) -> None:
    """Write a measurement into a snapshot's file, which keeps its id.

    Raises:
        UsageError: the snapshot is of another server.
        SnapshotError: the file is no snapshot, or cannot be written.
    """
    snapshot = load_snapshot(path)
    refuse_another(snapshot, path, at)
    save_snapshot(snapshot.model_copy(update={"measured": measured}), path)


def refuse_another(snapshot: Snapshot, path: Path, at: Address) -> None:
    """A figure of one server must not get into the snapshot of another.

    Raises:
        UsageError: it would.
    """
    url = snapshot.server.url
    if url is None or Address.of(url).port != at.port:
        raise UsageError(f"{path} is of another server ({url or 'none'}), not of the one on port {at.port}.")


def engine_for(snapshot: Snapshot | None, requests: int | None, max_new_tokens: int | None) -> Engine:
    """The requests of a measurement: those of the snapshot's engine, else SGLang's, where nothing else is said."""
    engine = SGLANG if snapshot is None else engine_of(snapshot.server.engine)
    return replace(engine, requests=requests or engine.requests, max_new_tokens=max_new_tokens or engine.max_new_tokens)


@dataclass(frozen=True)
class BreakEven:
    """What speculation gives, and the accept lengths at which it would be as fast as asked.

    Attributes:
        tokens_per_second: of the cycle and accept length measured.
        cycle_ms: the mean cycle.
        accept_length: as measured.
        needed: for each speed asked for, in tokens per second, the accept length that gives it.
        most: tokens that a cycle can gain at most; None: not known.
    """

    tokens_per_second: float
    cycle_ms: float
    accept_length: float
    needed: dict[float, float]
    most: int | None = None


def break_even(cycle_ms: float, accept_length: float, wanted: Iterable[float], most: int | None = None) -> BreakEven:
    """The break-even of cycles of `cycle_ms` for each speed in `wanted`, such as plain decoding's."""
    return BreakEven(
        tokens_per_second=tokens_per_second(accept_length, cycle_ms),
        cycle_ms=cycle_ms,
        accept_length=accept_length,
        needed={speed: accept_length_for(speed, cycle_ms) for speed in wanted},
        most=most,
    )


def break_even_of(measured: Measured, wanted: Iterable[float]) -> BreakEven | Unread:
    """The break-even of a measurement, or why it has none."""
    figures = measured.batches["1"].figures if "1" in measured.batches else {}
    cycle, length = (figures.get(name) for name in ("cycle_mean_ms", "accept_length"))
    if isinstance(cycle, float) and isinstance(length, float):
        return break_even(cycle, length, wanted, measured.most_accepted)
    reasons = (one.unread for one in (length, cycle) if isinstance(one, Unread))
    return Unread(unread=next(reasons, "it was measured without cycles"))
