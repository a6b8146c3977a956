"""Type of a pattern: each unit of the group votes by what it shows of failure, choice, success and steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import fsum
from typing import TYPE_CHECKING

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.knowledge.lesson_sentences import read_lesson
from consolidation_pipeline.core.text.sentence_cues import is_choice, is_failure, is_sequence
from consolidation_pipeline.core.text.sentences import extract_sentences

if TYPE_CHECKING:
    from consolidation_pipeline.core.knowledge.pattern_units import Unit

# Ties are broken in this order. Failures come first: a failure with another type does the most harm.
PATTERN_TYPES = ("failure", "gotcha", "decision", "workflow", "success")
# The type must have this share of the votes; else the units show no type.
_LEAST_SHARE = 1 / 3

# Votes by memory type alone; discoveries, learnings and knowledge can be of any type.
_BY_TYPE = {
    "decision": "decision",
    "warning": "gotcha",
    "error_fix": "gotcha",
    "bugfix": "gotcha",
    "feature": "workflow",
    "refactor": "workflow",
    "change": "workflow",
}
# An attempt that failed, told by whoever made it.
_FAILED = ignore_case(
    r"\b(?:i|we) (?:have |had )?(?:failed|was stuck|were stuck|got stuck|forgot|should(?:n['’]t| not)? have|could have|"
    r"didn['’]t|did not|wrongly|mistakenly|incorrectly|kept)\b|\b(?:my|our|the) (?:mistake|error|failure|attempt|plan|"
    r"approach"
    r"|previous attempt|last attempt) (?:was|failed|did not|didn['’]t)\b|\b(?:in|on|for) (?:my|the|our) next (?:trial|"
    r"attempt|"
    r"try|run)\b|\bnext time\b|\b(?:implementation|solution|attempt|code|function|approach|"
    r"answer) (?:of [^.]{1,40} )?(?:is|was)"
    r" (?:wrong|incorrect|flawed|not correct)\b|\b(?:implementation|attempt|solution|tests?) (?:failed|fails?)\b|"
    r"\b(?:did not|didn['’]t|does not|doesn['’]t) (?:work|help)\b|\bstuck in a loop\b|\bwithout success\b|\bgave up\b|"
    r"\b(?:had to be|was|were|been) (?:rolled back|reverted|abandoned)\b|"
    r"\b(?:ich habe vergessen|mein fehler war|hat nicht funktioniert|funktionierte nicht|ist gescheitert|gescheitert|"
    r"no funcionó|fallé|mi error fue|el error fue|falló|n['’]a pas (?:fonctionné|marché)|j['’]ai échoué|mon erreur|"
    r"a échoué)\b"
    r"|失败了|没有成功|失敗し|うまくいかな",
)
# A result that was reached.
_SUCCEEDED = ignore_case(
    r"\b(?:(?:it |this |that |which |now |all )?(?:works?|worked|working) (?:well|fine|now|great|reliably|again|"
    r"as expected|"
    r"perfectly|best|out)|(?:it|this|that) work(?:s|ed)\b|success(?:ful|fully|es)?|succeed(?:s|ed)?|solved|resolved|"
    r"(?:tests?|"
    r"build|ci|suite|checks?) (?:now |all )?(?:pass(?:es|ed)?|(?:is|are|went|turned) green)|(?:fixed|cured) (?:it|this|"
    r"the|all|our)|"
    r"(?:reduced|cut|lowered|improved|sped up|raised|increased|dropped|fell|went)\b[^.]{0,60}?\b(?:by|from|to|"
    r"down)\b[^.]{0,20}?\d|"
    r"no (?:more|further) (?:errors?|failures?|timeouts?|incidents?|complaints?|flakes?|crashes)|paid off|"
    r"did the trick|"
    r"hat (?:gut )?funktioniert|funktioniert (?:jetzt|nun|gut|wieder)|erfolgreich|behoben|gelöst|funcionó|con éxito|"
    r"resuelto|"
    r"ça marche|a fonctionné|avec succès|résolu)\b|成功|解决了|うまくいっ|解決し",
)
_STEPS = ignore_case(
    r"\b(?:first|zuerst|primero|d['’]abord)\b.*\b(?:then|next|finally|afterwards|dann|danach|luego|después|puis|"
    r"ensuite)\b|"
    r"(?:^|\n|\s)1[.)]\s.*(?:\n|\s)2[.)]\s|\(1\).*\(2\)|首先.*然后|まず.*次に",
    re.DOTALL,
)
_CHOICE = ignore_case(
    r"\b(?:wir haben (?:uns )?(?:entschieden|beschlossen)|entschieden uns|beschlossen|hemos decidido|decidimos|"
    r"se decidió|nous "
    r"avons (?:décidé|choisi)|on a (?:décidé|choisi))\b|决定|選択し|ことにし|決定し",
)


def vote_pattern_type(units: Sequence[Unit]) -> str | None:
    """Return the type with the most votes by weight; ties: the first of ``PATTERN_TYPES``.

    None if no type has a third of the weight: the units show no type, such as questions. The vote of a unit is the
    first that applies:

    1. its own pattern type, if it is a pattern;
    2. ``success`` is False, or it tells of an attempt that failed ("I should have .."): failure;
    3. memory type decision: decision; warning, error_fix or bugfix: gotcha; feature, refactor or change: workflow;
    4. half of its instructions or more are warnings: gotcha;
    5. its words: a choice: decision; a sequence of steps: workflow;
    6. ``success`` is True, or it tells of a result that was reached ("the build passes now"): success;
    7. an instruction: workflow;
    8. it reports a failure or problem: gotcha.

    Raises:
        ValueError: There are no units.
    """
    if not units:
        raise ValueError("no units given; a pattern has at least one")
    votes: dict[str | None, list[float]] = {}
    for unit in units:
        votes.setdefault(_vote(unit), []).append(unit.weight)
    # fsum: the sum does not depend on the order of units.
    weights = {name: fsum(votes.get(name, ())) for name in PATTERN_TYPES}
    best = max(PATTERN_TYPES, key=lambda name: weights[name])
    return best if weights[best] >= _LEAST_SHARE * fsum(unit.weight for unit in units) else None


def _vote(unit: Unit) -> str | None:
    text = unit.text
    if unit.pattern_type is not None:
        return unit.pattern_type
    if unit.success is False or (_FAILED.search(text) and not (unit.success and _SUCCEEDED.search(text))):
        return "failure"
    if unit.memory_type in _BY_TYPE:
        return _BY_TYPE[unit.memory_type]
    roles = [read_lesson(sentence.text, is_opening=False).role for sentence in extract_sentences(text)]
    warnings, rules = roles.count("warning"), roles.count("rule")
    if warnings and warnings >= rules:
        return "gotcha"
    if is_choice(text) or _CHOICE.search(text):
        return "decision"
    if is_sequence(text) or _STEPS.search(text):
        return "workflow"
    if unit.success or _SUCCEEDED.search(text):
        return "success"
    if rules:
        return "workflow"
    return "gotcha" if is_failure(text) and roles.count("question") < len(roles) else None
