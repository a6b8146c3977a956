"""Subjects of claims: may two sentences be about one thing, or are they of two owners, two cases, or two doers?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from consolidation_pipeline.core.differences.language import split_words
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import Token
from consolidation_pipeline.core.knowledge.change_words import Change, find_fillers
from consolidation_pipeline.core.knowledge.claim_slots import is_date
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.lesson_sentences import find_past
from consolidation_pipeline.core.knowledge.named_things import is_name

# Governors, and poles of bounds, that divide all cases in two.
_DIVIDING = frozenset(map(frozenset, (("above", "below"), ("if", "unless"), ("least", "most"))))
_ORDER = frozenset(("before", "after"))
# Poles of markers before a case that a rule is for.
_CONDITIONS = frozenset(("if", "unless", "during"))
_HOURS = frozenset(("from", "to", "until"))
_CLOCK = re.compile(r"date:\d\d:\d\d|number:\d+(?:\.\d+)? h$")
# Governors of phrases that tell when or why something changed, or what came instead, and not in which case.
CIRCUMSTANCES = frozenset(("because", "after", "once", "result", "although", "instead", "until", "time"))
# Words behind "for" that name no case.
_NO_CASES = frozenset(("good", "ever"))
# Possessives of a person: "my sister", as against "our importer".
_POSSESSIVES = frozenset(
    "my your his her their mein meine dein deine sein seine ihr ihre mi tu su mon ma ton ta son sa".split()
)
# Prepositions before what a thing is for.
_FOR = frozenset("for für pour para".split())
# German words that join a thing to its owner, as "of" does.
_OF = ("von", "vom")


def have_other_owners(before: Claim, after: Claim) -> bool:
    """Return True if one sentence is about something that the owner has, and the other about the owner.

    So too if ``after`` names an owner that ``before`` does not: "the backup", "the backup of the wiki". An owner that
    the later sentence leaves out may be meant.
    """
    parts = _list_parts_of_former(before, after)
    own = [] if _tells_former(before, after) else [pair for pair in _pair_owners(before) if pair[1] not in parts]
    other = list(_pair_owners(after))
    for pairs, others, claim in ((own, other, after), (other, own, before)):
        owners = {owner.text.lower() for owner, _ in others}
        if any(
            has_token(claim, owner) and not has_token(claim, part) and owner.text.lower() not in owners
            for owner, part in pairs
        ):
            return True
    if any(has_token(before, part) and not has_token(before, owner) for owner, part in other):
        return True
    # "Leo's boss's sister", "Leo's sister's boss"
    keys = [sorted((owner.key, part.key) for owner, part in pairs) for pairs in (own, other)]
    return bool(own and other) and keys[0] != keys[1] and before.keys == after.keys


def _tells_former(before: Claim, after: Claim) -> bool:
    """Return True if ``before`` says what something is, and ``after`` that it was: "my phone is X", "I left X"."""
    copulas = load_language(before.language).copulas
    former = [token for change in after.changes for token in after.inside(change.was)]
    told = {token.key for token in former} | {token.text.lower() for token in former}
    return any(
        not told.isdisjoint((two.key, two.text.lower()))
        and (two.gap == "loose" or two.kind == "value")
        and not copulas.isdisjoint(split_words(before.text[one.start + len(one.text) : two.start]))
        for one, two in pairwise(before.tokens)
    )


def _list_parts_of_former(before: Claim, after: Claim) -> list[Token]:
    """Return "owner" of "Ann is the owner of the wiki", if ``after`` says that the wiki is no longer Ann's."""
    copulas = load_language(before.language).copulas
    changed = [change for change in after.changes if list_changed(after, change)]
    former = {token.text.lower() for change in changed for token in after.inside(change.was)}
    return [
        two
        for one, two in pairwise(before.tokens)
        if one.text.lower() in former
        and not copulas.isdisjoint(split_words(before.text[one.start + len(one.text) : two.start]))
    ]


def has_token(claim: Claim, token: Token) -> bool:
    """Return True if a claim has the word of a token. A name that opens a sentence has the key of a word."""
    return token.key in claim.keys or any(token.text.lower() == one.text.lower() for one in claim.tokens)


def _pair_owners(claim: Claim) -> Iterator[tuple[Token, Token]]:
    """Yield the owners of a sentence with what they have, outside of what its change words name."""
    told = {t.start for change in claim.changes for t in claim.inside(change.cue, change.was, change.now)}
    for at, (one, two) in enumerate(pairwise(claim.tokens)):
        if not told.isdisjoint((one.start, two.start)) or "value" in (one.kind, two.kind) or one.clause != two.clause:
            continue
        if _is_owner(claim, one, two):
            yield one, two
        elif (two.gap == "of" or _quote_between(claim, one, two) in _OF) and _opens_phrase(claim, one):
            # "The sister of Leo's boss" is not Leo's.
            last = claim.tokens[at + 2 : at + 3]
            yield (last[0] if last and _is_owner(claim, two, last[0]) else two), one


def names_other_owner(before: Claim, after: Claim, words: Sequence[Token]) -> bool:
    """Return True if words of ``after`` name an owner that ``before`` does not: "the shop's cache"."""
    owners = (one if _is_owner(after, one, two) else two if two.gap == "of" else None for one, two in pairwise(words))
    return any(owner and owner.kind != "value" and not has_token(before, owner) for owner in owners)


def _is_owner(claim: Claim, one: Token, two: Token) -> bool:
    """Return True for "Leo's boss", "Luis' wife" and the German "Svens Schwester"."""
    if two.gap == "s" or _quote_between(claim, one, two) in ("'", "’"):
        return True
    are_nouns = claim.language == "de" and one.text[:1].isupper() and two.text[:1].isupper()
    return are_nouns and two.gap == "tight" and one.text.endswith("s")


def _quote_between(claim: Claim, one: Token, two: Token) -> str:
    return claim.text[one.start + len(one.text) : two.start].strip()


def _opens_phrase(claim: Claim, noun: Token) -> bool:
    """Return True if the phrase of a noun opens the sentence or has an article, unlike that of "took charge of"."""
    first = next(token for token in claim.tokens if token.phrase == noun.phrase)
    before = split_words(claim.text[: first.start])[-1:]
    return not before or not load_language(claim.language).determiners.isdisjoint(before)


def hold_side_by_side(before: Claim, after: Claim) -> bool:
    """Return True if what differs in two sentences lets both hold.

    They may divide the cases: "under 5 hours", "over 5 hours"; "until 6 on Mondays", "until 2 on Fridays". Of two
    reversals, one undoes the other: "closed", "not open".
    """
    if tell_hours_of_other_days(before, after) or order_other_things(before, after):
        return True
    old, new = ({t.key: t.governor for t in claim.tokens if t.gap == "link"} for claim in (before, after))
    turned = {frozenset((old[key], new[key])) for key in old.keys() & new.keys()}
    bounds = (frozenset(cue.pole for cue in claim.reading.cues if cue.category == "bound") for claim in (before, after))
    if not _DIVIDING.isdisjoint((*turned, frozenset.symmetric_difference(*bounds))):
        return True
    opposites = load_language(after.language).opposites
    gone = before.keys - after.keys
    is_reversed = _ORDER in turned or any(opposites.get(key, frozenset()) & gone for key in after.keys - before.keys)
    return is_reversed and before.is_denied != after.is_denied


def tells_narrower_case(before: Claim, after: Claim) -> bool:
    """Return True if ``after`` tells of some of the things, or of a case, that ``before`` tells of without it.

    "Wigs are washed at 30 °C", "synthetic wigs are washed cold, not at 30 °C"; "the gate closes at 8", "now closes at
    10 if there is a concert". The rest may be as it was.
    """
    return _has_new_condition(before, after) or _names_narrower_subject(before, after)


def _has_new_condition(before: Claim, after: Claim) -> bool:
    """Return True if only ``after`` has a condition, and not of what takes the place of something that is gone."""
    is_gone = any(change.form == "gone" for change in after.changes)
    new = list_poles(after, "marker") - list_poles(before, "marker")
    return not is_gone and not _CONDITIONS.isdisjoint(new)


def _names_narrower_subject(before: Claim, after: Claim) -> bool:
    """Return True if a thing has a word more in ``after``: "(wash) synthetic wigs", "Kunsthaarperücken"."""
    told = after.inside(*(span for change in after.changes for span in (change.cue, change.was, change.now)))
    things = [t for t in before.tokens if t is before.tokens[0] or (t.gap != "link" and _opens_noun(before, t))]
    keys, texts = {token.key for token in things}, {token.text.lower() for token in things}
    first = after.tokens[0].text.lower()
    if after.language == "de" and first not in texts and first.endswith(tuple(texts)):
        return True
    step = 1 if after.language in ("es", "fr") else -1
    for at, thing in enumerate(after.tokens):
        if thing.key not in keys and thing.text.lower() not in texts:
            continue
        for one in after.tokens[at + step : at + step + 1] if at + step >= 0 else []:
            ends = sorted((one, thing), key=lambda token: token.start)
            is_beside = one.phrase == thing.phrase and not _quote_between(after, *ends)
            is_new = one.key not in after.fillers and one not in told and not has_token(before, one)
            if one.kind == "word" and is_beside and is_new:
                return True
    return False


def have_other_kinds(before: Claim, after: Claim) -> bool:
    """Return True if a thing is of another kind in each of two sentences, and something else differs too.

    "Our supplier for gloves is A", "we switched the mask supplier from A to B".
    """
    kinds, others = _list_kinds(before), _list_kinds(after)
    own, other = set[str](), set[str]()
    for thing in kinds.keys() & others.keys():
        mine, yours = _list_missing(kinds[thing], after), _list_missing(others[thing], before)
        if mine and yours:
            own |= mine
            other |= yours
    if not own:
        return False
    former = {t.start for change in after.changes for t in after.inside(change.was, change.cue)}
    said = {token.key for token in after.tokens if token.start not in former}
    changed = before.keys - said - own, said - before.keys - other
    return all(changed)


def _list_missing(keys: set[str], claim: Claim) -> set[str]:
    """Return the words that a sentence lacks, and of which it has none that may stand for them."""
    replaces = load_language(claim.language).may_replace
    return {key for key in keys if key not in claim.keys and not any(replaces(key, own) for own in claim.keys)}


def _list_kinds(claim: Claim) -> dict[str, set[str]]:
    """Return the words that tell of which kind a thing is, by the thing: "glove supplier", "supplier for gloves".

    They stand behind an article and before the thing, or behind it and "for" or "of".
    """
    told = {t.start for change in claim.changes for t in claim.inside(change.cue)[:1]}
    told |= {t.start for change in claim.changes for t in claim.inside(change.was, change.now) if t.kind != "word"}
    told |= {t.start for t in claim.inside(*find_fillers(claim.text, claim.language))}
    tokens = [token for token in claim.tokens if token.start not in told]
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    ahead: list[Token] = []
    for one, two in pairwise([None, *tokens]):
        if two is None or two.kind == "value":
            ahead = []
            continue
        if one is not None and one.kind == "word" and (two.gap == "of" or two.governor in _FOR) and two.gap != "tight":
            kinds[one.key].add(two.key)
        is_inside = bool(ahead) and two.gap == "tight" and two.phrase == ahead[-1].phrase
        if is_inside and two.kind == "word":
            kinds[two.key] |= {token.key for token in ahead}
        if is_inside and two.kind == "word" and claim.language in ("es", "fr") and len(ahead) == 1:
            kinds[ahead[0].key].add(two.key)  # "la salle verte"
        ahead = [*ahead, two] if is_inside else [two] if _opens_noun(claim, two) else []
    return kinds


def _opens_noun(claim: Claim, token: Token) -> bool:
    """Return True if a word stands behind a preposition or an article."""
    if token.gap == "link":
        return True
    before = split_words(claim.text[: token.start])[-1:]
    return bool(before) and not load_language(claim.language).determiners.isdisjoint(before)


def open_with_things(before: Claim, after: Claim) -> bool:
    """Return True if two sentences have words in common, and open with things or names that the other one lacks."""
    if not before.tokens or not after.tokens or before.keys.isdisjoint(after.keys):
        return False
    pairs = ((before, after), (after, before))
    return all(_opens_with_thing(claim) and not has_token(other, claim.tokens[0]) for claim, other in pairs)


def _opens_with_thing(claim: Claim) -> bool:
    """Return True if a sentence opens with an article or with a name."""
    return is_name(claim.tokens[0]) or opens_with_article(claim)


def opens_with_article(claim: Claim) -> bool:
    """Return True if a sentence opens with an article and a word: "the column"."""
    opening = split_words(claim.text[: claim.tokens[0].start]) if claim.tokens else ()
    return not load_language(claim.language).determiners.isdisjoint(opening)


def tell_other_days(before: Claim, after: Claim) -> bool:
    """Return True if two sentences name different days of the week: what is done on one may be done on the other."""
    days = [
        {token.key for token in claim.tokens if token.key.startswith("days-")} | list_poles(claim, "weekday")
        for claim in (before, after)
    ]
    return all(days) and days[0] != days[1]


def are_on_named_things(before: Claim, after: Claim) -> bool:
    """Return True if names that differ tell two things apart, of which both sentences may hold.

    They name what the sentence is about ("the court Rome rules"), in which case ("if an X bed is free"), or what is
    forbidden: "never book X".
    """
    names = (
        [token for token in claim.tokens if is_name(token) and not has_token(other, token)]
        for claim, other in ((before, after), (after, before))
    )
    return all(
        found and all(_names_subject(claim, token) or _is_in_condition(claim, token) for token in found)
        for claim, found in zip((before, after), names, strict=True)
    )


def _names_subject(claim: Claim, name: Token) -> bool:
    """Return True if a name stands behind the word that opens a sentence, and before its verb; or if all is denied."""
    at = claim.tokens.index(name)
    is_inside = at == 1 and name.gap == "tight" and [token.gap for token in claim.tokens[2:3]] == ["tight"]
    return claim.is_denied or (is_inside and claim.tokens[0].kind == "word" and claim.tokens[0].gap == "loose")


def _is_in_condition(claim: Claim, name: Token) -> bool:
    return any(
        token.governor == "if" and token.start <= name.start and token.clause == name.clause for token in claim.tokens
    )


def tell_hours_of_other_days(before: Claim, after: Claim) -> bool:
    """Return True if each of two sentences tells when something is so, on different days of the week.

    "The shop closes at 6 on Mondays", "at 2 on Fridays"; not "moved to Friday at 2".
    """
    moved = {t for change in after.changes for t in after.inside((change.cue[1], len(after.text)))[:1]}
    days, times = [], []
    for claim in (before, after):
        values = {token.key for token in claim.tokens if token.kind == "value"}
        days.append({key for key in values if key.startswith("days-")} | list_poles(claim, "weekday"))
        is_timed = bool(list_poles(claim, "marker") & _HOURS)
        # Where words are not told apart, the verb of a change may stand anywhere.
        is_timed |= claim.language not in ("zh", "ja") and any(map(_CLOCK.match, values))
        times.append(values - days[-1] if is_timed else set())
    if any(token.key in days[1] for token in moved):
        return False
    return all(days) and days[0].isdisjoint(days[1]) and all(times) and times[0] != times[1]


def turn_order(before: Claim, after: Claim) -> bool:
    """Return True if what comes first by one sentence comes last by the other: "bus 5 leaves before bus 7"."""
    own, others = (
        [(token.governor, token.key) for token in claim.tokens if token.governor in _ORDER] for claim in (before, after)
    )
    return bool(own) and own != others and [one[0] for one in own] == [one[0] for one in others]


def order_other_things(before: Claim, after: Claim) -> bool:
    """Return True if two sentences tell what comes before or after what, of things of which both hold.

    "Bus 5 leaves before bus 7", "bus 5 leaves before bus 3"; not "bus 7 leaves before bus 5".
    """
    firsts, lasts = [], []
    for claim in (before, after):
        named = [
            two
            for one, two in zip([claim.tokens[0], *claim.tokens], claim.tokens, strict=False)
            if _names_one(one, two)
        ]
        firsts.append({token.key for token in named if token.governor not in _ORDER})
        lasts.append({(token.governor, token.key) for token in named if token.governor in _ORDER})
    if not all(lasts) or not all(firsts) or lasts[0] == lasts[1]:
        return False
    return not all({key for _, key in lasts[at]} & firsts[1 - at] for at in (0, 1))


def _names_one(one: Token, two: Token) -> bool:
    """Return True for a name, and for a bare number behind the word of the same phrase: "bus 7"."""
    is_bare = two.key.startswith("number:") and " " not in two.key
    return is_name(two) or (is_bare and two.gap == "tight" and one.kind == "word" and one.phrase == two.phrase)


def list_poles(claim: Claim, category: str) -> set[str]:
    """Return the poles of the cues of a category."""
    return {cue.pole for cue in claim.reading.cues if cue.category == category}


def deny_other_clause(before: Claim, after: Claim) -> bool:
    """Return True if one sentence says of the other a part outside of its negation: "she can't eat it; she is ill"."""
    denied, plain = (after, before) if after.is_denied else (before, after)
    if denied.is_denied == plain.is_denied or len({token.clause for token in plain.tokens}) > 1:
        return False
    clauses = find_denied_clauses(denied)
    inside = {token.key for token in denied.tokens if token.clause in clauses}
    return bool((plain.keys & denied.keys) - inside)


def differ_in_order(before: Claim, after: Claim) -> bool:
    """Return True if only the order of words or of time differs: who does what, or the same in other words."""
    cues = [
        sorted((cue.category, cue.pole) for cue in claim.reading.cues if cue.pole not in _ORDER)
        for claim in (before, after)
    ]
    return cues[0] == cues[1] and sorted(t.key for t in before.tokens) == sorted(t.key for t in after.tokens)


def tells_step(claim: Claim) -> bool:
    """Return True if a sentence tells what somebody did once: "Ann handed the key to Ben"."""
    if claim.language != "en":
        return find_past(claim.text) is not None
    language = load_language("en")
    is_past = any(word in language.past_forms or word.endswith("ed") for word in claim.words[1:2])
    return is_past and language.passive_auxiliaries.isdisjoint(claim.words)


def names_case(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if the clause of a change names a case that ``before`` does not: "for the design team".

    A contrast may name what took the place of the former thing anywhere.
    """
    if change.form not in ("from", "gone", "ended", "allowed"):
        return False
    # "But through B" names what is so now.
    end = min((cue.start for cue in after.reading.cues if cue.pole == "contrast"), default=len(after.text))
    clauses = {token.clause for token in after.inside(change.cue, change.was)} | find_denied_clauses(after)
    spans = [span for span in (change.cue, change.was, change.now) if span]
    told = (min(spans)[0], max(spans)[1]) if change.was else None
    times = load_language(after.language).times
    repeated = {cue.start for cue in after.reading.cues if cue.category == "quantity"}  # "on Sundays"
    return any(
        token.gap == "link"
        and token.clause in clauses
        and token.governor not in CIRCUMSTANCES
        and (token.governor or change.form != "allowed")  # "since we have guards"
        and not has_token(before, token)
        and token.text not in _NO_CASES
        and not (change.form == "gone" and token.key in times)  # "was sold in spring"
        and (token.kind != "value" or (token.start in repeated and change.form != "allowed"))
        and token.start < end
        and token not in after.inside(told)
        for token in after.tokens
    )


def changes_other_thing(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if a change names a thing that ``before`` lacks: "Ben took over the wiki from Ann".

    Of a thing that keeps its holder, a word of each phrase is enough: "we switched the mail provider from A to B".
    """
    if change.form != "from":
        return False
    words = list_changed(after, change)
    missing = {token.phrase for token in words if not has_token(before, token)}
    if change.now and change.now < change.cue:
        return bool(missing)
    shared = {token.phrase for token in words if has_token(before, token)}
    return not missing <= shared or any(is_name(token) and not has_token(before, token) for token in words)


def list_changed(after: Claim, change: Change) -> list[Token]:
    """Return the words of what changed, behind the words of change: "took over the wiki from Ann"."""
    if change.was is None:
        return []
    told = (*after.inside(change.cue)[:1], *after.inside(change.now))
    place = change.what or (change.cue[0], change.was[0])
    words = [token for token in after.inside(place) if token not in told and not is_date(token)]
    kinds = after.inside(*find_fillers(after.text, after.language, of_name=True))
    return [token for token in words if token not in kinds] or words


def find_denied_clauses(claim: Claim) -> set[int]:
    """Return the clauses with a negation."""
    return {cue.clause for cue in claim.reading.cues if cue.category == "polarity"}


def leaves_subject(before: Claim, after: Claim) -> bool:
    """Return True if a pronoun of ``after`` may be somebody else: "the customer uses it", "we no longer use it"."""
    first = before.tokens[0]
    if first.kind == "value" or has_token(after, first):
        return False
    opening = split_words(after.text[: after.tokens[0].start])
    if load_language(after.language).determiners.issuperset(opening):
        return False
    # "We no longer use it", "we dropped it"
    forms = {
        change.form
        for change in after.changes
        if not (change.was and change.form == "gone" and change.was > change.cue)
    }
    if forms <= {"ended"}:
        return before.words[:1] != after.words[:1]  # "We use it", "we dropped it"
    return not _POSSESSIVES.isdisjoint(before.words[:1]) and not _tells_former(before, after)
