"""Selection of the context of a task: the most relevant pieces within a token budget, each passage once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from consolidation_pipeline.core.knowledge.past_months import are_of_months_in_turn
from consolidation_pipeline.core.search.context_disputes import add_side, to_side
from consolidation_pipeline.core.search.context_markdown import (
    DERIVED,
    DISPUTED,
    INSTRUCTIONS,
    KNOWN,
    RELATED,
    WHERE_TO_LOOK,
    format_chapter,
    format_contradiction,
    format_pointer,
)
from consolidation_pipeline.core.search.context_pieces import PLAYBOOK, ContextPiece, SelectedPiece
from consolidation_pipeline.core.search.marginal_coverage import WordCoverage, list_pointers
from consolidation_pipeline.core.search.novelty import Sentence, SentenceIndex
from consolidation_pipeline.core.search.passages import Passage
from consolidation_pipeline.core.search.relevance_feedback import raise_similar
from consolidation_pipeline.core.search.results import Contradiction, MemoryPointer
from consolidation_pipeline.core.search.versions import place_newer_first
from consolidation_pipeline.core.text.token_estimate import estimate_tokens

# Largest share of the budget for instructions.
_INSTRUCTION_SHARE = 0.25
# Where to look has what memories leave of the budget, and in any case this share of it above a small one.
_POINTER_SHARE, _SMALL_BUDGET, _MAX_POINTERS = 0.05, 1_000, 5
# Number of the derived memories that are weighed against what they would displace, the best ones. The better half of
# the memories is never displaced.
_MAX_DERIVED, _SAFE_SHARE = 5, 0.5
# Memories without room, the best ones, that are compared with those that have room.
_MAX_CHECKED = 20
# Coverage per token that a derived memory needs, as a multiple of that of the memories which it displaces.
_LEAST_GAIN = 3.0


@dataclass(frozen=True)
class ContextSelection:
    """Selected pieces, the pieces that exceed the budget, contradictions, and where to look for more.

    The pieces are in the order of the chapters: instructions, known, possibly related; then the best first.
    """

    selected: list[SelectedPiece]
    left_out: list[ContextPiece]
    contradictions: list[Contradiction]
    pointers: list[MemoryPointer]


def select_pieces(pieces: Sequence[ContextPiece], *, budget: int) -> ContextSelection:
    """Select the most relevant pieces within a ``budget`` of tokens, no passage twice.

    Playbook entries come first, up to a share of the budget, then raw and merged memories by score. A passage is left
    out if another one says the same. A relevant derived memory is added if there is room, or if it adds clearly more
    coverage per token than the last memories, which it displaces; else it only points to those that found no room.
    """
    memories = [piece for piece in pieces if piece.kind not in (*DERIVED, PLAYBOOK)]
    others = [piece for piece in pieces if piece.kind in (*DERIVED, PLAYBOOK)]
    ranked = _rank([*raise_similar(memories), *others])
    entries = [piece for piece in ranked if piece.kind == PLAYBOOK]
    derived = [piece for piece in ranked if piece.kind in DERIVED]
    queue = [piece for piece in ranked if piece.kind not in (*DERIVED, PLAYBOOK)]
    coverage = WordCoverage(queue)
    reserved = int(max(0, budget - _SMALL_BUDGET) * _POINTER_SHARE) if derived else 0
    packing = _Packing(budget - reserved, entries, queue)
    for piece in derived[:_MAX_DERIVED]:
        place = _find_place(piece, packing, coverage)
        if place is not None:
            first = {one.id for one in place}
            queue = [*place, piece, *(one for one in queue if one.id not in first)]
            packing = _Packing(budget - reserved, entries, queue)
    outdated: list[ContextPiece] = []
    while found := packing.find_outdated():
        # Half of a contradiction would be told as a fact, and the older half.
        older, newer = found
        outdated.append(older)
        queue = [newer if one is older else one for one in queue if one is not newer]
        packing = _Packing(budget - reserved, entries, queue)
    told = {one.piece.id for one in packing.selected}
    pointers = list_pointers((piece for piece in derived if piece.id not in told), packing.left_out)
    packing.add_pointers(pointers[:_MAX_POINTERS], budget)
    left_out = [*packing.left_out, *outdated]
    return ContextSelection(packing.sort(), left_out, packing.contradictions, packing.pointers)


def _rank(pieces: Iterable[ContextPiece]) -> list[ContextPiece]:
    """Return the pieces, best first, and each after those that supersede it, may do so, or tell a change of it."""
    by_id = {str(piece.id): piece for piece in sorted(pieces, key=lambda piece: piece.rank)}
    newer = {
        id_: [str(one) for one in (*piece.newer_ids, *piece.rival_ids, *piece.change_ids)]
        for id_, piece in by_id.items()
    }
    return [by_id[id_] for id_, _ in place_newer_first([(id_, -one.rank[0]) for id_, one in by_id.items()], newer)]


def _find_place(derived: ContextPiece, packing: _Packing, coverage: WordCoverage) -> list[ContextPiece] | None:
    """Return the selected memories that come before a derived one, None if it is not worth its tokens."""
    if not derived.weight:
        return None
    tokens = SelectedPiece(derived, (), True).count_tokens()
    kept = [one for one in packing.selected if one.piece.kind != PLAYBOOK]
    fixed = [one.text for one in packing.selected if one.piece.kind == PLAYBOOK]
    least, displaced, freed = _SAFE_SHARE * len(kept), list[SelectedPiece](), packing.budget - packing.spent
    while freed < tokens:
        if len(kept) <= least or kept[-1].piece.kind in DERIVED:
            return None
        displaced.append(kept.pop())
        freed += displaced[-1].count_tokens()
    if not displaced:
        return [one.piece for one in kept]
    told = [*fixed, *(one.text for one in kept)]
    gain = coverage.measure([derived.text], told) / tokens
    loss = coverage.measure([one.text for one in displaced], told) / max(
        1, sum(one.count_tokens() for one in displaced)
    )
    return [one.piece for one in kept] if gain > _LEAST_GAIN * loss else None


class _Packing:
    """Pieces, contradictions and pointers that fit into a budget: entries up to a share of it, then the queue."""

    def __init__(self, budget: int, entries: Iterable[ContextPiece], queue: Iterable[ContextPiece]) -> None:
        self.budget = int(budget * _INSTRUCTION_SHARE)
        self.selected: list[SelectedPiece] = []
        self.contradictions: list[Contradiction] = []
        self.pointers: list[MemoryPointer] = []
        self.spent = 0
        self._index = SentenceIndex()
        self._told: dict[Sentence, tuple[ContextPiece, Passage]] = {}
        self._keys: set[tuple[str, ...]] = set()
        self._steps: dict[tuple[str, ...], tuple[ContextPiece, Passage]] = {}
        self.left_out = [piece for piece in entries if not self._try_add(piece)]
        self.budget = budget
        self.left_out += [piece for piece in queue if not self._try_add(piece)]

    def sort(self) -> list[SelectedPiece]:
        """Return the pieces in the order of the chapters, else as they were added."""
        return sorted(self.selected, key=lambda one: (one.piece.kind != PLAYBOOK, one.piece.is_related))

    def find_outdated(self) -> tuple[ContextPiece, ContextPiece] | None:
        """Return a memory and a newer one without room that contradicts it; None if there are none."""
        for piece in self.left_out[:_MAX_CHECKED]:
            for passage in piece.passages if piece.kind != PLAYBOOK else ():
                for (known, _), *_ in self._find_contradicted(piece, passage):
                    if known.kind not in (*DERIVED, PLAYBOOK) and known.learned_at < piece.learned_at:
                        return known, piece
        return None

    def add_pointers(self, pointers: Iterable[MemoryPointer], budget: int) -> None:
        """Add the pointers that fit into a larger budget, then further memories."""
        self.budget = budget
        for pointer in pointers:
            spent = _count_tokens(self.selected, self.contradictions, [*self.pointers, pointer])
            if spent <= budget:
                self.pointers.append(pointer)
                self.spent = spent
        self.left_out = [piece for piece in self.left_out if piece.kind == PLAYBOOK or not self._try_add(piece)]

    def _try_add(self, piece: ContextPiece) -> bool:
        """Add what a piece says that is new. Return False if it exceeds the budget."""
        shortened = [one.drop_consequences(self._index) for one in piece.passages]
        passages = {one.key: one for one in reversed(shortened) if not self._is_told(piece, one)}
        new = [one.quote(self._keys) for one in reversed(passages.values())]
        # No need to compare passages if none of them fits.
        shortest = min((SelectedPiece(piece, (one,), False).count_tokens() for one in new), default=0)
        if self.spent + shortest > self.budget:
            return False
        if not new:
            return True
        selected = [*self.selected, SelectedPiece(piece, tuple(new), tuple(new) == piece.passages)]
        contradictions = self.contradictions
        for passage in new:
            for (known, opposite), kind, words, others in self._find_contradicted(piece, passage):
                if (piece.is_near or known.is_near) and not _are_replaced(piece, known):
                    sides = to_side(piece, passage, words), to_side(known, opposite, others)
                    contradictions = add_side(contradictions, kind, *sides)
        spent = _count_tokens(selected, contradictions, self.pointers)
        if spent > self.budget:
            return False
        self.selected, self.contradictions, self.spent = selected, contradictions, spent
        for passage in new:
            self._tell(piece, passage)
        return True

    def _is_told(self, piece: ContextPiece, passage: Passage) -> bool:
        """Return True if a passage was told; of a derived memory, if its sentences were told anywhere."""
        if piece.kind in DERIVED:
            return all(sentence in self._index for sentence in passage.sentences)
        return passage.key in self._keys

    def _tell(self, piece: ContextPiece, passage: Passage) -> None:
        self._keys.add(passage.key)
        if passage.is_prose and passage.key[0] == "":
            self._keys.update(passage.key[:end] for end in range(2, len(passage.key)))
        if passage.steps:
            self._steps.setdefault(tuple(sorted(passage.steps)), (piece, passage))
        for sentence in passage.sentences:
            if sentence not in self._index:
                self._index.add(sentence)
                self._told[sentence] = piece, passage

    def _find_contradicted(
        self, piece: ContextPiece, passage: Passage
    ) -> Iterator[tuple[tuple[ContextPiece, Passage], str, str, str]]:
        """Yield what the packing tells that a passage contradicts, the kind of the difference, and the words of both.

        Two users may differ, and months that come in turn. The same steps in another order contradict each other.
        """

        def is_comparable(known: ContextPiece) -> bool:
            return not known.scope or not piece.scope or known.scope == piece.scope

        def may_contradict(one: Sentence, other: Sentence) -> bool:
            known = self._told[other][0]
            days = piece.learned_at.date(), known.learned_at.date()
            return is_comparable(known) and not are_of_months_in_turn(one.reading, days[0], other.reading, days[1])

        reordered = self._steps.get(tuple(sorted(passage.steps))) if passage.steps else None
        if reordered and reordered[1].steps != passage.steps and is_comparable(reordered[0]):
            yield reordered, "exchange", "", ""
        for sentence in passage.sentences:
            if sentence not in self._index:
                found = self._index.find_contradicted(sentence, partial(may_contradict, sentence))
                if found:
                    other, difference = found
                    yield self._told[other], difference.kind, difference.a, difference.b


def _are_replaced(one: ContextPiece, other: ContextPiece) -> bool:
    """Return True if a third memory is known to replace the newer of two, and it or the newer one the older."""
    older, newer = sorted((one, other), key=lambda piece: piece.learned_at)
    third = {*newer.newer_ids} - {older.id}
    return bool(third) and not third.union((newer.id,)).isdisjoint(older.newer_ids)


def _count_tokens(
    selected: Sequence[SelectedPiece], contradictions: Sequence[Contradiction], pointers: Sequence[MemoryPointer]
) -> int:
    """Return the tokens of all items and of the headings of their chapters."""
    chapters: dict[str, list[str]] = {INSTRUCTIONS: [], KNOWN: [], RELATED: []}
    for one in selected:
        chapter = INSTRUCTIONS if one.piece.kind == PLAYBOOK else RELATED if one.piece.is_related else KNOWN
        chapters[chapter] += filter(None, [one.format(contradictions)])
    chapters[DISPUTED] = list(map(format_contradiction, contradictions))
    chapters[WHERE_TO_LOOK] = list(map(format_pointer, pointers))
    # Parts rounded up one by one would waste a third of a token each.
    return estimate_tokens("".join(format_chapter(title, items) for title, items in chapters.items()))
