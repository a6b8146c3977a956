"""Selection of the context of a task: the most relevant pieces within a token budget, each fact once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from uuid import UUID

from consolidation_pipeline.core.differences.explanation import Difference
from consolidation_pipeline.core.literals.literals import KINDS as LITERAL_KINDS
from consolidation_pipeline.core.search.context_markdown import format_contradiction, format_item, is_told
from consolidation_pipeline.core.search.novelty import Sentence, SentenceIndex, parse_sentences
from consolidation_pipeline.core.search.results import Contradiction, ContradictionSide
from consolidation_pipeline.core.text.token_estimate import estimate_tokens
from consolidation_pipeline.core.text.word_overlap import extract_content_words

PLAYBOOK = "playbook"
# Kinds of pieces, the most general first: the order of the context.
KINDS = (PLAYBOOK, "principle", "pattern", "merged", "raw")

# A text is about a task if it has half of the task's words or _ENOUGH of them, and one in _LONG_DIVISOR of a long task.
# A single common word such as "write" is not enough.
_ENOUGH, _LONG_DIVISOR = 3, 5


def is_on_task(task: str, text: str) -> bool:
    """Return True if ``text`` has enough words of ``task`` to be about it, or one of its literals."""
    sentence = Sentence(task)
    count = len(sentence.content_words)
    required = max(1, min(_ENOUGH, -(-count // 2)), count // _LONG_DIVISOR)
    return len(sentence.content_words & extract_content_words(text)) >= required or sentence.shares_literal(text)


@dataclass(frozen=True)
class ContextPiece:
    """Candidate for the context: a memory or a playbook entry.

    ``raw_ids``: the raw memories it was made from, or its own id. ``learned_at``: of a playbook entry, when the newest
    of them was learned. ``category``: that of a playbook entry.
    """

    id: UUID
    kind: str
    text: str
    score: float
    raw_ids: frozenset[UUID]
    learned_at: datetime
    category: str | None = None

    @property
    def kind_rank(self) -> int:
        """Position of the kind in ``KINDS``."""
        return KINDS.index(self.kind)

    def covers(self, other: ContextPiece) -> bool:
        """Return True if this piece is more general than ``other`` and was made from all its raw memories."""
        return self.kind_rank < other.kind_rank and bool(other.raw_ids) and other.raw_ids <= self.raw_ids


@dataclass(frozen=True)
class SelectedPiece:
    """Piece of the context. ``sentences``: those of the piece that no other piece says."""

    piece: ContextPiece
    sentences: tuple[Sentence, ...]
    is_whole: bool

    @cached_property
    def text(self) -> str:
        """The whole text of the piece, or the sentences on a line each."""
        return self.piece.text.strip() if self.is_whole else "\n".join(one.text for one in self.sentences)

    @cached_property
    def tokens(self) -> int:
        """Tokens of the piece as an item of the context."""
        return estimate_tokens(format_item(self.piece.kind, self.piece.category, self.piece.id, self.text))

    def without(self, sentences: Iterable[Sentence]) -> SelectedPiece | None:
        """Return the piece without some sentences, None if nothing is left."""
        left = tuple(one for one in self.sentences if one not in sentences)
        if len(left) == len(self.sentences):
            return self
        return SelectedPiece(self.piece, left, False) if left else None


@dataclass(frozen=True)
class ContextSelection:
    """Selected pieces in the order of ``KINDS``, then by relevance, and the pieces that exceed the budget."""

    selected: list[SelectedPiece]
    left_out: list[ContextPiece]
    contradictions: list[Contradiction]


def select_pieces(pieces: Sequence[ContextPiece], *, budget: int) -> ContextSelection:
    """Select the most relevant pieces within a ``budget`` of tokens, no fact twice.

    Pieces are tried by score, each after the pieces that cover it. A sentence is left out if another one says all of
    it. A piece that a selected one covers is added only if it has a new literal or contradicts a selected sentence, any
    other piece if it has a new sentence.
    """
    packing = _Packing(budget)
    left_out = [piece for piece in _by_relevance(pieces) if not packing.try_add(piece)]
    return ContextSelection(
        sorted(packing.selected, key=lambda one: one.piece.kind_rank), left_out, packing.contradictions
    )


def _by_relevance(pieces: Sequence[ContextPiece]) -> list[ContextPiece]:
    """Sort by score, best first; ties by kind, then id. A piece has at least the score of each piece that it covers."""

    def rank(piece: ContextPiece) -> tuple[float, int, UUID]:
        covered = (other.score for other in pieces if piece.covers(other))
        return -max([piece.score, *covered]), piece.kind_rank, piece.id

    return sorted(pieces, key=rank)


@dataclass(frozen=True)
class _Novelty:
    """Gain of a piece: its new sentences, those that they make superfluous, and those that they contradict."""

    sentences: tuple[Sentence, ...]
    shorter: frozenset[Sentence]
    contradicted: list[tuple[Sentence, Sentence, Difference]]


class _Packing:
    """Pieces and contradictions that fit into a budget."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.selected: list[SelectedPiece] = []
        self.contradictions: list[Contradiction] = []
        self._index = SentenceIndex()
        self._pieces: dict[Sentence, ContextPiece] = {}
        self._spent = 0

    def try_add(self, piece: ContextPiece) -> bool:
        """Add what a piece says that is new. Return False if it exceeds the budget."""
        parsed = parse_sentences(piece.text)
        unknown = _drop_repeats(sentence for sentence in parsed if sentence not in self._index)
        # No need to compare sentences if none of them fits.
        if unknown and self._spent + min(SelectedPiece(piece, (one,), False).tokens for one in unknown) > self.budget:
            return False
        novelty = self._find_novelty(piece, unknown)
        if not novelty.sentences:
            return True
        is_whole = len(novelty.sentences) == len(parsed)
        kept = [left for one in self.selected if (left := one.without(novelty.shorter))]
        selected = [*kept, SelectedPiece(piece, novelty.sentences, is_whole)]
        contradictions = self.contradictions
        for sentence, other, difference in novelty.contradicted:
            contradictions = self._add_contradiction(contradictions, (piece, sentence), other, difference)
        spent = _count_tokens(selected, contradictions)
        if spent > self.budget:
            return False
        self.selected, self.contradictions, self._spent = selected, contradictions, spent
        for sentence in novelty.shorter:
            self._index.remove(sentence)
        for sentence in novelty.sentences:
            self._index.add(sentence)
            self._pieces[sentence] = piece
        return True

    def _find_novelty(self, piece: ContextPiece, sentences: Iterable[Sentence]) -> _Novelty:
        new: list[Sentence] = []
        shorter: set[Sentence] = set()
        contradicted = []
        for sentence in sentences:
            comparison = self._index.compare(sentence)
            if comparison.is_said:
                continue
            new.append(sentence)
            shorter.update(one for one in comparison.shorter if self._may_replace(piece, one))
            if comparison.contradicted:
                contradicted.append((sentence, *comparison.contradicted))
        is_covered = any(one.piece.covers(piece) for one in self.selected)
        if is_covered and not contradicted and not self._has_new_literal(new):
            new = []
        return _Novelty(tuple(new), frozenset(shorter), contradicted)

    def _may_replace(self, piece: ContextPiece, sentence: Sentence) -> bool:
        """Return True if a longer sentence of a piece may replace a selected one, which is not more general."""
        other = self._pieces[sentence]
        is_side = any(
            side.id == other.id and side.content == sentence.text for one in self.contradictions for side in one.sides
        )
        return piece.kind_rank <= other.kind_rank and not is_side

    def _has_new_literal(self, sentences: Iterable[Sentence]) -> bool:
        literals = chain.from_iterable(sentence.literals for sentence in sentences)
        return any(one.kind in LITERAL_KINDS and not self._index.has_literal(one) for one in literals)

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


def _count_tokens(selected: Iterable[SelectedPiece], contradictions: Sequence[Contradiction]) -> int:
    """Return the tokens of all items."""
    items = sum(one.tokens for one in selected if not is_told(one.piece.id, one.text, contradictions))
    return items + sum(estimate_tokens(format_contradiction(one)) for one in contradictions)
