"""Summaries (level 2): one text for the memories of a project and user that no other summary covers yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.knowledge.summary_batches import (
    FEWEST_EPISODES,
    IDENTITY_VERSION,
    compression_ratio,
    is_summary_due,
    split_chunks,
)
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.errors import BudgetExhaustedError, ModelUnavailableError
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
from consolidation_pipeline.store.knowledge.summaries import (
    SummarySource,
    count_coverage,
    count_unsummarized,
    load_unsummarized,
)
from consolidation_pipeline.store.ledger.cannot_link import load_undone_cluster_keys

# The job that makes summaries whenever there is anything to summarise.
JOB = "summarize"
# Chunks asked about at once; the summaries that come of them are written together.
BATCH = 16


@dataclass(frozen=True)
class SummaryResult:
    """What a phase did. ``memories`` waited for a summary, ``waiting`` still do; ``is_due``: it was time for one.

    ``failures``: first memory of a chunk, or user, and error; ``ratio``: episodes per summary over the whole project;
    ``stopped``: why it ended before its time.
    """

    memories: int = 0
    is_due: bool = False
    reason: str = "summarize is off, or a plan is carried out"
    created: int = 0
    covered: int = 0
    chunks: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    failed_chunks: int = 0
    waiting: int = 0
    ratio: float | None = None
    stopped: str | None = None


@dataclass(frozen=True)
class _Chunk:
    """Memories of one user that are told of in one call, and what came of it."""

    episodes: Sequence[SummarySource]
    told: Passage | Failure


@dataclass(frozen=True)
class _Outcome:
    """What became of one user: the row to write, if any, the ``chunks`` asked about, failures, and what ended it."""

    digest: SummaryRow | None
    chunks: int
    failures: tuple[tuple[str, str], ...] = ()
    failed_chunks: int = 0
    stop: Failure | None = None


def summarize_memories(run: ProjectRun) -> SummaryResult:
    """One summary for each user of all memories that wait for one, when it is due or the run is of job ``summarize``.

    A user with fewer than ``FEWEST_EPISODES`` waits on, unless a person asked for that job. A chunk without a usable
    reply is left to the next run, and so is a user whose chunks could not be reduced: replies so far are in the cache.
    Nothing is made while ``summarize`` is off, and by a run that carries out a plan, which names no summaries.

    Raises:
        ConflictError: a memory is in another summary by now; what was written before stays.
    """
    if not run.options.summarize or run.plan is not None:
        return SummaryResult()
    with run.engine.connect() as connection:
        before = count_unsummarized(connection, run.project.id, run.now)
    verdict = is_summary_due(before.memories, session_ended=before.session_ended)
    is_due = bool(verdict) or run.job == JOB
    outcomes, stopped = _summarize(run) if is_due and before.memories else ([], None)
    with run.engine.connect() as connection:
        after = count_unsummarized(connection, run.project.id, run.now)
        covered = count_coverage(connection, run.project.id)
    written = [outcome.digest for outcome in outcomes if outcome.digest is not None]
    failures = tuple(failure for outcome in outcomes for failure in outcome.failures)
    run.unfinished = run.unfinished or stopped is not None or bool(failures)
    return SummaryResult(
        memories=before.memories,
        is_due=is_due,
        reason=verdict.reason,
        created=len(written),
        covered=sum(len(digest.materials) for digest in written),
        chunks=sum(outcome.chunks for outcome in outcomes),
        failures=failures,
        failed_chunks=sum(outcome.failed_chunks for outcome in outcomes),
        waiting=after.memories,
        ratio=compression_ratio(covered.episodes, covered.summaries),
        stopped=stopped,
    )


def _summarize(run: ProjectRun) -> tuple[list[_Outcome], str | None]:
    """What became of each user, and why it ended before all were done."""
    outcomes: list[_Outcome] = []
    teller = open_condenser(run)
    try:
        for wave in _waves(_load_users(run)):
            found = _tell(run, teller, wave)
            write_summary_rows(run, [outcome.digest for outcome in found if outcome.digest is not None])
            outcomes += found
            stop = find_failure(outcome.stop for outcome in found)
            if stop is not None:
                raise stop
    except (BudgetExhaustedError, ModelUnavailableError) as error:
        # Replies so far are paid for and in the cache: the next run asks for the rest.
        return outcomes, run.note_stop("summary", error)
    return outcomes, None


def _load_users(run: ProjectRun) -> list[list[SummarySource]]:
    """What waits, by user; without those that have too little, and those whose summary a person undid by itself."""
    fewest = 1 if run.job == JOB and run.trigger_type == "manual" else FEWEST_EPISODES
    with run.engine.connect() as connection:
        episodes = load_unsummarized(connection, run.project.id, run.embedder.name)
        unwanted = load_undone_cluster_keys(connection, run.project.id, "summary")
    users = [list(found) for _, found in groupby(episodes, key=lambda episode: episode.user_id)]
    return [user for user in users if len(user) >= fewest and _key(user) not in unwanted]


def _waves(users: Sequence[list[SummarySource]]) -> Iterator[list[list[SummarySource]]]:
    """Whole users, until they have ``BATCH`` chunks or more."""
    wave: list[list[SummarySource]] = []
    for user in users:
        wave.append(user)
        if sum(len(split_chunks(one)) for one in wave) >= BATCH:
            yield wave
            wave = []
    if wave:
        yield wave


def _tell(run: ProjectRun, teller: Condenser, wave: Sequence[Sequence[SummarySource]]) -> list[_Outcome]:
    """What comes of the users of a wave: their chunks first, then what these say reduced to one text each."""
    parts = [(at, part) for at, user in enumerate(wave) for part in split_chunks(user)]
    told = teller.batch([[Passage(episode.text, episode.language) for episode in part] for _, part in parts])
    chunks: list[list[_Chunk]] = [[] for _ in wave]
    for (at, part), one in zip(parts, told, strict=True):
        chunks[at].append(_Chunk(part, one))
    sound = [[] if _stop_of(own) else [one.told for one in own if isinstance(one.told, Passage)] for own in chunks]
    reduced = condense(teller.reduce, sound)
    return [_outcome(run, teller, own, one) for own, one in zip(chunks, reduced, strict=True)]


def _stop_of(chunks: Sequence[_Chunk]) -> Failure | None:
    stop = find_failure(one.told for one in chunks)
    return stop if stop is not None and is_stop(stop) else None


def _outcome(
    run: ProjectRun, teller: Condenser, chunks: Sequence[_Chunk], reduced: Sequence[Passage] | Failure
) -> _Outcome:
    """A summary of the chunks that succeeded, unless the work ended or they could not be reduced."""
    stop = _stop_of(chunks) or (reduced if isinstance(reduced, Failure) and is_stop(reduced) else None)
    failures = [(f"chunk from {one.episodes[0].id}", str(one.told)) for one in chunks if _is_failed(one.told)]
    failed_chunks = len(failures)
    if _is_failed(reduced):
        failures.append((f"user {chunks[0].episodes[0].user_id or 'unknown'}", str(reduced)))
    digest = None
    if stop is None and not isinstance(reduced, Failure) and reduced:
        digest = _digest(run, teller, [one for one in chunks if isinstance(one.told, Passage)], reduced[0])
    return _Outcome(digest, len(chunks), tuple(failures), failed_chunks, stop)


def _is_failed(outcome: object) -> bool:
    """Whether it failed for a reason of its own."""
    return isinstance(outcome, Failure) and not is_stop(outcome)


def _digest(run: ProjectRun, teller: Condenser, chunks: Sequence[_Chunk], told: Passage) -> SummaryRow:
    episodes = [episode for one in chunks for episode in one.episodes]
    return SummaryRow(
        kind="summary",
        id=consolidated_id(run.project.slug, "summary", _ids(episodes), IDENTITY_VERSION),
        version=None,
        cluster_key=_key(episodes),
        materials=episodes,
        told=told,
        details={
            "chunks": len(chunks),
            "episodes": len(episodes),
            "from": episodes[0].learned_at.isoformat(),
            "to": episodes[-1].learned_at.isoformat(),
            "compression_ratio": compression_ratio(len(episodes), 1),
        },
        method=teller.method,
        reason=f"summary of {len(episodes)} {'memory' if len(episodes) == 1 else 'memories'}",
    )


def _ids(episodes: Sequence[SummarySource]) -> list[UUID]:
    return [episode.id for episode in episodes]


def _key(episodes: Sequence[SummarySource]) -> str:
    return cluster_key(_ids(episodes), IDENTITY_VERSION)
