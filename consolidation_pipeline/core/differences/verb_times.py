"""Times of verbs: what was, is, will or would be done, by their forms and the auxiliaries in their sentence."""

import re
from typing import Literal

from consolidation_pipeline.core.differences.language import WORD, Language
from consolidation_pipeline.core.differences.reading import Reading, Token

# A German participle: "ist gestiegen", "ist abgestürzt".
_MOVED = re.compile(r"[a-zäöüß]*ge[a-zäöüß]{2,}(?:t|en)")
Time = Literal["past", "present", "future", "conditional"]

# Words before a verb among which its auxiliaries are, where they stand right before it: "has not yet been moved".
_MOST_BEFORE = 4
# Cues of what is not told as a fact: it may, should or would be.
_UNREAL = {("tense", "unreal"), ("tense", "former")}


def tell_time(reading: Reading, verb: Token, language: Language) -> Time | None:
    """Return when a text says that something is done; None if the form tells no time, or tells what may be."""
    start, end = reading.find_sentence(verb.start)
    if any(start <= cue.start < verb.start and _is_unreal(cue.category, cue.pole) for cue in reading.cues):
        return None
    form = verb.text.lower().partition(" ")[0]
    if form.endswith(language.conditional_endings):
        return "conditional"
    if language.is_future(form):
        return "future"
    if form.endswith(language.imperfect_endings) and form not in language.false_past_forms:
        return "past"
    before, behind = _split(reading.source[start : verb.start]), _split(reading.source[verb.start + len(form) : end])
    near = {*before, *behind} if language.has_late_participles else {*before[-_MOST_BEFORE:]}
    is_participle = language.is_participle(form) and form not in language.false_past_forms
    if not near.isdisjoint(language.futures) and not is_participle:
        return "future"
    if not near.isdisjoint(language.perfect_auxiliaries):
        is_late = language.has_late_participles and not behind
        return "past" if is_participle or language.is_past(form) or is_late else None
    if (
        language.has_late_participles
        and not is_participle
        and not near.isdisjoint(language.copulas)
        and _MOVED.fullmatch(form)
    ):
        return "past"
    is_form = form in language.past_forms or form.endswith(language.preterite_endings)
    is_form &= not form.endswith(language.ambiguous_endings) and form not in language.false_past_forms
    if not is_participle and not is_form and not language.is_past(form):
        return "present" if _is_finite(form, before, near, language) else None
    # "The failed disk"; "files are moved"
    is_attribute = not before or before[-1] in language.determiners
    if is_attribute or not language.passive_auxiliaries.isdisjoint({*before, *near}):
        return None
    # "verkauft" is a present form, too
    is_present = language.has_late_participles and form.endswith(language.finite_endings)
    return "past" if is_form else "present" if is_present else None


def _split(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def _is_unreal(category: str, pole: str) -> bool:
    return category in ("modality", "request") or (category, pole) in _UNREAL


def _is_finite(form: str, before: list[str], near: set[str], language: Language) -> bool:
    """Return True for a present form: no noun, adjective, infinitive, command, or gerund without an auxiliary."""
    if not before or before[-1] in language.determiners or before[-1] in language.infinitive_marks:
        return False
    if form.endswith((*language.ambiguous_endings, *language.infinitive_endings)):
        return False
    if language.gerund_endings and form.endswith(language.gerund_endings):
        return not near.isdisjoint(language.passive_auxiliaries)
    persons = {*language.subjects, *language.owners.values()}
    is_plural = before[-1] in persons or before[-1].endswith(language.plural_endings)
    return not language.finite_endings or is_plural or form.endswith(language.finite_endings)
