"""Phrases of the word lists in a text: the longest that begins at a word, unless the word is a name there."""

from collections.abc import Callable, Mapping, Sequence

from consolidation_pipeline.core.differences.language import Language, Phrase
from consolidation_pipeline.core.differences.lexer import Piece

# Words of a label with a comma before its last one.
_LONGEST_LABEL = 8
# Signs of a word that may end inside of another one, in a script without blanks.
_LONGEST_OVERLAP = 2


def replace_phrases(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with other words in place of phrases that say the same: "un cuarto de hora", なきゃ."""
    sizes, found, end = language.phrasing_sizes, list[Piece](), 0
    for at in [at for at, piece in enumerate(pieces) if piece.lower in sizes]:
        spans = range(at + sizes[pieces[at].lower], at, -1) if at >= end else ()
        words = (tuple(piece.lower for piece in pieces[at:to]) for to in spans)
        if phrase := next((one for one in words if one in language.phrasings), None):
            found += pieces[end:at]
            start, end = at, at + len(phrase)
            words_there = enumerate(language.phrasings[phrase].split(), start)
            found += [pieces[min(place, end - 1)]._replace(lower=word) for place, word in words_there]
    return [*found, *pieces[end:]] if end else pieces


class PhraseMatcher:
    """Finds the phrases of a language in the pieces of a text."""

    def __init__(self, text: str, language: Language) -> None:
        self.text, self.language = text, language

    def match(self, pieces: Sequence[Piece], at: int) -> tuple[int, Phrase | None]:
        """Return the longest phrase of the lists that begins at a piece: the number of its pieces, and its meaning."""
        if pieces[at].kind != "word":
            return 1, None
        language, first = self.language, pieces[at].lower
        size, found = 1, None
        if (longest := language.phrase_sizes.get(first, 0)) == 1:
            found = language.phrases[(first,)]
        elif longest:
            size, found = _find_longest(pieces, at, longest, language.phrases, str)
        if language.stem(first) in language.synonym_sizes:
            length, synonym = self.match_synonym(pieces, at)
            if synonym and (length > size or not found):
                return length, synonym
        if found and found.role == "cue" and self._is_month(pieces, at):
            return 1, None
        if found and found.role == "light":
            is_name = (size == 1 and self._is_acronym(pieces[at].text)) or self._is_letter(pieces, at)
            return (1, None) if is_name else (size, found)
        return size, found

    def match_synonym(self, pieces: Sequence[Piece], at: int) -> tuple[int, Phrase | None]:
        """As ``match``, of the words of one meaning alone: 更新, which also opens notes."""
        language = self.language
        longest = language.synonym_sizes.get(language.stem(pieces[at].lower), 0)
        if not longest:
            return 1, None
        return _find_longest(pieces, at, longest, language.synonym_phrases, language.stem)

    def ends_in_longer(self, pieces: Sequence[Piece], at: int, size: int) -> bool:
        """Return True if a word of two signs overlaps with a longer one: 前|提交, not 前提|交, and 十|分钟."""
        end, language = at + size, self.language
        if size > _LONGEST_OVERLAP or end >= len(pieces) or pieces[end].kind != "word":
            return False
        first, last = pieces[at].lower, pieces[end].lower
        is_known = (first,) in language.phrases or first in language.numbers
        if not is_known or (last,) in language.phrases or last in language.groups:
            return False
        length, meaning = self.match(pieces, at + 1)
        return meaning is not None and at + 1 + length > end

    def _is_month(self, pieces: Sequence[Piece], at: int) -> bool:
        """Return True for a name of the calendar with a capital inside of a sentence: "in May"."""
        piece = pieces[at]
        is_inside = at > 0 and pieces[at - 1].kind not in ("stop", "comma") and not self.text.isupper()
        return is_inside and piece.text[0].isupper() and piece.lower in self.language.calendar

    def match_divided_label(self, pieces: Sequence[Piece], at: int) -> int:
        """Return the number of pieces of a label with a comma before its last word, "wir sahen, dass"; 0 = none."""
        near = range(at + 1, min(len(pieces) - 1, at + _LONGEST_LABEL + 1))
        end = next((end for end in near if pieces[end].kind in ("comma", "stop")), None)
        if end is None or pieces[end].kind == "stop":
            return 0
        words = (*pieces[at:end], pieces[end + 1])
        found = self.language.phrases.get(tuple(piece.lower for piece in words))
        return len(words) + 1 if found and found.role == "label" else 0

    def _is_acronym(self, word: str) -> bool:
        """Return True for a word such as "US" or "IT" in a text that is not all in capitals."""
        return 1 < len(word) < 4 and word.isupper() and not self.text.isupper()

    def _is_letter(self, pieces: Sequence[Piece], at: int) -> bool:
        """Return True for a letter that is a name: "Ward A", "lot C". A sentence or title may have an article there."""
        piece, before = pieces[at], pieces[at - 1] if at else None
        end = piece.start + 1
        if len(piece.text) != 1 or not piece.text.isupper() or before is None or self.text[end : end + 1] == "'":
            return False
        following = pieces[at + 1] if at + 1 < len(pieces) else None
        is_title = following is not None and following.kind == "word" and following.text[0].isupper()
        if before.kind != "word" or before.text.isupper() or is_title:
            return False
        if piece.lower not in self.language.subjects:
            return True
        # "Gate I opens at six", not "Then I opened it"
        ends = following is None or following.kind in ("stop", "comma") or following.lower in self.language.copulas
        is_noun = before.text[0].isupper() and (before.lower,) not in self.language.phrases
        is_noun &= not self.language.is_adverb(before.lower) and before.lower not in self.language.time_adverbs
        return is_noun and (ends or (following is not None and following.lower.endswith("s")))


def _find_longest(
    pieces: Sequence[Piece],
    at: int,
    longest: int,
    phrases: Mapping[tuple[str, ...], Phrase],
    form: Callable[[str], str],
) -> tuple[int, Phrase | None]:
    """Return the longest phrase that begins at a piece, and its length; ``form``: of its words, in ``phrases``."""
    words: list[str] = []
    for piece in pieces[at : at + longest]:
        if piece.kind != "word":
            break
        words.append(form(piece.lower))
    for size in range(len(words), 0, -1):
        if found := phrases.get(tuple(words[:size])):
            return size, found
    return 1, None
