"""Tenses of verbs without an auxiliary: what will be done and what was, what is to be done and what was."""

import re
from collections.abc import Collection, Mapping

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Reading, Token

# Text before the first word of a sentence, maybe with the mark of a list.
_OPENING = re.compile(r"(?:^|[.!?:;\n])[\s\W]*(?:\d{1,2}[.)]\s*)?$")
_MOST_BEFORE = 12
# Words beside a verb.
_LAST_WORD, _NEXT_WORD = re.compile(r"(\w+)\s+\Z"), re.compile(r"\s+(\w+)")
_LONGEST_PRONOUN = 12


def find_new_tense(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a verb that tells in one text alone what will be done, and in the other what was: borrará, borró."""
    for at, there in places.items():
        forms = a.tokens[at].text.lower(), b.tokens[there].text.lower()
        for form, other in (forms, forms[::-1]):
            if language.is_future(form) and not language.is_future(other) and language.is_past(other):
                return [a.tokens[at]], [b.tokens[there]]
    return None


def find_new_time(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a verb that tells what is done in one text and what was in the other: "we use" and "we used".

    It has the same pronoun as its subject, tells a state, "it needs", or what was usual, "se revisaba". Else "it fails"
    and "it failed" may be one.
    """
    is_over = any({True, False} == {tells(a, language), tells(b, language)} for tells in _TELL_TIME)
    if places and is_over:
        at = min(places)
        return [a.tokens[at]], [b.tokens[places[at]]]
    if words := _find_imperfect(a, b, places, language):
        return words
    persons = language.subjects.keys() & a.words & b.words
    for at, there in places.items() if persons or language.states else ():
        forms = (a, at), (b, there)
        was = [language.is_past(reading.tokens[place].text.lower()) for reading, place in forms]
        if was[0] == was[1] or a.tokens[at].kind != "word":
            continue
        (reading, place), (other, _) = forms[::-1] if was[0] else forms
        verb = reading.tokens[place]
        is_state = verb.text.lower() in language.states and language.copulas.isdisjoint(other.words)
        if is_state or _has_subject(reading, verb, persons):
            return [a.tokens[at]], [b.tokens[there]]
    return None


def _was(reading: Reading, language: Language) -> bool | None:
    """Return True if every form of "be" in a text is a past one, False if none is, None without one or with both."""
    phrases = (language.phrases.get((word,)) for word in reading.words & language.copulas)
    found = {phrase is not None and phrase.pole == "past" for phrase in phrases}
    return found.pop() if len(found) == 1 else None


def _had(reading: Reading, language: Language) -> bool | None:
    """Return True if what the text says that somebody has is past, False if none is, None if it does not say that."""
    found = {language.possession[word] for word in reading.words & language.possession.keys()}
    has_participle = any(language.is_participle(token.text.lower()) for token in reading.tokens)
    return found.pop() if len(found) == 1 and not has_participle else None


def _lasted(reading: Reading, language: Language) -> bool | None:
    """Return True if what lasts is past by the endings of its verbs, False if it is not, None if that is not told."""
    found = {is_past for ending, is_past in language.lasting.items() if ending in reading.source}
    return found.pop() if len(found) == 1 else None


def _had_to(reading: Reading, language: Language) -> bool | None:
    """Return True if what was possible or had to be done is past, False if it is not, None if that is not told."""
    cues = (cue.text.lower() for cue in reading.cues if cue.category == "modality")
    found = {cue.partition(" ")[0] in language.past_modals for cue in cues}
    return found.pop() if len(found) == 1 else None


_TELL_TIME = (_was, _had, _lasted, _had_to)


def _find_imperfect(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a verb that tells in one text alone what was usual, and in the other what is."""
    for at, there in places.items() if language.imperfect_endings else ():
        one, other = a.tokens[at], b.tokens[there]
        forms = one.text.lower(), other.text.lower()
        usual = [language.is_imperfect(form) for form in forms]
        if one.kind == "word" and usual[0] != usual[1]:
            present = forms[usual.index(False)]
            if not language.is_past(present) and not language.is_participle(present):
                return [one], [other]
    return None


def _has_subject(reading: Reading, verb: Token, persons: Collection[str]) -> bool:
    """Return True if a pronoun stands right before or behind a verb: "wir kündigen", "morgen kündigen wir"."""
    before = _LAST_WORD.search(reading.source, max(0, verb.start - _LONGEST_PRONOUN), verb.start)
    behind = _NEXT_WORD.match(reading.source, verb.start + len(verb.text))
    return any(found is not None and found[1].lower() in persons for found in (before, behind))


def find_new_mood(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a verb that opens a request in one text and a report in the other: "Restart it", "Restarted it"."""
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        has_past, has_past_there = (language.is_past(token.text.lower()) for token in (one, other))
        is_other = one.kind == other.kind == "word" and has_past != has_past_there
        if is_other and _opens_sentence(a, one) and _opens_sentence(b, other):
            return [one], [other]
    return None


def _opens_sentence(reading: Reading, token: Token) -> bool:
    return _OPENING.search(reading.source[max(0, token.start - _MOST_BEFORE) : token.start]) is not None
