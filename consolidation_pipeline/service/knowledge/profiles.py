"""Procedural profiles (level 3): how a project, or one of its users, works, from all summaries of one scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.knowledge.observation import Observation
from consolidation_pipeline.core.knowledge.profile_counts import CountedProfile, count_profile
from consolidation_pipeline.core.knowledge.summary_batches import CHUNK_SIZE, IDENTITY_VERSION
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.embed.local import is_near
from consolidation_pipeline.llm.gateway import Answer
from consolidation_pipeline.llm.prompts.profile import ProfileReply, find_problems, profile_prompt
from consolidation_pipeline.service.knowledge.llm_gateway import STOP_ERRORS
from consolidation_pipeline.service.knowledge.map_reduce import (
    Condenser,
    Failure,
    Passage,
    find_language,
    find_stop,
    open_condenser,
    reduce_passages,
)
from consolidation_pipeline.service.knowledge.summary_rows import SummaryRow, write_summary_rows
from consolidation_pipeline.service.runs.prefetch import prefetch
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.store.knowledge.abstractions import REWRITE_PENDING
from consolidation_pipeline.store.knowledge.summaries import (
    ExistingProfile,
    ProfileOwner,
    SummarySource,
    load_profiled,
    load_profiles,
    load_summaries,
)
from consolidation_pipeline.store.ledger.cannot_link import load_undone_cluster_keys

# Users whose profiles are asked for together and written together.
BATCH = 16
# Memories that a profile counts, the newest: habits change.
MOST_MEMORIES = 5_000


@dataclass(frozen=True)
class ProfileResult:
    """Counts of the phase, in profiles except ``summaries``.

    ``unchanged``: made of the same summaries, or archived or undone by a person. ``failures``: (user, error).
    ``stopped``: why the model is not asked for more, None if it is.
    """

    summaries: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None


@dataclass(frozen=True)
class _ProfilePlan:
    """A profile to write from all summaries of a user, oldest first.

    ``version``: stored version, None if it is new. ``keeps_text``: without the text of a model it stays as it is.
    """

    id: UUID
    version: int | None
    cluster_key: str
    summaries: Sequence[SummarySource]
    keeps_text: bool

    @property
    def passages(self) -> list[Passage]:
        """Texts of the summaries."""
        return [Passage(summary.text, summary.language) for summary in self.summaries]

    @property
    def memories(self) -> int:
        """Number of memories behind the summaries."""
        return sum(len(summary.raw_ids) for summary in self.summaries)


@dataclass(frozen=True)
class _ProfileText:
    """The text of a profile, and its parts by name."""

    passage: Passage
    parts: Mapping[str, Sequence[str]]


def update_profiles(run: ProjectRun) -> ProfileResult:
    """Write the profile of each user whose summaries differ from those that the stored profile was made of.

    A new text becomes a new version of the row. If the model gives none, a text of a model stays, any other one is
    counted without it; the next run asks again. A profile that a person archived stays archived; one that a person
    undid is made again from other summaries only. Nothing is written while ``summarize`` is off, or in a run that
    applies a plan.

    Raises:
        ConflictError: a profile changed meanwhile; earlier batches stay written.
    """
    if not run.options.summarize or run.plan is not None:
        return ProfileResult()
    users, plans = _plan_profiles(run)
    condenser = open_condenser(run)
    written: list[_ProfilePlan] = []
    failures: list[tuple[str, str]] = []
    unanswered, stop = 0, None
    batches = split_chunks(plans, size=BATCH)
    memories = sum(plan.memories for plan in plans)
    # While one batch is written, the next is counted and the one after it is loaded.
    loaded = prefetch((batch, _load_memories(run, batch)) for batch in (batches if condenser is None else ()))
    ahead = prefetch(_count_texts(run, batch, own, memories=memories) for batch, own in loaded)
    try:
        for batch in batches:
            results = _ask_for_texts(run, condenser, batch, stop)
            stop = stop or find_stop(results)
            pairs = list(zip(batch, results, strict=True))
            answered = [(plan, one) for plan, one in pairs if isinstance(one, _ProfileText)]
            write_summary_rows(run, [_build_row(plan, text, "llm") for plan, text in answered])
            failing = [(plan, one) for plan, one in pairs if isinstance(one, Failure)]
            failures += [
                (plan.summaries[0].user_id or "no user", str(one))
                for plan, one in failing
                if not isinstance(one, STOP_ERRORS)
            ]
            unanswered += len(failing)
            rest = [plan for plan, _ in failing if not plan.keeps_text]
            counted = (
                next(ahead)
                if condenser is None
                else _count_texts(run, rest, _load_memories(run, rest), memories=memories)
            )
            is_pending = condenser is not None
            rows = [_build_row(plan, text, "heuristic", is_pending=is_pending) for plan, text in counted]
            write_summary_rows(run, rows)
            written += [plan for plan, _ in (*answered, *counted)]
    except STOP_ERRORS as error:  # the budget does not pay for the vectors
        stop = error
    run.record_failing("profile", unanswered, [error for _, error in failures], stop)
    return ProfileResult(
        summaries=sum(map(len, users)),
        created=sum(plan.version is None for plan in written),
        updated=sum(plan.version is not None for plan in written),
        unchanged=len(users) - len(plans),
        failures=tuple(failures),
        stopped=None if stop is None else str(stop),
    )


def _plan_profiles(run: ProjectRun) -> tuple[list[list[SummarySource]], list[_ProfilePlan]]:
    """Return the summaries of each user, and the profiles to write."""
    with run.reading() as connection:
        summaries = load_summaries(connection, run.project.id, scope=run.options.scope)
        existing = load_profiles(connection, run.project.id)
        unwanted = load_undone_cluster_keys(connection, run.project.id, "procedural")
    users = [list(found) for _, found in groupby(summaries, key=lambda summary: (summary.user_id, summary.scope_key))]
    ids = _choose_ids(run.project.slug, users, existing)
    plans, has_model = [], run.options.llm_model is not None
    for user in users:
        id_ = ids[_find_owner(user)]
        key = cluster_key([summary.id for summary in user], IDENTITY_VERSION)
        known = existing.get(id_)
        is_made = known is not None and known.cluster_key == key and not known.is_retired
        # A text that a model wrote from summaries that wait for it stays until they have their texts.
        waits = any(summary.is_pending for summary in user)
        is_due = known is not None and known.is_pending and has_model and not (known.by_model and waits)
        if key in unwanted or (is_made and not is_due) or (known is not None and known.is_archived):
            continue
        keeps_text = known is not None and not known.is_retired and (known.by_model or is_made)
        plans.append(_ProfilePlan(id_, None if known is None else known.version, key, user, keeps_text))
    return users, plans


def _find_owner(user: Sequence[SummarySource]) -> ProfileOwner:
    return user[0].user_id or "", user[0].scope_key or ""


def _choose_ids(
    slug: str, users: Sequence[Sequence[SummarySource]], existing: Mapping[UUID, ExistingProfile]
) -> dict[ProfileOwner, UUID]:
    """Return the id of each profile: of the stored row of its user and scope, or else one made from their names.

    A user has one profile, or one in each scope. A row may have got another scope key when the option ``scope``
    changed. The id of a row that is another of these profiles is not given to a second one.
    """
    known = {profile.owner: id_ for id_, profile in existing.items() if profile.is_archived}
    known |= {profile.owner: id_ for id_, profile in existing.items() if not profile.is_retired}
    wanted = set(map(_find_owner, users))
    taken = {known[owner] for owner in wanted & known.keys()}
    ids = {}
    for owner in sorted(wanted):
        id_ = known.get(owner)
        if id_ is None:
            user, scope = owner
            names = [user] if scope in ("", user) else [user, scope]
            id_ = consolidated_id(slug, "procedural", names, IDENTITY_VERSION)
            while id_ in taken:
                id_ = consolidated_id(slug, "procedural", [*names, str(id_)], IDENTITY_VERSION)
        taken.add(id_)
        ids[owner] = id_
    return ids


def _load_memories(run: ProjectRun, plans: Sequence[_ProfilePlan]) -> list[list[Observation]]:
    """Return the memories behind the summaries of each plan, the newest."""
    sources = [[summary.id for summary in plan.summaries] for plan in plans]
    with run.reading() as connection:
        return load_profiled(connection, sources, most=MOST_MEMORIES)


def _count_profiles(
    run: ProjectRun, observed: Sequence[Sequence[Observation]], *, memories: int
) -> list[CountedProfile]:
    """Return what can be counted of the memories of each plan. ``memories``: number behind the plans of all batches."""
    count = partial(count_profile, boilerplate=run.boilerplate)
    return [*compute_in_order(count, observed, memories=memories)]


def _count_texts(
    run: ProjectRun, batch: Sequence[_ProfilePlan], observed: Sequence[Sequence[Observation]], *, memories: int
) -> list[tuple[_ProfilePlan, _ProfileText]]:
    """Return each plan of a batch with its text from the counts alone.

    Left out are plans whose memories are all archived.
    """
    profiles = _count_profiles(run, observed, memories=memories)
    return [
        (plan, _ProfileText(Passage(profile.content, find_language(plan.passages)), profile.parts))
        for plan, profile in zip(batch, profiles, strict=True)
        if profile.content
    ]


def _ask_for_texts(
    run: ProjectRun, condenser: Condenser | None, plans: Sequence[_ProfilePlan], stop: Failure | None
) -> list[_ProfileText | Failure | None]:
    """Return the text of each profile from the model, or why there is none: None without a model, ``stop`` if given."""
    if condenser is None or stop is not None:
        return [stop] * len(plans)
    # Tags and files are sent to no model.
    observed = [[replace(one, tags=(), files=()) for one in own] for own in _load_memories(run, plans)]
    counted = _count_profiles(run, observed, memories=sum(plan.memories for plan in plans))
    parts = [plan.passages for plan in plans]
    reduced = reduce_passages(condenser.condense_summaries, parts, max_passages=CHUNK_SIZE)
    prompts = [
        profile_prompt([one.text for one in part], [one.language for one in part], profile.content)
        for part, profile in zip(reduced, counted, strict=True)
        if not isinstance(part, Failure)
    ]
    answers = iter(condenser.gateway.ask_many(prompts, ProfileReply, check=partial(find_problems, is_near=is_near)))
    results: list[_ProfileText | Failure | None] = []
    for part in reduced:
        if isinstance(part, Failure):
            results.append(part)
        elif isinstance(answer := next(answers), Answer):
            passage = Passage(answer.value.profile.strip(), find_language(part))
            results.append(_ProfileText(passage, answer.value.parts()))
        else:
            results.append(answer)
    return results


def _build_row(plan: _ProfilePlan, text: _ProfileText, method: str, *, is_pending: bool = False) -> SummaryRow:
    details: dict[str, Any] = {name: list(sentences) for name, sentences in text.parts.items()}
    if is_pending or any(summary.is_pending for summary in plan.summaries):
        details[REWRITE_PENDING] = True
    return SummaryRow(
        kind="procedural",
        id=plan.id,
        version=plan.version,
        cluster_key=plan.cluster_key,
        sources=plan.summaries,
        passage=text.passage,
        details=details | {"summaries": len(plan.summaries)},
        method=method,
        reason=f"profile from {len(plan.summaries)} {'summary' if len(plan.summaries) == 1 else 'summaries'}",
    )
