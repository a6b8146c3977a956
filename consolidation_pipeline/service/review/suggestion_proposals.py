"""Proposals of suggestions by a run: the groups that are worth most, with texts of a language model if there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.errors import InvalidReplyError, LLMError
from consolidation_pipeline.llm.gateway import Answer, Outcome
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.prompts.suggestion import (
    OriginalMemory,
    SuggestionReply,
    find_losses,
    read_reply,
    suggestion_prompt,
)
from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.knowledge.merge_rewrites import MAX_REWRITE_CHARS
from consolidation_pipeline.service.review.suggest_groups import SuggestGroup, group_by_terms, read_suggest_groups
from consolidation_pipeline.service.review.suggestion_queue import (
    RankedGroup,
    build_suggestions,
    choose_waiting,
    rank_groups,
    write_suggestions,
)
from consolidation_pipeline.service.review.suggestion_texts import to_prompt_text
from consolidation_pipeline.service.runs.archive_units import list_upcoming_archives
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection, Row
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.memories.embeddings import list_unembedded
from consolidation_pipeline.store.review import suggestions as store
from consolidation_pipeline.store.similarity.clusters import load_clusters

PURPOSE = "suggestion"


@dataclass(frozen=True)
class ProposalResult:
    """Counts of the phase.

    ``groups``: groups that a person decides on; ``by_terms``: those of them that were grouped by their terms.
    ``created``: new suggestions. ``proposed_before``: groups that were proposed as they are, or share a memory with
    a pending suggestion. ``skipped``: groups with a member that is not active any more. ``beyond_limit``: groups
    that wait until there is room; ``left_by_plan``: that a run of a plan left to the next one. ``superseded``:
    suggestions whose originals have changed; ``outranked``: those that made room for groups worth more.
    ``waiting``: suggestions that wait for a person now. ``rewritten``, ``refused``: texts of the model that were
    taken, and that would have lost a fact. ``failures``: suggestion or group and error of texts without a reply.
    ``stopped``: why the model was not asked for all texts.
    """

    groups: int = 0
    by_terms: int = 0
    created: int = 0
    proposed_before: int = 0
    skipped: int = 0
    beyond_limit: int = 0
    left_by_plan: int = 0
    superseded: int = 0
    outranked: int = 0
    waiting: int = 0
    rewritten: int = 0
    refused: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None


def propose_merges(run: ProjectRun) -> ProposalResult:
    """Propose the groups that are worth most, so that ``review_limit`` suggestions wait.

    Groups with a memory that this run archives later are left out.
    Each text keeps everything that the originals say. With a model, its text replaces that one if it loses nothing; so
    do the texts of suggestions that wait without one. In a run of a plan, the groups are only counted.

    Raises:
        ConflictError: Another process changed an original meanwhile.
    """
    limit, chosen, outranked = run.options.review_limit, list[RankedGroup](), list[Row[Any]]()
    with run.transaction() as connection:
        # Decisions of people refill the queue too.
        lock_active_keys(connection, [run.project.id])
        superseded = store.supersede_stale(connection, run.author, scope=run.options.scope)
        groups = _list_groups(connection, run)
        t_suggest, scope = run.thresholds["t_suggest"], run.options.scope
        ranking = rank_groups(connection, run.project.id, groups, first=limit, scope=scope, t_suggest=t_suggest)
        if run.plan is None:
            pending = store.list_pending(connection, run.project.id)
            outranked, chosen = choose_waiting(pending, ranking.groups, limit)
            reason = f"{limit} others are worth more (review_limit)"
            store.supersede_suggestions(connection, run.author, outranked, reason)
            new = build_suggestions(connection, chosen, ranking.decided, max_chars=run.options.merge_max_chars)
            write_suggestions(connection, run.author, new, now=run.now)
        waiting = store.count_suggestions(connection, run.project.id).get("pending", 0)
    texts = _write_texts(run)
    return ProposalResult(
        groups=len(groups),
        by_terms=sum(group.by_terms for group in groups),
        created=len(chosen),
        proposed_before=ranking.proposed_before - len(outranked),
        skipped=ranking.inactive,
        beyond_limit=len(ranking.groups) - len(chosen) + len(outranked) if run.plan is None else 0,
        left_by_plan=0 if run.plan is None else len(ranking.groups),
        superseded=superseded,
        outranked=len(outranked),
        waiting=waiting,
        rewritten=texts.rewritten,
        refused=texts.refused,
        failures=texts.failures,
        stopped=texts.stopped,
    )


def _list_groups(connection: Connection, run: ProjectRun) -> list[SuggestGroup]:
    """Return the stored groups of the suggest tier, and of memories without vectors, that this run does not archive."""
    unembedded = to_uuids(list_unembedded(connection, run.project.id, "task_memories", run.embedder.name))
    stored = read_suggest_groups(load_clusters(connection, run.project.id, "suggest"))
    groups = [*stored, *group_by_terms(connection, unembedded, options=run.options)]
    archived = list_upcoming_archives(connection, run) if groups else set()
    return [group for group in groups if archived.isdisjoint(group.members)]


def price_suggestions(connection: Connection, run: ProjectRun, groups: Sequence[RankedGroup]) -> list[Bill]:
    """Return the highest possible bill of each model call for the texts of these groups and of waiting suggestions."""
    if run.options.llm_model is None:
        return []
    ids = [[id_ for id_, _ in one.originals] for one in groups]
    ids += [list(row.original_memory_ids) for row in _list_without_model(connection, run)]
    prompts = [_build_prompt(run, texts) for texts in _load_prompt_texts(connection, ids) if _is_short(texts)]
    return llm_gateway.price_prompts(run, prompts, SuggestionReply)


@dataclass(frozen=True)
class _TextsOfModel:
    """Result of asking the model; the fields are those of ``ProposalResult``."""

    rewritten: int = 0
    refused: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None


def _write_texts(run: ProjectRun) -> _TextsOfModel:
    """Ask the model for texts of the waiting suggestions that it was not asked about, and write those that it gives."""
    if run.options.llm_model is None or run.plan is not None:
        return _TextsOfModel()
    with run.reading() as connection:
        waiting = _list_without_model(connection, run)
        texts = _load_prompt_texts(connection, [row.original_memory_ids for row in waiting])
    asked = [(row, originals) for row, originals in zip(waiting, texts, strict=True) if _is_short(originals)]
    gateway = llm_gateway.open_gateway(run) if asked else None
    check, stop = partial(find_losses, max_chars=run.options.merge_max_chars), None
    outcomes = list[tuple[Row[Any], Outcome[SuggestionReply]]]()
    for start in range(0, len(asked), llm_gateway.BATCH):
        assert gateway is not None
        batch = asked[start : start + llm_gateway.BATCH]
        replies = gateway.ask_many([_build_prompt(run, one) for _, one in batch], SuggestionReply, check=check)
        outcomes += zip((row for row, _ in batch), replies, strict=True)
        _save_texts(run, outcomes[start:])
        stop = next((reply for reply in replies if isinstance(reply, llm_gateway.STOP_ERRORS)), None)
        if stop is not None:
            break
    rewritten = sum(isinstance(reply, Answer) for _, reply in outcomes)
    refused = sum(_is_refused(reply) for _, reply in outcomes)
    failures = tuple(
        (str(row.id), str(reply))
        for row, reply in outcomes
        if isinstance(reply, LLMError) and not _is_refused(reply) and not isinstance(reply, llm_gateway.STOP_ERRORS)
    )
    run.record_failing(PURPOSE, len(asked) - rewritten - refused, [error for _, error in failures], stop)
    return _TextsOfModel(rewritten, refused, failures, None if stop is None else str(stop))


def _is_refused(reply: Outcome[SuggestionReply]) -> bool:
    """Return True if a reply has the form that was asked for and loses something."""
    return isinstance(reply, InvalidReplyError) and reply.is_readable


def _list_without_model(connection: Connection, run: ProjectRun) -> list[Row[Any]]:
    """Return the waiting suggestions whose text no model was asked for."""
    return [row for row in store.list_pending(connection, run.project.id) if row.method == "heuristic"]


def _load_prompt_texts(connection: Connection, groups: Sequence[Sequence[UUID]]) -> list[list[OriginalMemory]]:
    rows = store.load_originals(connection, [id_ for ids in groups for id_ in ids])
    return [[to_prompt_text(rows[id_]) for id_ in ids if id_ in rows] for ids in groups]


def _is_short(originals: Sequence[OriginalMemory]) -> bool:
    """Return True if the texts fit into one prompt; a cut would lose facts."""
    return sum(len(original.text) for original in originals) <= MAX_REWRITE_CHARS


def _build_prompt(run: ProjectRun, originals: Sequence[OriginalMemory]) -> Prompt:
    return suggestion_prompt(originals, max_chars=run.options.merge_max_chars)


def _save_texts(run: ProjectRun, outcomes: Sequence[tuple[Row[Any], Outcome[SuggestionReply]]]) -> None:
    """Write the replies to the suggestions that nobody decided on meanwhile; a refused one leaves the text as it is."""
    values = {row.id: _read_outcome(outcome) for row, outcome in outcomes}
    with run.transaction() as connection:
        lock_active_keys(connection, [run.project.id])
        waiting = [(row, values.get(row.id)) for row in store.list_pending(connection, run.project.id)]
        changes = [(row, new) for row, new in waiting if new is not None]
        taken = [(row, new) for row, new in changes if new["method"] == "llm"]
        refused = [(row, new) for row, new in changes if new["method"] != "llm"]
        store.update_texts(connection, run.author, taken, f"text by {run.options.llm_model}")
        store.update_texts(connection, run.author, refused, f"the text by {run.options.llm_model} loses something")


def _read_outcome(outcome: Outcome[SuggestionReply]) -> Mapping[str, Any] | None:
    """Return the new values by column; None if there was no reply."""
    if _is_refused(outcome):
        return {"method": "hybrid"}
    if not isinstance(outcome, Answer):
        return None
    text = read_reply(outcome.value)
    return {
        "method": "llm",
        "suggested_content": text.content,
        "suggested_lessons_learned": text.lessons_learned,
        "suggested_keywords": list(text.keywords),
    }
