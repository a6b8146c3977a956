"""Lists whose items may stand in any order: "buy eggs, milk and flour" is "buy flour, eggs and milk"."""

from collections.abc import Sequence
from itertools import pairwise

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.lexer import Piece

# The position of an item and of what follows it.
Item = tuple[int, int]


def sort_lists(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with the items of each list in the order of the alphabet.

    A list stands behind a word such as "buy" or "are", or a colon, and ends its clause. Its items are single words with
    or without an article. In a text with a word such as "steps", "first" or "respectively", their order counts.
    """
    for at, piece in enumerate(pieces):
        if piece.lower not in language.list_openers and piece.text != ":":
            continue
        items = _read_items(pieces, at + 1 + _is_adverb_at(pieces, at + 1, language), language)
        is_long = any(end - start > 1 and not _is_led(pieces[start:end], language) for start, end in items)
        if len(items) < 2 + (is_long or (len(items) > 1 and items[0][0] > at + 1)) or not _are_free(
            pieces, items, language
        ):
            continue
        ordered = sorted((pieces[start:end] for start, end in items), key=lambda item: language.stem(item[-1].lower))
        joints = [pieces[end:start] for (_, end), (start, _) in pairwise(items)]
        joined = [*ordered[0]]
        for joint, item in zip(joints, ordered[1:], strict=True):
            joined += [*joint, *item]
        pieces = [*pieces[: items[0][0]], *joined, *pieces[items[-1][1] :]]
    return pieces


def _is_adverb_at(pieces: Sequence[Piece], at: int, language: Language) -> bool:
    """Return True for a word such as "still" behind the opener of a list."""
    phrase = language.phrases.get((pieces[at].lower,)) if at < len(pieces) else None
    return phrase is not None and (phrase.key, phrase.pole) == ("tense", "still")


def _read_items(pieces: Sequence[Piece], at: int, language: Language) -> list[Item]:
    """Return the items of the list that begins at a position; none if it is no list, or does not end its clause."""
    items: list[Item] = []
    is_last = False
    while at < len(pieces):
        start = at
        while at < len(pieces) and pieces[at].lower in language.determiners:
            at += 1
        if at >= len(pieces) or not _is_item(pieces[at], language):
            return []
        at += 1
        at += _is_second_word(pieces, at, language)
        items.append((start, at))
        if at >= len(pieces) or is_last:
            break
        is_comma = pieces[at].text == ","
        at += is_comma
        is_last = at < len(pieces) and pieces[at].lower in language.conjunctions
        at += is_last
        if not (is_comma or is_last):
            return []
    is_end = at >= len(pieces) or pieces[at].kind in ("stop", "comma")
    return items if is_last and is_end else []


def _is_led(item: Sequence[Piece], language: Language) -> bool:
    """Return True for an item of a word and its articles."""
    return all(piece.lower in language.determiners for piece in item[:-1])


def _is_second_word(pieces: Sequence[Piece], at: int, language: Language) -> bool:
    """Return True for the last word of an item of two: "a red onion,"."""
    if at >= len(pieces) or not _is_item(pieces[at], language):
        return False
    following = pieces[at + 1] if at + 1 < len(pieces) else None
    return following is None or following.kind in ("stop", "comma") or following.lower in language.conjunctions


def _is_item(piece: Piece, language: Language) -> bool:
    if piece.kind == "literal":
        return not piece.key.startswith(("number:", "date:"))
    return piece.kind == "code" or (piece.kind == "word" and (piece.lower,) not in language.phrases)


def _are_free(pieces: Sequence[Piece], items: Sequence[Item], language: Language) -> bool:
    """Return True if items may stand in any order: they are no verbs, and no word of the text sets them in order."""
    words = [pieces[end - 1].lower for _, end in items]
    plain = [pieces[end - 1].text for _, end in items if pieces[end - 1].text.islower()]
    if any(language.is_participle(word) or word.endswith(language.infinitive_endings) for word in plain):
        return False
    opener = pieces[items[0][0] - 1].lower
    may_command = opener == ":" or opener in language.infinitive_marks
    if may_command and not any(_is_noun(pieces[end - 1], language) for _, end in items):
        return False
    is_gerund = language.gerund_endings and all(word.endswith(language.gerund_endings) for word in words)
    if is_gerund or any(piece.lower in language.ordering for piece in pieces):
        return False
    # "On Monday and Friday we have soup and fish" has two lists, which may belong together.
    begin = next((at for at in range(items[0][0], 0, -1) if pieces[at - 1].kind == "stop"), 0)
    end = next((at for at in range(items[-1][1], len(pieces)) if pieces[at].kind == "stop"), len(pieces))
    others = (*pieces[begin : items[0][0]], *pieces[items[-1][1] : end])
    return not any(piece.lower in language.conjunctions for piece in others)


def _is_noun(piece: Piece, language: Language) -> bool:
    """Return True if an item is surely no verb: "PNG", "nuts", unlike those of "to ship: build, push and restart"."""
    is_plural = piece.lower.endswith(language.plural_endings) and not piece.lower.endswith("ss")
    return piece.kind != "word" or piece.text[0].isupper() or is_plural
