"""Times and moods of verbs in two texts: what is, will be or was done, what is to be done and what was."""

import re
from collections.abc import Mapping

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token
from consolidation_pipeline.core.differences.verb_times import tell_time

# Text before the first word of a sentence, maybe with the mark of a list.
_OPENING = re.compile(r"(?:^|[.!?:;\n])[\s\W]*(?:\d{1,2}[.)]\s*)?$")
_MOST_BEFORE = 12
# What is not done yet.
_UNDONE = (("tense", "future"), ("tense", "will"))
# It tells no time: 送信済みです.
_COPULA = "です"
# What lasts since it was done.
_STATE = re.compile("(?:完了|終了|停止|故障|到着|失効|確定|決定|閉店)して(?:いる|います|おります)$")
# What is between two sentences without blanks.
_CLOSED = re.compile(r"[\s。．！？!?]+")


def find_new_time(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a verb that tells of another time in each text: "we use" and "we used", "borrará" and "borró".

    What goes wrong is told in either time: "it fails" and "it failed" may be one.
    """
    if places and differ_in_time(a, b, language):
        at = min(places)
        return [a.tokens[at]], [b.tokens[places[at]]]
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        if one.text.lower() == other.text.lower() or not one.kind == other.kind == "word":
            continue
        times = {tell_time(a, one, language), tell_time(b, other, language)}
        if None in times or times == {"present", "future"}:
            continue
        if len(times) > 1 and not (times == {"present", "past"} and _is_fault(one, other, language)):
            return [one], [other]
    return None


def differ_in_time(a: Reading, b: Reading, language: Language) -> bool:
    """Return True if two texts tell of other times by the forms of words that stand anywhere in them."""
    pairs = ((tell(a, language), tell(b, language)) for tell in _TELL_PAST)
    is_other = any(len(one) == len(other) == 1 and one != other for one, other in pairs)
    return is_other or _goes_on(a, b, language) or _goes_on(b, a, language)


def _is_fault(one: Token, other: Token, language: Language) -> bool:
    stems = (language.stem(token.text.lower().partition(" ")[0]) for token in (one, other))
    return not language.faults.isdisjoint(stems)


# The functions of ``_TELL_PAST`` return whether what a text tells in a way is past: True and False if some is not.


def _was(reading: Reading, language: Language) -> set[bool]:
    """By its forms of "be"."""
    phrases = (language.phrases.get((word,)) for word in reading.words & language.copulas)
    return {phrase is not None and phrase.pole == "past" for phrase in phrases}


def _had(reading: Reading, language: Language) -> set[bool]:
    """By what somebody has: "has access"."""
    if any(language.is_participle(token.text.lower()) for token in reading.tokens):
        return set()
    return {language.possession[word] for word in reading.words & language.possession.keys()}


def _lasted(reading: Reading, language: Language) -> set[bool]:
    """By the endings of verbs that tell what lasts."""
    return {is_past for ending, is_past in language.lasting.items() if ending in reading.source}


def _had_to(reading: Reading, language: Language) -> set[bool]:
    """By what is possible or has to be done."""
    cues = (cue.text.lower() for cue in reading.cues if cue.category == "modality")
    return {cue.partition(" ")[0] in language.past_modals for cue in cues}


def _goes_on(reading: Reading, other: Reading, language: Language) -> bool:
    """Return True if what a text tells is going on, and the other one does not say so."""
    return any(
        word in reading.source and not any(part in other.source for part in rest.split())
        for word, rest in language.ongoing.items()
    )


def _ended(reading: Reading, language: Language) -> set[bool]:
    """By the verbs at the ends of sentences that tell of no fault."""
    if not language.final_verbs or any(fault in reading.source for fault in language.faults):
        return set()
    sentences = (_cut_closing(sentence, language) for sentence in _CLOSED.split(reading.source))
    ends = (sentence[-1] for sentence in sentences if sentence and not sentence.endswith(_COPULA))
    found = {language.final_verbs[end] for end in ends if end in language.final_verbs}
    return {True} if found and _STATE.search(reading.source.rstrip("。.")) else found


def _cut_closing(sentence: str, language: Language) -> str:
    """Return a sentence without an end that says nothing: "と気づいた"."""
    return next((sentence.removesuffix(end) for end in language.closings if sentence.endswith(end)), sentence)


# What somebody wants to be so.
_WANTED = frozenset(("modality", pole) for pole in ("required", "advised", "missed"))
_TELL_PAST = (_was, _had, _lasted, _ended, _had_to)


def find_new_mood(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a verb that opens a request in one text and a report in the other: "Restart it", "Restarted it"."""
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        if not one.kind == other.kind == "word":
            continue
        has_past, has_past_there = (any(map(language.is_past, t.text.lower().split())) for t in (one, other))
        if has_past == has_past_there:
            continue
        if _opens_sentence(a, one) and _opens_sentence(b, other):
            return [one], [other]
        (asks, verb), report = ((b, other), a) if has_past else ((a, one), b)
        if _opens_sentence(asks, verb) and _is_command(verb, language) and not any(map(_is_unreal, report.cues)):
            return [one], [other]
    return None


def _is_command(verb: Token, language: Language) -> bool:
    """Return True for a verb that gives an order as its first word: "Starte", "Envoyez", not a noun."""
    form = verb.text.lower()
    return bool(language.command_endings) and form.endswith(language.command_endings)


def _is_unreal(cue: Cue) -> bool:
    return cue.category in ("modality", "request") or (cue.category, cue.pole) in _UNDONE


def find_wanted_state(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return the words of two texts if ``a`` tells what should be, and ``b`` what is: "it must be on", "it is on".

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    wanted = [cue for cue in a.cues if (cue.category, cue.pole) in _WANTED]
    if not wanted or any((cue.category, cue.pole) in _WANTED for cue in b.cues):
        return None
    # "Partners have to sign"
    is_order = not language.infinitive_marks.isdisjoint(b.words - a.words)
    states = (language.copulas | language.possession.keys()) & b.words
    if not is_order and states - a.words:
        return list(a.tokens), list(b.tokens)
    # "Backups prüfen" is an order, and "sie prüfen Backups" tells what is.
    for cue in wanted if language.stemmer and not language.has_late_participles else ():
        verb = next((b.tokens[there] for at, there in places.items() if a.tokens[at].place == cue.place), None)
        if verb and _has_subject(b, verb) and tell_time(b, verb, language) == "present":
            return list(a.tokens), list(b.tokens)
    return None


def _has_subject(reading: Reading, verb: Token) -> bool:
    return any(token.clause == verb.clause and token.place < verb.place for token in reading.tokens)


def _opens_sentence(reading: Reading, token: Token) -> bool:
    return _OPENING.search(reading.source[max(0, token.start - _MOST_BEFORE) : token.start]) is not None
