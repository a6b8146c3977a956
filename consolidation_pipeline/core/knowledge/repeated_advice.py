"""Advice that several texts repeat, as the words that they share: "check the return value"."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from consolidation_pipeline.core.knowledge.lesson_sentences import names_task
from consolidation_pipeline.core.knowledge.weak_sentences import is_vague, refers_elsewhere
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentence_cues import is_advice, is_warning
from consolidation_pipeline.core.text.sentences import extract_sentences

# Words of a phrase, without the word that forbids; fewer make one if they are a whole sentence.
_FEWEST_WORDS, _MOST_WORDS = 3, 9
_FEWEST_OF_SENTENCE = 2
# A longer phrase takes the place of its beginning if this share of the texts with the beginning have it.
_SAME_SHARE = 0.6
# Words after which an instruction begins.
_MODAL = re.compile(
    r"\b(?P<not>never|don['’]t|do not|must not|should not|avoid)\s+(?:to\s+)?"
    r"|\b(?:always|should|must|needs? to|ha(?:s|ve) to|make sure to|remember to)\s+(?:also\s+|always\s+)?"
)
_TOKEN = re.compile(r"[\w`][\w`'’./-]*[\w`]|\w|[,;:.!?()—–]")
_STOP = frozenset(",;:.!?()—–")
# A phrase neither ends in these words nor consists of them.
_LIGHT = frozenset(
    """
    a an the of for in to on with and or by from as at is are be been it its this that these those when if while
    where which who not no so then their them they your you our we i my his her before after into than all any
    each also properly correctly accordingly instead only just have has above below between within per via without
    until upon under
    """.split()
)
# Verbs that say nothing without their object.
_EMPTY = frozenset("be have has been not also only then do does still".split())


def find_repeated_advice(texts: Sequence[str], *, fewest: int = 3, most: int = 6) -> list[tuple[str, int]]:
    """Return phrases of instructions, and in how many of the texts each is, the most frequent first.

    A phrase begins with the verb of an instruction or task and has three to nine words, or is a sentence of two;
    ``never`` and ``avoid`` stand before it. Phrases of the same texts are told once, in their longest form. Phrases
    that say only that something is to be revised, or point elsewhere, are left out. Equal texts count each.

    Args:
        texts: One per memory.
        fewest: Fewest texts of a phrase.
        most: Most phrases.
    """
    holding = defaultdict[tuple[str, ...], set[int]](set)
    phrases: dict[str, list[tuple[str, ...]]] = {}
    sentences = set[tuple[str, ...]]()
    # Numbers behind which a text goes on, perhaps with their unit.
    cut = set[tuple[str, ...]]()
    for at, text in enumerate(texts):
        if text not in phrases:
            found = list(_list_phrases(text))
            phrases[text] = [phrase for phrase, _ in found]
            sentences.update(phrase for phrase, is_sentence in found if is_sentence)
        for phrase in phrases[text]:
            if len(phrase) <= _FEWEST_WORDS:
                holding[phrase].add(at)
            for end in range(_FEWEST_WORDS + 1, len(phrase) + 1):
                holding[phrase[:end]].add(at)
            cut.update(phrase[:end] for end in range(_FEWEST_WORDS, len(phrase)) if phrase[end - 1][-1:].isdigit())
    frequent = {
        phrase: found
        for phrase, found in holding.items()
        if len(found) >= fewest and phrase not in cut and _says_what(phrase)
    }
    ranked = sorted(frequent, key=lambda phrase: (-len(frequent[phrase]), -len(phrase), phrase))
    told: list[tuple[str, int]] = []
    known: list[tuple[tuple[str, ...], set[int]]] = []
    for phrase in ranked:
        longest = _extend(phrase, frequent)
        if any(
            not {longest, other} <= sentences and _repeats(longest, frequent[longest], other, texts_of_other)
            for other, texts_of_other in known
        ):
            continue
        if any(longest == other for other, _ in known):
            continue
        known.append((longest, frequent[longest]))
        told.append((" ".join(word for word in longest if word), len(frequent[longest])))
        if len(told) == most:
            break
    return sorted(told, key=lambda one: -one[1])


def _list_phrases(text: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the instructions of a text, and True for a whole sentence.

    An instruction is the word that forbids, or "", and up to nine words, in lower case.
    """
    for sentence in {one.text for one in extract_sentences(text)}:
        lower = normalize_text(sentence).replace("’", "'")
        if not is_advice(sentence) and not is_warning(sentence) and not names_task(sentence):
            continue
        for match in _MODAL.finditer(lower):
            forbids = match["not"] or ""
            yield from _read_phrase("never" if forbids and forbids != "avoid" else forbids, lower[match.end() :])
        for start in re.finditer(r"^|[:;]\s+|,\s+(?:then\s+)?", lower):
            first, *_ = lower[start.end() :].split(maxsplit=1) or [""]
            if (is_advice(f"{first} it") or names_task(first)) and not _MODAL.match(lower, start.end()):
                yield from _read_phrase("", lower[start.end() :])


def _read_phrase(forbids: str, rest: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    words: list[str] = []
    for token in _TOKEN.findall(rest):
        if token in _STOP or len(words) == _MOST_WORDS:
            break
        words.append(token)
    verb = words[0] if words else ""
    # "Returns the sum" tells what happens.
    is_command = verb.isalpha() and (not verb.endswith("s") or verb.endswith("ss"))
    is_sentence = rest.strip().rstrip(".!").split() == words
    fewest = _FEWEST_OF_SENTENCE if is_sentence else _FEWEST_WORDS
    if len(words) >= fewest and is_command and verb not in _EMPTY and verb not in _LIGHT:
        yield (forbids, *words), is_sentence


def _says_what(phrase: tuple[str, ...]) -> bool:
    text = " ".join(word for word in phrase if word)
    if is_vague(text) or refers_elsewhere(text):
        return False
    return phrase[-1] not in _LIGHT and sum(word not in _LIGHT for word in phrase[1:]) >= 2


def _extend(phrase: tuple[str, ...], frequent: dict[tuple[str, ...], set[int]]) -> tuple[str, ...]:
    """Return the longest phrase that begins with this one and is in most of its texts."""
    longer = [
        other
        for other in frequent
        if len(other) > len(phrase)
        and other[: len(phrase)] == phrase
        and len(frequent[other]) >= _SAME_SHARE * len(frequent[phrase])
    ]
    return max(longer, key=lambda other: (len(other), len(frequent[other]), other), default=phrase)


def _repeats(phrase: tuple[str, ...], texts: set[int], other: tuple[str, ...], others: set[int]) -> bool:
    """Return True if a phrase has the words of another, or is of the same texts."""
    words, known = ({*one} - _LIGHT - {""} for one in (phrase, other))
    shared = len(words & known) >= 0.6 * min(len(words), len(known))
    return shared or len(texts & others) >= _SAME_SHARE * len(texts)
