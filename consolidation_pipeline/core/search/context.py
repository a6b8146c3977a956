"""Selection of the context of a task: the most relevant pieces within a token budget, each fact once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from uuid import UUID

from consolidation_pipeline.core.knowledge.playbook_markdown import ID_DIGITS
from consolidation_pipeline.core.search.novelty import NoveltyFilter, Sentence, parse_sentences
from consolidation_pipeline.core.text.token_estimate import estimate_tokens
from consolidation_pipeline.core.text.word_overlap import extract_content_words

PLAYBOOK = "playbook"
# Kinds of pieces, the most general first: the order of the context.
KINDS = (PLAYBOOK, "principle", "pattern", "merged", "raw")

_MAX_CONFLICTS = 3
# A text is about a task if it has half of the task's words or _ENOUGH of them, and one in _LONG_DIVISOR of a long task.
# A single common word such as "write" is not enough.
_ENOUGH, _LONG_DIVISOR = 3, 5


def is_on_task(task: str, text: str) -> bool:
    """Return True if ``text`` has enough words of ``task`` to be about it, or one of its literals."""
    sentence = Sentence(task)
    count = len(sentence.words)
    required = max(1, min(_ENOUGH, -(-count // 2)), count // _LONG_DIVISOR)
    return len(sentence.words & extract_content_words(text)) >= required or sentence.shares_fact(text)


@dataclass(frozen=True)
class ContextPiece:
    """Candidate for the context: a memory or a playbook entry.

    ``raw_ids``: the raw memories it was made from, or its own id. ``category``: that of a playbook entry.
    """

    id: UUID
    kind: str
    text: str
    score: float
    raw_ids: frozenset[UUID]
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
    """Piece of the context. ``text`` leaves out the sentences that another piece says."""

    piece: ContextPiece
    text: str


@dataclass(frozen=True)
class ContextSelection:
    """Selected pieces in the order of ``KINDS``, then by relevance, and the pieces that exceed the budget."""

    selected: list[SelectedPiece]
    left_out: list[ContextPiece]


def select_pieces(pieces: Sequence[ContextPiece], *, budget: int) -> ContextSelection:
    """Select the most relevant pieces within a ``budget`` of tokens, no fact twice.

    Pieces are tried by score, each after the pieces that cover it. A piece that a selected one covers is added only if
    it has new literals, any other piece if it has new sentences.
    """
    novelty = NoveltyFilter()
    selected: list[SelectedPiece] = []
    left_out: list[ContextPiece] = []
    for piece in _by_relevance(pieces):
        sentences = parse_sentences(piece.text)
        is_covered = any(one.piece.covers(piece) for one in selected)
        new = novelty.select_new(sentences, needs_literal=is_covered)
        if not new:
            continue
        text = piece.text.strip() if len(new) == len(sentences) else "\n".join(sentence.text for sentence in new)
        tokens = estimate_tokens(format_item(piece.kind, piece.category, piece.id, text))
        if tokens > budget:
            left_out.append(piece)
            continue
        budget -= tokens
        novelty.add(new)
        selected.append(SelectedPiece(piece, text))
    return ContextSelection(sorted(_without_repeats(selected), key=lambda one: one.piece.kind_rank), left_out)


def _by_relevance(pieces: Sequence[ContextPiece]) -> list[ContextPiece]:
    """Sort by score, best first; ties by kind, then id. A piece has at least the score of each piece that it covers."""

    def rank(piece: ContextPiece) -> tuple[float, int, UUID]:
        covered = (other.score for other in pieces if piece.covers(other))
        return -max([piece.score, *covered]), piece.kind_rank, piece.id

    return sorted(pieces, key=rank)


def _without_repeats(selected: Sequence[SelectedPiece]) -> list[SelectedPiece]:
    """Remove each piece whose sentences are all said by the others, trying the least general pieces first."""
    parsed = {one.piece.id: parse_sentences(one.text) for one in selected}
    novelty = NoveltyFilter()
    novelty.add(sentence for sentences in parsed.values() for sentence in sentences)
    kept = list(selected)
    for one in sorted(selected, key=lambda one: -one.piece.kind_rank):
        own = parsed[one.piece.id]
        if all(novelty.is_covered(sentence, ignore=own) for sentence in own):
            kept.remove(one)
            novelty.remove(own)
    return kept


def find_conflicting_pieces(selected: Iterable[SelectedPiece]) -> list[tuple[UUID, UUID, str]]:
    """Return at most three pairs of pieces that conflict on one matter: both ids and the difference in words."""
    parsed = [(one.piece.id, parse_sentences(one.text)) for one in selected]
    found = (
        (a, b, next(filter(None, (x.find_conflict(y) for x, y in product(sentences_a, sentences_b))), None))
        for (a, sentences_a), (b, sentences_b) in combinations(parsed, 2)
    )
    return list(islice(((a, b, conflict) for a, b, conflict in found if conflict), _MAX_CONFLICTS))


def format_item(kind: str, category: str | None, id_: UUID, text: str) -> str:
    """Return a piece as an item of a Markdown list, with further lines indented."""
    label = ", ".join(filter(None, (kind, category, short_id(id_))))
    first, *rest = text.splitlines() or [""]
    return "\n".join([f"- ({label}) {first}", *(f"  {line}".rstrip() for line in rest)]) + "\n"


def format_recommendation(recommendation: str) -> str:
    """Return a recommendation as an item of a Markdown list, on one line."""
    return f"- (recommended) {' '.join(recommendation.split())}\n"


def short_id(id_: UUID) -> str:
    """Return the first digits of an id; commands accept them."""
    return id_.hex[:ID_DIGITS]
