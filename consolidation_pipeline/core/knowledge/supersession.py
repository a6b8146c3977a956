"""Supersession: does a newer memory say that something an older one says is so no longer?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Literal

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.differences.language import detect_language, load_language, split_words
from consolidation_pipeline.core.differences.reading import Token
from consolidation_pipeline.core.knowledge.change_words import Change, Span
from consolidation_pipeline.core.knowledge.claims import ADVERBS, Claim
from consolidation_pipeline.core.knowledge.rival_claims import Comparison, compare_sentences, is_name
from consolidation_pipeline.core.text.sentences import extract_sentences

Status = Literal["candidate", "confirmed"]
Rule = Literal["change words", "same writer", "dates"]

# Confidence of each rule: development sequences of benchmarks/sequences.
CONFIDENCE: dict[Rule, float] = {"change words": 0.9, "same writer": 0.8, "dates": 0.6}
# Share of the words of a clause such as "no longer runs on X" that the older sentence must have.
_SAME_CLAIM = 0.6
# An older sentence with at most this many other words is about what was replaced, whatever else the newer one says.
_FEW_WORDS = 3
# A word of this length, such as "to" or "mehr", tells of no event.
_PARTICLE_LENGTH = 4
# What numbers name rather than measure.
_LABELS = frozenset(
    """
    step phase issue ticket pr chapter section page paper part episode lesson case week day sprint round run attempt
    level item rule question task room line row column table figure node shard replica server worker slot group team
    unit module block id number nr no schritt ticketnummer kapitel abschnitt seite teil aufgabe zeile woche tag
    knoten gruppe paso fase capítulo página tarea línea grupo semana étape chapitre tâche ligne groupe semaine nœud
    build job iteration version-id
    """.split()
)
# Words of English sentences that find fault: what they contrast is no fact of then and now.
_WRONG = frozenset("incorrect incorrectly wrong wrongly".split())
_FAULTS = _WRONG | frozenset(
    "bug issue problem error mistake because fails failed causing expected properly correctly".split()
)
_VALUE_KINDS = ("value", "name", "code")
# Most words that take the place of others.
_LONGEST_SLOT = 4
# Verbs that say where or how something is, by the keys of their tokens.
_STATE_VERBS = frozenset(
    ("do with", *"be do has have hold keep lie listen live reside run sit start stay store use".split())
)
# What stands behind and before the holder of a part that one has.
_HOLDS = ignore_case(r"\s+(?:owns|leads|maintains|manages|heads|chairs|(?:is|are) (?:the|our|my)\b)")
_HELD = ignore_case(r"\b(?:is|are)\s+(?:now\s+)?(?:the\s+|our\s+)?$")


@dataclass(frozen=True)
class Writer:
    """Writer of a memory; None for each field that is not known.

    ``key``: the API key, whose user, agent and session are claims.
    """

    user: str | None = None
    agent: str | None = None
    session: str | None = None
    key: str | None = None

    def is_same(self, other: Writer) -> bool:
        """Return True if both have a session, agent or user in common, and no different users or keys."""
        if self.key != other.key:
            return False
        if self.user and other.user and self.user != other.user:
            return False
        pairs = ((self.user, other.user), (self.agent, other.agent), (self.session, other.session))
        return any(one and one == two for one, two in pairs)


@dataclass(frozen=True)
class Supersession:
    """A newer memory takes the place of what an older one says.

    Attributes:
        status: ``confirmed`` by a rule, or a ``candidate`` that waits for a person.
        rule: Why: change words in the newer text, the same writer, or the dates alone.
        was, now: The sentences that differ.
    """

    status: Status
    rule: Rule
    was: str
    now: str

    @property
    def confidence(self) -> float:
        """Confidence of the rule."""
        return CONFIDENCE[self.rule]


@dataclass(frozen=True)
class Revision:
    """A sentence of one text that revises one of another. ``is_explicit``: by change words; ``is_certain``: see below.

    A name for a name may hold beside it ("Ann works with Bob"), so that only change words make it certain.
    """

    was: str
    now: str
    is_explicit: bool
    is_certain: bool = True


def judge_revision(revision: Revision, older: Writer, newer: Writer) -> Supersession:
    """Return the supersession by a later text, with the rule that confirms it."""
    rule: Rule = "change words" if revision.is_explicit else "same writer" if newer.is_same(older) else "dates"
    is_confirmed = rule == "change words" or (rule == "same writer" and revision.is_certain)
    return Supersession("confirmed" if is_confirmed else "candidate", rule, revision.was, revision.now)


def choose_revision(revisions: Iterable[Revision]) -> Revision | None:
    """Return the most certain one; ties by their texts."""
    return min(revisions, key=lambda one: (not one.is_explicit, not one.is_certain, one.was, one.now), default=None)


@lru_cache(maxsize=4096)
def split_claims(text: str) -> tuple[str, ...]:
    """Return the sentences of a text, each once."""
    return tuple(dict.fromkeys(sentence.text for sentence in extract_sentences(text)))


@lru_cache(maxsize=20_000)
def revise_sentence(was: str, now: str) -> Revision | None:
    """Return the revision of the sentence ``was`` by the later sentence ``now``; None if it does not revise it."""
    language = _find_language(was, now)
    if language is None:
        return None
    before, after = Claim.of(was, language), Claim.of(now, language)
    if after.is_plan:
        return None
    # Most pairs are refused by their words alone, before either sentence is read.
    may_be_states = _may_be_states(before, after)
    if not after.changes and not may_be_states:
        return None
    if before.is_question or after.is_question:
        return None
    if _ends_any(before, after):
        return Revision(was, now, True)
    if _uses_gone(before, after):
        return Revision(was, now, False, False)
    if not may_be_states:
        return None
    comparison = compare_sentences(before.reading, after.reading)
    if comparison is None or comparison.relation not in ("replaces", "renames"):
        return None
    if any(claim.asks or claim.is_reported or not claim.is_statement for claim in (before, after)):
        return None
    if any(change.form == "contrast" for claim in (before, after) for change in claim.changes):
        return None
    if not _have_same_words(before, after):
        return None
    if not _is_one_slot(before, after, comparison) or _stand_in_opposite_places(before, after):
        return None
    return Revision(was, now, False, comparison.relation == "replaces")


def _find_language(was: str, now: str) -> str | None:
    """Return the language of two sentences, each of which may be too short to tell it; None if they are of two."""
    codes = {detect_language(was), detect_language(now)} - {None}
    if len(codes) == 1:
        return codes.pop()
    both = detect_language(f"{was}\n{now}")
    if codes or both:
        return both if both in codes or not codes else None
    return "en" if was.isascii() and now.isascii() else None


def _ends_any(before: Claim, after: Claim) -> bool:
    """Return True if one of the changes that ``after`` tells is one of what ``before`` says.

    Words such as "since May" tell no more where others name what is no longer so.
    """
    naming = [change for change in after.changes if change.form != "now"]
    return any(_ends(before, after, change) for change in naming or after.changes)


def _ends(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if a change that ``after`` tells is one of what ``before`` says."""
    if change.form != "from" and not before.is_state:
        return False
    if change.was:
        return _names_former(before, after, change)
    if change.form == "ended":
        return _ends_claim(before, after, change)
    return _states_present(before, after, change)


def _names_former(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if ``before`` says, of the thing that changed, what ``after`` names as former."""
    former, present = after.inside(change.was), after.inside(change.now)
    if _is_gone(change):
        # "Old rows were deleted" may tell what happened once. A name may open the one sentence and not the other.
        texts = {token.text.lower() for token in former}
        names = {token.text.lower() for token in (*former, *before.tokens) if token.kind in _VALUE_KINDS}
        if not _may_be_gone(before, after, change) or texts.isdisjoint(names):
            return False
    if change.form == "contrast":
        # "By the id of the event, not by the id of the delivery" is a contrast of event and delivery.
        inside = {token.start for token in former}
        kept = {token.key for token in after.tokens if token.start not in inside}
        former = [token for token in former if token.key not in kept]
    if before.is_denied or not former or not _says(before, former):
        return False
    if any(change.was and _says(before, former, at=change.was) for change in before.changes):
        return False  # it tells the same change
    new = {token.key for token in present} - {token.key for token in former}
    if new and new <= before.keys:
        return False
    told = {token.start for token in (*former, *present)} | {token.start for token in after.inside(change.cue)[:1]}
    topic = [token for token in after.tokens if token.start not in told]
    named = {one.key for one in former} | {one.text.lower() for one in former}
    rest = [token for token in before.tokens if named.isdisjoint((token.key, token.text.lower()))]
    if change.form == "contrast" and _finds_fault(after, _FAULTS):
        return False
    # "Logs now go to B instead of A" tells a change, "log to B instead of A" may be a rule.
    is_told = change.form == "from" or any(after.quote(other.cue) in ADVERBS for other in after.changes)
    if not is_told and not _is_same_frame(before, after, topic, rest):
        return False
    if not {token.key for token in topic}.isdisjoint(token.key for token in rest):
        return _is_same_topic(before, after, topic, rest)
    # "The job queue moved off Redis" has a subject of its own.
    subject = [token for token in topic if token.start < change.cue[0] and token.key not in _STATE_VERBS]
    return len(rest) <= _FEW_WORDS and not any(token.kind != "value" for token in subject)


def _uses_gone(before: Claim, after: Claim) -> bool:
    """Return True if ``before`` speaks of what ``after`` says is gone, whatever else it says."""
    return any(
        _is_gone(change)
        and _may_be_gone(before, after, change)
        and {token.key for token in after.inside(change.was)} <= before.keys
        for change in after.changes
    )


def _is_gone(change: Change) -> bool:
    """Return True for "X was deleted"."""
    return change.form == "from" and change.now is None and change.was is not None and change.was < change.cue


def _may_be_gone(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if what is gone is named, and ``before``, which does not say so too, may have spoken of it."""
    verbs = {token.key for token in after.inside(change.cue)}
    return (
        before.is_state
        and not before.is_denied
        and _is_named(after, after.inside(change.was))
        and verbs.isdisjoint(before.keys)
    )


def _is_named(claim: Claim, words: Sequence[Token]) -> bool:
    """Return True if words tell which thing is meant: a name or several words, or a word without "the" or "a"."""
    if len(words) != 1 or words[0].kind in _VALUE_KINDS:
        return bool(words)
    before = split_words(claim.reading.text[: words[0].start])[-1:]
    return load_language(claim.language).determiners.isdisjoint(before)


def _is_same_frame(before: Claim, after: Claim, topic: Sequence[Token], rest: Sequence[Token]) -> bool:
    """Return True if ``after`` says all that ``before`` does beside what was replaced, and few words more.

    Values are not counted: the date of the change, and what took the place of the former one.
    """
    missing = sum(token.key not in after.keys for token in rest)
    added = sum(token.key not in before.keys and token.kind != "value" for token in topic)
    return len(rest) > 0 and missing <= (len(rest) + 1) // 4 and added <= _FEW_WORDS


def _finds_fault(claim: Claim, faults: frozenset[str]) -> bool:
    return claim.language == "en" and not faults.isdisjoint(claim.words)


def _says(claim: Claim, former: Sequence[Token], at: Span | None = None) -> bool:
    """Return True if a claim has the values and names among ``former``, or else two thirds of the words."""
    keys = {token.key for token in (claim.inside(at) if at else claim.tokens)}
    texts = {token.text.lower() for token in (claim.inside(at) if at else claim.tokens)}

    def has(token: Token) -> bool:
        # "from 5 to 7 days" has the unit of both behind the second one.
        is_bare = token.key.startswith("number:") and " " not in token.key
        return (
            token.key in keys
            or token.text.lower() in texts
            or (is_bare and any(key.startswith(f"{token.key} ") for key in keys))
        )

    literal = [token for token in former if token.kind in _VALUE_KINDS]
    if literal:
        return all(map(has, literal))
    # Tokens of these languages are characters.
    share = 1 if claim.language in ("zh", "ja") else 2 / 3
    return sum(map(has, former)) >= share * len(former)


def _is_same_topic(before: Claim, after: Claim, topic: Sequence[Token], rest: Sequence[Token]) -> bool:
    """Return True if what two sentences say beside the change, with words in common, is about one thing."""
    shared = {token.key for token in topic} & {token.key for token in rest}
    return 4 * len(shared) >= len(rest) and not _are_apart(before, after, topic, rest)


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
    if any(map(_is_date, values)) and any(map(_is_date, before.tokens)):
        return False
    # "In B and no longer in A": the value before the change words takes the place of the one behind them.
    new = [value for value in values if not _is_date(value)]
    former = [t for t in topic if t.start > change.cue[0] and t.kind in _VALUE_KINDS and t.key in before.keys]
    if len(new) > len(former) or any(value.start > change.cue[0] for value in new):
        return False
    if _has_other_subject(before, topic, change.cue[0]):
        return False
    return not _are_apart(before, after, topic, before.tokens)


def _has_other_subject(before: Claim, topic: Sequence[Token], end: int) -> bool:
    """Return True if a noun phrase before the change words has a word that ``before`` lacks: "the user's sister"."""
    subject = [token for token in topic if token.start < end]
    phrases = {token.phrase for token in subject if token.key in before.keys}
    return any(
        token.key not in before.keys and (token.phrase in phrases or token.gap in ("s", "of")) for token in subject
    )


def _states_present(before: Claim, after: Claim, change: Change) -> bool:
    """Return True if ``after`` without its change words says something else of the same thing than ``before``."""
    text = after.reading.text
    # "Went up to 5" says what is.
    verb = " is" if after.quote(change.cue).endswith(" to") else ""
    bare = f"{text[: change.cue[0]]}{verb} {text[change.cue[1] :]}".strip(" ,:，、")
    stripped = Claim.of(" ".join(bare.split()), after.language)
    if sorted(token.key for token in before.tokens) == sorted(token.key for token in stripped.tokens):
        return before.is_denied != stripped.is_denied
    comparison = compare_sentences(before.reading, stripped.reading)
    if comparison is not None and comparison.relation != "elsewhere":
        return comparison.relation != "agrees" and _is_one_slot(before, stripped, comparison)
    return _fill_one_slot(before, after, change.cue)


def _fill_one_slot(before: Claim, after: Claim, cue: Span) -> bool:
    """Return True if two sentences say the same but for one run of words, in the same place of both.

    The words of ``cue`` and verbs of a state, such as "runs" and "uses", count for neither.
    """
    behind = next((token.start for token in after.tokens if token.start >= cue[1]), -1)
    words = [token for token in before.tokens if token.key not in _STATE_VERBS]
    others = [token for token in after.tokens if token.key not in _STATE_VERBS and not cue[0] <= token.start < cue[1]]
    shared = {token.key for token in words} & {token.key for token in others}
    told = {token.clause for token in others if token.key in shared or token.start == behind}
    others = [token for token in others if token.clause in told]
    old, new = _find_runs(words, shared), _find_runs(others, shared)
    if not shared or len(old) != 1 or len(new) != 1 or max(len(old[0]), len(new[0])) > _LONGEST_SLOT:
        return False
    if len(old[0]) > len(shared) and not any(token.kind in _VALUE_KINDS for token in old[0]):
        return False
    if any(len({token.phrase for token in run}) > 1 for run in (*old, *new)):
        return False
    was, now = old[0][0], new[0][0]
    if was.kind == now.kind == "value" and _measure(was) != _measure(now):
        return False
    if any(_is_label(claim, token) for claim, run in ((before, old[0]), (after, new[0])) for token in run):
        return False
    if now.start == behind:
        return True
    if was is words[0] or now is others[0]:
        return _names_holder(before, was) and _names_holder(after, now)
    return _is_same_place(before, was, after, now) and all(
        _is_value_of(one, word) for one, word in ((before, was), (after, now))
    )


def _names_holder(claim: Claim, word: Token) -> bool:
    """Return True if a sentence says who has a part that one has: "Ann owns it", "the lead is Ann"."""
    rest = claim.text[word.start + len(word.text) :]
    return _HOLDS.match(rest) is not None or _HELD.search(claim.text[: word.start]) is not None


def _is_same_place(before: Claim, was: Token, after: Claim, now: Token) -> bool:
    """Return True if a word of one sentence stands where another word of the other does."""
    if was.governor == now.governor:
        return True
    # "listens on port 1", "uses port 2"
    one, other = (claim.tokens[claim.tokens.index(word) - 1] for claim, word in ((before, was), (after, now)))
    return one.key == other.key and one.phrase == was.phrase and other.phrase == now.phrase


def _is_value_of(claim: Claim, word: Token) -> bool:
    """Return True for a value, a word behind a preposition or "is the", and a name behind a verb of a state."""
    at = claim.tokens.index(word)
    is_used = word.kind in _VALUE_KINDS and at > 0 and claim.tokens[at - 1].key in _STATE_VERBS
    return word.kind == "value" or word.gap == "link" or is_used or _HELD.search(claim.text[: word.start]) is not None


def _find_runs(tokens: Sequence[Token], shared: Collection[str]) -> list[list[Token]]:
    """Return the runs of tokens between those whose keys are shared."""
    return [[*run] for is_shared, run in groupby(tokens, key=lambda token: token.key in shared) if not is_shared]


def _measure(token: Token) -> str:
    """Return what kind of value a token is: its kind, and the unit of a number."""
    kind, _, value = token.key.partition(":")
    return f"{token.kind} {kind if value else ''} {value.partition(' ')[2]}"


def _are_apart(before: Claim, after: Claim, topic: Sequence[Token], rest: Sequence[Token]) -> bool:
    """Return True if two sentences are about different things of one kind: the web app, the mobile app."""
    new, old = (
        {t.key: t for t in topic if t.key not in before.keys | _STATE_VERBS},
        {t.key: t for t in rest if t.key not in after.keys | _STATE_VERBS},
    )
    opposites = load_language(after.language).opposites
    if any(opposites.get(key, frozenset()) & old.keys() for key in new):
        return True
    if any(map(is_name, new.values())) and any(map(is_name, old.values())):
        return True
    first, other = after.tokens[0].key, before.tokens[0].key
    if first in new and other in old and after.tokens[1:2] and before.tokens[1:2] and _is_subject(after, before):
        return True
    return any(one in new and two in old for one, two in _pair_modifiers(after, before))


def _is_subject(after: Claim, before: Claim) -> bool:
    """Return True if the second words of two sentences are the same: what stands before is what they speak of."""
    return after.tokens[1].key == before.tokens[1].key


def _pair_modifiers(after: Claim, before: Claim) -> Iterator[tuple[str, str]]:
    """Yield the words that stand right beside the same word in both sentences."""
    for step in (-1, 1):
        places = {token.key: at for at, token in enumerate(before.tokens)}
        for at, token in enumerate(after.tokens):
            place = places.get(token.key)
            if place is None or not (0 <= at + step < len(after.tokens) and 0 <= place + step < len(before.tokens)):
                continue
            pairs = ((after, at), (before, place))
            if all(claim.tokens[max(i, i + step)].gap == "tight" for claim, i in pairs):
                yield after.tokens[at + step].key, before.tokens[place + step].key


def _have_same_words(before: Claim, after: Claim) -> bool:
    """Return True if two claims differ in values, names and negations only: without words of a change, they say so."""
    words, others = (
        {token.key for token in one.tokens if token.kind == "word"} - two.keys
        for one, two in ((before, after), (after, before))
    )
    opposites = load_language(after.language).opposites
    return all(opposites.get(key, frozenset()) & words for key in others) and len(words) == len(others)


def _stand_in_opposite_places(before: Claim, after: Claim) -> bool:
    """Return True for "in production" and "in staging", "in the morning" and "in the evening": both may hold."""
    opposites = load_language(after.language).opposites
    there = {t.key for t in before.tokens if t.gap == "link" and t.key not in after.keys}
    here = {t.key for t in after.tokens if t.gap == "link" and t.key not in before.keys}
    return any(opposites.get(key, frozenset()) & there for key in here)


def _may_be_states(before: Claim, after: Claim) -> bool:
    """Return True unless one of two sentences alone is a plan, or either tells an event or finds fault."""
    if before.is_plan != after.is_plan:
        return False
    return not any(one.is_event or _finds_fault(one, _WRONG) for one in (before, after))


def _is_one_slot(before: Claim, after: Claim, comparison: Comparison) -> bool:
    """Return True if sentences that differ in a value, a name or a negation are statements on one slot, not events."""
    if comparison.first is None or comparison.other is None:
        return False
    if not _may_be_states(before, after):
        return False
    words, others = (
        {t.key for t in one.tokens if t.kind == "word"} - two.keys for one, two in ((after, before), (before, after))
    )
    if any(one in words and other in others for one, other in _pair_modifiers(after, before)):
        return False
    old = [t for t in before.tokens if t.kind in _VALUE_KINDS and t.key not in after.keys]
    new = [t for t in after.tokens if t.kind in _VALUE_KINDS and t.key not in before.keys]
    dated = [sum(map(_is_date, side)) for side in (old, new)]
    if any(0 < count < len(side) for count, side in zip(dated, (old, new), strict=True)):
        return False
    pairs = ((before, old), (after, new))
    return not any(_is_label(claim, token) for claim, side in pairs for token in side)


def _is_date(token: Token) -> bool:
    return token.key.startswith(("date:", "days-", "months-", "ordinal:"))


def _is_label(claim: Claim, token: Token) -> bool:
    """Return True if a number names what the sentence speaks of: "phase 2 takes", "issue 118"."""
    if not token.key.startswith("number:") or " " in token.key:
        return False
    at = claim.tokens.index(token)
    if at == 0 or token.gap != "tight":
        return False
    word = claim.tokens[at - 1]
    if ":" in claim.reading.text[word.start : token.start]:
        return False  # "Limit: 5"
    if word.kind == "name" and word.text.istitle() and at > 1:
        return False  # "runs on Node 20"
    return word.text.lower() in _LABELS or (at == 1 and len(claim.tokens) > 2)  # "Phase 2 takes ..", "Gate 4 opens .."
