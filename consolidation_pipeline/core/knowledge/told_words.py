"""Told words: what a later sentence tells of by now, in the clause of its words of change or beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import Token
from consolidation_pipeline.core.knowledge.change_words import Change, Span
from consolidation_pipeline.core.knowledge.claim_holders import list_role_words
from consolidation_pipeline.core.knowledge.claim_slots import is_date
from consolidation_pipeline.core.knowledge.claim_subjects import CIRCUMSTANCES
from consolidation_pipeline.core.knowledge.claims import Claim

# Verbs of any state: another one may stand in the older sentence.
PLAIN_VERBS = frozenset(("do with", *"be do have keep use verwend usar utilis".split()))
# Ends of words of change that name what is so now: "moved to".
_BEFORE_NEW = frozenset("to auf zum zur a al à au aux".split())
# Forms of changes that tell what is so.
_PRESENT = ("now", "present")
# Governors of when and why something changed.
_CIRCUMSTANCES = CIRCUMSTANCES - {"until", "time"}
_STOPS = tuple(",;:.!，。；、！")


class Told(NamedTuple):
    """Words that tell what is so by now, without plain verbs, and without when or why it is so.

    Attributes:
        new: Those that name where something moved: "moved to X".
        gone: What or who is no more by the same sentence; empty if words such as "now" tell it.
    """

    words: Sequence[Token]
    new: Sequence[Token] = ()
    gone: Sequence[Token] = ()


def list_told(before: Claim, after: Claim) -> Iterator[Told]:
    """Yield the words of each clause of ``after`` that tells what is so by now."""
    ended = {token.start for change in after.changes if change.form != "back" for token in after.inside(change.was)}
    for change in after.changes:
        if change.form in _PRESENT:
            told = _read_clause(before, after, change.cue)
            # "It is closed since May" tells of no new state.
            if ended.isdisjoint(token.start for token in told.words):
                yield told
        elif change.form in ("gone", "left") and change.was:
            yield from _read_others(after, change)


def _read_clause(before: Claim, after: Claim, cue: Span) -> Told:
    """Return the words of the clause of words of change, and those of the clause before if it has none of its own.

    New words of another conjunct do not count: "was rewritten and now takes 5 minutes".
    """
    ahead = [token for token in after.tokens if token.start < cue[0]]
    behind = [token for token in after.tokens if token.start >= cue[1]]
    if not ahead and not behind:
        return Told([])
    is_last = not behind or after.text[cue[1] :].lstrip().startswith(_STOPS)
    near = ahead[-1] if ahead and is_last else behind[0]
    begin = near.clause
    opening = [token for token in after.tokens if token.clause == near.clause - 1]
    # "On tablets, the cache now holds 500"
    is_case = all(token.governor not in ("", "to") for token in opening)
    # "The code is longer; it is now 5"
    if opening and (is_case or not _has_subject(before, after, near.clause, cue)):
        begin -= 1
    words = _select(after, [token for token in after.tokens if begin <= token.clause <= near.clause], cue)
    said = before.keys
    others = [token for token in words if token.clause == near.clause and token.conjunct != near.conjunct]
    if others and others[0].key in said:
        dropped = {token for token in others if token.key not in said}
        words = [token for token in words if token not in dropped]
    behind = [token for token in words if token.start >= cue[1]]
    is_next = not _BEFORE_NEW.isdisjoint(after.quote(cue).split()[-1:]) or after.quote(cue).endswith(("到", "为"))
    # "We moved the app to X"
    new = behind if is_next else [token for token in behind if token.governor == "to" and token.gap == "link"]
    place = [token for token in behind if new and token.phrase == new[0].phrase]
    return Told(words, place if len(place) == 1 or all(token.kind != "value" for token in place) else [])


def _has_subject(before: Claim, after: Claim, clause: int, cue: Span) -> bool:
    """Return True if a clause has a word of ``before``."""
    words = _select(after, [token for token in after.tokens if token.clause == clause], cue)
    return any(token.key in before.keys for token in words)


def _read_others(after: Claim, change: Change) -> Iterator[Told]:
    """Yield the words of the clauses beside the one that tells what is gone: "Ann left, Ben feeds the fish"."""
    gone = after.inside(change.was)
    own = {token.clause for token in (*gone, *after.inside(change.cue))}
    for clause in sorted({token.clause for token in after.tokens} - own):
        yield Told(_select(after, [t for t in after.tokens if t.clause == clause], change.cue), (), gone)


def _select(after: Claim, words: Sequence[Token], cue: Span) -> list[Token]:
    """Return words without those of change, roles, plain verbs, fillers, and when or why something is so."""
    adverbs, times = load_language(after.language).time_adverbs, load_language(after.language).times
    dropped = {token.start for token in (*list_role_words(after), *after.inside(*(one.cue for one in after.changes)))}
    # "Since 24 August it listens": "it listens" is of the phrase that the words of change open.
    opened = {token.phrase for token in after.inside(cue)}
    return [
        token
        for token in words
        if token.start not in dropped
        and token.key not in PLAIN_VERBS | after.fillers
        and token.text.lower() not in adverbs
        and (token.governor not in _CIRCUMSTANCES or token.phrase in opened or _follows_number(token))
        and not (token.governor == "time" and (token.key in times or is_date(token)))
    ]


def _follows_number(token: Token) -> bool:
    """Return True for a number behind "after", which is no date: "after 5 attempts"."""
    return token.governor == "after" and token.kind == "value" and not is_date(token)
