"""Cues of sentences: whole words that show advice, a warning, a failure, a preference, steps or a decision.

The rules read English. Sentences of other languages match none, and are ranked by their terms alone.
"""

from __future__ import annotations

from functools import lru_cache

from consolidation_pipeline.core.case_blind import ignore_case

# Verbs that an instruction begins with.
_VERBS = """
    accept add adjust adopt align allow always analyse analyze annotate answer append apply ask assert assign
    assume attach avoid backfill batch bind bump calculate call cap capture catch check choose claim clean clear
    close compare compute configure confirm consider consult convert copy count create debounce declare
    default define delete derive describe disable discard document double-check download drain drop emit enable
    encode encrypt enforce ensure escape evaluate examine exclude expect explain expose extract fail favor favour
    fetch fix flush focus follow force freeze generate give go grant group guard handle identify
    ignore implement include increase initialise initialize inject insert inspect install invalidate isolate
    iterate join keep launch leave let look lower make mark mask maximise maximize measure migrate minimise
    minimize mock monitor mount move normalise normalize notify open optimise optimize override paginate parse pass
    persist pick pin poll prefer prefix prepare preserve prevent print propagate protect provide prune publish pull
    push put quote raise read rebase rebuild reconnect recreate redact reduce reevaluate refer refresh refuse register
    reject reload rely remember remove rename render renew reorder repair repeat replace reply requeue require reset
    resolve respect restart restore restrict retain rethink retry return reuse revert revise revoke rewrite roll
    rotate run sanitise sanitize save
    scan scrub select send separate serialise serialize serve set ship sign skip sort specify split squash stagger
    start stop store strip subscribe swap switch synchronise synchronize take tell think throttle throw treat trim
    try tune turn unpin upload use validate verify wait warm wrap write
"""
# Verbs that are also nouns with which a statement may begin: "Search index and two queues are left".
_VERBS_OR_NOUNS = """
    block bound build cache change commit deploy filter format hash hold import index limit list load lock log map match
    merge name note plan process query queue record release review schedule scope search stream tag test track trust
    update upgrade watch
"""
# "It is never pushed" is a statement, not an instruction.
_NEVER = r"never(?!\s+\w+(?:ed|en)\b)|don['’]t|do not|(?:must|should)(?: not|n['’]t)|may not|(?:cannot|can['’]t) be"
_STATEMENT = (
    r"(?:(?!\b(?:that|which|who|when|if|what|how|where|while|because|since|until|so)\b)[^,;:.])*"
    r"\b(?:is|are|was|were|has|have|had|can|will|takes?|gets?|lacks?|means?)\b"
)
_COMMAND = (
    rf"(?:(?:{'|'.join(_VERBS.split())}|find(?! out))|(?:{'|'.join(_VERBS_OR_NOUNS.split())})(?=\s)(?!{_STATEMENT}))"
)
# Commands that are also the past of their verb: "the event came late and set a flag".
_PAST_TOO = r"(?!(?:cut|let|put|read|set|split|hit|shut)\b)"
_OPENER = r"(?:please |then |instead,? |just |simply |first,? |also )?"
_CLAUSE = (
    "if|when|whenever|before|after|while|for|to|in|on|at|with|where|unless|once|during|instead of|rather than|by|as"
)
# A command at the start, after a colon or a semicolon, after an opening clause, or after "and".
_COMMANDS = (
    rf"^[*_\"'“(]*{_OPENER}{_COMMAND}\s|[:;]\s+{_OPENER}{_COMMAND}\s"
    rf"|^\W*(?:{_CLAUSE})\s[^,]+,\s{_OPENER}{_COMMAND}\s|\band {_PAST_TOO}{_COMMAND} (?:it|them|the|its|their|a|an)\b"
)
_COMMANDING = ignore_case(_COMMANDS)
_ADVICE = ignore_case(
    rf"{_COMMANDS}"
    r"|\b(?:always|must|should|ought to|ha(?:s|ve) to|needs?(?: to| an?| its| the)|prefer(?:s|red|ring|ably|able)?"
    r"|recommend(?:s|ed|ing|ations?)?|best practices?|makes? sure|ensures?|better to|remember to|rule of thumb"
    r"|the rule is|mandatory|required)\b",
)
_WARNING = ignore_case(
    rf"\b(?:{_NEVER}|bewar(?:e|y)|(?<!to )avoid(?:s|ed|ing)?|pitfalls?|gotchas?|traps?|caveats?|caution|careful(?:ly)?|"
    r"dangers?|dangerous(?:ly)?|risk(?:s|y)?|^\W*warning|watch out|careless(?:ly)?|silent(?:ly)?|"
    r"not safe|unsafe|insecure|alone does not|is not enough|not the only)\b",
)
_FAILURE = ignore_case(
    r"\b(?:fail(?:s|ed|ing|ures?)?|br(?:eaks?|oken?|eaking)|crash(?:es|ed|ing)?|hang(?:s|ing)?|hung|leak(?:s|ed|ing)?"
    r"|los(?:es?|t|ing)|corrupt(?:s|ed|ing|ion)?|wrong(?:ly)?|bugs?|timeouts?|timed out|deadlock(?:s|ed)?"
    r"|destroy(?:s|ed|ing)?|double[ds]?|duplicat(?:e|es|ed)|stale|flaky|outages?|blocked|rejected"
    r"|overw(?:rites?|rote|ritten)|invalid|exhaust(?:s|ed|ion)|used up|without (?:notice|warning)"
    r"|too (?:long|slow|late|early|many|much|large|big))\b",
)
_SEQUENCE = ignore_case(
    r"\b(?:first|then|next|finally|afterwards|before (?:every|each|you|it|the|any|\w+ing)|after (?:every|each|\w+ing)"
    r"|steps?|workflows?|procedures?|checklists?|runbooks?|pipelines?)\b",
)
_CHOICE = ignore_case(
    r"\b(?:decid(?:es?|ed|ing)|decisions?|ch(?:oos(?:e|es|ing)|osen?)|choices?|opted|agreed|trade-?offs?"
    r"|in favou?r of)\b",
)


@lru_cache(maxsize=1 << 12)
def is_advice(sentence: str) -> bool:
    """Return True for an instruction: a command, or *always*, *must*, *should*, *prefer*, *make sure* ..."""
    return _ADVICE.search(sentence) is not None


@lru_cache(maxsize=1 << 12)
def is_command(sentence: str) -> bool:
    """Return True for a command: "Check the log", "When it fails, check the log", "Rule: check the log"."""
    return _COMMANDING.search(sentence) is not None


@lru_cache(maxsize=1 << 12)
def is_warning(sentence: str) -> bool:
    """Return True for a warning: *never*, *do not*, *must not*, *avoid*, *beware*, *pitfall*, *silently*, *risk* ..."""
    return _WARNING.search(sentence) is not None


@lru_cache(maxsize=1 << 12)
def is_failure(sentence: str) -> bool:
    """Return True for a report of a failure: *fails*, *breaks*, *leaks*, *lost*, *wrong*, *timed out* ..."""
    return _FAILURE.search(sentence) is not None


def is_pitfall(sentence: str) -> bool:
    """Return True for a warning, or a failure without advice."""
    return is_warning(sentence) or (is_failure(sentence) and not is_advice(sentence))


def is_sequence(text: str) -> bool:
    """Return True for a sequence of steps: two different ones of *first*, *then*, *before each*, *step* ..."""
    return len({match.lower() for match in _SEQUENCE.findall(text)}) >= 2


def is_choice(text: str) -> bool:
    """Return True for a decision: *decided*, *chose*, *agreed*, *trade-off* ..."""
    return _CHOICE.search(text) is not None
