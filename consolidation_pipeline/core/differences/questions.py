"""Questions: sentences that ask, with or without a question mark."""

from collections.abc import Sequence

from consolidation_pipeline.core.differences.language import Language, is_unspaced
from consolidation_pipeline.core.differences.lexer import Piece, quote

# An auxiliary after one, two or three words makes a question: "what is", "which steps should", "how many miles can".
_LATEST_AUXILIARY = 4
# Words of an opening that may hold a request: "could you please tell me".
_LONGEST_OPENING = 8


def find_question(sentence: Sequence[Piece], end: str, text: str, language: Language) -> tuple[str, str, int] | None:
    """Return the word by which a sentence asks, what it asks for, and the offset of the word; None if it asks nothing.

    It asks if it ends with a question mark, or opens with "how can", "what is".

    Args:
        sentence: Its pieces.
        end: The mark behind it.
        text: The text that it is in.
    """
    if not sentence or not (end == "?" or _opens_question(sentence, language)):
        return None
    spaced = {piece.lower: piece.start for piece in reversed(sentence)}
    begin, inside = sentence[0].start, quote(text, sentence)
    found = {word: spaced.get(word, begin + inside.find(word)) for word in language.questions}
    asking = [word for word in found if word in spaced or (is_unspaced(word) and word in inside)]
    word = min(asking, key=lambda word: found[word], default="")
    start = found.get(word, begin)
    return text[start : start + len(word or sentence[0].text)], language.questions.get(word, "truth"), start


def _opens_question(sentence: Sequence[Piece], language: Language) -> bool:
    first = language.phrases.get((sentence[0].lower,))
    if first and first.key == "result":  # "so where is it"
        sentence = sentence[1:] or sentence
    opening = f" {' '.join(piece.lower for piece in sentence[:_LONGEST_OPENING])} "
    if any(f" {request} " in opening for request in language.requests):
        return True
    if tuple(piece.lower for piece in sentence[:2]) in language.inversions:
        return True
    following = [language.phrases.get((piece.lower,)) for piece in sentence[1:_LATEST_AUXILIARY]]
    asked = language.questions.get(sentence[0].lower)
    has_auxiliary = any(phrase is not None and phrase.key in ("tense", "modality") for phrase in following)
    return asked == "person" or (asked not in (None, "time") and has_auxiliary)
