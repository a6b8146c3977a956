"""Steps of lists: their order, and which there are, is part of what a text claims."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise

from consolidation_pipeline.core.differences.cue_differences import GRAMMAR
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Reading, Token

_LINE = re.compile(r"(?:\A|\n)[^\S\n]*(?=\S)")
# "1. stop it 2. restart it", "(1) stop it"
_NUMBER = re.compile(r"(?<![\w.,$€])\(?(\d{1,2})(?:[.)、](?=[^\W\d])|[.)]\s+)(?=\S)")
_FEWEST_STEPS = 2
_LINE_BREAK = "\n"


def find_new_step(a: Reading, b: Reading, places: Mapping[int, int]) -> Reordered | None:
    """Return words of steps that stand in another order, or of one that the list of the other text lacks.

    Steps are lines, what follows the numbers 1, 2 and so on in a line, and else sentences that give orders. None if
    there is no such step.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    begins, begins_there = (_list_begins(one) if places else [] for one in (a, b))
    if min(len(begins), len(begins_there)) < _FEWEST_STEPS:
        return None
    numbers, numbers_there = _list_numbers(a), _list_numbers(b)
    steps, steps_there = _number_steps(a, begins), _number_steps(b, begins_there)
    targets = defaultdict[int, Counter[int]](Counter)
    words: dict[tuple[int, int], int] = {}  # by step and step there, a word
    for at, there in sorted(places.items()):
        if a.tokens[at].start in numbers or b.tokens[there].start in numbers_there:
            continue
        targets[steps[at]][steps_there[there]] += 1
        words.setdefault((steps[at], steps_there[there]), at)
    nearest = [(step, min(found, key=lambda one: (-found[one], one))) for step, found in sorted(targets.items())]
    if len(begins) != len(begins_there):  # What stands before the steps of one text may follow them in the other.
        nearest = [pair for pair in nearest if min(pair) > 1]
    for (before, target), (step, target_there) in pairwise(nearest):
        if target_there < target:
            first, last = words[before, target], words[step, target_there]
            return [a.tokens[first], a.tokens[last]], [b.tokens[places[last]], b.tokens[places[first]]]
    is_numbered = bool(numbers and numbers_there)
    if not is_numbered and not (_LINE_BREAK in a.text and _LINE_BREAK in b.text):
        return None
    found = {target for counts in targets.values() for target in counts}
    missing = _find_missing(a, steps, targets.keys(), is_numbered=is_numbered)
    missing_there = _find_missing(b, steps_there, found, is_numbered=is_numbered)
    return (missing, missing_there) if missing or missing_there else None


def _find_missing(reading: Reading, steps: Sequence[int], shared: Set[int], *, is_numbered: bool) -> list[Token]:
    """Return the first word of a step that is not ``shared``: of any number, or of a line between two shared ones."""
    first, last = (0, max(steps) + 1) if is_numbered else (min(shared, default=0), max(shared, default=0))
    at = next((at for at, step in enumerate(steps) if first < step < last and step not in shared), None)
    return [] if at is None else [reading.tokens[at]]


def _list_begins(reading: Reading) -> list[int]:
    """Return where the steps of a text begin."""
    lines = [found.end() for found in _LINE.finditer(reading.text)]
    return (
        sorted({*lines[1:], *_list_numbers(reading)})
        if lines[1:]
        else _list_numbers(reading) or _list_commands(reading)
    )


def _list_numbers(reading: Reading) -> list[int]:
    """Return where the numbers of a list begin, that count from one."""
    found: list[int] = []
    for match in _NUMBER.finditer(reading.text):
        if int(match[1]) == len(found) + 1:
            found.append(match.start())
    return found if len(found) >= _FEWEST_STEPS else []


def _list_commands(reading: Reading) -> list[int]:
    """Return where the sentences begin if some give orders: "Export the data. Delete the account."."""
    ends = [(0, 0), *((end, frame) for end, _, _, frame in reading.ends)]
    commands = sum(_is_command(reading.frame[start:end]) for (_, start), (_, end) in pairwise(ends))
    return [end for end, _ in ends[:-1]] if commands >= _FEWEST_STEPS else []


def _is_command(frame: Sequence[int | str]) -> bool:
    """Return True if a sentence begins with a word before a determiner."""
    first, second = map(str, [*frame[:2], "", ""][:2])
    # "Stop the worker" denies that it works.
    is_word = first.isdigit() or (first.startswith("cue ") and first.split()[1] not in GRAMMAR - {"polarity"})
    return is_word and second.startswith("determiner")


def _number_steps(reading: Reading, begins: Sequence[int]) -> list[int]:
    """Return the number of the step of each token; 0 before the first one."""
    return [bisect_right(begins, token.start) for token in reading.tokens]
