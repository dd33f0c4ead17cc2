"""From the journal's lines to a search: the search that a first line describes, and what each launch tells it."""

from __future__ import annotations

from fingerprint.bisect import noise
from fingerprint.bisect.journal import CaseLine, TrialLine
from fingerprint.bisect.search import Budget, Search, Unlaunchable, Void
from fingerprint.bisect.verdict import Then
from fingerprint.errors import CaseError


def search_of(line: CaseLine) -> Search:
    """The search that a journal's first line describes."""
    then = None
    if line.then_old_ms is not None and line.then_new_ms is not None:
        then = Then(old_ms=line.then_old_ms, new_ms=line.then_new_ms)
    return Search(
        [factor.id for factor in line.factors],
        prior=line.prior or None,
        noise=noise.prior(line.engine, line.metric),
        seed=line.seed,
        then=then,
        budget=Budget(launches=line.budget),
    )


def tell(search: Search, trial: TrialLine) -> None:
    """Tell a search what one launch gave.

    Raises:
        CaseError: the launch is of another search.
    """
    try:
        if trial.status == "measured" and trial.value_ms is not None:
            search.tell(trial.new, trial.value_ms, hours=trial.hours)
        elif trial.status == "unlaunchable":
            search.tell(trial.new, Unlaunchable(trial.reason), hours=trial.hours)
        else:
            search.tell(trial.new, Void(trial.reason), hours=trial.hours)
    except ValueError as error:
        raise CaseError(f"journal.jsonl, launch {trial.number}, is of another search: {error}.") from None
