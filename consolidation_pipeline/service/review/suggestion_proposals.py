"""Proposals of suggestions: groups that a person decides on, and one text for each from a language model.

The groups come from the suggest tier. Memories without a vector are grouped by their terms (TF-IDF).
"""

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
from consolidation_pipeline.store.memories.embeddings import list_unembedded
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS
from consolidation_pipeline.store.review import suggestions as store
from consolidation_pipeline.store.similarity.clusters import ClusterMember, count_groups, load_clusters

# Texts compared by their terms, each with all others: 10,000 take 2 seconds, ten times as many would take minutes.
MAX_TERM_TEXTS = 10_000

PURPOSE = "suggestion"
# Errors after which the model is not asked again in this run.
_STOPS = (BudgetExhaustedError, ModelUnavailableError)

_LESSONS = TEXT_COLUMNS.index("lessons_learned")
_BY_TERMS = "similar words; not compared by meaning, as they have no vectors yet"


@dataclass(frozen=True)
class SuggestGroup:
    """Memories that may say the same, the representative first.

    ``similarity``: lowest cosine among them, of TF-IDF terms if ``by_terms``. ``reasons``: why a person decides.
    """

    cluster_key: str
    members: Sequence[UUID]
    similarity: float | None
    reasons: tuple[str, ...]
    by_terms: bool = False

    @property
    def rationale(self) -> str:
        """Explanation of the proposal for the person who decides."""
        alike = "" if self.similarity is None else f" (lowest similarity {self.similarity:.2f})"
        return f"{len(self.members)} memories may say the same{alike}; {'; '.join(self.reasons)}"


@dataclass(frozen=True)
class ProposableGroup:
    """A group whose members are all active.

    ``originals``: (id, version) of each member. ``texts``: their texts as a model sees them.
    """

    group: SuggestGroup
    originals: Sequence[tuple[UUID, int]]
    texts: Sequence[OriginalMemory]
    fingerprint: str

    @property
    def chars(self) -> int:
        """Number of characters of all texts."""
        return sum(len(one.text) for one in self.texts)


def load_suggest_groups(connection: Connection, run: ProjectRun) -> list[SuggestGroup]:
    """Load the groups of the suggest tier by key, then those of memories without a vector."""
    return [
        *read_suggest_groups(load_clusters(connection, run.project.id, "suggest")),
        *load_term_groups(connection, run),
    ]


def load_term_groups(connection: Connection, run: ProjectRun) -> list[SuggestGroup]:
    """Load the groups of memories without a vector, formed by their terms."""
    waiting = to_uuids(list_unembedded(connection, run.project.id, "task_memories", run.embedder.name))
    return group_by_terms(connection, waiting, cross_type=run.options.cross_type)


def read_suggest_groups(clusters: Mapping[str, Sequence[ClusterMember]]) -> list[SuggestGroup]:
    """Return the groups of the suggest tier; the details of their representatives hold the reasons."""
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
    """Group raw memories in which every two have a TF-IDF cosine of at least ``T_TERMS``.

    Memories that are not active are left out. Of more than ``MAX_TERM_TEXTS``, the first by id are compared.

    Args:
        ids: raw memories.
        cross_type: group memories of different types too.
    """
    chosen = sorted(ids)[:MAX_TERM_TEXTS]
    rows = [row for _, row in sorted(store.load_originals(connection, chosen).items()) if row.is_active]
    if len(rows) < 2:
        return []
    pairs = join_terms([_split_text(row) for row in rows])
    types = np.array([row.memory_type for row in rows])
    if not cross_type:
        pairs = pairs.select(types[pairs.i] == types[pairs.j])
    labels = complete_linkage(len(rows), pairs, T_TERMS)
    groups = []
    for group in list_members(labels):
        inside = (labels[pairs.i] == labels[group[0]]) & (labels[pairs.j] == labels[group[0]])
        ids_ = [rows[at].id for at in group.tolist()]
        lowest = round(float(pairs.similarity[inside].min()), 6)
        groups.append(SuggestGroup(cluster_key(ids_), ids_, lowest, (_BY_TERMS,), by_terms=True))
    return groups


def select_proposable(groups: Iterable[SuggestGroup], found: Mapping[UUID, Row[Any]]) -> list[ProposableGroup]:
    """Return the groups whose members are all active, the most similar first.

    Args:
        found: memories by id, as from ``load_originals``.
    """
    proposable = []
    for group in sorted(groups, key=lambda one: (-(one.similarity or 0.0), one.cluster_key)):
        rows = [found[id_] for id_ in group.members if id_ in found and found[id_].is_active]
        if len(rows) == len(group.members):
            name = fingerprint((row.id, row.content_hash) for row in rows)
            proposable.append(
                ProposableGroup(
                    group, [(row.id, row.version) for row in rows], [_to_original(row) for row in rows], name
                )
            )
    return proposable


def _split_text(row: Row[Any]) -> tuple[str, str | None]:
    """Return content and lessons of a memory."""
    if row.kind != "raw":
        return row.texts[0], None
    fields = dict(zip(TEXT_COLUMNS, row.texts, strict=True))
    return embedding_text(**{**fields, "lessons_learned": None}), row.texts[_LESSONS]


def _to_original(row: Row[Any]) -> OriginalMemory:
    content, lessons = _split_text(row)
    return OriginalMemory(content, (lessons or "").strip() or None, row.language)


@dataclass(frozen=True)
class ProposalResult:
    """Counts of the phase.

    - ``groups``: groups that a person decides on; ``by_terms``: those of them that were grouped by their terms.
    - ``proposed_before``: groups that were proposed as they are, or share a memory with a pending suggestion.
    - ``skipped``: groups with too much text, or with a member that was merged or archived meanwhile.
    - ``without_text``: groups that got no text, as there is no model or a plan is carried out.
    - ``superseded``: suggestions whose originals have changed; ``waiting``: suggestions that wait for a person now.
    - ``failures``: cluster key and error; ``stopped``: reason why the phase ended early.
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
class SortedGroups:
    """Groups to be proposed, and numbers of groups that were proposed before or cannot be proposed."""

    to_propose: list[ProposableGroup] = field(default_factory=list)
    proposed_before: int = 0
    skipped: int = 0


def propose_merges(run: ProjectRun) -> ProposalResult:
    """Make a suggestion for each group that a person decides on and that was not proposed yet: one call of a model
    each.

    Without a model no suggestions are made and the groups are counted. Their texts are then read only if there are
    suggestions. A group without a usable reply is left to the next run.

    Raises:
        ConflictError: another process proposed something for the same memories meanwhile.
    """
    has_model = run.options.llm_model is not None and run.plan is None
    with run.transaction() as connection:
        superseded = store.supersede_stale(connection, run.author)
        if has_model or any(store.load_proposed(connection, run.project.id)):
            groups = load_suggest_groups(connection, run)
            total, found = len(groups), sort_groups(connection, run, groups)
        else:
            groups = load_term_groups(connection, run)
            total, found = len(groups) + count_groups(connection, run.project.id, "suggest"), SortedGroups()
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


def sort_groups(connection: Connection, run: ProjectRun, groups: Sequence[SuggestGroup]) -> SortedGroups:
    """Sort groups by what becomes of them. Of those to be proposed no two share a memory: the more similar one is
    chosen.
    """
    proposed, waiting = store.load_proposed(connection, run.project.id)
    rows = store.load_originals(connection, [id_ for group in groups for id_ in group.members])
    proposable = select_proposable(groups, rows)
    to_propose, before, skipped = [], 0, len(groups) - len(proposable)
    for one in proposable:
        if one.fingerprint in proposed or not waiting.isdisjoint(one.group.members):
            before += 1
        elif one.chars > MAX_REWRITE_CHARS:
            skipped += 1
        else:
            to_propose.append(one)
            waiting.update(one.group.members)
    return SortedGroups(to_propose, before, skipped)


def price_suggestions(connection: Connection, run: ProjectRun, groups: Sequence[SuggestGroup]) -> list[Bill]:
    """Return the highest bill of each model call that suggestions for these groups would take."""
    if run.options.llm_model is None:
        return []
    prompts = [suggestion_prompt(one.texts) for one in sort_groups(connection, run, groups).to_propose]
    return llm_gateway.price_prompts(connection, run, prompts, SuggestionReply)


def _propose(run: ProjectRun, groups: Sequence[ProposableGroup]) -> tuple[int, tuple[tuple[str, str], ...], str | None]:
    """Return the number of suggestions made, cluster key and error of groups that failed, and the reason of an early
    end.
    """
    created, failures = 0, list[tuple[str, str]]()
    for batch in _ask(run, groups):
        stop = next((reply for _, reply in batch if isinstance(reply, _STOPS)), None)
        suggestions = [_to_suggestion(one, reply) for one, reply in batch if isinstance(reply, Answer)]
        _write(run, suggestions)
        created += len(suggestions)
        if stop is not None:
            return created, tuple(failures), run.record_stop(PURPOSE, stop)
        failures += [(one.group.cluster_key, str(reply)) for one, reply in batch if isinstance(reply, LLMError)]
    return created, tuple(failures), None


_Reply = Answer[SuggestionReply] | LLMError | BudgetExhaustedError


def _ask(run: ProjectRun, groups: Sequence[ProposableGroup]) -> Iterator[list[tuple[ProposableGroup, _Reply]]]:
    """Yield in batches the groups with the model's replies."""
    gateway = llm_gateway.open_gateway(run)
    for start in range(0, len(groups), llm_gateway.BATCH):
        batch = groups[start : start + llm_gateway.BATCH]
        prompts = [suggestion_prompt(one.texts) for one in batch]
        yield list(zip(batch, gateway.ask_many(prompts, SuggestionReply, check=find_inventions), strict=True))


def _to_suggestion(one: ProposableGroup, answer: Answer[SuggestionReply]) -> store.NewSuggestion:
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


def _write(run: ProjectRun, suggestions: Sequence[store.NewSuggestion]) -> None:
    """Write the suggestions and their events in one transaction."""
    if not suggestions:
        return
    with run.transaction() as connection:
        ids = store.append_suggestions(connection, run.author, suggestions, now=run.now)
        for id_ in ids:
            payload = {"suggestion_id": str(id_), "job_id": str(run.job_id)}
            append_event(connection, run.project.id, "suggestion.created", payload)
