"""Pairs for a person to label, so that calibration can state the errors of the merge decision on the project's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.differences.explanation import PROOFS, Explanation, explain_readings
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.text.word_diff import Piece, compare_texts
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.database.vector_copy import to_ids
from consolidation_pipeline.store.ledger.cannot_link import load_cannot_links
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review import labelled_pairs as store
from consolidation_pipeline.store.similarity.similarity_graph import MERGE

# Answers, and what is stored for each.
LABELS = {"same": True, "different": False, "skip": None}
# Pairs of one sitting.
MAX_PAIRS = 200
# Pairs of each verdict that are explained to choose from: half a second.
_MAX_CANDIDATES = 200
# What the differences prove where a label teaches most: of pairs that would merge, and of pairs to ask about.
_INFORMATIVE = {True: "contains", False: "unexplained"}


@dataclass(frozen=True)
class PairToLabel:
    """Two raw memories and their texts.

    ``would_merge``: the last run found that they may merge. ``merged_into``: the merged memory that both are in.
    """

    a: UUID
    b: UUID
    text_a: str
    text_b: str
    similarity: float
    would_merge: bool
    explanation: Explanation
    merged_into: UUID | None


@dataclass(frozen=True)
class LabelCounts:
    """Number of labelled pairs of a project by answer."""

    same: int
    different: int
    skipped: int

    @property
    def total(self) -> int:
        """Number of all answers."""
        return self.same + self.different + self.skipped


def list_pairs_to_label(engine: Engine, slug: str, count: int, *, settings: Settings) -> list[PairToLabel]:
    """Return the ``count`` pairs whose labels tell most about the errors of the merge decision, or fewer.

    The pairs are those of the similarity graph that the last run found near the decision:

    - Every second one would merge, to find wrong merges. Pairs of which one adds detail come first, as nothing but the
      proof says that the detail is harmless; of those, the least similar first.
    - The others are left to a person, to find duplicates that are missed. Pairs that neither agree nor contradict each
      other come first, the most similar ahead.

    Topics that have fewer labels come first in both, so that a large group does not take all of the answers. A pair is
    never one that was labelled or skipped, is or was part of one suggestion, or whose merge a person undid. The same
    state of the project gives the same pairs.

    Raises:
        NotFoundError: There is no such project. UsageError: ``count`` is not from 1 to ``MAX_PAIRS``.
    """
    if not 1 <= count <= MAX_PAIRS:
        raise UsageError(f"{count} pairs cannot be labelled at once: give a number from 1 to {MAX_PAIRS}")
    with engine.connect() as connection:
        project = get_project(connection, slug)
        options = effective_options(project, settings)
        model = load_embedder(options.embedding_model).name
        scope, cross_type = options.scope, options.cross_type
        rows: Sequence[Row[Any]] = store.list_candidates(
            connection, project.id, model, scope=scope, cross_type=cross_type, most=_MAX_CANDIDATES
        )
        rows = _leave_undone_merges(connection, project.id, rows)
        texts = load_texts(connection, list({id_ for row in rows for id_ in (row.a, row.b)}))
        labels = sum(store.count_labels(connection, project.id))
    readings = {id_: read(text) for id_, text in texts.items()}
    candidates = [_Candidate(row, explain_readings(readings[row.a], readings[row.b], word_similarity)) for row in rows]
    # Successive sittings of one pair each, as on the page, take turns as well.
    chosen = _choose(candidates, count, merging_first=labels % 2 == 0)
    return [_to_pair(one, texts[one.row.a], texts[one.row.b]) for one in chosen]


def _leave_undone_merges(connection: Connection, project_id: UUID, rows: Sequence[Row[Any]]) -> list[Row[Any]]:
    """Return the pairs without those whose merge a person undid."""
    a, b = to_ids([row.a for row in rows]), to_ids([row.b for row in rows])
    undone = load_cannot_links(connection, project_id).among(np.concatenate([a, b])).forbids(a, b)
    return [row for row, is_undone in zip(rows, undone.tolist(), strict=True) if not is_undone]


@dataclass(frozen=True)
class _Candidate:
    row: Row[Any]
    explanation: Explanation

    @property
    def would_merge(self) -> bool:
        return bool(self.row.verdict == MERGE)

    @property
    def topics(self) -> set[str]:
        return {self.row.topic_a, self.row.topic_b}

    def rank(self, chosen: Counter[str]) -> tuple[Any, ...]:
        """Return the place among the candidates of one verdict; ``chosen``: pairs by topic that were chosen before."""
        is_informative = self.explanation.verdict == _INFORMATIVE[self.would_merge]
        uses = self.row.uses + max(chosen[topic] for topic in self.topics)
        return not is_informative, uses, self.row.distance, self.row.a, self.row.b


def _choose(candidates: Iterable[_Candidate], count: int, *, merging_first: bool) -> list[_Candidate]:
    """Return ``count`` candidates, or all, by turns of those that would merge and the others."""
    pools: dict[bool, list[_Candidate]] = {True: [], False: []}
    for candidate in candidates:
        pools[candidate.would_merge].append(candidate)
    found: list[_Candidate] = []
    uses: Counter[str] = Counter()
    turn = merging_first
    while len(found) < count and (pool := pools[turn] or pools[not turn]):
        best = min(pool, key=lambda one: one.rank(uses))
        pool.remove(best)
        uses.update(best.topics)
        found.append(best)
        turn = not turn
    return found


def _to_pair(one: _Candidate, text_a: str, text_b: str) -> PairToLabel:
    row = one.row
    return PairToLabel(row.a, row.b, text_a, text_b, row.similarity, one.would_merge, one.explanation, row.merged_into)


def mark_texts(pair: PairToLabel) -> list[tuple[Piece, ...]]:
    """Return both texts in pieces: ``differs`` if a word is not in both, ``conflicts`` if the texts contradict."""
    proofs = [one for one in pair.explanation.differences if PROOFS[one.kind] == "contradicts"]
    conflicts = ([span for one in proofs for span in one.spans_a], [span for one in proofs for span in one.spans_b])
    return compare_texts([pair.text_a, pair.text_b], conflicts)


def label_pair(engine: Engine, slug: str, a: UUID, b: UUID, *, same: bool | None, labelled_by: str) -> None:
    """Store what a person says about a pair; ``same`` None: skipped, and not asked about again. Nothing is merged.

    Raises:
        NotFoundError: There is no such project, or it has no two such raw memories.
        ConflictError: The pair was labelled before.
    """
    with engine.begin() as connection:
        project = get_project(connection, slug)
        store.append_label(connection, project.id, a, b, same=same, labelled_by=labelled_by)


def withdraw_label(engine: Engine, slug: str, a: UUID, b: UUID) -> None:
    """Delete the label of a pair, which may then be asked about again.

    Raises:
        NotFoundError: There is no such project. ConflictError: The pair has no label.
    """
    with engine.begin() as connection:
        project = get_project(connection, slug)
        if not store.delete_label(connection, project.id, a, b):
            raise ConflictError(f"the pair {a}, {b} has no label to undo", (str(a), str(b)))


def find_answer(engine: Engine, slug: str, a: UUID, b: UUID) -> str | None:
    """Return the answer to a pair, a key of ``LABELS``; None if there is none.

    Raises:
        NotFoundError: There is no such project.
    """
    with engine.connect() as connection:
        found = store.find_label(connection, get_project(connection, slug).id, a, b)
    return None if found is None else next(name for name, same in LABELS.items() if same is found.same)


def count_labels(engine: Engine, slug: str) -> LabelCounts:
    """Return how many pairs of a project were labelled. Raise NotFoundError if there is no such project."""
    with engine.connect() as connection:
        return LabelCounts(*store.count_labels(connection, get_project(connection, slug).id))
