"""Words that only join: the "first" of "first .., then ..", and "not only .., but also ..", which is "and"."""

from collections.abc import Collection, Iterator, Sequence

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.lexer import Piece
from consolidation_pipeline.core.differences.lists import sort_lists

# Words of who says something: "according to the head of the lab".
_LONGEST_SOURCE = 6


def unify_connectives(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces without words that tell no more than others, and with the items of lists in one order."""
    words = {piece.lower for piece in pieces}
    if any(opener.split()[-1] in words for opener in language.additions):
        pieces = _join_additions(pieces, language)
    if not words.isdisjoint(language.sequence_words):
        pieces = _drop_first_steps(pieces, language)
    if any(opener.split()[-1] in words for opener in language.sources):
        pieces = _put_sources_first(pieces, language)
    return pieces if words.isdisjoint(language.conjunctions) else sort_lists(pieces, language)


def _put_sources_first(pieces: Sequence[Piece], language: Language) -> list[Piece]:
    """Return the pieces with "the vet says it is ill" in place of "according to the vet, it is ill"."""
    found, kept = list[Piece](), 0
    for begin, end in _list_sentences(pieces):
        opening = _find(pieces, begin, min(begin + 2, end), language.sources)
        comma = next((at for at in range(begin, end) if pieces[at].kind == "comma"), end)
        if opening is None or opening[0] != begin or pieces[min(comma, end - 1)].text != "," or comma + 1 >= end:
            continue
        behind = begin + len(opening[1].split())
        if 0 < comma - behind <= _LONGEST_SOURCE:
            verb = [pieces[begin]._replace(lower=word) for word in language.sources[opening[1]].split()]
            found += [*pieces[kept:begin], *pieces[behind:comma], *verb]
            kept = comma + 1
    return [*found, *pieces[kept:]]


def _join_additions(pieces: Sequence[Piece], language: Language) -> list[Piece]:
    """Return the pieces with "and" in place of "not only .. but also": "it is not only slow but also loud"."""
    found = list(pieces)
    for begin, end in _list_sentences(pieces):
        opening = _find(pieces, begin, end, language.additions)
        if opening is None:
            continue
        start, opener = opening
        behind = start + len(opener.split())
        closing = _find(pieces, behind + 1, end, language.additions[opener])
        if closing is None:
            continue
        place, closer = closing
        last = place + len(closer.split())
        if last >= end or _denies(pieces[last], language):
            continue
        for at in (*range(start, behind), *range(place + 1, last)):
            found[at] = pieces[at]._replace(kind="")
        found[place] = pieces[place]._replace(lower=min(language.coordinators))
    return [piece for piece in found if piece.kind]


def _drop_first_steps(pieces: Sequence[Piece], language: Language) -> list[Piece]:
    """Return the pieces without a "first" that tells no more than the "then" behind it: "open it first, then rinse it".

    It is beside the only step before "then": in "turn it off and open it first, then ..", it tells which one.
    """
    found = list(pieces)
    for begin, end in _list_sentences(pieces):
        first = _find(pieces, begin, end, language.first_steps)
        if first is None:
            continue
        start, words = first
        behind = start + len(words.split())
        step = next((at for at in range(behind, end) if pieces[at].lower in language.sequence_words), None)
        if step is None or not _is_adverb(pieces, start, behind, begin, language):
            continue
        while pieces[step - 1].kind == "comma" or pieces[step - 1].lower in language.coordinators:
            step -= 1
        if any(_parts_steps(piece, language) for piece in (*pieces[begin:start], *pieces[behind + 1 : step])):
            continue
        for at in range(start, behind):
            found[at] = pieces[at]._replace(kind="")
        if pieces[behind].kind == "comma" and behind < step and start == begin:
            found[behind] = pieces[behind]._replace(kind="")  # "First, open it"
    return [piece for piece in found if piece.kind]


def _is_adverb(pieces: Sequence[Piece], start: int, behind: int, begin: int, language: Language) -> bool:
    """Return True if "first" is no adjective: it ends its clause, or a verb and its object follow: "first open the"."""
    before = pieces[start - 1].lower if start > begin else ""
    if before in language.determiners | language.passive_auxiliaries:
        return False  # "open the first, then the second"; "who is first, then rests"
    following = pieces[behind]
    if following.kind == "comma" or following.lower in language.coordinators | language.sequence_words:
        return True
    if language.has_prefixes and start == begin and following.lower in language.determiners:
        return True  # "Erst den Ofen vorheizen, dann .."
    is_verb = (following.lower,) not in language.phrases and pieces[behind + 1].lower in language.determiners
    return is_verb if pieces[start].lower in language.order_adverbs else bool(before) or is_verb


def _parts_steps(piece: Piece, language: Language) -> bool:
    return piece.kind == "comma" or piece.lower in language.conjunctions


def _denies(piece: Piece, language: Language) -> bool:
    meaning = language.phrases.get((piece.lower,))
    return meaning is not None and meaning.key == "polarity"


def _list_sentences(pieces: Sequence[Piece]) -> Iterator[tuple[int, int]]:
    """Yield where each sentence begins and ends."""
    begin = 0
    for at, piece in enumerate(pieces):
        if piece.kind == "stop":
            yield begin, at
            begin = at + 1
    yield begin, len(pieces)


def _find(pieces: Sequence[Piece], begin: int, end: int, phrases: Collection[str]) -> tuple[int, str] | None:
    """Return where the first of some phrases stands between two positions, and the longest one that stands there."""
    for at in range(begin, end):
        found = (phrase for phrase in phrases if _stands_at(pieces, at, phrase.split()))
        if longest := max(found, key=len, default=""):
            return at, longest
    return None


def _stands_at(pieces: Sequence[Piece], at: int, words: Sequence[str]) -> bool:
    return [piece.lower for piece in pieces[at : at + len(words)]] == words
