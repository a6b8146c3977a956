"""What an agent is told before a task: chosen from what was found, each fact once, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from uuid import UUID

from consolidation_pipeline.core.knowledge.playbook_markdown import ID_DIGITS
from consolidation_pipeline.core.search.novelty import Sentence, Told, read_sentences
from consolidation_pipeline.core.text.token_estimate import estimate_tokens
from consolidation_pipeline.core.text.word_overlap import content_words

ENTRY = "playbook"
# What is told first, and stands for what it was made from.
KINDS = (ENTRY, "principle", "pattern", "merged", "raw")

_SHOWN_DISPUTES = 3
# Words of the task that a text must have to be about it: half of them, three, or of a long task a fifth. One word is
# enough to be found, and says little: "write" stands anywhere.
_ENOUGH, _SHARE_OF_LONG = 3, 5


def is_on_task(task: str, text: str) -> bool:
    """Whether ``text`` has words enough of ``task`` to be about it, or one of its literals."""
    asked = Sentence(task)
    count = len(asked.words)
    needed = max(1, min(_ENOUGH, -(-count // 2)), count // _SHARE_OF_LONG)
    return len(asked.words & content_words(text)) >= needed or asked.shares_fact(text)


@dataclass(frozen=True)
class Piece:
    """Something that may be told. ``leaves``: raw memories it rests on, or itself; ``topic``: category of an entry."""

    id: UUID
    kind: str
    text: str
    score: float
    leaves: frozenset[UUID]
    topic: str | None = None

    @property
    def place(self) -> int:
        """Where its kind stands in ``KINDS``."""
        return KINDS.index(self.kind)

    def stands_for(self, other: Piece) -> bool:
        """Whether it was made from all that ``other`` rests on, and is told before it."""
        return self.place < other.place and bool(other.leaves) and other.leaves <= self.leaves


@dataclass(frozen=True)
class Chosen:
    """A piece and the text it is told with: without the sentences that another piece says."""

    piece: Piece
    text: str


@dataclass(frozen=True)
class Choice:
    """What is told, in the order of ``KINDS``, then by relevance; what fits the task and not the budget."""

    chosen: list[Chosen]
    left_out: list[Piece]


def choose_pieces(pieces: Sequence[Piece], *, budget: int) -> Choice:
    """The most relevant pieces whose lines take at most ``budget`` tokens together, no fact twice.

    Pieces come by score, each behind what was made from it. Where that is told, a piece is told only for literals of
    its own; else for sentences of its own.
    """
    told = Told()
    chosen: list[Chosen] = []
    left_out: list[Piece] = []
    for piece in _by_relevance(pieces):
        sentences = read_sentences(piece.text)
        is_covered = any(one.piece.stands_for(piece) for one in chosen)
        new = told.added(sentences, is_covered=is_covered)
        if not new:
            continue
        one = Chosen(piece, _joined(piece.text, sentences, new))
        price = estimate_tokens(item_of(piece.kind, piece.topic, piece.id, one.text))
        if price > budget:
            left_out.append(piece)
            continue
        budget -= price
        told.take(new)
        chosen.append(one)
    return Choice(sorted(_without_repeats(chosen), key=lambda one: one.piece.place), left_out)


def _by_relevance(pieces: Sequence[Piece]) -> list[Piece]:
    """Best score first, where a piece counts as much as what it stands for; ties by kind, then id."""

    def rank(piece: Piece) -> tuple[float, int, UUID]:
        carried = (other.score for other in pieces if piece.stands_for(other))
        return -max([piece.score, *carried]), piece.place, piece.id

    return sorted(pieces, key=rank)


def _joined(text: str, sentences: Sequence[Sentence], new: Sequence[Sentence]) -> str:
    return text.strip() if len(new) == len(sentences) else "\n".join(sentence.text for sentence in new)


def _without_repeats(chosen: Sequence[Chosen]) -> list[Chosen]:
    """Those that say something which no other one does; the last in ``KINDS`` goes first."""
    read = {one.piece.id: read_sentences(one.text) for one in chosen}
    told = Told()
    told.take(sentence for sentences in read.values() for sentence in sentences)
    kept = list(chosen)
    for one in sorted(chosen, key=lambda one: -one.piece.place):
        own = read[one.piece.id]
        if all(told.knows(sentence, beside=own) for sentence in own):
            kept.remove(one)
            told.forget(own)
    return kept


def find_disputes(chosen: Iterable[Chosen]) -> list[tuple[UUID, UUID, str]]:
    """Pairs of pieces that differ in a fact, or deny each other, on one matter: both ids and in what. At most three."""
    read = [(one.piece.id, read_sentences(one.text)) for one in chosen]
    found = []
    for (a, ours), (b, theirs) in combinations(read, 2):
        differing = (reason for x in ours for y in theirs if (reason := x.disputes(y)) is not None)
        if (reason := next(differing, None)) is not None:
            found.append((a, b, reason))
            if len(found) == _SHOWN_DISPUTES:
                break
    return found


def item_of(kind: str, topic: str | None, id_: UUID, text: str) -> str:
    """The lines of a piece: an item of a Markdown list, which nothing that it says can leave."""
    label = ", ".join(filter(None, (kind, topic, short_id(id_))))
    first, *rest = text.splitlines() or [""]
    return "\n".join([f"- ({label}) {first}", *(f"  {line}".rstrip() for line in rest)]) + "\n"


def advice_of(recommendation: str) -> str:
    """The line of a recommendation."""
    return f"- (recommended) {' '.join(recommendation.split())}\n"


def short_id(id_: UUID) -> str:
    """The beginning of an id, which commands take."""
    return id_.hex[:ID_DIGITS]
