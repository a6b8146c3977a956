"""Procedural profiles (level 3): how a project, or one of its users, works, from all of its summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.knowledge.extractive_summaries import extract_profile
from consolidation_pipeline.core.knowledge.summary_batches import CHUNK_SIZE, IDENTITY_VERSION, split_chunks
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.llm.gateway import Answer, Gateway
from consolidation_pipeline.llm.prompts.profile import ProfileReply, find_problems, profile_prompt
from consolidation_pipeline.service.knowledge.llm_gateway import STOP_ERRORS
from consolidation_pipeline.service.knowledge.map_reduce import (
    Condenser,
    ExtractiveCondenser,
    Failure,
    Passage,
    find_failure,
    find_language,
    is_stop,
    open_condenser,
    reduce_passages,
)
from consolidation_pipeline.service.knowledge.summary_rows import SummaryRow, write_summary_rows
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.knowledge.summaries import SummarySource, load_profiles, load_summaries
from consolidation_pipeline.store.ledger.cannot_link import load_undone_cluster_keys

# Users asked about at once, and written together.
BATCH = 16


@dataclass(frozen=True)
class ProfileResult:
    """The result of the phase, in profiles: one per user.

    ``summaries``: read. ``unchanged``: no other summaries than before, or a person archived or undid the profile.
    ``failures``: (user, error). ``stopped``: why the phase ended early, None if it did not.
    """

    summaries: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None


@dataclass(frozen=True)
class _ProfilePlan:
    """A profile to write of all ``summaries`` of a user. ``version``: the stored version, None for a new profile."""

    id: UUID
    version: int | None
    cluster_key: str
    summaries: Sequence[SummarySource]

    @property
    def passages(self) -> list[Passage]:
        """The texts of the summaries, oldest first."""
        return [Passage(summary.text, summary.language) for summary in self.summaries]


@dataclass(frozen=True)
class _ProfileText:
    """The text of a profile, and its parts by name."""

    passage: Passage
    parts: Mapping[str, Sequence[str]]


def update_profiles(run: ProjectRun) -> ProfileResult:
    """Write the profile of each user whose summaries are not those that the stored profile was made of.

    A profile is replaced in place, as a new version of its row. If the call fails, the old text stays. A profile that
    a person archived stays archived; one that a person undid is made again when there are other summaries. Nothing is
    written while ``summarize`` is off, or in a run that applies a plan.

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
            results = list(zip(batch, _write_texts(condenser, batch), strict=True))
            texts = [(plan, result) for plan, result in results if isinstance(result, _ProfileText)]
            write_summary_rows(run, [_build_row(plan, text, condenser.method) for plan, text in texts])
            written += [plan for plan, _ in texts]
            failures += [
                (plan.summaries[0].user_id or "no user", str(result))
                for plan, result in results
                if not isinstance(result, _ProfileText) and not is_stop(result)
            ]
            failure = find_failure(result for _, result in results)
            if failure is not None and is_stop(failure):
                raise failure
    except STOP_ERRORS as error:
        # Replies so far are paid for and in the cache: the next run asks for the rest.
        stopped = run.record_stop("profile", error)
    run.unfinished = run.unfinished or stopped is not None or bool(failures)
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
        summaries = load_summaries(connection, run.project.id)
        existing = load_profiles(connection, run.project.id)
        unwanted = load_undone_cluster_keys(connection, run.project.id, "procedural")
    users = [list(found) for _, found in groupby(summaries, key=lambda summary: summary.user_id)]
    plans = []
    for user in users:
        id_ = consolidated_id(run.project.slug, "procedural", [user[0].user_id or ""], IDENTITY_VERSION)
        key = cluster_key([summary.id for summary in user], IDENTITY_VERSION)
        known = existing.get(id_)
        if key in unwanted or (known is not None and (known.is_archived or known.cluster_key == key)):
            continue
        plans.append(_ProfilePlan(id_, None if known is None else known.version, key, user))
    return users, plans


def _write_texts(condenser: Condenser, plans: Sequence[_ProfilePlan]) -> list[_ProfileText | Failure]:
    """Return the text of each profile, from the model or extracted, or the failure."""
    if isinstance(condenser, ExtractiveCondenser):
        return [_extract_text(plan.passages) for plan in plans]
    parts = [plan.passages for plan in plans]
    reduced = reduce_passages(condenser.condense_summaries, parts, max_passages=CHUNK_SIZE)
    answers = iter(_ask_for_texts(condenser.gateway, [part for part in reduced if not isinstance(part, Failure)]))
    return [part if isinstance(part, Failure) else next(answers) for part in reduced]


def _extract_text(passages: Sequence[Passage]) -> _ProfileText:
    profile = extract_profile([passage.text for passage in passages])
    parts = {
        "preferences": profile.preferences,
        "practices": profile.practices,
        "pitfalls": profile.pitfalls,
        "facts": profile.facts,
    }
    return _ProfileText(Passage(profile.content, find_language(passages)), parts)


def _ask_for_texts(gateway: Gateway, parts: Sequence[Sequence[Passage]]) -> list[_ProfileText | Failure]:
    prompts = [profile_prompt([one.text for one in part], [one.language for one in part]) for part in parts]
    answers = gateway.ask_many(prompts, ProfileReply, check=find_problems)
    return [
        _ProfileText(Passage(answer.value.profile.strip(), find_language(part)), answer.value.parts())
        if isinstance(answer, Answer)
        else answer
        for part, answer in zip(parts, answers, strict=True)
    ]


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
