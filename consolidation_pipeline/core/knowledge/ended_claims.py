"""Ended claims: sentences that tell what is no longer so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from consolidation_pipeline.core.differences.language import split_words
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import VALUE_KINDS, Token
from consolidation_pipeline.core.knowledge.change_words import Change
from consolidation_pipeline.core.knowledge.claim_holders import find_holders
from consolidation_pipeline.core.knowledge.claim_slots import (
    FAULTS,
    STATE_VERBS,
    are_apart,
    fill_one_slot,
    finds_fault,
    is_date,
    is_one_slot,
)
from consolidation_pipeline.core.knowledge.claim_subjects import (
    changes_other_thing,
    find_denied_clauses,
    has_token,
    list_poles,
    names_case,
    names_other_owner,
    turn_order,
)
from consolidation_pipeline.core.knowledge.claims import ADVERBS, Claim
from consolidation_pipeline.core.knowledge.gone_claims import is_dropped_for, may_be_gone, says
from consolidation_pipeline.core.knowledge.named_things import is_name
from consolidation_pipeline.core.knowledge.rival_claims import compare_sentences

# Forms of changes that name what is no longer so.
_NAMING = ("from", "contrast", "gone", "ended")
# Share of the words of a clause such as "no longer runs on X" that the older sentence must have.
_SAME_CLAIM = 0.6
# An older sentence with at most this many other words is about what was replaced, whatever else the newer one says.
_FEW_WORDS = 3
# Texts of this length, such as "5" and "de", tell no two things apart.
_SHORT = 2
# What joins two clauses of a sentence.
_JOINS = re.compile(r";\s|,?\s(?:and|but|und|aber|y|e|pero|et|mais)\s")
# How words of change end behind which stands what is, and what says so instead of them.
_TO, _IS = (" to", "到", "至", "为", "了"), {"en": " is", "zh": "是"}
# A word of this length, such as "to" or "mehr", tells of no event.
_PARTICLE_LENGTH = 4


def ends_any(before: Claim, after: Claim) -> bool:
    """Return True if one of the changes that ``after`` tells is one of what ``before`` says.

    Words such as "since May" tell no more where others name what is no longer so.
    """
    return any(not _leaves_other(before, after, one) and _ends(before, after, one) for one in _list_telling(after))


def ends_one_of_two(before: Claim, after: Claim) -> bool:
    """Return True if one of the changes that ``after`` tells is one of what ``before`` says of two things.

    "Leo drives bus 1 and bus 2": "Leo no longer drives bus 2".
    """
    return any(_leaves_other(before, after, one) and _ends(before, after, one) for one in _list_telling(after))


def _list_telling(after: Claim) -> list[Change]:
    naming = [change for change in after.changes if change.form in _NAMING]
    return naming or [change for change in after.changes if change.form == "now"]


def _leaves_other(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if ``before`` joins with "and" what ``after`` says has changed to what ``after`` does not name."""
    joined = [pair for pair in pairwise(before.tokens) if pair[1].gap == "and"]
    if change.form not in ("ended", "from"):
        # "Our cache is A and the queue is B" joins two clauses.
        joined = [pair for pair in joined if change.form == "gone" and all(map(is_name, pair))]
    phrases = {token.phrase: [one for one in before.tokens if one.phrase == token.phrase] for token in before.tokens}
    return any(
        has_token(after, one) != all(has_token(after, token) for token in phrases[two.phrase]) for one, two in joined
    )


def ends_first_clause(before: Claim, after: Claim) -> bool:
    """Return True if one of the changes that ``after`` tells is one of what the first clause of ``before`` says.

    "Ann lives in Lund and works at night": "Ann moved to Rome".
    """
    first, *rest = _JOINS.split(before.text, maxsplit=1)
    return bool(rest) and ends_any(Claim.of(first, before.language), after)


def ends_part(before: Claim, after: Claim) -> bool:
    """Return True if one of the changes that ``after`` tells is one of what ``before`` says in one clause."""
    return before.is_state and any(
        change.form in ("from", "contrast")
        and (len(former := after.inside(change.was)) == 1 or any(token.kind in VALUE_KINDS for token in former))
        and _names_former(before, after, change, in_clause=True)
        for change in after.changes
    )


def names_former_value(before: Claim, after: Claim) -> bool:
    """Return True if ``before``, in another language, has a value that ``after`` names as former, and a name of it."""
    own = {token.text.lower() for token in before.tokens}
    for change in after.changes:
        former = after.inside(change.was) if change.form == "from" and change.now else []
        if any(has_token(before, token) for token in after.inside(change.now)):
            continue
        if not former or not all(
            t.kind in VALUE_KINDS and len(t.text) > _SHORT and has_token(before, t) for t in former
        ):
            continue
        told = {token.start for token in after.inside(change.cue, change.was, change.now)}
        rest = {t.text.lower() for t in after.tokens if t.start not in told and len(t.text) > _SHORT}
        if not rest.isdisjoint(own - {token.text.lower() for token in former}):
            return True
    return False


def _ends(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if a change that ``after`` tells is one of what ``before`` says."""
    if change.form not in ("from", "gone") and not before.is_state:
        return False
    if change.was:
        return _names_former(before, after, change)
    if change.form == "ended":
        return _ends_claim(before, after, change)
    return _states_present(before, after, change)


def _names_former(before: Claim, after: Claim, change: Change, *, in_clause: bool = False) -> bool:
    """Return True if ``before`` says, of the thing that changed, what ``after`` names as former.

    Args:
        in_clause: What ``before`` says in other clauses does not count.
    """
    former, present = after.inside(change.was), after.inside(change.now)
    if names_case(before, after, change) or is_dropped_for(after, change):
        return False
    # "Took over the wiki from Ann" ends nothing else that Ann does.
    if changes_other_thing(before, after, change) or names_other_owner(before, after, former):
        return False
    if change.form == "gone":
        # "Old rows were deleted" may tell what happened once. A name may open the one sentence and not the other.
        texts = {token.text.lower() for token in former}
        names = {token.text.lower() for token in (*former, *before.tokens) if token.kind in VALUE_KINDS}
        if not may_be_gone(before, after, change) or texts.isdisjoint(names):
            return False
        if not all(token.key in before.keys or token.text.lower() in names for token in former):
            return False
    if change.form == "contrast":
        # "By the id of the event, not by the id of the delivery" is a contrast of event and delivery.
        inside = {token.start for token in former}
        kept = {token.key for token in after.tokens if token.start not in inside}
        former = [token for token in former if token.key not in kept]
    is_denied = _denies(before, former) if in_clause else before.is_denied
    if is_denied or not former or not says(before, former):
        return False
    if any(change.was and says(before, former, at=change.was) for change in before.changes):
        return False  # it tells the same change
    new = {token.key for token in present} - {token.key for token in former}
    if new and new <= before.keys:
        return False
    told = {token.start for token in (*former, *present)} | {token.start for token in after.inside(change.cue)[:1]}
    topic = [token for token in after.tokens if token.start not in told]
    # A name may open the one sentence and not the other.
    keys = {one.key for one in former}
    named = {one.text.lower() for one in former if one.key not in before.keys}
    rest = [t for t in before.tokens if t.key not in keys and named.isdisjoint((t.text.lower(), t.text.split(" ")[0]))]
    # "My note is wrong" is no fault of what it tells.
    cues = {word for other in after.changes if other.form == "now" for word in split_words(after.quote(other.cue))}
    if in_clause:
        clauses = {token.clause for token in before.tokens if token not in rest}
        rest = [token for token in rest if token.clause in clauses]
    if change.form == "contrast" and finds_fault(after, FAULTS - cues):
        return False
    # "Logs now go to B instead of A" tells a change, "log to B instead of A" may be a rule.
    is_now = any(other.form == "now" and (in_clause or after.quote(other.cue) in ADVERBS) for other in after.changes)
    is_told = change.form != "contrast" or (is_now and not _open_apart(before, after))
    if not is_told and not _is_same_frame(before, after, topic, rest):
        return False
    # "Ann likes tea", "Ben took over the tea from Ann"
    takes_over = change.now is not None and change.now < change.cue
    if takes_over and not in_clause and _tells_what_does(before, rest) and not find_holders(before):
        return False
    if not {token.key for token in topic}.isdisjoint(token.key for token in rest):
        # "Moved from A to B, folder C": where it is in B.
        is_whole = len({token.clause for token in before.tokens}) == 1 and change.form == "from"
        end = change.now[1] if is_whole and change.now and change.now > change.cue else len(after.text)
        return _is_same_topic(before, after, [t for t in topic if t.start < end or not is_name(t)], rest)
    # "The job queue moved off Redis" has a subject of its own.
    subject = [token for token in topic if token.start < change.cue[0] and token.key not in STATE_VERBS]
    is_doer = change.form == "from" and _tells_what_does(before, rest)
    return len(rest) <= _FEW_WORDS and not is_doer and not any(token.kind != "value" for token in subject)


def _tells_what_does(before: Claim, rest: Sequence[Token]) -> bool:
    """Return True if ``before`` opens with a doer and a verb: "Ann likes tea". ``rest``: what was not replaced."""
    return bool(rest) and rest[0] != before.tokens[0] and rest[0].gap == "tight"


def _denies(before: Claim, former: Sequence[Token]) -> bool:
    """Return True if ``before`` has a negation, and no clause without one that has the values and names of former."""
    if not before.is_denied:
        return False
    values = {token.text.lower() for token in former if token.kind in VALUE_KINDS}
    plain = {token.clause for token in before.tokens} - find_denied_clauses(before)
    said = ({token.text.lower() for token in before.tokens if token.clause == clause} for clause in plain)
    return not values or not any(values <= words for words in said)


def _is_same_frame(before: Claim, after: Claim, topic: Sequence[Token], rest: Sequence[Token]) -> bool:
    """Return True if ``after`` says all that ``before`` does beside what was replaced, and few words more.

    Values are not counted: the date of the change, and what took the place of the former one.
    """
    missing = sum(token.key not in after.keys for token in rest)
    added = sum(token.key not in before.keys and token.kind != "value" for token in topic)
    return len(rest) > 0 and missing <= (len(rest) + 1) // 4 and added <= _FEW_WORDS


def _open_apart(before: Claim, after: Claim) -> bool:
    """Return True if each of two sentences opens with a word that the other lacks: "wiki pages", "invoices"."""
    cues = after.inside(*(change.cue for change in after.changes))
    subject = [token for token in after.tokens if token not in cues and token.key not in STATE_VERBS]
    return bool(subject) and not has_token(before, subject[0]) and not has_token(after, before.tokens[0])


def _is_same_topic(before: Claim, after: Claim, topic: Sequence[Token], rest: Sequence[Token]) -> bool:
    """Return True if what two sentences say beside the change, with words in common, is about one thing."""
    shared = {token.key for token in topic} & {token.key for token in rest}
    return 4 * len(shared) >= len(rest) and not are_apart(before, after, topic, rest)


def _ends_claim(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if ``before`` says what ``after`` says is no longer so."""
    if before.is_denied:
        return False
    cue = {token.start for token in after.inside(change.cue)}
    text = after.reading.text
    # "The job was cancelled" tells again what "after the job was cancelled" does.
    last = after.quote(change.cue).split()[-1]
    if len(last) > _PARTICLE_LENGTH and last in before.words:
        return False
    end = min((at for sign in ",;；，、" if (at := text.find(sign, change.cue[1])) > 0), default=len(text))
    topic = [token for token in after.tokens if token.start not in cue and token.start < end]
    shared = [token for token in topic if token.key in before.keys]
    if not shared or len(shared) < min(2, len(before.tokens)) or len(shared) < _SAME_CLAIM * len(topic):
        return False
    # It says little else in these clauses: "a working site" is not "the text says that a working site is expected".
    keys, ended = {token.key for token in shared}, {token.key for token in after.inside(change.cue)}
    clauses = {token.clause for token in before.tokens if token.key in keys}
    if 2 * len(keys) < sum(token.clause in clauses and token.key not in ended for token in before.tokens):
        return False
    # "Since 3 March": the date of the change, unless the older sentence is on a date too.
    values = [token for token in topic if token.kind in ("value", "code") and token.key not in before.keys]
    if any(map(is_date, values)) and any(map(is_date, before.tokens)):
        return False
    if names_case(before, after, change):
        return False
    # "In B and no longer in A": the value before the change words takes the place of the one behind them.
    new = [value for value in values if not is_date(value)]
    former = [t for t in topic if t.start > change.cue[0] and t.kind in VALUE_KINDS and t.key in before.keys]
    if len(new) > len(former) or any(value.start > change.cue[0] for value in new):
        return False
    if _has_other_subject(before, after, change.cue[0]):
        return False
    # "Takes the minutes", "no longer takes sugar"
    told = [token for token in topic if token.start > change.cue[0] and token.gap != "link" and token.kind != "value"]
    told = [token for token in told if not load_language(after.language).is_light(token.text.lower())]  # "at all"
    if len(told) > 1 and not has_token(before, told[-1]) and len(before.tokens) > len(told):
        return False
    return not are_apart(before, after, topic, before.tokens)


def _has_other_subject(before: Claim, after: Claim, end: int) -> bool:
    """Return True if a noun phrase before the change words has a word that ``before`` lacks: "the user's sister".

    So too if it lacks a word of the one of ``before``: "the sales team no longer", "the sales team lead".
    """
    subject = [token for token in after.tokens if token.start < end]
    phrases = {token.phrase for token in subject if token.key in before.keys}
    if any(token.key not in before.keys and (token.phrase in phrases or token.gap in ("s", "of")) for token in subject):
        return True
    same, rest = before.tokens[: len(subject)], before.tokens[len(subject) :]
    if not subject or len(rest) < 2 or rest[0].kind != "word" or rest[0].gap != "tight":
        return False
    return [token.key for token in (*same, rest[1])] == [token.key for token in after.tokens[: len(subject) + 1]]


def _states_present(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if ``after`` without its change words says something else of the same thing than ``before``."""
    if after.is_addition:
        return False
    # What was changed to 2 before is 3 now.
    own = next((one for one in before.changes if one.form in ("now", "present") and _leads_to(before, one)), None)
    before = _leave_out_words(before, own) if own else before
    after = _leave_out_day(before, after, change)
    stripped = _leave_out_words(after, change)
    # "Allowed on Sundays now": on other days it is as before.
    cases = {token.key for token in stripped.tokens if token.key.startswith("days-")}
    if before.is_ban != stripped.is_ban and not cases <= before.keys:
        return False
    if sorted(token.key for token in before.tokens) == sorted(token.key for token in stripped.tokens):
        days = [list_poles(claim, "weekday") for claim in (before, stripped)]
        is_other = before.is_denied != stripped.is_denied or (all(days) and days[0] != days[1])
        return is_other or turn_order(before, stripped)
    comparison = compare_sentences(before.reading, stripped.reading)
    if comparison is not None and comparison.relation != "elsewhere":
        if comparison.relation == "agrees" or not is_one_slot(before, stripped, comparison):
            return False
        # Sentences on "production" and on "staging" may have nothing else in common.
        return comparison.relation != "apart" or fill_one_slot(before, after, change.cue)
    return fill_one_slot(before, after, change.cue)


def _leads_to(claim: Claim, change: Change) -> bool:
    """Return True for words such as "went up to" and "was raised:", behind which stands what is."""
    cue = claim.quote(change.cue)
    return cue.endswith(_TO) or (cue.endswith(":") and change.cue[0] > 0)


def _leave_out_words(claim: Claim, change: Change) -> Claim:
    """Return a claim without the words of a change: what "went up to 5" is 5."""
    verb = _IS.get(claim.language, "") if _leads_to(claim, change) else ""
    bare = f"{claim.text[: change.cue[0]]}{verb} {claim.text[change.cue[1] :]}".strip(" ,:，、")
    return Claim.of(" ".join(bare.split()), claim.language)


def _leave_out_day(before: Claim, after: Claim, change: Change) -> Claim:
    """Return ``after`` without the day of the change, if it is last: "was upgraded to 5 on 3 May"."""
    if len(after.tokens) < 2 or any(map(is_date, before.tokens)):
        return after
    one, last = after.tokens[-2:]
    # "Was upgraded to Redis 7" says nothing of Django.
    is_named = one.gap == "tight" and not has_token(before, after.tokens[-3:][0])
    is_day = is_date(last) and last.gap == "link" and last.governor != "to"
    if is_named or not is_day or one.kind != "value" or one.start < change.cue[1]:
        return after
    return Claim.of(after.text[: one.start + len(one.text)], after.language)
