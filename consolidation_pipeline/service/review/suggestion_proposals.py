"""Suggestions made: one text for each group that a person decides on, in the words of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.grouping.linkage import complete_linkage
from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.core.knowledge.merge_proposals import fingerprint
from consolidation_pipeline.core.memories.memories import embedding_text
from consolidation_pipeline.core.similarity.term_similarity import T_TERMS, join_terms
from consolidation_pipeline.errors import BudgetExhaustedError, LLMError, ModelUnavailableError
from consolidation_pipeline.llm.gateway import Answer
from consolidation_pipeline.llm.prompts.suggestion import (
    OriginalMemory,
    SuggestionReply,
    find_inventions,
    suggestion_prompt,
    trim_reply,
)
from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.knowledge.merge_rewrites import MAX_REWRITE_CHARS
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection, Row
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, list_unembedded
from consolidation_pipeline.store.review import suggestions as store
from consolidation_pipeline.store.review.suggestions import load_originals
from consolidation_pipeline.store.similarity.clusters import ClusterMember, count_groups, load_clusters

# Every text is compared with every other: 10,000 take 2 seconds, ten times as many would take minutes.
MAX_TERM_TEXTS = 10_000

_LESSONS = TEXT_COLUMNS.index("lessons_learned")
_BY_WORDS = "alike in their words; not compared by meaning, for they have no vectors yet"


@dataclass(frozen=True)
class SuggestGroup:
    """Memories that may say the same, the representative first. ``similarity``: the lowest cosine among them.

    ``by_words``: that is one of their words. ``reasons``: why a person decides, in words.
    """

    cluster_key: str
    members: Sequence[UUID]
    similarity: float | None
    reasons: tuple[str, ...]
    by_words: bool = False

    @property
    def rationale(self) -> str:
        """Why it is proposed, and why to a person."""
        alike = "" if self.similarity is None else f" (lowest similarity {self.similarity:.2f})"
        return f"{len(self.members)} memories may say the same{alike}; {'; '.join(self.reasons)}"


@dataclass(frozen=True)
class ProposableGroup:
    """A group all of whose members are active: what a model is shown of them, and their versions."""

    group: SuggestGroup
    originals: Sequence[tuple[UUID, int]]
    asked: Sequence[OriginalMemory]
    fingerprint: str

    @property
    def chars(self) -> int:
        """Characters of all texts."""
        return sum(len(one.text) for one in self.asked)


def load_suggest_groups(connection: Connection, run: ProjectRun) -> list[SuggestGroup]:
    """The suggest groups of the newest clusters, and those of the words of what has no vector; by their keys."""
    return [
        *read_suggest_groups(load_clusters(connection, run.project.id, "suggest")),
        *load_term_groups(connection, run),
    ]


def load_term_groups(connection: Connection, run: ProjectRun) -> list[SuggestGroup]:
    """The groups of the words of what has no vector yet."""
    waiting = to_uuids(list_unembedded(connection, run.project.id, "task_memories", run.embedder.name))
    return group_by_terms(connection, waiting, cross_type=run.options.cross_type)


def read_suggest_groups(clusters: Mapping[str, Sequence[ClusterMember]]) -> list[SuggestGroup]:
    """The groups of the suggest tier, whose representative has the reasons with it."""
    groups = []
    for key, members in clusters.items():
        ordered = sorted(members, key=lambda member: (not member.is_representative, member.member_id))
        details = ordered[0].details
        reasons = dict.fromkeys(reason for veto in details.get("vetoes", []) for reason in veto["conflicts"])
        groups.append(
            SuggestGroup(
                key, [m.member_id for m in ordered], details.get("cohesion_min"), tuple(reasons) or ("no veto",)
            )
        )
    return groups


def group_by_terms(connection: Connection, ids: Sequence[UUID], *, cross_type: bool) -> list[SuggestGroup]:
    """Groups of the active ones of these raw memories in which every two have a TF-IDF cosine of ``T_TERMS``.

    Of more than ``MAX_TERM_TEXTS`` the first by id are compared: vectors are on their way.
    """
    chosen = sorted(ids)[:MAX_TERM_TEXTS]
    rows = [row for _, row in sorted(load_originals(connection, chosen).items()) if row.is_active]
    if len(rows) < 2:
        return []
    pairs = join_terms([_parts(row) for row in rows])
    types = np.array([row.memory_type for row in rows])
    if not cross_type:
        pairs = pairs.select(types[pairs.i] == types[pairs.j])
    labels = complete_linkage(len(rows), pairs, T_TERMS)
    groups = []
    for group in list_members(labels):
        inside = (labels[pairs.i] == labels[group[0]]) & (labels[pairs.j] == labels[group[0]])
        ids_ = [rows[at].id for at in group.tolist()]
        lowest = round(float(pairs.similarity[inside].min()), 6)
        groups.append(SuggestGroup(cluster_key(ids_), ids_, lowest, (_BY_WORDS,), by_words=True))
    return groups


def select_proposable(groups: Iterable[SuggestGroup], found: Mapping[UUID, Row[Any]]) -> list[ProposableGroup]:
    """The groups all of whose members are there and active, the most similar first. ``found``: by load_originals."""
    opened = []
    for group in sorted(groups, key=lambda one: (-(one.similarity or 0.0), one.cluster_key)):
        rows = [found[id_] for id_ in group.members if id_ in found and found[id_].is_active]
        if len(rows) == len(group.members):
            name = fingerprint((row.id, row.content_hash) for row in rows)
            opened.append(
                ProposableGroup(group, [(row.id, row.version) for row in rows], [_asked(row) for row in rows], name)
            )
    return opened


def _parts(row: Row[Any]) -> tuple[str, str | None]:
    """Content and lessons of a memory."""
    if row.kind != "raw":
        return row.texts[0], None
    fields = dict(zip(TEXT_COLUMNS, row.texts, strict=True))
    return embedding_text(**{**fields, "lessons_learned": None}), row.texts[_LESSONS]


def _asked(row: Row[Any]) -> OriginalMemory:
    content, lessons = _parts(row)
    return OriginalMemory(content, (lessons or "").strip() or None, row.language)


PURPOSE = "suggestion"


@dataclass(frozen=True)
class ProposalResult:
    """What a phase did. ``groups``: that a person is to decide on, ``by_words`` those of them without vectors.

    Of the groups, ``asked_before`` have been proposed as they are, or share a memory with one that waits; ``skipped``
    have too much text for one question, or a member that was merged or archived meanwhile; ``unasked`` were left
    without a text, for there is no model, or a plan is carried out. ``superseded``: suggestions whose originals have
    changed; ``waiting``: those that wait for a person now. ``failures``: cluster key and error; ``stopped``: why it
    ended before its time.
    """

    groups: int = 0
    by_words: int = 0
    created: int = 0
    asked_before: int = 0
    skipped: int = 0
    unasked: int = 0
    superseded: int = 0
    waiting: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None


@dataclass(frozen=True)
class SortedGroups:
    """Groups by what becomes of them: to be asked about, proposed before, not fit to be asked about."""

    due: list[ProposableGroup] = field(default_factory=list)
    asked_before: int = 0
    skipped: int = 0


def propose_merges(run: ProjectRun) -> ProposalResult:
    """A suggestion for each group that a person is to decide on and was not asked about: one call of a model each.

    Without a model there are no suggestions, and the groups are counted: their texts are read only where some of them
    may have been asked about. A group without a usable reply is left to the
    next run.

    Raises:
        ConflictError: another process proposed something for the same memories meanwhile.
    """
    asks = run.options.llm_model is not None and run.plan is None
    with run.transaction() as connection:
        superseded = store.supersede_stale(connection, run.author)
        if asks or any(store.load_proposed(connection, run.project.id)):
            groups = load_suggest_groups(connection, run)
            total, found = len(groups), sort_groups(connection, run, groups)
        else:
            groups = load_term_groups(connection, run)
            total, found = len(groups) + count_groups(connection, run.project.id, "suggest"), SortedGroups()
    created, failures, stopped = _propose(run, found.due) if asks and found.due else (0, (), None)
    run.unfinished = run.unfinished or stopped is not None or bool(failures)
    with run.engine.connect() as connection:
        counts = store.count_suggestions(connection, run.project.id)
    return ProposalResult(
        groups=total,
        by_words=sum(group.by_words for group in groups),
        created=created,
        asked_before=found.asked_before,
        skipped=found.skipped,
        unasked=0 if asks else total - found.asked_before - found.skipped,
        superseded=superseded,
        waiting=counts.get("pending", 0),
        failures=failures,
        stopped=stopped,
    )


def sort_groups(connection: Connection, run: ProjectRun, groups: Sequence[SuggestGroup]) -> SortedGroups:
    """What becomes of each group; of those to be asked about no two share a memory, the more similar one stays."""
    asked, held = store.load_proposed(connection, run.project.id)
    rows = store.load_originals(connection, [id_ for group in groups for id_ in group.members])
    opened = select_proposable(groups, rows)
    due, before, skipped = [], 0, len(groups) - len(opened)
    for one in opened:
        if one.fingerprint in asked or not held.isdisjoint(one.group.members):
            before += 1
        elif one.chars > MAX_REWRITE_CHARS:
            skipped += 1
        else:
            due.append(one)
            held.update(one.group.members)
    return SortedGroups(due, before, skipped)


def price_suggestions(connection: Connection, run: ProjectRun, groups: Sequence[SuggestGroup]) -> list[Bill]:
    """The most that each call would be billed that suggestions for these groups take."""
    if run.options.llm_model is None:
        return []
    prompts = [suggestion_prompt(one.asked) for one in sort_groups(connection, run, groups).due]
    return llm_gateway.price_prompts(connection, run, prompts, SuggestionReply)


def _propose(run: ProjectRun, due: Sequence[ProposableGroup]) -> tuple[int, tuple[tuple[str, str], ...], str | None]:
    """How many suggestions were made, which groups failed, and why it ended before all were asked about."""
    created, failures = 0, list[tuple[str, str]]()
    for batch in _ask(run, due):
        stop = next((said for _, said in batch if isinstance(said, BudgetExhaustedError | ModelUnavailableError)), None)
        worded = [_word(one, said) for one, said in batch if isinstance(said, Answer)]
        _write(run, worded)
        created += len(worded)
        if stop is not None:
            return created, tuple(failures), run.record_stop(PURPOSE, stop)
        failures += [(one.group.cluster_key, str(said)) for one, said in batch if isinstance(said, LLMError)]
    return created, tuple(failures), None


_Said = Answer[SuggestionReply] | LLMError | BudgetExhaustedError


def _ask(run: ProjectRun, due: Sequence[ProposableGroup]) -> Iterator[list[tuple[ProposableGroup, _Said]]]:
    """What the model says of each group, in batches."""
    gateway = llm_gateway.open_gateway(run)
    for start in range(0, len(due), llm_gateway.BATCH):
        batch = due[start : start + llm_gateway.BATCH]
        prompts = [suggestion_prompt(one.asked) for one in batch]
        yield list(zip(batch, gateway.ask_many(prompts, SuggestionReply, check=find_inventions), strict=True))


def _word(one: ProposableGroup, answer: Answer[SuggestionReply]) -> store.NewSuggestion:
    wording = trim_reply(answer.value, one.asked)
    return store.NewSuggestion(
        cluster_key=one.group.cluster_key,
        originals=one.originals,
        fingerprint=one.fingerprint,
        content=wording.content,
        lessons_learned=wording.lessons_learned,
        keywords=wording.keywords,
        similarity=one.group.similarity,
        rationale=one.group.rationale,
    )


def _write(run: ProjectRun, suggestions: Sequence[store.NewSuggestion]) -> None:
    """The suggestions and their events, in one transaction."""
    if not suggestions:
        return
    with run.transaction() as connection:
        ids = store.append_suggestions(connection, run.author, suggestions, now=run.now)
        for id_ in ids:
            payload = {"suggestion_id": str(id_), "job_id": str(run.job_id)}
            append_event(connection, run.project.id, "suggestion.created", payload)
