"""Proposals of suggestions: groups that a person decides on, and one text for each from a language model.

The groups come from the suggest tier. Memories without a vector are grouped by their terms (TF-IDF).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from consolidation_pipeline.errors import LLMError
from consolidation_pipeline.llm.gateway import Answer
from consolidation_pipeline.llm.prompts.suggestion import (
    OriginalMemory,
    SuggestionReply,
    find_inventions,
    suggestion_prompt,
    trim_reply,
)
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.knowledge.merge_rewrites import MAX_REWRITE_CHARS
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection, Row
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.memories.embeddings import list_unembedded
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS
from consolidation_pipeline.store.review import suggestions as store
from consolidation_pipeline.store.similarity.clusters import ClusterMember, count_groups, load_clusters

# Texts compared by their terms, each with all others: 10,000 take 2 seconds, 100,000 would take minutes.
MAX_TERM_TEXTS = 10_000

PURPOSE = "suggestion"

_BY_TERMS = "similar words; not compared by meaning, as they have no vectors yet"


@dataclass(frozen=True)
class SuggestGroup:
    """Ids of memories that may say the same (``members``), the representative first.

    ``similarity``: lowest cosine among them, of TF-IDF terms if ``by_terms``. ``reasons``: why they are not merged
    without asking. ``confirmed``: the pair judge, which may not merge, says that two of them are the same.
    """

    cluster_key: str
    members: Sequence[UUID]
    similarity: float | None
    reasons: tuple[str, ...]
    by_terms: bool = False
    confirmed: bool = False

    @property
    def rationale(self) -> str:
        """Explanation of the proposal for the person who decides."""
        alike = "" if self.similarity is None else f" (lowest similarity {self.similarity:.2f})"
        reasons = (*self.reasons, *(["the pair judge says the same"] if self.confirmed else []))
        return f"{len(self.members)} memories may say the same{alike}; {'; '.join(reasons)}"


@dataclass(frozen=True)
class ProposableGroup:
    """A group whose members are all active.

    ``originals``: (id, version) of each member. ``texts``: their texts for the prompt. ``fingerprint``: hash of members
    and contents, by which a group is recognised that was proposed before.
    """

    group: SuggestGroup
    originals: Sequence[tuple[UUID, int]]
    texts: Sequence[OriginalMemory]
    fingerprint: str

    @property
    def chars(self) -> int:
        """Number of characters of all texts."""
        return sum(len(original.text) for original in self.texts)


def read_suggest_groups(clusters: Mapping[str, Sequence[ClusterMember]]) -> list[SuggestGroup]:
    """Return the groups of the suggest tier, given their members by cluster key.

    The details of the representative hold the pairs of a group that were asked about, with the reasons.
    """
    groups = []
    for key, members in clusters.items():
        ordered = sorted(members, key=lambda member: (not member.is_representative, member.member_id))
        ids, details = [member.member_id for member in ordered], ordered[0].details
        asked_pairs = details.get("asked_pairs", [])
        reasons = tuple(dict.fromkeys(reason for asked in asked_pairs for reason in asked["differences"]))
        similarity, confirmed = details.get("cohesion_min"), is_confirmed(asked_pairs)
        groups.append(SuggestGroup(key, ids, similarity, reasons or ("not proven the same",), confirmed=confirmed))
    return groups


def is_confirmed(asked_pairs: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if the pair judge says that one of the pairs is the same."""
    return any(asked.get("judged") == "same" for asked in asked_pairs)


def group_by_terms(connection: Connection, ids: Sequence[UUID], *, options: ConsolidationOptions) -> list[SuggestGroup]:
    """Return groups of raw memories of one scope in which every two have a TF-IDF cosine of at least ``T_TERMS``.

    Memories that are not active are left out. Of more than ``MAX_TERM_TEXTS``, the first by id are compared. With
    ``cross_type``, a group may have memories of different types.
    """
    found = store.load_originals(connection, sorted(ids)[:MAX_TERM_TEXTS], scope=options.scope)
    rows = [row for _, row in sorted(found.items()) if row.is_active]
    if len(rows) < 2:
        return []
    pairs = join_terms([_split_text(row) for row in rows])
    types, scopes = np.array([row.memory_type for row in rows]), np.array([row.scope_key or "" for row in rows])
    pairs = pairs.select(scopes[pairs.i] == scopes[pairs.j])
    if not options.cross_type:
        pairs = pairs.select(types[pairs.i] == types[pairs.j])
    labels = complete_linkage(len(rows), pairs, T_TERMS)
    groups = []
    for group in list_members(labels):
        inside = (labels[pairs.i] == labels[group[0]]) & (labels[pairs.j] == labels[group[0]])
        members = [rows[i].id for i in group.tolist()]
        lowest = round(float(pairs.similarity[inside].min()), 6)
        groups.append(SuggestGroup(cluster_key(members), members, lowest, (_BY_TERMS,), by_terms=True))
    return groups


def _select_proposable(groups: Iterable[SuggestGroup], found: Mapping[UUID, Row[Any]]) -> list[ProposableGroup]:
    """Return the groups whose members are all active, first those that a judge confirmed, then the most similar.

    ``found``: memories by id.
    """
    proposable = []
    for group in sorted(groups, key=lambda group: (not group.confirmed, -(group.similarity or 0.0), group.cluster_key)):
        rows = [found[id_] for id_ in group.members if id_ in found and found[id_].is_active]
        if len(rows) == len(group.members):
            originals, texts = [(row.id, row.version) for row in rows], [_to_original(row) for row in rows]
            hash_ = fingerprint((row.id, row.content_hash) for row in rows)
            proposable.append(ProposableGroup(group, originals, texts, hash_))
    return proposable


def _split_text(row: Row[Any]) -> tuple[str, str | None]:
    """Return content and lessons of a memory."""
    if row.kind != "raw":
        return row.texts[0], None
    fields = dict(zip(TEXT_COLUMNS, row.texts, strict=True))
    return embedding_text(**{**fields, "lessons_learned": None}), fields["lessons_learned"]


def _to_original(row: Row[Any]) -> OriginalMemory:
    content, lessons = _split_text(row)
    return OriginalMemory(content, (lessons or "").strip() or None, row.language)


@dataclass(frozen=True)
class ProposalResult:
    """Counts of the phase.

    ``groups``: groups that a person decides on; ``by_terms``: those of them that were grouped by their terms.
    ``created``: new suggestions. ``proposed_before``: groups that were proposed as they are, or share a memory with a
    pending suggestion. ``skipped``: groups with too much text, or with a member that is not active any more.
    ``without_text``: groups that got no text, as there is no model or the run applies a plan. ``superseded``:
    suggestions whose originals have changed. ``waiting``: suggestions that wait for a person now. ``failures``: cluster
    key and error. ``stopped``: reason why the phase ended early.
    """

    groups: int = 0
    by_terms: int = 0
    created: int = 0
    proposed_before: int = 0
    skipped: int = 0
    without_text: int = 0
    superseded: int = 0
    waiting: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None


@dataclass(frozen=True)
class _SortedGroups:
    """Groups to be proposed, and numbers of groups that were proposed before or cannot be proposed."""

    to_propose: list[ProposableGroup] = field(default_factory=list)
    proposed_before: int = 0
    skipped: int = 0


def propose_merges(run: ProjectRun) -> ProposalResult:
    """Make a suggestion for each group that a person decides on and that was not proposed yet.

    Each takes one call of a model. Without a model, and in a run of a plan, the groups are only counted. A group
    without a usable reply is left to the next run.

    Raises:
        ConflictError: Another process proposed something for the same memories meanwhile.
    """
    has_model = run.options.llm_model is not None and run.plan is None
    with run.transaction() as connection:
        superseded = store.supersede_stale(connection, run.author, scope=run.options.scope)
        unembedded = to_uuids(list_unembedded(connection, run.project.id, "task_memories", run.embedder.name))
        groups = group_by_terms(connection, unembedded, options=run.options)
        if has_model or any(store.load_proposed(connection, run.project.id)):
            groups = [*read_suggest_groups(load_clusters(connection, run.project.id, "suggest")), *groups]
            total, found = len(groups), _sort_groups(connection, run, groups)
        else:
            # Nothing was proposed yet and nothing will be: the texts need not be read.
            total, found = len(groups) + count_groups(connection, run.project.id, "suggest"), _SortedGroups()
    created, failures, stopped = _propose(run, found.to_propose) if has_model and found.to_propose else (0, (), None)
    run.unfinished = run.unfinished or stopped is not None or bool(failures)
    with run.engine.connect() as connection:
        counts = store.count_suggestions(connection, run.project.id)
    return ProposalResult(
        groups=total,
        by_terms=sum(group.by_terms for group in groups),
        created=created,
        proposed_before=found.proposed_before,
        skipped=found.skipped,
        without_text=0 if has_model else total - found.proposed_before - found.skipped,
        superseded=superseded,
        waiting=counts.get("pending", 0),
        failures=failures,
        stopped=stopped,
    )


def _sort_groups(connection: Connection, run: ProjectRun, groups: Sequence[SuggestGroup]) -> _SortedGroups:
    """Select the groups to be proposed, and count the others. Of groups that share a memory, take the most similar."""
    proposed, waiting = store.load_proposed(connection, run.project.id)
    rows = store.load_originals(connection, [id_ for group in groups for id_ in group.members])
    proposable = _select_proposable(groups, rows)
    to_propose, before, skipped = [], 0, len(groups) - len(proposable)
    for one in proposable:
        if one.fingerprint in proposed or not waiting.isdisjoint(one.group.members):
            before += 1
        elif one.chars > MAX_REWRITE_CHARS:
            skipped += 1
        else:
            to_propose.append(one)
            waiting.update(one.group.members)
    return _SortedGroups(to_propose, before, skipped)


def price_suggestions(connection: Connection, run: ProjectRun, groups: Sequence[SuggestGroup]) -> list[Bill]:
    """Return the highest possible bill of each model call that suggestions for these groups would take."""
    if run.options.llm_model is None:
        return []
    prompts = [suggestion_prompt(one.texts) for one in _sort_groups(connection, run, groups).to_propose]
    return llm_gateway.price_prompts(connection, run, prompts, SuggestionReply)


def _propose(run: ProjectRun, groups: Sequence[ProposableGroup]) -> tuple[int, tuple[tuple[str, str], ...], str | None]:
    """Write suggestions in batches; return ``created``, ``failures`` and ``stopped`` of ``ProposalResult``."""
    gateway = llm_gateway.open_gateway(run)
    created, failures = 0, list[tuple[str, str]]()
    for start in range(0, len(groups), llm_gateway.BATCH):
        batch = groups[start : start + llm_gateway.BATCH]
        prompts = [suggestion_prompt(one.texts) for one in batch]
        replies = gateway.ask_many(prompts, SuggestionReply, check=find_inventions)
        replied = list(zip(batch, replies, strict=True))
        suggestions = [_build_suggestion(one, reply) for one, reply in replied if isinstance(reply, Answer)]
        _write_suggestions(run, suggestions)
        created += len(suggestions)
        for _, reply in replied:
            if isinstance(reply, llm_gateway.STOP_ERRORS):
                return created, tuple(failures), run.record_stop(PURPOSE, reply)
        failures += [(one.group.cluster_key, str(reply)) for one, reply in replied if isinstance(reply, LLMError)]
    return created, tuple(failures), None


def _build_suggestion(one: ProposableGroup, answer: Answer[SuggestionReply]) -> store.NewSuggestion:
    text = trim_reply(answer.value, one.texts)
    return store.NewSuggestion(
        cluster_key=one.group.cluster_key,
        originals=one.originals,
        fingerprint=one.fingerprint,
        content=text.content,
        lessons_learned=text.lessons_learned,
        keywords=text.keywords,
        similarity=one.group.similarity,
        rationale=one.group.rationale,
    )


def _write_suggestions(run: ProjectRun, suggestions: Sequence[store.NewSuggestion]) -> None:
    """Write the suggestions and their events in one transaction."""
    if not suggestions:
        return
    with run.transaction() as connection:
        for id_ in store.append_suggestions(connection, run.author, suggestions, now=run.now):
            payload = {"suggestion_id": str(id_), "job_id": str(run.job_id)}
            append_event(connection, run.project.id, "suggestion.created", payload)
