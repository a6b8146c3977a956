"""Suggestions for people to read: originals side by side, their differences, and the proposed text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.differences.explanation import PROOFS
from consolidation_pipeline.core.knowledge.difference_kinds import count_kinds, explain_pairs
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.text.text_merge import find_missing_literals
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.review.expected_text import short_hash
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, Row
from consolidation_pipeline.store.database.schema import SUGGESTION_STATUSES
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review import suggestions as store
from consolidation_pipeline.store.review.suggestion_counts import count_unproposed_groups, list_pending_kinds


@dataclass(frozen=True)
class Original:
    """A memory that would be merged, with its current text.

    ``kind``: raw or merged. ``source``: source of a raw memory. ``version``: the version that the suggestion was made
    from. ``is_current``: the memory still has that version and is active.
    """

    id: UUID
    content: str
    memory_type: str
    kind: str
    learned_at: datetime
    source: str | None
    version: int
    is_current: bool


@dataclass(frozen=True)
class Passage:
    """A part of an original's content; ``start``: its offset."""

    text: str
    start: int


@dataclass(frozen=True)
class Disagreement:
    """A difference between two originals that is not harmless, and the passages that differ.

    ``kind``: a key of ``PROOFS``. ``contradicts``: the originals contradict each other; else nothing proves that they
    say the same.
    """

    kind: str
    contradicts: bool
    a: tuple[Passage, ...]
    b: tuple[Passage, ...]
    a_id: UUID
    b_id: UUID


@dataclass(frozen=True)
class ListedDifference:
    """A difference as it is shown: once, for all pairs of originals that have it.

    ``numbers_a``, ``numbers_b``: numbers of the originals, from 1, that say ``a`` and ``b``.
    """

    kind: str
    contradicts: bool
    a: Sequence[Passage]
    b: Sequence[Passage]
    numbers_a: Sequence[int]
    numbers_b: Sequence[int]

    @property
    def differs(self) -> bool:
        """False if the passages are the same words in other places, or none."""
        a, b = ([passage.text.casefold() for passage in side] for side in (self.a, self.b))
        return a != b


@dataclass(frozen=True)
class Suggestion:
    """A proposed merge.

    ``text_hash``: hash of content and lessons, which an approval may expect.
    ``similarity``: lowest cosine among the originals. ``originals``: without those that were deleted. ``left_out``:
    literals of the originals that the proposed text lacks, as written. ``difference_kinds``: kinds of ``differences``,
    the most frequent first; empty if an older version proposed it. ``worth``: rank among those that wait.
    ``method``: llm for a model's text; heuristic for one that keeps everything; hybrid if the model's was refused.
    ``memory_id``: the memory that an approval made. ``group_id``: change group of the decision; its rollback undoes
    the decision.
    """

    id: UUID
    project: str
    status: str
    memory_type: str | None
    similarity: float | None
    content: str
    lessons_learned: str | None
    text_hash: str
    keywords: tuple[str, ...]
    rationale: str | None
    originals: list[Original]
    differences: list[Disagreement]
    difference_kinds: tuple[str, ...]
    left_out: tuple[str, ...]
    worth: float | None
    method: str
    created_at: datetime
    reviewed_by: str | None
    reviewed_at: datetime | None
    review_note: str | None
    memory_id: UUID | None
    group_id: UUID | None

    def list_differences(self) -> list[ListedDifference]:
        """Return the differences between the originals, the same one only once; contradictions come first."""
        numbers = {original.id: number for number, original in enumerate(self.originals, start=1)}
        found: dict[tuple[object, ...], tuple[Disagreement, set[int], set[int]]] = {}
        for one in self.differences:
            (a, a_number), (b, b_number) = (one.a, numbers[one.a_id]), (one.b, numbers[one.b_id])
            key, turned = (
                (one.kind, *(tuple(passage.text.casefold() for passage in side) for side in sides))
                for sides in ((a, b), (b, a))
            )
            # What only one original says comes first, whichever of the two it is.
            if turned in found or (b and not a):
                key, a, a_number, b, b_number = turned, b, b_number, a, a_number
            _, numbers_a, numbers_b = found.setdefault(key, (replace(one, a=a, b=b), set(), set()))
            numbers_a.add(a_number)
            numbers_b.add(b_number)
        listed = [
            ListedDifference(one.kind, one.contradicts, one.a, one.b, sorted(numbers_a), sorted(numbers_b))
            for one, numbers_a, numbers_b in found.values()
        ]
        return sorted(listed, key=lambda one: not one.contradicts)


@dataclass(frozen=True)
class QueueState:
    """Suggestions and groups that wait for a person.

    ``pending``: suggestions. ``beyond_limit``: by project, groups that no suggestion proposes yet; ``limits``: the
    option ``review_limit`` of these projects. ``kinds``: by kind, pending suggestions that differ only in it; values
    count by their place, and together if they have several.
    """

    pending: int
    beyond_limit: Mapping[str, int]
    limits: Mapping[str, int]
    kinds: Mapping[str, int]

    @property
    def groups_beyond(self) -> int:
        """Number of groups that no suggestion proposes yet, of all projects."""
        return sum(self.beyond_limit.values())


@dataclass(frozen=True)
class SuggestionPage:
    """A page of suggestions, and the number of all that match."""

    total: int
    suggestions: list[Suggestion]


def list_suggestions(
    engine: Engine,
    slug: str | None,
    *,
    status: str | None = "pending",
    type: str | None = None,
    min_similarity: float | None = None,
    differ_only_in: str | None = None,
    limit: int = 50,
    offset: int = 0,
) -> SuggestionPage:
    """Return suggestions: pending ones by worth, decided ones by time, both descending.

    None as project, status, memory type, lowest similarity or kind of all differences means any.

    Raises:
        NotFoundError: There is no such project.
        UsageError: There is no such status or memory type.
    """
    check_filters(status, type, differ_only_in)
    with engine.connect() as connection:
        project_id = None if slug is None else get_project(connection, slug).id
        total, rows = store.list_suggestions(
            connection,
            project_id,
            status=status,
            memory_type=type,
            min_similarity=min_similarity,
            differ_only_in=differ_only_in,
            limit=limit,
            offset=offset,
        )
        found = store.load_originals(connection, [id_ for row in rows for id_ in row.original_memory_ids])
    return SuggestionPage(total, [_to_suggestion(row, found) for row in rows])


def describe_queue(
    engine: Engine,
    slug: str | None,
    *,
    settings: Settings,
    type: str | None = None,
    min_similarity: float | None = None,
) -> QueueState:
    """Return what waits in a project, or in all of them; of suggestions, those of a memory type and similarity alone.

    Raises:
        NotFoundError: There is no such project.
    """
    with engine.connect() as connection:
        project_id = None if slug is None else get_project(connection, slug).id
        beyond = count_unproposed_groups(connection, project_id)
        kinds = list_pending_kinds(connection, project_id, memory_type=type, min_similarity=min_similarity)
        projects = [get_project(connection, name) for name in beyond]
    limits = {one.slug: effective_options(one, settings).review_limit for one in projects}
    common = count_kinds(kinds)
    ordered = dict(sorted(common.items(), key=lambda item: (-item[1], item[0])))
    return QueueState(len(kinds), beyond, limits, ordered)


def get_suggestion(engine: Engine, id: UUID) -> Suggestion:
    """Return one suggestion. Raise NotFoundError if there is none."""
    with engine.connect() as connection:
        row = store.find_suggestion(connection, id)
        if row is None:
            raise NotFoundError(f"there is no suggestion {id}: `consolidation suggestions list` shows ids")
        found = store.load_originals(connection, row.original_memory_ids)
    return _to_suggestion(row, found)


def check_filters(status: str | None, memory_type: str | None, differ_only_in: str | None) -> None:
    """Raise UsageError if there is no such status, memory type or kind of difference."""
    if status is not None and status not in SUGGESTION_STATUSES:
        raise UsageError(f"status {status!r} does not exist; a suggestion is {', '.join(SUGGESTION_STATUSES)}")
    if memory_type is not None and memory_type not in MEMORY_TYPES:
        raise UsageError(f"type {memory_type!r} does not exist; a memory is of {', '.join(MEMORY_TYPES)}")
    if differ_only_in is not None and PROOFS.get(differ_only_in.partition(":")[0], "contains") == "contains":
        kinds = ", ".join(kind for kind, proof in PROOFS.items() if proof != "contains")
        raise UsageError(
            f"difference {differ_only_in!r} does not exist; it is one of {kinds}, or value: with its place"
        )


def join_parts(content: str, lessons_learned: str | None) -> str:
    """Return the text of a merged memory: its content, and its lessons on a line of their own."""
    return "\n".join(part.strip() for part in (content, lessons_learned) if part and part.strip())


def _to_suggestion(row: Row[Any], found: Mapping[UUID, Row[Any]]) -> Suggestion:
    versions = zip(row.original_memory_ids, row.original_versions, strict=True)
    originals = [_to_original(found[id_], version) for id_, version in versions if id_ in found]
    proposed = join_parts(row.suggested_content, row.suggested_lessons_learned)
    missing = find_missing_literals([original.content for original in originals], proposed)
    return Suggestion(
        id=row.id,
        project=row.slug,
        status=row.status,
        memory_type=row.memory_type,
        similarity=row.similarity,
        content=row.suggested_content,
        lessons_learned=row.suggested_lessons_learned,
        text_hash=short_hash(proposed),
        keywords=tuple(row.suggested_keywords),
        rationale=row.rationale,
        originals=originals,
        differences=_find_differences(originals),
        difference_kinds=tuple(row.difference_kinds or ()),
        left_out=tuple(literal.text for literal in sorted(missing, key=lambda one: (one.kind, one.value))),
        worth=row.worth,
        method=row.method or "llm",
        created_at=row.created_at,
        reviewed_by=row.reviewed_by,
        reviewed_at=row.reviewed_at,
        review_note=row.review_note,
        memory_id=row.result_memory_id,
        group_id=row.decided_in,
    )


def _to_original(row: Row[Any], version: int) -> Original:
    is_current = row.is_active and row.version == version
    return Original(
        row.id, store.read_text(row), row.memory_type, row.kind, row.learned_at, row.source, version, is_current
    )


def _find_differences(originals: Sequence[Original]) -> list[Disagreement]:
    found = []
    for i, j, explanation in explain_pairs([original.content for original in originals], word_similarity):
        one, other = originals[i], originals[j]
        for difference in explanation.list_obstacles():
            a = tuple(Passage(one.content[start:end], start) for start, end in difference.spans_a)
            b = tuple(Passage(other.content[start:end], start) for start, end in difference.spans_b)
            contradicts = PROOFS[difference.kind] == "contradicts"
            found.append(Disagreement(difference.kind, contradicts, a, b, one.id, other.id))
    return found
