"""Sentences that tell too little alone: vague verdicts, references to what is not told, reasons that name no cause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.text.sentences import is_context_dependent

_THING = (
    r"(?:implementation|function|code|solution|approach|logic|algorithm|method|program|check|condition|test cases?|"
    r"tests?|test setup|formula|calculation|computation|loop|result|output|answer)"
)
# What makes a verdict or a revision specific: a cause, a condition, a purpose, or what stands in its place.
_SPECIFIC = re.compile(
    r"\b(?:because|since|due to|when|whenever|if|unless|instead|rather|without|not|never|missing|only|so that|"
    r"such that|which|that|by|to|before|after|until|ensur(?:e|ing)|caus(?:es|ing)|lead(?:s|ing))\b|n['’]t\b"
)
# "The issue lies in the logic for ..": only that there is one; "failed 3 of the test cases": only that they failed.
_ISSUE = re.compile(
    r"^\W*(?:(?:the|this|a|one|another)? ?(?:main |key |root |likely )?"
    r"(?:issue|problem|error|bug|mistake|fault|cause)s?\b"
    r"[^.,]{0,20}?\b(?:lies?|is|are|was|were|resides?|stems?|arises?|comes?|(?:seems|appears) to be|"
    r"(?:might|may|could) (?:be|lie))\b"
    r"(?: (?:probably|likely|mainly|again|related|due))? (?:in|with|within|from|to)\b"
    rf"|(?:the|this|my|your)? ?(?:current |above |previous )?(?:\w+ )?{_THING} failed "
    r"(?:\d+ out of|\d+ of|all|some|multiple|several|many|the|for)\b[^.,]{0,20}\btest\b)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_LOCATED = re.compile(
    r"\b(?:because|since|due to|when|which|instead|rather|without|not|never|missing|before|after|causing)\b"
    r"|n['’]t\b"
)
_VAGUE = re.compile(
    r"^\W*(?:"
    # "The implementation is incorrect."
    rf"(?:the|this|my|your)? ?(?:current |above |previous )?(?:\w+ )?{_THING}(?: (?:used|given|returned)"
    r"(?: (?:in|by|for) [^.,]{1,40}?)?)? (?:is|was) "
    r"(?:still )?(?:incorrect|wrong|not correct|faulty|flawed|buggy|broken|correct)\b"
    # "Revise the logic for ..", "The logic should be corrected."
    r"|(?:please )?(?:revise|fix|review|modify|adjust|update|change|rethink|re-?evaluate|re-?consider|improve|correct|"
    rf"debug|check)(?: and \w+)? (?:the|your|its|this) (?:[\w-]+ ){{0,3}}?{_THING}\b"
    rf"|(?:the|this|your)? ?(?:\w+ ){{0,2}}?{_THING}(?: (?:for|of|in) [^.,]{{1,40}}?)? "
    r"(?:should|must|needs? to|has to) be "
    r"(?:revised|fixed|reviewed|modified|adjusted|updated|changed|corrected|improved)\b"
    r")(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
# "Further analysis is needed to find the cause", "Verify if the logic is correct": only that nothing is known yet.
_OPEN = ignore_case(
    r"^\W*(?:verify|check)(?: if| whether) (?:the|your|its|this) [^.,]{1,80}? "
    r"(?:is|are) (?:correct|right|valid|accurate)\b|"
    r"^\W*(?:(?:further|more|additional|deeper) \w+ (?:is|are|was|were|may be|might be|will be)|"
    r"needs? (?:further|more)\b)[^.]{0,20}?(?:needed|required|necessary|investigation|analysis|debugging)\b",
)
# What was done, without what is to be done: "All 37 tests pass", "All fixed and deployed".
_STATUS = re.compile(
    r"^\W*(?:all|both|now|done|verified|everything|\d+)\b[^.]*\b(?:pass(?:es|ed)?|fixed|deployed|improved|complete[d]?|done|"
    r"verified|cloned|analy[sz]ed|added)\b|^\W*(?:fixed|deployed|added|verified|done|tested)\b",
    re.IGNORECASE,
)
# What is to be done, or stands in place of a fault.
_REMEDY_WORDS = ignore_case(
    r"\b(?:instead|rather than|should|must|needs? to|ha(?:s|ve) to|always|never|only when|ensure|"
    r"(?:fixed|solved|resolved) by|switch(?:ed|ing)? to)\b",
)
# "X instead of X", where the difference was lost.
_IN_PLACE = (" instead of ", " rather than ")
_NO_CHANGE = re.compile(rf"(?P<same>\S[^.]{{3,80}}\S)(?:{'|'.join(_IN_PLACE)})(?P=same)(?!\w)")
# References inside a sentence; "such as" and "such a" refer to nothing.
_REFERENCE = re.compile(
    r"\b(?:these|those|such(?! (?:as|that|an?)\b)|the above|aforementioned|"
    r"this(?= (?!is\b|was\b|way\b|time\b|implementation\b|function\b)[^\W\d_]+))"
    r"(?P<nouns>(?: [^\W\d_]+){0,2})",
    re.IGNORECASE,
)
# "Test all four of them", "lacks all three": of a list that the sentence does not have.
# "Do not call earlier": than what was said before. A clause of the sentence itself may say it.
_COMPARES = ignore_case(
    r"^(?!.*\bthan\b)[^,;:]*\b"
    r"(?:earlier|sooner|(?:before|after) that|(?:until|before|by) then|früher|eher|vorher|antes|avant)[.!]?$"
)
_COUNTED = ignore_case(
    r"\ball (?:of )?(?:the |these |those )?(?:two|three|four|five|six|seven|eight|nine|ten|\d{1,2})\b"
    r"(?!\s*(?:%|percent))(?![^.]*[:(])",
)
_SHORT_WORD = 2
_OPENS_WITH_REFERENCE = re.compile(
    r"^\W*(?:(?:in|for|with|on|at|by|under|to \w+|bei|für|mit|en|con|para|dans|avec|pour) )?"
    r"(?:such (?!an?\b|as\b|that\b)|these\b|those\b|dies(?:e[rmns]?|es)?\b|solche[rmns]?\b|dadurch\b|daher\b|deshalb\b|"
    r"est[aeo]s?\b|es[ao]s?\b|dich[ao]s?\b|tal(?:es)?\b|ceci\b|cela\b|ce\b|cet(?:te)?\b|ces\b|tel(?:le)?s\b|"
    r"(?:ils?|elles?)\b(?! faut))"
    # "Never: it is locked" answers a question. "Set to 5 in the settings" is a state without its subject.
    r"|^\W*(?:due to|because of|despite|given) (?:this|that)\b"
    # "If the rows are equal, it skips one": of what was named before, as "it" is none of the rows.
    r"|^\W*(?:when|whenever|if|where|while)\s[^,]*\bare\b[^,]*,\s(?:then )?it\s(?!(?:is|was|makes|helps|takes)\b)"
    # "Not cutting it for now": what is not cut stands in the sentence before.
    r"|^\W*(?:not|still|just|already) [^\W\d_]+ing (?:it|them|this|that)\b(?!.*[,;:])"
    # "Otherwise it is sold twice": if what stands before is not done.
    r"|^\W*(?:(?:otherwise|sonst|andernfalls|ansonsten|de lo contrario|sinon)\b|si no,|"
    r"(?:そう)?しないと|(?:そう)?でないと|さもないと|忘れると|否则|不然)"
    r"|^\W*(?:never:|(?:yes|no|nein|ja|sí|oui|non)[:,] )"
    r"|^\W*(?:set|raised|lowered|changed|switched|moved|reverted|increased|reduced) (?:to|from)\b",
    re.IGNORECASE,
)
# "Leading to incorrect results": what came of a fault, rather than its cause.
_EFFECT = re.compile(
    r"\b(?:(?:and|thus|thereby),? )?(?:lead(?:s|ing)? to|result(?:s|ing|ed)? in|caus(?:es|ing|ed)|produc(?:es|ing)|"
    r"return(?:s|ing))\s+(?:an? |the )?(?:incorrect|wrong|unexpected|failed|inaccurate)\b[^.;]*",
    re.IGNORECASE,
)
# "Because it does not properly count": the opposite of what is wanted, without a cause.
_UNMET = re.compile(
    r"\b(?:because|since|as|due to)\b[^.;]{0,80}?\b(?:(?:does|do|did|is|are|was) not|(?:does|do|did|is|are|was)n['’]t|"
    r"fail(?:s|ed)? to|incorrectly|wrongly)(?: (?:properly|correctly|accurately|adequately|fully|handle|work|consider|"
    r"account))*\b"
    r"|(?:\bnot|n['’]t) (?:properly|correctly|accurately|adequately) (?:\w+ing|handle|account|consider|work)\b"
    r"|\buses? (?:the |an? )?(?:wrong|incorrect) \w+(?: (?:for|to) [^.;]*)?\W*$"
    r"|(?:\bnot|n['’]t) (?:\w+ly )?(?:return|produc|calculat|comput|giv|match|identify|handl|meet)\w* "
    r"(?:the |all (?:the )?)?(?:expected|correct|right|desired|required)\b",
    re.IGNORECASE,
)
_CAUSE = ignore_case(
    r"\b(?:because|since|otherwise|so that|leads? to|led to|causes?|caused|results? in|resulted in|prevents?|due to|"
    r"hinges? on|depends? on|makes? it|indicates?|creates?|"
    r"(?:can|will|may|still) \w*\s?(?:fail|break|leak|hang|crash))\b",
)
_BECAUSE = re.compile(r"\b(?:because|since)\b(?P<fault>.*)", re.IGNORECASE | re.DOTALL)
_REMEDY = re.compile(
    r"\b(?:instead of|rather than|but|while|whereas|when it should|which|leading|causing|resulting)\b|;", re.IGNORECASE
)
# "Ensure that the rules are correctly followed": the goal alone, unless the sentence says how or what instead.
_WELL = r"(?:properly|correctly|accurately|adequately|appropriately|accordingly)"
_ACT = (
    r"(?:handl|account|consider|calculat|count|check|updat|implement|follow|comput|identif|process|determin|reflect|"
    r"represent|f[io]nd|buil|work|function|manag|address|configur|us)\w*"
)
_GOAL = ignore_case(
    rf"\b(?:{_WELL} {_ACT}|{_ACT}(?: \S+){{0,6}}? {_WELL}|as (?:expected|intended|required|needed)|"
    r"(?:correct|right|proper|appropriate|necessary|desired) \w+|re-?(?:evaluate|think|consider|visit)|"
    r"consider all|account for all)\b",
)
_HOW = ignore_case(
    r"[`\"“\d=<>]|\b(?:instead(?! of that)|rather than|only|not|never|by \w+ing|using|via|because|between|otherwise)\b"
    r"|n['’]t\b",
)
# "The failed tests indicate that ..": what was seen of a fault, rather than the fault.
_SYMPTOM = ignore_case(
    r"\b(?:tests?|test cases?|error(?: messages?)?|messages?)(?: (?:in|\"|')[^.,]{1,60}?)? "
    r"(?:indicates?|shows?|suggests?|says?)\b"
    r"|\b(?:implementation|code|function)\b[^.,]{0,40}? (?:is|seems|appears) (?:to be )?correct\b"
    r"|\bnot the (?:cause|reason)\b|^\W*in the (?:failed|failing) tests?\b|\bas (?:intended|expected)\W*$",
)
# "A instead of B" and "B instead of A".
_INSTEAD = re.compile(r"\b(?:instead of|rather than)\b", re.IGNORECASE)
_NEAR_WORDS = 6
# What follows is wanted, up to the end of its clause.
_WANTED = re.compile(
    r"\b(?:should|must|needs? to|ha(?:s|ve) to|ask(?:s|ed)? (?:for|to)|requires?|expects?|goal is to)\b"
    r"(?: be (?:modified|changed|updated|revised|adjusted|corrected) to\b)?",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[,;]|\b(?:and (?:remove|then|not)|but|while|whereas|so that|as (?:indicated|shown))\b", re.I)
_PARTICLES = frozenset(("up", "out", "all", "each", "every", "any", "also"))
# Fewest letters of a word with an ending.
_FEWEST_LETTERS = 3
# Words before a claim in which it is denied.
_NEAR_DENIAL = 3
# "True for odd, false for even" and "false for odd, true for even".
_EXCHANGED = 2
_NEGATION = re.compile(
    r"\b(?:not|never|no|without|only|missing|lacks?|fails?|instead|rather)\b|n['’]t\b", re.IGNORECASE
)
_VERDICT = ignore_case(r"\b(?:incorrect|wrong|fail(?:s|ed)?|bug|mistake|faulty|flawed)\b")
_TOKEN = re.compile(r"\w+|[-+*/<>=%]+")
# Words that a fault and an instruction must share in a row, and of them those that are no function words.
_SHARED_RUN, _SHARED_CONTENT = 3, 2


def is_vague(text: str) -> bool:
    """Return True for a sentence that says only that something is wrong, or is to be revised, or replaced by itself."""
    if _OPEN.match(text):
        return True
    for claim, specific in ((_ISSUE, _LOCATED), (_VAGUE, _SPECIFIC)):
        match = claim.match(text)
        if match is not None and specific.search(_EFFECT.sub("", match["rest"].lower())) is None:
            return True
    # The search takes time that grows with the square of the length.
    return any(phrase in text for phrase in _IN_PLACE) and _NO_CHANGE.search(text) is not None


def refers_elsewhere(text: str) -> bool:
    """Return True if the sentence points to something that it does not name: "These cases fail"."""
    if is_context_dependent(text) or _OPENS_WITH_REFERENCE.match(text):
        return True
    if _COUNTED.search(text) or _COMPARES.match(text):
        return True
    for match in _REFERENCE.finditer(text):
        before = text[: match.start()].lower()
        nouns = [word[:5].rstrip("s") for word in match["nouns"].lower().split() if len(word) > _SHORT_WORD]
        if not any(noun in before for noun in nouns):
            return True
    return False


@lru_cache(maxsize=1 << 12)
def names_wish_alone(text: str) -> bool:
    """Return True for a verdict whose reason is that it is not as wanted: "because it does not properly count"."""
    return _UNMET.search(text) is not None


def names_goal_alone(text: str) -> bool:
    """Return True for advice that says what is wanted and not how: "Properly handle all cases"."""
    return _GOAL.search(text) is not None and _HOW.search(text) is None


def names_symptom_alone(text: str) -> bool:
    """Return True for what was seen of a fault: "The failed tests indicate that the sum is wrong"."""
    return _SYMPTOM.search(text) is not None


def tells_status(text: str) -> bool:
    """Return True for what was done, without what is to be done: "All 37 tests pass"."""
    return _STATUS.match(text) is not None


def is_balanced(text: str) -> bool:
    """Return True if brackets and code marks are in pairs; else the sentence was cut."""
    return text.count("(") == text.count(")") and text.count("`") % 2 == 0


def names_remedy(text: str) -> bool:
    """Return True if a sentence on a fault says what is right: "It rounds each row instead of the sum"."""
    return _REMEDY_WORDS.search(text) is not None


def negates(text: str) -> bool:
    """Return True if a sentence denies, restricts or replaces something."""
    return _NEGATION.search(text) is not None


def reverses(one: str, other: str) -> bool:
    """Return True if one sentence says "4 instead of 3" and the other "3 instead of 4", or has two words exchanged."""
    words, others = map(_split, (one, other))
    if _exchange(words, others):
        return True
    sides = [_read_sides(text) for text in (one, other)]
    if None in sides:
        return False
    (taken, left), (taken_by_other, left_by_other) = filter(None, sides)
    return bool((taken - left) & (left_by_other - taken_by_other)) and bool(
        (left - taken) & (taken_by_other - left_by_other)
    )


def _read_sides(text: str) -> tuple[set[str], set[str]] | None:
    """Return the words near to "instead of": before it and behind it."""
    parts = _INSTEAD.split(text, maxsplit=1)
    if len(parts) < 2:
        return None
    light = load_language("en").light
    before, after = (_split(part) for part in parts)
    return {*before[-_NEAR_WORDS:]} - light, {*after[:_NEAR_WORDS]} - light


def names_cause(text: str) -> bool:
    """Return True if a reason says more than that something is wrong, or not as wanted."""
    return not is_vague(text) and not names_wish_alone(text) and _CAUSE.search(_EFFECT.sub("", text)) is not None


def read_fault(text: str) -> tuple[str, ...]:
    """Return the words of what a verdict calls wrong: "It is wrong because it sorts twice" gives "it sorts twice".

    Empty if the text is no verdict, or what is wrong is that something is missing.
    """
    match = _BECAUSE.search(text)
    if match is None or not _VERDICT.search(text[: match.start()]):
        return ()
    fault = _REMEDY.split(match["fault"], maxsplit=1)[0]
    return () if _NEGATION.search(fault) else tuple(_split(fault))


def instructs_fault(advice: str, fault: tuple[str, ...], language: str | None = None) -> bool:
    """Return True if advice tells to do what a verdict calls wrong (``read_fault``), in the same words."""
    words = _split(advice)
    if not fault or _NEGATION.search(advice):
        return False
    light = load_language(language or "en").light
    runs = SequenceMatcher(None, words, fault, autojunk=False).get_matching_blocks()
    return any(
        run.size >= _SHARED_RUN
        and sum(word not in light for word in words[run.a : run.a + run.size]) >= _SHARED_CONTENT
        for run in runs
    )


def contests(one: str, other: str) -> bool:
    """Return True if one of two sentences on attempts wants what the other calls wrong, or they say the reverse.

    "It fails because it only adds open rows" and "It should only add open rows" contest each other.
    """
    (fault, wish), (other_fault, other_wish) = _read_claims(one), _read_claims(other)
    return (
        _wants_fault(wish, other_fault)
        or _wants_fault(other_wish, fault)
        or _exchange(_drop_light(fault), _drop_light(other_fault))
        or _exchange(_drop_light(wish), _drop_light(other_wish))
    )


def _wants_fault(wish: Sequence[str], fault: Sequence[str]) -> bool:
    """Return True if all words of a wish but its verb are in a fault, three in a row, and both or none are denied."""
    wanted = _drop_light(wish)
    if not {*wanted[1:]} <= {*_drop_light(fault)} or len({*wanted}) < _SHARED_CONTENT:
        return False
    runs = SequenceMatcher(None, wish, fault, autojunk=False).get_matching_blocks()
    return any(
        run.size >= _SHARED_RUN
        and len(_drop_light(wish[run.a : run.a + run.size])) >= _SHARED_CONTENT
        and _denies(wish, run.a) == _denies(fault, run.b)
        for run in runs
    )


def _denies(words: Sequence[str], at: int) -> bool:
    """Return True if one of the words before a position negates or restricts what follows."""
    return _NEGATION.search(" ".join(words[max(0, at - _NEAR_DENIAL) : at])) is not None


def _drop_light(words: Sequence[str]) -> list[str]:
    light = load_language("en").light
    return [word for word in words if word not in light and word not in _PARTICLES and not _NEGATION.fullmatch(word)]


@lru_cache(maxsize=1 << 12)
def _read_claims(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of what a sentence calls wrong, and of what it wants; empty where it says none."""
    because = _BECAUSE.search(text)
    is_verdict = because is not None and _VERDICT.search(text[: because.start()]) is not None
    fault = _REMEDY.split(because["fault"], maxsplit=1)[0] if because and is_verdict else ""
    rest = because["fault"][len(fault) :] if because and is_verdict else text
    if wanted := _WANTED.search(rest):
        wish = _INSTEAD.split(rest[wanted.end() :], maxsplit=1)[0]
    else:
        wish = _INSTEAD.split(rest, maxsplit=1)[-1] if is_verdict and _INSTEAD.search(rest) else ""
    wish = _CLAUSE_END.split(wish, maxsplit=1)[0]
    return tuple(map(_to_singular, _split(fault))), tuple(map(_to_singular, _split(wish)))


def _to_singular(word: str) -> str:
    """Return a word without the ending that a plural and a verb of the third person have."""
    return word.removesuffix("s") if len(word) > _FEWEST_LETTERS else word


def _exchange(words: Sequence[str], others: Sequence[str]) -> bool:
    """Return True if words are the others with two of them exchanged."""
    if len(words) != len(others):
        return False
    exchanged = [pair for pair in zip(words, others, strict=True) if pair[0] != pair[1]]
    return len(exchanged) == _EXCHANGED and exchanged[0] == exchanged[1][::-1]


def _split(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())
