"""Reports of what happened: each tells of an occasion of its own, so that two that differ both hold."""

from __future__ import annotations

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.differences.explanation import Explanation
from consolidation_pipeline.core.differences.reading import Reading, sort_as_written
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.lesson_sentences import find_past
from consolidation_pipeline.core.knowledge.named_things import numbers_thing

# What stands before a date that is the value told: "was on 9 May", "was moved to 9 May".
_IS_ON = ignore_case(
    r"\b(?:(?:was|were|war|waren|fue|fueron|era|était|étaient)(?: (?:on|at|am|el|le))?|to|until|till|auf|bis|hasta|"
    r"jusqu['’]au)\s+(?:the |den |zum )?$"
)
# Most words before the verb of one report alone that tell what else it is of.
_MOST_WORDS = 3


def are_events(first: Reading, other: Reading) -> bool:
    """Return True for reports of what happened once, each with a date or number of its own: both hold.

    The number names what the report is of ("release 2.3 was withdrawn"), so it stands before the verb; a date may stand
    behind it. What is said to be "on 9 May", or to be moved to it, is no report of that day.
    """
    return bool(_list_occasions(first) - other.key_set) and bool(_list_occasions(other) - first.key_set)


def report_otherwise(found: Explanation, first: Reading, other: Reading) -> bool:
    """Return True for reports of what happened that differ in no value and no name: "it came from / to the port".

    Each may tell of an occasion of its own, so that both hold.
    """
    if not all(map(_is_report, (first, other))):
        return False
    return not any(one.kind in ("value", "name", "code") for one in found.differences)


def _is_report(reading: Reading) -> bool:
    """Return True if a sentence tells what happened, and neither what is so nor what is not."""
    if any(cue.pole == "present" or cue.category in ("polarity", "modality") for cue in reading.cues):
        return False
    return find_past_of(reading) is not None or Claim.of(reading.text, reading.language or "en").is_event


def are_of_others(first: Reading, other: Reading) -> bool:
    """Return True for reports of other occasions or other things: "the mailer broke", "the planner broke"."""
    if are_events(first, other):
        return True
    own, others = (_list_subjects(one) - two.key_set for one, two in ((first, other), (other, first)))
    return 0 < len(own) <= _MOST_WORDS and 0 < len(others) <= _MOST_WORDS


def _list_subjects(reading: Reading) -> frozenset[str]:
    """Return the keys of the words before the verb of a report; empty if a marker stands there: "when it was shut"."""
    start = find_past_of(reading)
    if start is None or any(cue.category == "marker" and cue.start < start for cue in reading.cues):
        return frozenset()
    return frozenset(token.key for token in reading.tokens if token.start < start)


def _list_occasions(reading: Reading) -> frozenset[str]:
    """Return the keys of the dates and numbers that tell of which occasion a report is; empty for what is no report."""
    text, start = reading.text, find_past_of(reading)
    if start is None:
        return frozenset()
    tokens = [reading.tokens[at] for at in sort_as_written(reading.tokens)]
    return frozenset(
        token.key
        for at, token in enumerate(tokens)
        if (token.key.startswith("date:") and _IS_ON.search(text[: token.start]) is None)
        or (token.start < start and numbers_thing(tokens, at, text))
    )


def find_past_of(reading: Reading) -> int | None:
    """Return where a sentence first tells of what was; None if it does not."""
    past = [cue.start for cue in reading.cues if (cue.category, cue.pole) == ("tense", "past")]
    found = find_past(reading.text)
    return min([*past, *([] if found is None else [found])], default=None)
