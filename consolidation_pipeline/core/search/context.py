"""Selection of the context of a task: the most relevant pieces within a token budget, each fact once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from consolidation_pipeline.core.differences.explanation import Difference
from consolidation_pipeline.core.search.context_markdown import (
    DISPUTED,
    INSTRUCTIONS,
    KNOWN,
    RELATED,
    WHERE_TO_LOOK,
    format_chapter,
    format_contradiction,
    format_pointer,
)
from consolidation_pipeline.core.search.context_pieces import DERIVED, PLAYBOOK, ContextPiece, SelectedPiece
from consolidation_pipeline.core.search.marginal_coverage import WordCoverage, list_pointers
from consolidation_pipeline.core.search.novelty import Sentence, SentenceIndex, parse_sentences
from consolidation_pipeline.core.search.relevance_feedback import raise_similar
from consolidation_pipeline.core.search.results import Contradiction, ContradictionSide, MemoryPointer
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
    """Select the most relevant pieces within a ``budget`` of tokens, no sentence twice.

    Playbook entries come first, up to a share of the budget, then raw and merged memories by score. A sentence is left
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
    """Return the pieces, best first, and each after those that supersede it."""
    by_id = {str(piece.id): piece for piece in sorted(pieces, key=lambda piece: piece.rank)}
    newer = {id_: [str(one) for one in piece.newer_ids] for id_, piece in by_id.items()}
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
        self._pieces: dict[Sentence, ContextPiece] = {}
        self.left_out = [piece for piece in entries if not self._try_add(piece)]
        self.budget = budget
        self.left_out += [piece for piece in queue if not self._try_add(piece)]

    def sort(self) -> list[SelectedPiece]:
        """Return the pieces in the order of the chapters, else as they were added."""
        return sorted(self.selected, key=lambda one: (one.piece.kind != PLAYBOOK, one.piece.is_related))

    def find_outdated(self) -> tuple[ContextPiece, ContextPiece] | None:
        """Return a memory and a newer one without room that contradicts it; None if there are none."""
        for piece in self.left_out[:_MAX_CHECKED]:
            for sentence in parse_sentences(piece.text) if piece.kind != PLAYBOOK else ():
                if found := self._find_contradicted(piece, sentence):
                    known = self._pieces[found[0]]
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
        parsed = parse_sentences(piece.text)
        new = _drop_repeats(sentence for sentence in parsed if sentence not in self._index)
        # No need to compare sentences if none of them fits.
        shortest = min((SelectedPiece(piece, (one,), False).count_tokens() for one in new), default=0)
        if self.spent + shortest > self.budget:
            return False
        if not new:
            return True
        selected = [*self.selected, SelectedPiece(piece, tuple(new), len(new) == len(parsed))]
        contradictions = self.contradictions
        for sentence in new:
            if contradicted := self._find_contradicted(piece, sentence):
                contradictions = self._add_contradiction(contradictions, (piece, sentence), *contradicted)
        spent = _count_tokens(selected, contradictions, self.pointers)
        if spent > self.budget:
            return False
        self.selected, self.contradictions, self.spent = selected, contradictions, spent
        for sentence in new:
            self._index.add(sentence)
            self._pieces[sentence] = piece
        return True

    def _find_contradicted(self, piece: ContextPiece, sentence: Sentence) -> tuple[Sentence, Difference] | None:
        """Return the sentence of the packing that one of a piece contradicts; two users may differ."""

        def is_comparable(other: Sentence) -> bool:
            known = self._pieces[other].scope
            return not known or not piece.scope or known == piece.scope

        return self._index.find_contradicted(sentence, is_comparable)

    def _add_contradiction(
        self,
        contradictions: list[Contradiction],
        new: tuple[ContextPiece, Sentence],
        other: Sentence,
        difference: Difference,
    ) -> list[Contradiction]:
        """Return the contradictions with a new sentence, as a further side of one about the other sentence if any."""
        side, opposite = _to_side(*new, difference.a), _to_side(self._pieces[other], other, difference.b)
        for at, one in enumerate(contradictions):
            if one.kind == difference.kind and any(
                (known.id, known.content) == (opposite.id, opposite.content) for known in one.sides
            ):
                joined = replace(one, sides=_sort_newest_first([*one.sides, side]))
                return [*contradictions[:at], joined, *contradictions[at + 1 :]]
        return [*contradictions, Contradiction(difference.kind, _sort_newest_first([side, opposite]))]


def _drop_repeats(sentences: Iterable[Sentence]) -> list[Sentence]:
    by_form: dict[str, Sentence] = {}
    for sentence in sentences:
        by_form.setdefault(sentence.normal_form, sentence)
    return list(by_form.values())


def _to_side(piece: ContextPiece, sentence: Sentence, words: str) -> ContradictionSide:
    return ContradictionSide(piece.id, piece.kind, sentence.text, words, piece.learned_at)


def _sort_newest_first(sides: Iterable[ContradictionSide]) -> list[ContradictionSide]:
    return sorted(sides, key=lambda side: (side.learned_at, side.id), reverse=True)


def _count_tokens(
    selected: Sequence[SelectedPiece], contradictions: Sequence[Contradiction], pointers: Sequence[MemoryPointer]
) -> int:
    """Return the tokens of all items and of the headings of their chapters."""
    tokens = {INSTRUCTIONS: 0, KNOWN: 0, RELATED: 0}
    for one in selected:
        chapter = INSTRUCTIONS if one.piece.kind == PLAYBOOK else RELATED if one.piece.is_related else KNOWN
        tokens[chapter] += one.count_tokens(contradictions)
    tokens[DISPUTED] = sum(estimate_tokens(format_contradiction(one)) for one in contradictions)
    tokens[WHERE_TO_LOOK] = sum(estimate_tokens(format_pointer(one)) for one in pointers)
    return sum(spent + estimate_tokens(format_chapter(title, [""])) for title, spent in tokens.items() if spent)
