"""Template families: texts that are the same but for a few slots, and the one line that tells them all."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import load_language

# Fewest distinct texts of a family.
MIN_TEXTS = 3
# Longer texts are no lines of a log; slots of several sentences could not be read.
_MAX_TOKENS = 48
# Most slots that are not numbers or the like, and the least share of tokens that are the same in all texts.
_MAX_WORD_SLOTS = 2
_MIN_FIXED = 0.6
# Fewest words that are the same.
_MIN_WORDS = 2
# Most distinct values of a slot that are listed, and most texts whose values are told one by one.
_MAX_LISTED = 3
_MAX_ROWS = 6
_MAX_VALUE = 40

_TOKEN = re.compile(r"\"[^\"]{1,80}\"|'[^'\s]{1,80}'|`[^`]{1,80}`|[\w./\\@~:-]*[\w/]|[^\w\s]")
# A number with what is written before and behind it.
_NUMBER = re.compile(r"(?P<before>[^\W\d]{0,3}[#$v-]?)(?P<number>\d+(?:\.\d+)?)(?P<after>[^\W\d]{0,5}|%)\Z")
# Numbers with a unit or sign, hashes, versions, quotations, paths and addresses.
_LITERAL = re.compile(r"[\"'`]|.*\d|.*[/\\@]|\w+\.\w+|\w+_\w+|[a-z]+[A-Z]")


@dataclass(frozen=True)
class TemplateFamily:
    """A template with its slots in braces, "Queue {mail, search} took {31 … 100} s", or with its rows of values behind.

    An example of rows: "Gate … opens at …: east / 7:00, west / 9:30." ``members``: positions of its texts, ascending.
    """

    text: str
    members: tuple[int, ...]


def find_template(texts: Sequence[str], weights: Sequence[float] | None = None) -> TemplateFamily | None:
    """Return the largest template family among texts by weight; None without one of three distinct texts.

    Slots are where tokens with digits, quotations, paths or identifiers differ. Up to two slots may hold words instead,
    if these are no function words and no words that change what is claimed (not, always, before).
    """
    weight = [1.0] * len(texts) if weights is None else list(weights)
    forms = [tuple(_TOKEN.findall(text)) for text in texts]
    families: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for at, tokens in enumerate(forms):
        if 0 < len(tokens) <= _MAX_TOKENS and "\n" not in texts[at].strip():
            families[tuple("\0" if _is_literal(token) else token.lower() for token in tokens)].append(at)
    light = _load_light_words(texts)
    candidates = [*families.values(), *_join_families(families, light)]
    sized = [found for found in candidates if len({tuple(map(str.lower, forms[at])) for at in found}) >= MIN_TEXTS]
    for members in sorted(sized, key=lambda found: (-sum(weight[at] for at in found), min(texts[at] for at in found))):
        if family := _render(sorted(members), texts, forms, weight, light):
            return family
    return None


def _is_literal(token: str) -> bool:
    return _LITERAL.match(token) is not None


def _load_light_words(texts: Sequence[str]) -> frozenset[str]:
    """Return the function words and cues of the texts' language, which are never values of a slot."""
    language = load_language(detect_language("\n".join(texts)) or "en")
    return language.light | {
        words[0] for words, found in language.phrases.items() if len(words) == 1 and found.role != "synonym"
    }


def _join_families(families: dict[tuple[str, ...], list[int]], light: frozenset[str]) -> list[list[int]]:
    """Return the unions of families that differ in one or two words at the same places as the first of them."""
    by_length: dict[int, list[tuple[str, ...]]] = defaultdict(list)
    for form in sorted(families):
        by_length[len(form)].append(form)
    joined: list[list[int]] = []
    for length, forms in by_length.items():
        slots = [(at,) for at in range(length)] + [(at, at + 1) for at in range(length - 1)]
        for places in slots if length <= 24 else ():
            rests: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
            for form in forms:
                if all(form[at] not in light and form[at][-1:].isalnum() for at in places):
                    rests[tuple("\1" if at in places else token for at, token in enumerate(form))].append(form)
            joined += [
                list(chain.from_iterable(families[one] for one in found)) for found in rests.values() if len(found) > 1
            ]
    return joined


def _render(
    members: Sequence[int],
    texts: Sequence[str],
    forms: Sequence[tuple[str, ...]],
    weight: Sequence[float],
    light: frozenset[str],
) -> TemplateFamily | None:
    """Return the family of texts with as many tokens each; None if too little of it is fixed."""
    columns = list(zip(*(forms[at] for at in members), strict=True))
    is_slot = [len({token.lower() for token in column}) > 1 for column in columns]
    word_slots = sum(
        slot and not all(_is_literal(token) for token in column) for slot, column in zip(is_slot, columns, strict=True)
    )
    fixed = [column[0] for column, slot in zip(columns, is_slot, strict=True) if not slot and column[0][0].isalnum()]
    content = [word for word in fixed if word.lower() not in light and word.isalpha()]
    share = sum(not slot for slot in is_slot) / len(columns)
    if word_slots > _MAX_WORD_SLOTS or share < _MIN_FIXED or len(content) < _MIN_WORDS:
        return None
    first = min(members, key=lambda at: (-weight[at], forms[at]))
    slots = [at for at, slot in enumerate(is_slot) if slot]
    rows, counts = defaultdict[tuple[str, ...], float](float), [defaultdict[str, float](float) for _ in slots]
    for at in members:
        row = tuple(forms[at][slot] for slot in slots)
        rows[row] += weight[at]
        for count, token in zip(counts, row, strict=True):
            count[token] += weight[at]
    told = [f"{{{_tell_values(count)}}}" for count in counts]
    # Lists in several places are read as pairs, in their order; a range is not.
    is_paired = len({columns[slot] for slot in slots}) > 1 and (
        len(rows) <= _MAX_ROWS or sum(" … " not in values for values in told) > 1
    )
    text = texts[first]
    spans = [match.span() for match in _TOKEN.finditer(text)]
    for slot, values in reversed(list(zip(slots, told, strict=True))):
        start, end = spans[slot]
        text = f"{text[:start]}{'…' if is_paired else values}{text[end:]}"
    text = " ".join(text.split())
    return TemplateFamily(_add_rows(text, rows) if is_paired else text, tuple(members))


def _add_rows(text: str, rows: Mapping[tuple[str, ...], float]) -> str:
    """Return a text with the values of each text behind it, the most frequent first."""
    ordered = sorted(rows, key=lambda row: (-rows[row], row))
    told = [" / ".join(map(_shorten, row)) for row in ordered[:_MAX_ROWS]]
    bare = text.rstrip(".!;: ")
    return f"{bare}: {', '.join([*told, *(['…'] if len(ordered) > _MAX_ROWS else [])])}{text[len(bare) :].strip()}"


def _tell_values(count: Mapping[str, float]) -> str:
    """Return the range of numbers, or the most frequent values."""
    values = sorted(count, key=lambda value: (-count[value], value))
    numbers = [match for value in values if (match := _NUMBER.match(value))]
    if len(numbers) == len(values) and len({(one["before"], one["after"]) for one in numbers}) == 1:
        ordered = [one[0] for one in sorted(numbers, key=lambda one: (float(one["number"]), one[0]))]
        return ", ".join(ordered) if len(ordered) <= _MAX_LISTED else f"{ordered[0]} … {ordered[-1]}"
    shown = [_shorten(value) for value in values[:_MAX_LISTED]]
    return ", ".join([*shown, *(["…"] if len(values) > _MAX_LISTED else [])])


def _shorten(value: str) -> str:
    return value if len(value) <= _MAX_VALUE else value[: _MAX_VALUE - 1] + "…"
