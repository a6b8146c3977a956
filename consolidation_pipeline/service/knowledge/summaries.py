"""Summaries (level 2): one text for the memories of a user and scope that no other summary covers yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple
from uuid import UUID

from consolidation_pipeline.core.chunks import Apply, split_chunks
from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.knowledge.inherited_columns import most_frequent
from consolidation_pipeline.core.knowledge.summary_batches import (
    CHUNK_SIZE,
    IDENTITY_VERSION,
    MIN_MEMORIES,
    compression_ratio,
    is_summary_due,
)
from consolidation_pipeline.core.knowledge.supersession import drop_superseded
from consolidation_pipeline.core.knowledge.topic_summaries import TopicSummary, summarize_topics
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.service.knowledge.llm_gateway import STOP_ERRORS
from consolidation_pipeline.service.knowledge.map_reduce import (
    Condensed,
    Condenser,
    Failure,
    Passage,
    find_stop,
    open_condenser,
    reduce_passages,
)
from consolidation_pipeline.service.knowledge.summary_rows import SummaryRow, write_summary_rows
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.store.knowledge.abstractions import REWRITE_PENDING, SUPERSEDED
from consolidation_pipeline.store.knowledge.compared_sentences import load_compared_sentences
from consolidation_pipeline.store.knowledge.summaries import (
    RenewableSummary,
    SummarySource,
    count_coverage,
    count_unsummarized,
    load_outdated_summaries,
    load_renewable,
    load_unsummarized,
)
from consolidation_pipeline.store.knowledge.supersessions import Replacements, load_replacements
from consolidation_pipeline.store.ledger.cannot_link import load_undone_cluster_keys

# The job that writes summaries even if none is due.
JOB = "summarize"
# Lowest number of chunks that are asked for together. The summaries made of them are written together.
BATCH = 16
# Chunks without a model, which cost less than to write them: each transaction and request for vectors takes time.
EXTRACT_BATCH = 64
# Memories of a part from which it is read by all cores.
_LARGE_PART = 10_000
# A summary lists which memories it tells something of if they are no more.
MAX_TOLD = 200


@dataclass(frozen=True)
class SummaryResult:
    """The result of the phase.

    ``memories``: without a summary before the phase; ``waiting``: after it. ``is_due``: a summary was due or requested;
    ``reason``: why one was due or not. ``created``: summaries written; ``covered``: memories in them. ``chunks``: asked
    for, none without a model; ``failed_chunks`` of them had no usable reply. ``failures``: (chunk or user, error).
    ``rewritten``: summaries written again, as a model had failed before or memories were superseded.
    ``ratio``: characters of memories per character of summary in the project; ``per_summary``: memories per summary.
    ``stopped``: why the model is not asked for more, None if it is. Without its text there is an extracted one.
    """

    memories: int = 0
    is_due: bool = False
    reason: str = "summarize is off, or the run applies a plan"
    created: int = 0
    covered: int = 0
    rewritten: int = 0
    chunks: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    failed_chunks: int = 0
    waiting: int = 0
    ratio: float | None = None
    per_summary: float | None = None
    stopped: str | None = None

    @property
    def counters(self) -> dict[str, int]:
        """Increments of the job's counter columns."""
        return {"summaries_created": self.created}


@dataclass(frozen=True)
class _Part:
    """Memories of one user that become one summary.

    ``stored``: id of their summary that is written again. ``renewed``: id of their summary that is out of use.
    """

    memories: Sequence[SummarySource]
    stored: UUID | None = None
    renewed: UUID | None = None

    @property
    def former(self) -> UUID | None:
        """Id of the summary of these memories until now."""
        return self.stored or self.renewed


@dataclass(frozen=True)
class _Chunk:
    """Memories of one part that are summarized in one call, and the result."""

    memories: Sequence[SummarySource]
    result: Condensed


@dataclass(frozen=True)
class _PartResult:
    """The result for one part. ``rows``: the summaries to write. ``stop``: why the model is not asked again.

    ``is_answered``: the model answered for all memories, or there is none.
    """

    rows: Sequence[SummaryRow]
    chunks: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    failed_chunks: int = 0
    stop: Failure | None = None
    is_answered: bool = True


def summarize_memories(run: ProjectRun) -> SummaryResult:
    """Write one summary per user of the memories without one, if a summary is due or the job is ``summarize``.

    A summary that is out of use, as some of its memories were edited or deleted, is written again from those it still
    has. Users with fewer than ``MIN_MEMORIES`` wait, unless a person requested the job. Memories for which the model
    gives no text get an extracted summary, which the next run replaces. Nothing is written while ``summarize`` is off,
    or in a run that applies a plan, as plans contain no summaries.

    Raises:
        ConflictError: a memory is in another summary by now; earlier batches stay written.
    """
    if not run.options.summarize or run.plan is not None:
        return SummaryResult()
    with run.reading() as connection:
        before = count_unsummarized(connection, run.project.id, run.now)
    verdict = is_summary_due(before.memories, session_ended=before.session_ended)
    is_due = bool(verdict) or run.job == JOB
    parts = _load_parts(run) if is_due and before.memories else []
    results, stop = _summarize_parts(run, parts)
    with run.reading() as connection:
        after = count_unsummarized(connection, run.project.id, run.now)
        coverage = count_coverage(connection, run.project.id)
    created = [row for result in results for row in result.rows if not row.is_rewritten]
    failures = tuple(failure for result in results for failure in result.failures)
    unanswered = sum(not result.is_answered for result in results)
    run.record_failing("summary", unanswered, [error for _, error in failures], stop)
    return SummaryResult(
        memories=before.memories,
        is_due=is_due,
        reason=verdict.reason,
        created=len(created),
        covered=sum(len(row.sources) for row in created),
        rewritten=sum(row.is_rewritten for result in results for row in result.rows),
        chunks=sum(result.chunks for result in results),
        failures=failures,
        failed_chunks=sum(result.failed_chunks for result in results),
        waiting=after.memories,
        ratio=compression_ratio(coverage.source_chars, coverage.chars),
        per_summary=compression_ratio(coverage.memories, coverage.summaries),
        stopped=None if stop is None else str(stop),
    )


def _summarize_parts(run: ProjectRun, parts: list[_Part]) -> tuple[list[_PartResult], Failure | None]:
    """Return the result of each part, and why the model or the phase stopped before all were done."""
    results: list[_PartResult] = []
    condenser, stop = open_condenser(run), None
    with run.reading() as connection:
        unwanted = load_undone_cluster_keys(connection, run.project.id, "summary")
        outdated = load_outdated_summaries(
            connection, run.project.id, scope=run.options.scope, has_model=condenser is not None
        )
        replacements = load_replacements(connection, run.project.id)
    parts = parts + [_Part(memories, stored) for stored, memories in outdated]
    parts = [replace(part, memories=_drop_superseded(part.memories, replacements)) for part in parts]
    extracted = _extract_summaries(run, parts if condenser is None else ())
    try:
        for batch in _batch_parts(parts, size=EXTRACT_BATCH if condenser is None else BATCH):
            if condenser is None:
                found = [_PartResult([_build_extract(run, part, next(extracted))]) for part in batch]
            elif stop is None:
                found = _condense_parts(run, condenser, batch)
                stop = find_stop(result.stop for result in found)
            else:
                found = [_PartResult((), is_answered=False) for _ in batch]
            if condenser is not None:
                found = [_extract_rest(run, *pair, unwanted) for pair in zip(batch, found, strict=True)]
            found = [_keep_id(*pair) for pair in zip(batch, found, strict=True)]
            write_summary_rows(run, [row for result in found for row in result.rows])
            results += found
    except STOP_ERRORS as error:  # the budget does not pay for the vectors
        stop = error
    return results, stop


def _extract_rest(run: ProjectRun, part: _Part, result: _PartResult, unwanted: Collection[str]) -> _PartResult:
    """Return the result with an extracted summary of the memories that the model gave no text for."""
    covered = {memory.id for row in result.rows for memory in row.sources}
    rest = [memory for memory in part.memories if memory.id not in covered]
    if not rest or part.stored is not None or _build_key(rest) in unwanted:
        return result
    part = replace(part, memories=rest)
    found = next(_extract_summaries(run, [part]))
    return replace(result, rows=[*result.rows, _build_extract(run, part, found, is_pending=True)])


def _keep_id(part: _Part, result: _PartResult) -> _PartResult:
    """Return the result with the id of the summary that is renewed on its first row."""
    if part.renewed is None or not result.rows:
        return result
    first, *others = result.rows
    return replace(result, rows=[replace(first, id=part.renewed), *others])


def _load_parts(run: ProjectRun) -> list[_Part]:
    """Return the memories without a summary, by user and scope; a user with several scopes counts as several users.

    The memories of a summary that is renewed are a part of their own. Left out are parts with too few memories, and
    those whose summary of exactly these memories a person undid.
    """
    min_memories = 1 if run.job == JOB and run.trigger_type == "manual" else MIN_MEMORIES
    with run.reading() as connection:
        memories = load_unsummarized(connection, run.project.id, run.embedder.name, scope=run.options.scope)
        unwanted = load_undone_cluster_keys(connection, run.project.id, "summary")
        renewable = defaultdict[tuple[str | None, str | None], list[RenewableSummary]](list)
        for summary in load_renewable(connection, run.project.id):
            renewable[summary.user_id, summary.scope_key].append(summary)

    def is_wanted(part: Sequence[SummarySource]) -> bool:
        return len(part) >= min_memories and _build_key(part) not in unwanted

    found = []
    for owner, user in groupby(memories, key=lambda memory: (memory.user_id, memory.scope_key)):
        left = {memory.id: memory for memory in user}
        for summary in renewable[owner]:
            members = {*summary.members}
            part = [memory for memory in left.values() if memory.id in members]
            if is_wanted(part):
                found.append(_Part(part, renewed=summary.id))
                left = {id_: memory for id_, memory in left.items() if id_ not in members}
        if is_wanted(rest := [*left.values()]):
            found.append(_Part(rest))
    return found


def _drop_superseded(memories: Sequence[SummarySource], replacements: Replacements) -> list[SummarySource]:
    """Return memories with the relations that supersede them, and without the sentences that those replaced.

    If nothing else is left of a chunk, its memories keep their texts.
    """
    found: list[SummarySource] = []
    for chunk in split_chunks(memories, size=CHUNK_SIZE):
        marked = [
            replace(memory, superseded=tuple(str(one.id) for one in replacements.get(memory.id, ())))
            for memory in chunk
        ]
        told = [
            replace(memory, text=drop_superseded(memory.text, [one.reason for one in replacements[memory.id]]))
            if memory.superseded
            else memory
            for memory in marked
        ]
        found += told if any(memory.text for memory in told) else marked
    return found


def _batch_parts(parts: Sequence[_Part], *, size: int) -> Iterator[list[_Part]]:
    """Yield batches of parts with ``size`` chunks or more together; the last may have fewer."""
    batch: list[_Part] = []
    for part in parts:
        batch.append(part)
        if sum(len(split_chunks(one.memories, size=CHUNK_SIZE)) for one in batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch


def _extract_summaries(run: ProjectRun, parts: Sequence[_Part]) -> Iterator[TopicSummary]:
    """Yield the extracted summary of each part."""
    with run.reading() as connection:
        ids = [part.former for part in parts if part.former is not None]
        known = load_compared_sentences(connection, run.project.id, ids, describe_code()["digest"])
    given = [
        _Texts(
            [memory.text for memory in part.memories],
            [memory.learned_at.date() for memory in part.memories],
            known.get(part.former, b"") if part.former else b"",
        )
        for part in parts
    ]
    summarize = partial(_summarize_texts, boilerplate=run.boilerplate)
    small = (own for own in given if len(own.texts) < _LARGE_PART)
    found = compute_in_order(summarize, small, memories=sum(len(own.texts) for own in given))
    for own in given:
        # A large part is read by all cores, a small one is written by one of them.
        yield (
            next(found)
            if len(own.texts) < _LARGE_PART
            else summarize(own, apply=partial(compute_in_order, memories=len(own.texts)))
        )


class _Texts(NamedTuple):
    """The texts of a part with their days, and what the summary before knows of them (``TopicSummary.compared``)."""

    texts: Sequence[str]
    days: Sequence[date]
    compared: bytes


def _summarize_texts(given: _Texts, boilerplate: Collection[str], apply: Apply = map) -> TopicSummary:
    return summarize_topics(given.texts, given.days, boilerplate=boilerplate, compared=given.compared, apply=apply)


def _build_extract(run: ProjectRun, part: _Part, found: TopicSummary, *, is_pending: bool = False) -> SummaryRow:
    """Return the row of an extracted summary. ``is_pending``: a model is to write it again."""
    memories = part.memories
    passage = Passage(found.content, most_frequent(memory.language for memory in memories))
    details: dict[str, Any] = {"topics": found.topics, **({REWRITE_PENDING: True} if is_pending else {})}
    if len(found.told) <= MAX_TOLD:
        details["told"] = [str(memories[at].id) for at in found.told]
    row = replace(_build_row(run, "heuristic", memories, passage, details), compared=found.compared)
    return _mark_rewritten(row, part)


def _mark_rewritten(row: SummaryRow, part: _Part) -> SummaryRow:
    """Return the row with the id of the summary that it takes the place of, if there is one."""
    return row if part.stored is None else replace(row, id=part.stored, is_rewritten=True)


def _condense_parts(run: ProjectRun, condenser: Condenser, parts: Sequence[_Part]) -> list[_PartResult]:
    """Summarize the chunks of all parts, then reduce the summaries of each part to one text."""
    split = [(at, chunk) for at, part in enumerate(parts) for chunk in split_chunks(part.memories, size=CHUNK_SIZE)]
    condensed = condenser.condense_memories(
        [[Passage(m.text, m.language) for m in chunk if m.text] for _, chunk in split]
    )
    chunks: list[list[_Chunk]] = [[] for _ in parts]
    for (at, chunk), result in zip(split, condensed, strict=True):
        chunks[at].append(_Chunk(chunk, result))
    results = [[one.result for one in own] for own in chunks]
    # A part with a stop gets no summary by the model, so there is nothing to reduce.
    passages = [[] if find_stop(own) else [one for one in own if isinstance(one, Passage)] for own in results]
    reduced = reduce_passages(condenser.condense_summaries, passages)
    return [_build_result(run, *one) for one in zip(parts, chunks, reduced, strict=True)]


def _build_result(
    run: ProjectRun, part: _Part, chunks: Sequence[_Chunk], reduced: Sequence[Passage] | Failure
) -> _PartResult:
    """Return the result of a part. Without a stop, the row summarizes the chunks that have a usable reply.

    A stored summary is written again only if all of them have one.
    """
    stop = find_stop([*(one.result for one in chunks), reduced])
    failures = [(f"chunk from {one.memories[0].id}", str(one.result)) for one in chunks if _is_own_failure(one.result)]
    failed_chunks = len(failures)
    if _is_own_failure(reduced):
        failures.append((f"user {part.memories[0].user_id or 'unknown'}", str(reduced)))
    is_answered = stop is None and not failures
    rows = []
    if stop is None and not isinstance(reduced, Failure) and reduced and (is_answered or part.stored is None):
        usable = [chunk.memories for chunk in chunks if isinstance(chunk.result, Passage)]
        row = _build_row(run, "llm", list(chain.from_iterable(usable)), reduced[0], {"chunks": len(usable)})
        rows.append(_mark_rewritten(row, part))
    return _PartResult(rows, len(chunks), tuple(failures), failed_chunks, stop, is_answered)


def _is_own_failure(result: object) -> bool:
    """Return True if this call failed, False if it succeeded or the phase stopped."""
    return isinstance(result, Failure) and not isinstance(result, STOP_ERRORS)


def _build_row(
    run: ProjectRun, method: str, memories: Sequence[SummarySource], passage: Passage, parts: Mapping[str, Any]
) -> SummaryRow:
    """Return the summary of memories, oldest first. ``parts``: details on how it was made."""
    source_chars = sum(len(memory.text) for memory in memories)
    superseded = sorted({relation for memory in memories for relation in memory.superseded})
    return SummaryRow(
        kind="summary",
        id=consolidated_id(run.project.slug, "summary", [memory.id for memory in memories], IDENTITY_VERSION),
        version=None,
        cluster_key=_build_key(memories),
        sources=memories,
        passage=passage,
        details={
            **parts,
            **({SUPERSEDED: superseded} if superseded else {}),
            "episodes": len(memories),
            "from": memories[0].learned_at.isoformat(),
            "to": memories[-1].learned_at.isoformat(),
            "source_chars": source_chars,
            "compression_ratio": round(source_chars / len(passage.text), 3),
        },
        method=method,
        reason=f"summary of {len(memories)} {'memory' if len(memories) == 1 else 'memories'}",
    )


def _build_key(memories: Sequence[SummarySource]) -> str:
    return cluster_key([memory.id for memory in memories], IDENTITY_VERSION)
