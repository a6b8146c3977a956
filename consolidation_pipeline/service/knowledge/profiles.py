"""The procedural profile (level 3): how a project, or a user of it, works, from all of its summaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.knowledge.extractive_summaries import extract_profile
from consolidation_pipeline.core.knowledge.inherited_columns import most_frequent
from consolidation_pipeline.core.knowledge.summary_batches import CHUNK_SIZE, IDENTITY_VERSION, split_chunks
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.errors import BudgetExhaustedError, ModelUnavailableError
from consolidation_pipeline.llm.gateway import Answer, Gateway
from consolidation_pipeline.llm.prompts.profile import ProfileReply, find_problems, profile_prompt
from consolidation_pipeline.service.knowledge.map_reduce import (
    Condenser,
    Failure,
    Passage,
    condense,
    find_failure,
    is_stop,
    open_condenser,
)
from consolidation_pipeline.service.knowledge.summary_rows import SummaryRow, write_summary_rows
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.knowledge.summaries import SummarySource, load_profiles, load_summaries
from consolidation_pipeline.store.ledger.cannot_link import load_undone_cluster_keys

# Users asked about at once, and written together.
BATCH = 16


@dataclass(frozen=True)
class ProfileResult:
    """What a phase did, in profiles, one per user. ``unchanged``: nothing new to say, or put away by a person.

    ``failures``: user and error; ``stopped``: why it ended before its time.
    """

    summaries: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None


@dataclass(frozen=True)
class _Planned:
    """A profile to be made (``version`` None) or made anew of all ``summaries`` of a user."""

    id: UUID
    version: int | None
    cluster_key: str
    summaries: Sequence[SummarySource]

    @property
    def passages(self) -> list[Passage]:
        """What the summaries say, oldest first."""
        return [Passage(summary.text, summary.language) for summary in self.summaries]


@dataclass(frozen=True)
class _Told:
    """What a profile says: its text, and its parts by name."""

    passage: Passage
    parts: Mapping[str, Sequence[str]]


def update_profiles(run: ProjectRun) -> ProfileResult:
    """A profile of each user whose set of summaries is not the one that the profile was made of.

    It is replaced in place, as a new version of one row, and never by nothing: where the reply fails the old one stays.
    What a person archived or undid stays as it is, the latter until there are other summaries. Nothing is made while
    ``summarize`` is off, and by a run that carries out a plan.

    Raises:
        ConflictError: a profile changed meanwhile; what was written before stays.
    """
    if not run.options.summarize or run.plan is not None:
        return ProfileResult()
    users, plans = _plan(run)
    teller = open_condenser(run)
    written: list[_Planned] = []
    failures: list[tuple[str, str]] = []
    stopped = None
    try:
        for batch in split_chunks(plans, size=BATCH):
            told = list(zip(batch, _tell(teller, batch), strict=True))
            sound = [(plan, one) for plan, one in told if isinstance(one, _Told)]
            write_summary_rows(run, [_digest(plan, one, teller.method) for plan, one in sound])
            written += [plan for plan, _ in sound]
            failures += [
                (plan.summaries[0].user_id or "no user", str(one))
                for plan, one in told
                if not isinstance(one, _Told) and not is_stop(one)
            ]
            stop = find_failure(one for _, one in told)
            if stop is not None and is_stop(stop):
                raise stop
    except (BudgetExhaustedError, ModelUnavailableError) as error:
        # Replies so far are paid for and in the cache: the next run asks for the rest.
        stopped = run.note_stop("profile", error)
    run.unfinished = run.unfinished or stopped is not None or bool(failures)
    return ProfileResult(
        summaries=sum(map(len, users)),
        created=sum(plan.version is None for plan in written),
        updated=sum(plan.version is not None for plan in written),
        unchanged=len(users) - len(plans),
        failures=tuple(failures),
        stopped=stopped,
    )


def _plan(run: ProjectRun) -> tuple[list[list[SummarySource]], list[_Planned]]:
    """The summaries of each user, and the profiles that are to be made of some."""
    with run.engine.connect() as connection:
        summaries = load_summaries(connection, run.project.id)
        held = load_profiles(connection, run.project.id)
        unwanted = load_undone_cluster_keys(connection, run.project.id, "procedural")
    users = [list(found) for _, found in groupby(summaries, key=lambda summary: summary.user_id)]
    plans = []
    for user in users:
        id_ = consolidated_id(run.project.slug, "procedural", [user[0].user_id or ""], IDENTITY_VERSION)
        key = cluster_key([summary.id for summary in user], IDENTITY_VERSION)
        known = held.get(id_)
        if key in unwanted or (known is not None and (known.is_put_away or known.cluster_key == key)):
            continue
        plans.append(_Planned(id_, None if known is None else known.version, key, user))
    return users, plans


def _tell(teller: Condenser, plans: Sequence[_Planned]) -> list[_Told | Failure]:
    if teller.gateway is None:
        return [_extract(plan.passages) for plan in plans]
    reduced = condense(teller.reduce, [plan.passages for plan in plans], most=CHUNK_SIZE)
    sound = [part for part in reduced if not isinstance(part, Failure)]
    told = iter(_ask(teller.gateway, sound))
    return [part if isinstance(part, Failure) else next(told) for part in reduced]


def _extract(passages: Sequence[Passage]) -> _Told:
    found = extract_profile([one.text for one in passages])
    parts = {
        "preferences": found.preferences,
        "practices": found.practices,
        "pitfalls": found.pitfalls,
        "facts": found.facts,
    }
    return _Told(Passage(found.content, _language(passages)), parts)


def _ask(gateway: Gateway, parts: Sequence[Sequence[Passage]]) -> Iterator[_Told | Failure]:
    prompts = [profile_prompt([one.text for one in part], [one.language for one in part]) for part in parts]
    answers = gateway.ask_many(prompts, ProfileReply, check=find_problems)
    for part, answer in zip(parts, answers, strict=True):
        if isinstance(answer, Answer):
            yield _Told(Passage(answer.value.profile.strip(), _language(part)), answer.value.parts())
        else:
            yield answer


def _language(passages: Sequence[Passage]) -> str:
    return most_frequent(one.language for one in passages)


def _digest(plan: _Planned, told: _Told, method: str) -> SummaryRow:
    details: dict[str, Any] = {name: list(texts) for name, texts in told.parts.items()}
    return SummaryRow(
        kind="procedural",
        id=plan.id,
        version=plan.version,
        cluster_key=plan.cluster_key,
        materials=plan.summaries,
        told=told.passage,
        details=details | {"summaries": len(plan.summaries)},
        method=method,
        reason=f"profile from {len(plan.summaries)} {'summary' if len(plan.summaries) == 1 else 'summaries'}",
    )
