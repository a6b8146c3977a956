"""Procedural profiles (level 3): how a project, or one of its users, works, from all summaries of one scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.knowledge.profile_counts import CountedProfile, count_profile
from consolidation_pipeline.core.knowledge.summary_batches import CHUNK_SIZE, IDENTITY_VERSION, split_chunks
from consolidation_pipeline.core.memories.memories import consolidated_id
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
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.knowledge.summaries import (
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
    ``stopped``: why the phase ended early, None if it did not.
    """

    summaries: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None


@dataclass(frozen=True)
class _ProfilePlan:
    """A profile to write from all summaries of a user, oldest first. ``version``: stored version, None if it is new."""

    id: UUID
    version: int | None
    cluster_key: str
    summaries: Sequence[SummarySource]

    @property
    def passages(self) -> list[Passage]:
        """Texts of the summaries."""
        return [Passage(summary.text, summary.language) for summary in self.summaries]


@dataclass(frozen=True)
class _ProfileText:
    """The text of a profile, and its parts by name."""

    passage: Passage
    parts: Mapping[str, Sequence[str]]


def update_profiles(run: ProjectRun) -> ProfileResult:
    """Write the profile of each user whose summaries differ from those that the stored profile was made of.

    A new text becomes a new version of the row. If the call fails, the old text stays. A profile that a person archived
    stays archived; one that a person undid is made again from other summaries only. Nothing is written while
    ``summarize`` is off, or in a run that applies a plan.

    Raises:
        ConflictError: a profile changed meanwhile; earlier batches stay written.
    """
    if not run.options.summarize or run.plan is not None:
        return ProfileResult()
    users, plans = _plan_profiles(run)
    condenser = open_condenser(run)
    written: list[_ProfilePlan] = []
    failures: list[tuple[str, str]] = []
    stopped = None
    try:
        for batch in split_chunks(plans, size=BATCH):
            counted = _count_profiles(run, batch, is_for_model=condenser is not None)
            if condenser is None:
                # Where all memories are archived, nothing is left to count.
                counted = [one for one in counted if one[1].content]
            owners = [plan for plan, _ in counted]
            found = _write_texts(condenser, owners, [profile for _, profile in counted])
            results = list(zip(owners, found, strict=True))
            texts = [(plan, result) for plan, result in results if isinstance(result, _ProfileText)]
            method = "heuristic" if condenser is None else "llm"
            write_summary_rows(run, [_build_row(plan, text, method) for plan, text in texts])
            written += [plan for plan, _ in texts]
            failures += [
                (plan.summaries[0].user_id or "no user", str(result))
                for plan, result in results
                if not isinstance(result, (_ProfileText, *STOP_ERRORS))
            ]
            stop = find_stop(result for _, result in results)
            if stop is not None:
                raise stop
    except STOP_ERRORS as error:
        # Replies so far are in the cache; the next run asks for the rest.
        stopped = run.record_stop("profile", error)
    run.unfinished = run.unfinished or bool(failures)
    return ProfileResult(
        summaries=sum(map(len, users)),
        created=sum(plan.version is None for plan in written),
        updated=sum(plan.version is not None for plan in written),
        unchanged=len(users) - len(plans),
        failures=tuple(failures),
        stopped=stopped,
    )


def _plan_profiles(run: ProjectRun) -> tuple[list[list[SummarySource]], list[_ProfilePlan]]:
    """Return the summaries of each user, and the profiles to write."""
    with run.engine.connect() as connection:
        summaries = load_summaries(connection, run.project.id, scope=run.options.scope)
        existing = load_profiles(connection, run.project.id)
        unwanted = load_undone_cluster_keys(connection, run.project.id, "procedural")
    users = [list(found) for _, found in groupby(summaries, key=lambda summary: (summary.user_id, summary.scope_key))]
    plans = []
    for user in users:
        # A user has one profile, or one in each scope.
        owner, scope = user[0].user_id or "", user[0].scope_key
        names = [owner] if scope in (None, "", owner) else [owner, scope]
        id_ = consolidated_id(run.project.slug, "procedural", names, IDENTITY_VERSION)
        key = cluster_key([summary.id for summary in user], IDENTITY_VERSION)
        known = existing.get(id_)
        is_made = known is not None and known.cluster_key == key and not known.is_retired
        if key in unwanted or is_made or (known is not None and known.is_archived):
            continue
        plans.append(_ProfilePlan(id_, None if known is None else known.version, key, user))
    return users, plans


def _count_profiles(
    run: ProjectRun, plans: Sequence[_ProfilePlan], *, is_for_model: bool
) -> list[tuple[_ProfilePlan, CountedProfile]]:
    """Return each plan with what can be counted of the memories behind its summaries.

    ``is_for_model``: without tags and files, which are sent to no model.
    """
    sources = [[summary.id for summary in plan.summaries] for plan in plans]
    with run.engine.connect() as connection:
        memories = load_profiled(connection, sources, most=MOST_MEMORIES)
    if is_for_model:
        memories = [[replace(one, tags=(), files=()) for one in own] for own in memories]
    return [(plan, count_profile(own, boilerplate=run.boilerplate)) for plan, own in zip(plans, memories, strict=True)]


def _write_texts(
    condenser: Condenser | None, plans: Sequence[_ProfilePlan], counted: Sequence[CountedProfile]
) -> list[_ProfileText | Failure]:
    """Return the text of each profile, from the model or from the counts alone, or the failure."""
    parts = [plan.passages for plan in plans]
    if condenser is None:
        return [
            _ProfileText(Passage(profile.content, find_language(part)), profile.parts)
            for part, profile in zip(parts, counted, strict=True)
        ]
    reduced = reduce_passages(condenser.condense_summaries, parts, max_passages=CHUNK_SIZE)
    prompts = [
        profile_prompt([one.text for one in part], [one.language for one in part], profile.content)
        for part, profile in zip(reduced, counted, strict=True)
        if not isinstance(part, Failure)
    ]
    answers = iter(condenser.gateway.ask_many(prompts, ProfileReply, check=find_problems))
    results: list[_ProfileText | Failure] = []
    for part in reduced:
        if isinstance(part, Failure):
            results.append(part)
        elif isinstance(answer := next(answers), Answer):
            passage = Passage(answer.value.profile.strip(), find_language(part))
            results.append(_ProfileText(passage, answer.value.parts()))
        else:
            results.append(answer)
    return results


def _build_row(plan: _ProfilePlan, text: _ProfileText, method: str) -> SummaryRow:
    details: dict[str, Any] = {name: list(sentences) for name, sentences in text.parts.items()}
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
