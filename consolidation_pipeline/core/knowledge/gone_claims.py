"""Gone claims: sentences that tell what is gone, who left, and what is no longer necessary."""

from __future__ import annotations

from collections.abc import Sequence

from consolidation_pipeline.core.differences.language import split_words
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import VALUE_KINDS, Token
from consolidation_pipeline.core.knowledge.change_words import Change, Span, find_fillers
from consolidation_pipeline.core.knowledge.claim_holders import find_holders, list_role_words
from consolidation_pipeline.core.knowledge.claim_slots import STATE_VERBS, is_date
from consolidation_pipeline.core.knowledge.claim_subjects import has_token, names_case
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.named_things import is_name
from consolidation_pipeline.core.knowledge.told_words import PLAIN_VERBS

# Ends of words of change behind which something is left, but not gone.
_FROM = ("from", "von", "vom", "aus", " de", " del", " desde", " du", "从", "由", "から")
# Least number of words in common with a sentence by which something is no longer necessary, beside what it is.
_SHARED = 3


def uses_gone(before: Claim, after: Claim) -> bool:
    """Return True if ``before`` speaks of what ``after`` says is gone, whatever else it says."""
    return any(
        (change.form == "gone" or _is_all_told(after, change))
        and may_be_gone(before, after, change)
        and not names_case(before, after, change)
        and _speaks_of(before, after, after.inside(change.was))
        and _is_said(before, after, change)
        and not before.is_reported
        for change in after.changes
    )


def _speaks_of(before: Claim, after: Claim, gone: Sequence[Token]) -> bool:
    """Return True if ``before`` has the words of what is gone, without "old" and the like if it is named."""
    words = {token.key for token in gone}
    fillers = {token.key for token in after.inside(*find_fillers(after.text, after.language, of_name=True))}
    named = {token.key for token in gone if token.kind in VALUE_KINDS} - fillers
    return (words - fillers if named else words) <= before.keys


def _is_said(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if ``before`` has who does away with something: "the plugin dropped support for X"."""
    if change.was and change.was < change.cue:
        return True  # "X was dropped"
    clauses = {token.clause for token in after.inside(change.cue, change.was)}
    ahead = [token for token in after.tokens if token.start < change.cue[0] and token.clause in clauses]
    return all(has_token(before, token) for token in ahead if token not in after.inside(change.was, change.now))


def _is_all_told(after: Claim, change: Change) -> bool:
    """Return True for "X was replaced by Y", without another word of where."""
    if change.form != "from" or change.was is None or change.now is None or is_dropped_for(after, change):
        return False
    if after.quote(change.cue).endswith(_FROM):
        return False  # "I moved from Oslo to Bergen"
    cue = after.inside(change.cue)
    spans = change.cue, change.was, change.now
    return bool(cue) and all(t in after.inside(*spans) for t in after.tokens if t.clause == cue[0].clause)


def may_be_gone(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if what is gone is named, and ``before``, which does not say so too, may have spoken of it."""
    verbs = {token.key for token in after.inside(change.cue)} - STATE_VERBS
    gone = after.inside(change.was)
    if any(one.form in ("gone", "from") and one.was and says(before, gone, at=one.was) for one in before.changes):
        return False
    return (
        before.is_state
        and not before.is_denied
        and _is_named(after, after.inside(change.was))
        and verbs.isdisjoint(before.keys)
    )


def _is_named(claim: Claim, words: Sequence[Token]) -> bool:
    """Return True if words tell which thing is meant: a name or several words, or a word without "the" or "a"."""
    if len(words) != 1 or words[0].kind in VALUE_KINDS:
        return bool(words)
    before = split_words(claim.reading.text[: words[0].start])[-1:]
    return load_language(claim.language).determiners.isdisjoint(before)


def says(claim: Claim, former: Sequence[Token], at: Span | None = None) -> bool:
    """Return True if a claim has the values and names among ``former``, or else two thirds of the words."""
    tokens = claim.inside(at) if at else claim.tokens
    keys, texts = {token.key for token in tokens}, {token.text.lower() for token in tokens}
    # "From 300 to 60 seconds" has the unit of both behind the second one.
    numbers = {token.text.partition(" ")[0] for token in tokens if token.key.startswith("number:")}

    def has(token: Token) -> bool:
        return token.key in keys or token.text.lower() in texts or token.text in numbers

    literal = [token for token in former if token.kind in VALUE_KINDS]
    if literal:
        return all(map(has, literal))
    # Tokens of these languages are characters.
    share = 1 if claim.language in ("zh", "ja") else 2 / 3
    return sum(map(has, former)) >= share * len(former)


def is_dropped_for(after: Claim, change: Change) -> bool:
    """Return True for "dropped support for X", unless "for" joins two names: "dropped log4j for slf4j"."""
    if change.was is None or change.now is None or after.text[change.was[1] : change.now[0]].strip() != "for":
        return False
    return not all(any(t.kind in VALUE_KINDS for t in after.inside(span)) for span in (change.was, change.now))


def gives_up_part(before: Claim, after: Claim) -> bool:
    """Return True if ``after`` says that somebody left who has a part by ``before``."""
    if not before.is_state or before.is_denied:
        return False
    texts = [{token.text.lower() for token in holder} for holder in find_holders(before)]
    return any(
        (leaver := {token.text.lower() for token in after.inside(change.was)})
        and any(leaver <= holder for holder in texts)
        and _says_any(before, after.inside(change.what))
        and not _gives_up_another(before, after, change)
        for change in after.changes
        if change.form == "left"
    )


def _gives_up_another(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if ``after`` tells who has a part by now that ``before`` does not name: "Ann runs the bar, Ben left".

    It may be in the words of ``before`` but for one: "runs the shop in Rome", "in Pisa".
    """
    told = {token.clause for token in after.inside(change.cue, change.was)}
    roles = [token for token in list_role_words(after) if token.clause not in told]
    clauses = {token.clause for token in roles}
    holders = {token for holder in find_holders(after) for token in holder}
    cues = after.inside(*(one.cue for one in after.changes))
    parts = [t for t in after.tokens if t.clause in clauses and t not in (*roles, *holders, *cues)]
    return bool(parts) and not all(has_token(before, token) or is_date(token) for token in parts)


def _says_any(claim: Claim, words: Sequence[Token]) -> bool:
    return not words or any(has_token(claim, token) for token in words)


def frees_from(before: Claim, after: Claim) -> bool:
    """Return True if ``after`` says that what ``before`` asks for is no longer necessary."""
    if before.is_denied:
        return False
    return any(change.form == "needless" and _frees(before, after, change) for change in after.changes)


def lifts_ban(before: Claim, after: Claim) -> bool:
    """Return True if ``after`` says that what ``before`` forbids is allowed again."""
    if not before.is_ban or not before.is_state:
        return False
    return any(
        (words := after.inside(change.was))
        and all(has_token(before, token) or _is_quoted(before, token) for token in words)
        and not names_case(before, after, change)
        for change in after.changes
        if change.form == "allowed"
    )


def comes_back(before: Claim, after: Claim) -> bool:
    """Return True if ``after`` says that somebody came back who left by ``before``."""
    left = [{token.text.lower() for token in before.inside(one.was)} for one in before.changes if one.form == "left"]
    return any(
        (person := {token.text.lower() for token in after.inside(change.was)}) and any(person == one for one in left)
        for change in after.changes
        if change.form == "back"
    )


def _is_quoted(claim: Claim, token: Token) -> bool:
    """Return True if an identifier stands inside a longer one of a sentence: "`build --all`"."""
    text = token.text.strip("`").lower()
    quoted = claim.text.lower().split("`")[1::2]
    return token.kind in VALUE_KINDS and any(text in words.split() for words in quoted)


def _frees(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if ``before`` has most of the words of ``after``, and all or none of what is no longer necessary."""
    cue = after.inside(change.cue)
    told = [t for t in after.tokens if t not in cue and t.key not in PLAIN_VERBS and (t.kind != "value" or is_name(t))]
    near = [token for token in told if token.start < change.cue[0]][-1:]
    needless = {has_token(before, token) for token in told if near and token.clause == near[0].clause}
    shared = {token.key for token in told if has_token(before, token)}
    least = _SHARED if len(needless) > 1 else 2
    return len(shared) >= least and 2 * len(shared) >= len({token.key for token in told})
