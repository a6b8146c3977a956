"""Names of topics: the phrase of most texts, or a word that tells them from others; texts use it as a name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.knowledge.lesson_sentences import names_task
from consolidation_pipeline.core.knowledge.pattern_titles import (
    NO_TAIL,
    capitalize,
    is_generic,
    strip_verb,
    write_title,
)
from consolidation_pipeline.core.text.key_terms import extract_terms
from consolidation_pipeline.core.text.sentence_cues import is_command
from consolidation_pipeline.core.text.sentences import extract_sentences

# Share of the memories of a topic that must hold its title, and fewest of them: a phrase, and one of a statement told.
TITLE_SHARE, _TOLD_SHARE, _FEWEST_HOLDING = 0.4, 0.15, 2
# Adverbs, and verbs in the third person.
_NO_NAME = re.compile(
    r".+(?:ly|ed)|(?:add|appear|calculat|check|consider|count|declar|remov|replac|return|say|sort|tri|us)e?s|\w*\.\w+",
    re.I,
)
# Fewest letters among the characters of a word.
_LETTERS = 0.8
# Words before and behind a verb, and before a noun.
_BEFORE_VERB = ignore_case(
    r"to|i|you|we|they|he|she|it|not|can|could|will|would|should|must|may|please|\w+n['’]t|(?:i|you|we|they)['’]\w+"
)
_BEHIND_VERB = ignore_case(r"the|an?|my|your|his|her|our|their|its|it|this|these|those|me|you|us|them|up|out")
_BEFORE_NOUN = ignore_case(r"the|an?|my|your|his|her|our|their|its|no|any|some|of|for|in|on|at|by|with|from|via|[(\[:]")
_WORD_BEFORE, _WORD_BEHIND, _WORD_CHARS = (
    re.compile(r"([\w'’]+(?=[^\w(:\[]{0,2}$)|[(:\[](?=\s?$))"),
    re.compile(r" ?([\w'’]+|:)"),
    30,
)
# Share of the uses of a word as a thing, from which it names one.
_NAMED = 0.34


def name_topic(texts: Sequence[str], terms: Sequence[str]) -> str:
    """Return a phrase of most texts, or one word that tells the topic from others. ``terms``: its key terms."""
    told = ["\n".join(one.text for one in extract_sentences(text)) for text in texts]
    phrase = strip_verb(write_title(told, terms, share=TITLE_SHARE)) or name_by_terms(told, terms, ())
    if phrase and is_thing(phrase, told):
        return phrase
    return capitalize(next((term for term in terms if _names(term) and is_thing(term, told)), ""))


def name_by_terms(texts: Sequence[str], terms: Sequence[str], statements: Sequence[str]) -> str:
    """Return a phrase of the words that tell the topic from others, first one of a statement told, else empty."""
    stems_of = [{term.stem for term in extract_terms(text)} for text in texts]
    for source in (["\n".join(statements)], texts):
        phrase = strip_verb(write_title(source, terms, share=_TOLD_SHARE))
        stems = {term.stem for term in extract_terms(phrase)}
        held = sum(stems <= other for other in stems_of)
        if " " in phrase and held >= max(_FEWEST_HOLDING, _TOLD_SHARE * len(texts)) and is_thing(phrase, texts):
            return phrase
    return ""


def _names(word: str) -> bool:
    """Return True for a word that may stand in a title."""
    is_word = sum(map(str.isalpha, word)) > _LETTERS * len(word) and (len(word) > 2 or word.isupper())
    is_word &= (
        "'" not in word
        and "’" not in word
        and _NO_NAME.fullmatch(word) is None
        and NO_TAIL.fullmatch(word.lower()) is None
    )
    return is_word and not is_generic(word) and not names_task(f"{word} it") and not is_command(f"{word} it")


def is_thing(phrase: str, texts: Sequence[str]) -> bool:
    """Return True if texts use a phrase as the name of a thing, not as a verb or adjective: "the app denied my card".

    A verb stands behind "to", "not" or a pronoun, or before an article or pronoun. A word alone is a thing if no
    further word follows, and it stands behind an article or preposition, has a capital inside a sentence, or opens a
    label.
    """
    found = _find_uses(phrase, texts)
    acts = sum(
        _BEFORE_VERB.fullmatch(before) is not None or _BEHIND_VERB.fullmatch(after) is not None
        for before, _, after in found
    )
    if 2 * acts >= len(found) > 0:
        return False
    if " " in phrase or not phrase.isalpha() or not phrase[1:].islower():
        return True
    named = 0
    for before, own, after in found:
        if after == ":":
            named += not before
        elif not after or not extract_terms(after):
            named += _BEFORE_NOUN.fullmatch(before) is not None or (own[0].isupper() and before[:1].isalnum())
    return named >= _NAMED * len(found) > 0


def _find_uses(phrase: str, texts: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the uses of a phrase as written, each with the word or bracket before it and the word or colon behind."""
    uses = re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)", re.IGNORECASE)
    found: list[tuple[str, str, str]] = []
    for text in texts:
        for use in uses.finditer(text):
            before = _WORD_BEFORE.search(text, max(0, use.start() - _WORD_CHARS), use.start())
            after = _WORD_BEHIND.match(text, use.end())
            found.append((before[1] if before else "", use[0], after[1] if after else ""))
    return found
