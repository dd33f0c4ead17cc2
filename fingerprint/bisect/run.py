"""A whole bisect, from two snapshots to a case folder with its outcome.

The order keeps the promise to the host: nothing is launched before the host was read and found to be what the new
snapshot says, and the last thing that happens is that it is read again and compared.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from fingerprint import __version__, launch_file
from fingerprint.bisect.decisions import decisions
from fingerprint.bisect.journal import CaseLine, EndLine, FactorLine
from fingerprint.bisect.search import Search
from fingerprint.bisect.session import Observer, Session
from fingerprint.bisect.told import search_of
from fingerprint.bisect.verdict import Then, Verdict
from fingerprint.capture import Store, capture, store_beside
from fingerprint.case import Case, Outcome, unseen
from fingerprint.diff import Comparison, compare
from fingerprint.engines import Engine, Figure, engine_of
from fingerprint.engines.command import LAUNCH
from fingerprint.errors import CaseError, TargetError, UsageError
from fingerprint.factors import Evidence, Factor, Fixed, Found, find, plan_of
from fingerprint.factors.host_settings import KINDS as HOST_KINDS
from fingerprint.targets.local import LocalTarget
from fingerprint.wheels import Wheels
from snapshots import Unread

if TYPE_CHECKING:
    from fingerprint.host import HostProgram
    from snapshots import Measured, Snapshot

CHECKED = ("server", "packages", "startup", "trees", "limits", "host", "gpu")
"""Sections that say what a relaunch would start, and on what: the host must be as the new snapshot has them."""

PIECE_BYTES = 4 << 20
"""Of files, in one request to the host."""


@dataclass(frozen=True)
class Options:
    """What a user can say about a bisect.

    Attributes:
        folder: the case folder.
        kept: further folders with kept files, beside the one next to the old snapshot.
        only: factor ids to search; all when empty.
        seed: decides between launches of equal worth.
        launches: most launches.
        then_old_ms: the old figure of the past, where the old snapshot does not hold it.
        then_new_ms: the new figure of the past.
        secret_key: key for secrets' digests, in hexadecimal.
        pid: the live launcher, where the host runs several servers.
        port: the same by its port.
        isolation: `copies` to do without mount namespaces.
        launch: a file with the launch, where it is not the one that the new snapshot holds.
        anyway: go on although the host is not what the new snapshot says, or the server it describes does not run.
        resume: continue the case in `folder`.
        variables: set in every launch, whatever the live server has; these are no factors then.
        flags: given to every launch in the same way; an empty text is a switch.
        repo: a clone of the served tree, in which to look up commits.
        wheelhouses: folders with wheels, or other environments' site-packages, for packages whose files were not kept.
        from_index: download the wheels of such packages.
        open: search inside of culprits, too.
        engine: what is launched and how it is measured; by default what the new snapshot's server is.
        requests: measured requests of a launch, where they are not the engine's.
        max_new_tokens: tokens of each, in the same way.
        concurrency: so many requests at once, where it is not one.
        figure: what launches are compared by, where it is not the best one that the engine has.
        control: both ends are also launched without speculation, after the search.
        accept_length: fixed for every launch, so that time alone is compared; what the server says is then nonsense.
        allow_host_changes: settings of the host are factors, too: really changed for a launch, and put back.
        stop_command: stops the production server before the first launch.
        start_command: starts it again at the end, whatever that is.
    """

    folder: Path
    kept: tuple[Path, ...] = ()
    only: frozenset[str] = frozenset()
    seed: int = 0
    launches: int | None = None
    then_old_ms: float | None = None
    then_new_ms: float | None = None
    secret_key: str = "00"  # noqa: S105 - the default is no key
    pid: int | None = None
    port: int | None = None
    isolation: str | None = None
    launch: Path | None = None
    anyway: bool = False
    resume: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    repo: Path | None = None
    wheelhouses: tuple[Path, ...] = ()
    from_index: bool = False
    open: bool = True
    engine: Engine | None = None
    requests: int | None = None
    max_new_tokens: int | None = None
    concurrency: int | None = None
    control: bool = False
    accept_length: float | None = None
    figure: str | None = None
    allow_host_changes: bool = False
    stop_command: str | None = None
    start_command: str | None = None
    now: Callable[[], datetime] = field(default=lambda: datetime.now(timezone.utc))


@dataclass(frozen=True)
class Prepared:
    """What is known before the first launch."""

    case: Case
    comparison: Comparison
    found: Found
    factors: dict[str, Factor]
    search: Search
    engine: Engine
    evidence: Evidence
    then: Mapping[str, Then] = field(default_factory=dict)
    """The figures of the past, by metric."""
    restored: tuple[str, ...] = ()
    """What an earlier bisect that was killed had left on the host, and what was done about it."""


def bisect(
    host: HostProgram,
    old: Snapshot,
    new: Snapshot,
    old_path: Path,
    options: Options,
    observer: Observer,
    on_prepared: Callable[[Prepared], None] = lambda _prepared: None,
) -> tuple[Case, Outcome]:
    """Find out which difference between two snapshots makes the live server slower.

    Args:
        host: the program on the host that `new` was taken of.
        old: the good side.
        new: the slow side; the server that it describes is running.
        old_path: the old snapshot's file, beside which kept files lie.
        options: see there.
        observer: is told of every launch.
        on_prepared: is told what will be searched, before the first launch.

    Raises:
        UsageError: there is nothing to launch, or the host is not what `new` says.
        FingerprintError: as everything below.
    """
    served = new
    if options.launch is not None:
        new = launch_file.launched(new, launch_file.read(options.launch), options.launch.name)
    plan = plan_of(new)  # says what is missing before anything is touched
    _refuse_two_hosts(old, new, anyway=options.anyway)
    if (options.stop_command is None) != (options.start_command is None):
        raise UsageError("--stop-command and --start-command go together: a server that is stopped is started again.")
    engine, conditions = engine_with(new, options)
    if options.control and not engine.speculates(plan.argv):
        raise UsageError("The launch of NEW does not speculate; leave --control out.")
    restored = _put_right(host, new, engine)
    before, ask = _read_host(host, served, options)
    _refuse_other_host(
        served, before, serves=options.launch is None or bool(served.server.processes), anyway=options.anyway
    )
    index = options.folder / "wheels" if options.from_index else None
    wheels = wheels_in(options.wheelhouses, index=index, only=options.only)
    evidence = evidence_beside(old_path, options.kept, _clones(host, new, options), wheels)
    found = _switchable(host, _launchable(find(old, new, evidence), engine), options)
    launcher = before.server.processes.get("launcher")
    pid = launcher.pid if launcher is not None else None
    wanted = [factor for factor in found.factors if not options.only or factor.id in options.only]
    _get_ready(host, new, pid, {digest for factor in wanted for digest in factor.objects()}, evidence, options)
    prepared = replace(_prepare(old, new, engine, conditions, evidence, found, options), restored=restored)
    on_prepared(prepared)
    session = Session(
        host=host,
        live=new,
        engine=prepared.engine,
        factors=prepared.factors,
        search=prepared.search,
        journal=prepared.case.journal,
        observer=observer,
        evidence=prepared.evidence if options.open else None,
        isolation=options.isolation,
        then=prepared.then,
        now=options.now,
    )
    session.replay()
    if options.stop_command is None:
        verdict, controls = session.run(), session.control() if options.control else []
    else:
        port = _port(before)
        commands = {"stop": options.stop_command, "start": options.start_command, "cwd": plan.cwd, "port": port}
        host.call("stop server", commands)
        try:
            verdict, controls = session.run(), session.control() if options.control else []
        finally:  # where the way to the host broke, the host program does the same by itself
            with contextlib.suppress(TargetError):
                _start_server(host, before, engine)
        ask = {**ask, "pid": None, "port": port}
    after = capture(host, ask)
    differences = _host_differences(before, after)
    prepared.case.journal.append(
        EndLine(
            at=options.now(),
            verdict=verdict.kind,
            host_before=before.id,
            host_after=after.id,
            host_differences=differences,
        )
    )
    decided = prepared.case.journal.case()
    outcome = Outcome(
        **dict(verdict),
        metric=session.metric,
        source=session.source,
        fixed=_fixed_lines(prepared.found),
        conditions=decided.conditions,
        compared=decided.compared,
        controls=controls,
        decisions=decisions(verdict.culprits, prepared.case.journal.trials()),
        unseen=[*unseen(old, new), *session.unlike],
        opened=session.opened,
        revert=_revert(verdict, prepared.factors),
        host_before=before.id,
        host_after=after.id,
        host_differences=differences,
    )
    _keep_culprits(prepared, verdict)
    prepared.case.write_outcome(outcome)
    return prepared.case, outcome


def send_objects(host: HostProgram, evidence: Evidence, digests: Iterable[str]) -> None:
    """Bring files that trials put in place to the host, in pieces; what is there is not sent again.

    Raises:
        HostProgramError: they do not fit there.
    """
    pieces: list[dict[str, object]] = []
    waiting = 0
    wanted = sorted(set(digests))
    for digest in host.call("keep", {"digests": wanted})["missing"] if wanted else []:
        size, stream = evidence.open(digest)
        with stream:
            offset = 0
            while offset == 0 or offset < size:
                data = stream.read(PIECE_BYTES)
                encoded = base64.b64encode(data).decode("ascii")
                pieces.append({"sha256": digest, "size": size, "offset": offset, "data": encoded})
                offset += max(len(data), 1)
                waiting += len(data)
                if waiting >= PIECE_BYTES:
                    host.call("keep", {"pieces": pieces})
                    pieces, waiting = [], 0
    if pieces:
        host.call("keep", {"pieces": pieces})


def _read_host(host: HostProgram, new: Snapshot, options: Options) -> tuple[Snapshot, dict[str, object]]:
    """The host as it is, and the request that reads it so: of the server named, else of the one in the snapshot."""
    known = new.server.processes.get("launcher")
    pid = options.pid if options.pid or options.port else known.pid if known is not None else None
    verified = any(isinstance(one.contents, str) for one in new.packages.distributions.values())
    ask: dict[str, object] = {
        "sections": list(CHECKED),
        "secret_key": options.secret_key,
        "port": options.port,
        "verify": verified,  # contents are compared only where both sides read them
    }
    interpreter = new.packages.interpreter
    if known is None and interpreter is not None:  # no server says whose packages they are
        ask["python"] = interpreter.executable
    now = capture(host, {**ask, "pid": pid})
    started_again = options.pid is None and new.server.engine is not None  # any other program is known by its pid alone
    if now.server.status == "failed" and started_again:
        now = capture(host, {**ask, "pid": None})
    launcher = now.server.processes.get("launcher")
    return now, {**ask, "pid": launcher.pid if launcher is not None else None}


def evidence_beside(
    old_path: Path, further: Iterable[Path] = (), clones: Iterable[Path] = (), wheels: Wheels | None = None
) -> Evidence:
    """The kept files beside an old snapshot, those in `further` folders, clones of the served trees, and wheels."""
    stores = (store_beside(old_path), *(Store(folder / "kept") for folder in further))
    return Evidence(stores, tuple(clones), wheels)


def wheels_in(folders: Sequence[Path], *, index: Path | None, only: Iterable[str] = ()) -> Wheels | None:
    """Where old packages come from, if anywhere: folders, and a folder for downloads of what is searched."""
    names = {name for factor in only for name in factor.partition(":")[2].split("+")}
    return Wheels(folders, index, frozenset(names)) if folders or index is not None else None


def _clones(host: HostProgram, new: Snapshot, options: Options) -> list[Path]:
    """Repositories to look up commits in: the one that is named, and on this machine the live trees themselves."""
    named = [options.repo] if options.repo is not None else []
    return [*named, *(map(Path, new.trees.trees) if isinstance(host.target, LocalTarget) else ())]


def _put_right(host: HostProgram, new: Snapshot, engine: Engine) -> tuple[str, ...]:
    """Put back what a killed bisect has left, and wait for the production server if that was stopped for it."""
    said = list(host.call("restore", {})["swept"])
    if any(words.startswith("the production server") for words in said):
        _start_server(host, new, engine)
    return tuple(said)


def _get_ready(
    host: HostProgram, new: Snapshot, pid: int | None, digests: set[str], evidence: Evidence, options: Options
) -> None:
    """Take the host's lock, hand over the kept files, and hear what speaks against trials there.

    Raises:
        UsageError: there is no room for a second server, or others use its GPUs.
        HostProgramError: another bisect runs there, or the files do not fit.
    """
    prefix = plan_of(new).prefix
    answer = host.call(
        "prepare",
        {
            "pid": pid,
            "secret_key": options.secret_key,
            "trees": list(new.trees.trees),
            "prefixes": [prefix] if prefix is not None else [],
            "bytes": sum(map(evidence.size, digests)),
            "isolation": options.isolation,
            "stops": options.stop_command is not None,
        },
    )
    if answer["objections"] and not options.anyway:
        raise UsageError(f"No trial was started: {'; '.join(answer['objections'])}. --anyway goes on nevertheless.")
    send_objects(host, evidence, digests)


def _start_server(host: HostProgram, as_in: Snapshot, engine: Engine) -> None:
    """Have everything put back, and wait until the production server answers where the snapshot says."""
    address = _address(as_in)
    at = {"host": address.hostname, "port": address.port, "secure": address.scheme == "https"}
    host.call("start server", {**at, "paths": list(engine.ready_paths), "timeout_s": engine.ready_s})


def _address(snapshot: Snapshot) -> SplitResult:
    return urlsplit(snapshot.server.url or "")


def _port(snapshot: Snapshot) -> int | None:
    return _address(snapshot).port


def _switchable(host: HostProgram, found: Found, options: Options) -> Found:
    """The factors that this user can switch on this host, as the host program found out; the others are fixed."""
    refused = {
        factor.id: "a launch would really change the host for it; --allow-host-changes lets it, and puts it back"
        for factor in found.factors
        if factor.kind in HOST_KINDS and not options.allow_host_changes
    }
    demands = {factor.id: factor.demands() for factor in found.factors if factor.id not in refused}
    refused |= host.call("able", {"demands": {name: needs for name, needs in demands.items() if needs}})
    fixed = [
        Fixed(factor.id, factor.old_words, factor.new_words, refused[factor.id])
        for factor in found.factors
        if factor.id in refused
    ]
    return Found([factor for factor in found.factors if factor.id not in refused], [*found.fixed, *fixed])


def _prepare(
    old: Snapshot,
    new: Snapshot,
    engine: Engine,
    conditions: list[str],
    evidence: Evidence,
    found: Found,
    options: Options,
) -> Prepared:
    # What every launch has is no factor of it.
    forced = {f"variable:{name}" for name in engine.variables}
    forced |= {f"flag:{name}" for name in (*engine.flags, *engine.wanted_flags)}
    factors = {factor.id: factor for factor in found.factors if factor.id not in forced}
    for one in found.fixed:
        if one.id in options.only:
            raise UsageError(f"{one.id} cannot be switched: {one.reason}.")
    if unknown := options.only - factors.keys():
        raise UsageError(
            f"{', '.join(sorted(unknown))}: not among the factors; `fingerprint diff --factors` lists them."
        )
    if options.only:
        factors = {name: factor for name, factor in factors.items() if name in options.only}
    comparison = compare(old, new)
    prior = prior_of(factors, comparison)
    pasts = {metric: then for metric in engine.metrics if (then := _then(old, new, engine, metric, options))}
    then = pasts.get(engine.metrics[0])
    line = CaseLine(
        at=options.now(),
        tool=__version__,
        target=new.target,
        old=old.id,
        new=new.id,
        seed=options.seed,
        engine=engine.name,
        factors=[
            FactorLine(
                id=factor.id,
                old=factor.old_words,
                new=factor.new_words,
                revert=factor.revert(),
                covers=sorted(factor.covers() - {factor.id}),
            )
            for factor in factors.values()
        ],
        fixed=_fixed_lines(found),
        prior=prior,
        then_old_ms=then.old_ms if then else None,
        then_new_ms=then.new_ms if then else None,
        budget=options.launches,
        metric=engine.metrics[0],
        accept_length=options.accept_length,
        conditions=conditions,
        asked=asked(options),
    )
    case = _resumed(line, options) if options.resume else Case.create(options.folder, old, new)
    if options.resume:
        line = case.journal.case()
    search = search_of(line)
    if not options.resume:
        line = line.model_copy(update={"expected_launches": search.estimate().launches})
        case.journal.append(line)
    return Prepared(case, comparison, found, factors, search, engine, evidence, pasts)


def engine_with(new: Snapshot, options: Options) -> tuple[Engine, list[str]]:
    """The engine with what the user asked of every launch, and that in words.

    Raises:
        UsageError: the engine cannot do it.
    """
    known = options.engine or engine_of(new.server.engine)
    fixed: dict[str, str] = {}
    conditions = [f"{name} set for every launch" for name in (*options.variables, *options.flags)]
    if options.accept_length is not None:
        if known.accept_length is None:
            raise UsageError(f"The accept length of {known.name} cannot be fixed; leave --accept-length out.")
        fixed = {known.accept_length: f"{options.accept_length:g}"}
        how = f"{options.accept_length:g} by {known.accept_length}"
        conditions.append(f"accept length fixed at {how}: times are real, the words that come out are not")
    if options.figure is not None:
        if options.figure not in known.metrics:
            choice = ", ".join(known.metrics)
            raise UsageError(f"{known.name} launches are not compared by {options.figure}; choose from {choice}.")
        conditions.append(f"compared by {options.figure}")
    engine = replace(
        known,
        variables={**known.variables, **fixed, **options.variables},
        flags={**known.flags, **{name: (value,) if value else () for name, value in options.flags.items()}},
        metrics=(options.figure,) if options.figure is not None else known.metrics,
        requests=options.requests or known.requests,
        max_new_tokens=options.max_new_tokens or known.max_new_tokens,
        concurrency=options.concurrency or known.concurrency,
    )
    return engine, [*conditions, *engine.conditions()]


def asked(options: Options) -> list[str]:
    """The words of the command that decide how launches are measured: what a person types to do it again."""
    words = [] if options.engine is None else options.engine.words()
    for option, value in (
        ("--requests", options.requests),
        ("--tokens", options.max_new_tokens),
        ("--concurrency", options.concurrency),
        ("--accept-length", options.accept_length),
        ("--figure", options.figure),
    ):
        if value is not None:
            words += [option, str(value)]
    return words


def _launchable(found: Found, engine: Engine) -> Found:
    """The same, with what this engine's launches cannot have among the fixed differences."""
    if engine.takes_flags:
        return found
    reason = f"the command does not start what the snapshot holds; write {LAUNCH} in it where it should"
    flags = [one for one in found.factors if one.kind == "flag"]
    fixed = [Fixed(one.id, one.old_words, one.new_words, reason) for one in flags]
    return Found([one for one in found.factors if one not in flags], [*found.fixed, *fixed])


def _resumed(line: CaseLine, options: Options) -> Case:
    case = Case.open(options.folder)
    before = case.journal.case()
    if (before.old, before.new) != (line.old, line.new):
        raise CaseError(f"{options.folder} is the case of other snapshots; name its own old.json and new.json.")
    if before.conditions != line.conditions:
        raise CaseError(
            f"{options.folder} was measured in another way ({'; '.join(before.conditions)}); resume it with the same "
            "arguments."
        )
    missing = {factor.id for factor in before.factors} - {factor.id for factor in line.factors}
    if missing:
        raise CaseError(
            f"{options.folder} cannot be continued: {', '.join(sorted(missing))} cannot be switched any more."
        )
    if case.journal.end() is not None:
        raise CaseError(f"{options.folder} has come to its end already; `fingerprint report` shows it.")
    return case


def prior_of(factors: Mapping[str, Factor], comparison: Comparison) -> dict[str, float]:
    """How suspicious each factor is, by the ranking of the differences that it is; empty where none is ranked."""
    likelihood: dict[str, float] = {}
    for difference in comparison.differences:
        if difference.factor is not None:
            likelihood[difference.factor] = max(difference.likelihood, likelihood.get(difference.factor, 0.0))
    ranked = {
        name: sum(likelihood.get(difference, 0.0) for difference in factor.covers()) for name, factor in factors.items()
    }
    return {name: max(weight, 1e-3) for name, weight in ranked.items()} if any(ranked.values()) else {}


def _then(old: Snapshot, new: Snapshot, engine: Engine, metric: str, options: Options) -> Then | None:
    """The figures of the past: as given, which are of the engine's best metric, else as the snapshots have them.

    Of two sources they are no pair: the time of one rank is not that of the rank that waited least.
    """
    given = [options.then_old_ms, options.then_new_ms] if metric == engine.metrics[0] else [None, None]
    taken = [past(snapshot.measured, engine, metric) for snapshot in (old, new)]
    if given == [None, None] and len({figure.source for figure in taken if figure is not None}) > 1:
        return None
    figures = [
        figure.value if own is None and figure is not None else own for own, figure in zip(given, taken, strict=True)
    ]
    if figures[0] is None or figures[1] is None:
        return None
    return Then(old_ms=figures[0], new_ms=figures[1])


def past(measured: Measured | None, engine: Engine, metric: str) -> Figure | None:
    """What was measured on the live server, where that was done as launches will be measured.

    A verify pass depends on its context and batch.
    """
    if measured is None or engine.concurrency != 1 or measured.max_new_tokens not in {0, engine.max_new_tokens}:
        return None
    if measured.metric == metric:
        return Figure(metric, measured.value, measured.source)
    batch = measured.batches.get("1")
    value = batch.figures.get(metric) if batch is not None else None
    if batch is None or not isinstance(value, float):
        return None
    return Figure(metric, value, batch.sources.get(metric, ""))


def _fixed_lines(found: Found) -> list[FactorLine]:
    return [FactorLine(id=one.id, old=one.old_words, new=one.new_words, reason=one.reason) for one in found.fixed]


def _revert(verdict: Verdict, factors: dict[str, Factor]) -> list[str]:
    if verdict.kind not in {"attributed", "several", "interaction"}:
        return []
    largest_first = sorted(verdict.culprits, key=lambda culprit: -abs(culprit.share[1]))
    names = [name for culprit in largest_first for name in sorted(culprit.factors)]
    return [factors[name].revert() for name in names if name in factors]


def _keep_culprits(prepared: Prepared, verdict: Verdict) -> None:
    """Copy the kept files of what is blamed beside the case's old snapshot, where the lines that revert it look."""
    store = store_beside(prepared.case.folder / "old.json")
    blamed = [prepared.factors[name] for culprit in verdict.culprits for name in culprit.factors]
    for digest in sorted({digest for factor in blamed for digest in factor.objects()}):
        store.put(prepared.evidence.get(digest))


def _host_differences(before: Snapshot, after: Snapshot) -> list[str]:
    comparison = compare(before, after)
    lost = [
        one for one in comparison.not_comparable if not (isinstance(one.old, Unread) and isinstance(one.new, Unread))
    ]
    return [f"{one.title}: {one.verdict}" for one in (*comparison.differences, *lost)]


def _refuse_two_hosts(old: Snapshot, new: Snapshot, *, anyway: bool) -> None:
    """Between two hosts everything differs, and no launch on one can have the other's hardware."""
    names = old.host.name, new.host.name
    if None not in names and names[0] != names[1] and not anyway:
        raise UsageError(
            f"The old snapshot is of another host ({names[0]}) than the new one ({names[1]}); `fingerprint diff`"
            " compares them. If it is the same one under another name, use --anyway."
        )


def _refuse_other_host(new: Snapshot, now: Snapshot, *, serves: bool, anyway: bool) -> None:
    """What a relaunch starts must be what the new snapshot says, or a search would compare something else."""
    if anyway:
        return
    if serves and now.server.status in {"failed", "absent"}:
        raise UsageError(
            f"The live server cannot be read: {now.server.reason or 'none is running'}; start the server that the new "
            "snapshot describes, capture the present one, or use --anyway to launch what the snapshot holds."
        )
    found = find(new, now, Evidence())
    others = [*(one.id for one in found.factors), *(one.id for one in found.fixed)]
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise UsageError(
            f"The host is not what the new snapshot says: {', '.join(others[:3])}{more} changed since. "
            "Capture it again and bisect with that, or use --anyway."
        )
