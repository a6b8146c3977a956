"""Summaries (level 2): one text for the memories of a user and scope that no other summary covers yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.knowledge.inherited_columns import most_frequent
from consolidation_pipeline.core.knowledge.summary_batches import (
    IDENTITY_VERSION,
    MIN_MEMORIES,
    compression_ratio,
    is_summary_due,
    split_chunks,
)
from consolidation_pipeline.core.knowledge.topic_summaries import summarize_topics
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
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.knowledge.summaries import (
    SummarySource,
    count_coverage,
    count_unsummarized,
    load_unsummarized,
)
from consolidation_pipeline.store.ledger.cannot_link import load_undone_cluster_keys

# The job that writes summaries even if none is due.
JOB = "summarize"
# Lowest number of chunks that are asked for together. The summaries made of them are written together.
BATCH = 16


@dataclass(frozen=True)
class SummaryResult:
    """The result of the phase.

    ``memories``: without a summary before the phase; ``waiting``: after it. ``is_due``: a summary was due or requested;
    ``reason``: why one was due or not. ``created``: summaries written; ``covered``: memories in them. ``chunks``: asked
    for, none without a model; ``failed_chunks`` of them had no usable reply. ``failures``: (chunk or user, error).
    ``ratio``: characters of memories per character of summary in the project; ``per_summary``: memories per summary.
    ``stopped``: why the phase ended early, None if it did not.
    """

    memories: int = 0
    is_due: bool = False
    reason: str = "summarize is off, or the run applies a plan"
    created: int = 0
    covered: int = 0
    chunks: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    failed_chunks: int = 0
    waiting: int = 0
    ratio: float | None = None
    per_summary: float | None = None
    stopped: str | None = None


@dataclass(frozen=True)
class _Chunk:
    """Memories of one user that are summarized in one call, and the result."""

    memories: Sequence[SummarySource]
    result: Condensed


@dataclass(frozen=True)
class _UserResult:
    """The result for one user. ``row``: the summary to write, if any. ``stop``: the failure that stops the phase."""

    row: SummaryRow | None
    chunks: int
    failures: tuple[tuple[str, str], ...] = ()
    failed_chunks: int = 0
    stop: Failure | None = None


def summarize_memories(run: ProjectRun) -> SummaryResult:
    """Write one summary per user of the memories without one, if a summary is due or the job is ``summarize``.

    Users with fewer than ``MIN_MEMORIES`` wait, unless a person requested the job. Chunks without a usable reply are
    left to the next run, and so are users whose chunk summaries could not be reduced to one. Nothing is written while
    ``summarize`` is off, or in a run that applies a plan, as plans contain no summaries.

    Raises:
        ConflictError: a memory is in another summary by now; earlier batches stay written.
    """
    if not run.options.summarize or run.plan is not None:
        return SummaryResult()
    with run.engine.connect() as connection:
        before = count_unsummarized(connection, run.project.id, run.now)
    verdict = is_summary_due(before.memories, session_ended=before.session_ended)
    is_due = bool(verdict) or run.job == JOB
    results, stopped = _summarize_users(run) if is_due and before.memories else ([], None)
    with run.engine.connect() as connection:
        after = count_unsummarized(connection, run.project.id, run.now)
        coverage = count_coverage(connection, run.project.id)
    written = [result.row for result in results if result.row is not None]
    failures = tuple(failure for result in results for failure in result.failures)
    run.unfinished = run.unfinished or bool(failures)
    return SummaryResult(
        memories=before.memories,
        is_due=is_due,
        reason=verdict.reason,
        created=len(written),
        covered=sum(len(row.sources) for row in written),
        chunks=sum(result.chunks for result in results),
        failures=failures,
        failed_chunks=sum(result.failed_chunks for result in results),
        waiting=after.memories,
        ratio=compression_ratio(coverage.source_chars, coverage.chars),
        per_summary=compression_ratio(coverage.memories, coverage.summaries),
        stopped=stopped,
    )


def _summarize_users(run: ProjectRun) -> tuple[list[_UserResult], str | None]:
    """Return the result of each user, and the reason if the phase ended before all were done."""
    results: list[_UserResult] = []
    condenser = open_condenser(run)
    try:
        for users in _batch_users(_load_users(run)):
            found = _extract_users(run, users) if condenser is None else _condense_users(run, condenser, users)
            write_summary_rows(run, [result.row for result in found if result.row is not None])
            results += found
            stop = find_stop(result.stop for result in found)
            if stop is not None:
                raise stop
    except STOP_ERRORS as error:
        # Replies so far are in the cache; the next run asks for the rest.
        return results, run.record_stop("summary", error)
    return results, None


def _load_users(run: ProjectRun) -> list[list[SummarySource]]:
    """Return the memories without a summary, by user and scope; a user with several scopes counts as several users.

    Left out are users with too few memories, and users whose summary of exactly these memories a person undid.
    """
    min_memories = 1 if run.job == JOB and run.trigger_type == "manual" else MIN_MEMORIES
    with run.engine.connect() as connection:
        memories = load_unsummarized(connection, run.project.id, run.embedder.name, scope=run.options.scope)
        unwanted = load_undone_cluster_keys(connection, run.project.id, "summary")
    users = [list(found) for _, found in groupby(memories, key=lambda memory: (memory.user_id, memory.scope_key))]
    return [user for user in users if len(user) >= min_memories and _build_key(user) not in unwanted]


def _batch_users(users: Sequence[list[SummarySource]]) -> Iterator[list[list[SummarySource]]]:
    """Yield batches of users with ``BATCH`` chunks or more together; the last may have fewer."""
    batch: list[list[SummarySource]] = []
    for user in users:
        batch.append(user)
        if sum(len(split_chunks(one)) for one in batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _extract_users(run: ProjectRun, users: Sequence[Sequence[SummarySource]]) -> list[_UserResult]:
    """Summarize the topics of each user, without a model."""
    results = []
    for memories in users:
        days = [memory.learned_at.date() for memory in memories]
        found = summarize_topics([memory.text for memory in memories], days, boilerplate=run.boilerplate)
        passage = Passage(found.content, most_frequent(memory.language for memory in memories))
        results.append(_UserResult(_build_row(run, "heuristic", memories, passage, {"topics": found.topics}), chunks=0))
    return results


def _condense_users(
    run: ProjectRun, condenser: Condenser, users: Sequence[Sequence[SummarySource]]
) -> list[_UserResult]:
    """Summarize the chunks of all users, then reduce the summaries of each user to one text."""
    parts = [(at, chunk) for at, user in enumerate(users) for chunk in split_chunks(user)]
    condensed = condenser.condense_memories([[Passage(m.text, m.language) for m in chunk] for _, chunk in parts])
    chunks: list[list[_Chunk]] = [[] for _ in users]
    for (at, chunk), result in zip(parts, condensed, strict=True):
        chunks[at].append(_Chunk(chunk, result))
    results = [[one.result for one in own] for own in chunks]
    # A user with a stop gets no summary, so there is nothing to reduce.
    passages = [[] if find_stop(own) else [one for one in own if isinstance(one, Passage)] for own in results]
    reduced = reduce_passages(condenser.condense_summaries, passages)
    return [_build_result(run, own, one) for own, one in zip(chunks, reduced, strict=True)]


def _build_result(run: ProjectRun, chunks: Sequence[_Chunk], reduced: Sequence[Passage] | Failure) -> _UserResult:
    """Return the result of a user. Without a stop, the row summarizes the chunks that have a usable reply."""
    stop = find_stop([*(one.result for one in chunks), reduced])
    failures = [(f"chunk from {one.memories[0].id}", str(one.result)) for one in chunks if _is_own_failure(one.result)]
    failed_chunks = len(failures)
    if _is_own_failure(reduced):
        failures.append((f"user {chunks[0].memories[0].user_id or 'unknown'}", str(reduced)))
    row = None
    if stop is None and not isinstance(reduced, Failure) and reduced:
        usable = [chunk.memories for chunk in chunks if isinstance(chunk.result, Passage)]
        row = _build_row(run, "llm", list(chain.from_iterable(usable)), reduced[0], {"chunks": len(usable)})
    return _UserResult(row, len(chunks), tuple(failures), failed_chunks, stop)


def _is_own_failure(result: object) -> bool:
    """Return True if this call failed, False if it succeeded or the phase stopped."""
    return isinstance(result, Failure) and not isinstance(result, STOP_ERRORS)


def _build_row(
    run: ProjectRun, method: str, memories: Sequence[SummarySource], passage: Passage, parts: Mapping[str, int]
) -> SummaryRow:
    """Return the summary of memories, oldest first. ``parts``: details on how it was made."""
    source_chars = sum(len(memory.text) for memory in memories)
    return SummaryRow(
        kind="summary",
        id=consolidated_id(run.project.slug, "summary", [memory.id for memory in memories], IDENTITY_VERSION),
        version=None,
        cluster_key=_build_key(memories),
        sources=memories,
        passage=passage,
        details={
            **parts,
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
