"""Labelled pairs made from a project's own texts: the same said otherwise, and nearly the same that is something else.

They stand in for the pairs that nobody has labelled: how similar a model finds them tells where its threshold belongs.
No language model is asked. Every pair follows from its text, the other texts and the seed alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from consolidation_pipeline.core.calibration import rewrite_rules
from consolidation_pipeline.core.conflicts.literal_scanner import Literal, scan
from consolidation_pipeline.core.conflicts.literals import conflicts, literals
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.text_merge import split_sentences

# Longer texts are not varied: an embedding model might cut them off, and what was changed with the end.
MAX_TEXT_CHARS = 4_000

# Of a text's words, function words aside, that must be repeated ones before swapping them makes another subject: what
# is less is a detail among many that no cosine sees.
MIN_REPEATED_SHARE = 0.3

# Of their words, function words aside, the second halves of two blends may share: with more they might say the same.
MAX_BLEND_OVERLAP = 0.15

_WORD = re.compile(r"[^\W\d_]{4,}")
_DIGITS = re.compile(r"\d+")
_NUMERIC = ("number", "version", "date")


@dataclass(frozen=True)
class SyntheticPair:
    """Two texts, how the second was made of the first, and whether they say the same."""

    kind: str
    same: bool
    a: str
    b: str


@dataclass(frozen=True)
class _Source:
    """What the variants draw from: the project's texts, its words, its literals by kind."""

    texts: Sequence[str]
    words: Sequence[str]
    literals: Mapping[str, Sequence[str]]


_Maker = Callable[[str, _Source, Random], str | tuple[str, str] | None]


def make_synthetic_pairs(texts: Sequence[str], *, seed: int, per_kind: int = 60) -> list[SyntheticPair]:
    """Up to ``per_kind`` pairs of each kind, made from distinct ``texts`` of at most ``MAX_TEXT_CHARS`` characters.

    Deterministic: the order of ``texts`` does not matter, and which of them are varied follows from ``seed``. A kind
    that does not apply, such as another version where no text has one, is missing. A variant equal to its text up to
    normalisation is no pair.
    """
    usable = sorted({text for text in texts if text.strip() and len(text) <= MAX_TEXT_CHARS})
    source = _gather(usable)
    return [pair for kind, same, make in _KINDS for pair in _plant(kind, same, make, source, seed, per_kind)]


def _plant(kind: str, same: bool, make: _Maker, source: _Source, seed: int, per_kind: int) -> Iterator[SyntheticPair]:
    order = list(source.texts)
    Random(f"{seed} {kind}").shuffle(order)
    planted = 0
    for text in order:
        made = make(text, source, Random(f"{seed} {kind} {text}"))
        a, b = (text, made) if isinstance(made, str) else made or ("", "")
        if normalize_text(a) == normalize_text(b):
            continue
        yield SyntheticPair(kind, same, a, b)
        planted += 1
        if planted == per_kind:
            return


def _gather(texts: Sequence[str]) -> _Source:
    words: set[str] = set()
    found: dict[str, set[str]] = {}
    for text in texts:
        words |= _content_words(text)
        for literal in scan(text):
            found.setdefault(literal.kind, set()).add(literal.text)
    return _Source(texts, sorted(words), {kind: sorted(values) for kind, values in found.items()})


# --- the same ------------------------------------------------------------------------------------------------------


def _reordered(text: str, random: Random) -> str | None:
    sentences = split_sentences(text)
    if len(sentences) < 2:
        return None
    cut = random.randrange(1, len(sentences))
    return " ".join(sentences[cut:] + sentences[:cut])


def _shortened(text: str, random: Random) -> str | None:
    """Without one sentence, or one clause of a single sentence, that holds no literal."""
    sentences = split_sentences(text)
    parts, glue = (sentences, " ") if len(sentences) > 2 else (text.split(", "), ", ")
    spare = [at for at, part in enumerate(parts) if at and not literals(part)]
    if len(parts) < 3 or not spare:
        return None
    left_out = random.choice(spare)
    return glue.join(parts[:left_out] + parts[left_out + 1 :])


def _extended(text: str, source: _Source, random: Random) -> str | None:
    """With a sentence of another text behind it that contradicts nothing."""
    other = random.choice(source.texts)
    sentence = random.choice(split_sentences(other))
    longer = f"{text.rstrip()} {sentence}"
    # What is added must stay detail: as much again would be another subject.
    if other == text or 2 * len(sentence) > len(text) or conflicts(text, longer):
        return None
    return longer


def _retold(text: str, random: Random) -> str | None:
    """Several of the above at once, as people do who note the same again."""
    told = rewrite_rules.replace_synonyms(rewrite_rules.respell(text) or text) or text
    for change in (_shortened, _reordered):
        told = change(told, random) or told
    return told if literals(told) == literals(text) else None


# --- something else ------------------------------------------------------------------------------------------------


def _with_other_literal(text: str, source: _Source, random: Random, *, kinds: Sequence[str]) -> str | None:
    """One literal of these kinds replaced: digits by others, names and quotations by another of the project's."""
    found = [literal for literal in scan(text) if literal.kind in kinds]
    if not found:
        return None
    chosen = random.choice(found)
    other = _other(chosen, source, random)
    if other is None:
        return None
    # Everywhere: a text that names both the old and the new value would not say something else.
    changed = re.sub(rf"(?<![\w.]){re.escape(chosen.text)}(?!\w)", lambda _: other, text)
    return changed if literals(changed) != literals(text) else None


def _other(literal: Literal, source: _Source, random: Random) -> str | None:
    if literal.kind in _NUMERIC and _DIGITS.search(literal.text):
        at = random.choice(list(_DIGITS.finditer(literal.text)))
        number = str(int(at[0]) + random.choice((1, 2, 5, 10)))
        return literal.text[: at.start()] + number + literal.text[at.end() :]
    others = [text for text in source.literals.get(literal.kind, ()) if text.casefold() != literal.text.casefold()]
    return random.choice(others) if others else None


def _with_other_subject(text: str, source: _Source, random: Random) -> str | None:
    """Every word that is repeated replaced by another of the project's words, where together they are the subject."""
    said = Counter(word.lower() for word in _WORD.findall(text))
    for word in rewrite_rules.FUNCTION_WORDS:
        said.pop(word, None)
    repeated = sorted(word for word, count in said.items() if count > 1)
    others = [word for word in source.words if word not in said]
    if sum(said[word] for word in repeated) < MIN_REPEATED_SHARE * said.total() or len(others) < len(repeated):
        return None
    swapped = dict(zip(repeated, random.sample(others, len(repeated)), strict=True))
    return _WORD.sub(lambda match: swapped.get(match[0].lower(), match[0]), text) if swapped else None


def _blended(text: str, source: _Source, random: Random) -> tuple[str, str] | None:
    """The first half of a text, followed by as many words from the ends of two others: one template, two stories."""
    ours = text.split()
    half = len(ours) // 2
    tails = [" ".join(random.choice(source.texts).split()[-half:]) for _ in range(2)] if half else []
    new = [_content_words(tail) for tail in tails if len(tail.split()) == half]
    if len(new) < 2 or not all(new) or len(new[0] & new[1]) > MAX_BLEND_OVERLAP * min(map(len, new)):
        return None
    head = " ".join(ours[:half])
    return f"{head} {tails[0]}", f"{head} {tails[1]}"


def _content_words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)} - rewrite_rules.FUNCTION_WORDS


def _alone(change: Callable[[str], str | None]) -> _Maker:
    """A maker that needs the text alone."""
    return lambda text, _source, _random: change(text)


def _drawn(change: Callable[[str, Random], str | None]) -> _Maker:
    """A maker that needs the text and chance."""
    return lambda text, _source, random: change(text, random)


_KINDS: tuple[tuple[str, bool, _Maker], ...] = (
    ("reordered", True, _drawn(_reordered)),
    ("shortened", True, _drawn(_shortened)),
    ("respelled", True, _alone(rewrite_rules.respell)),
    ("reworded", True, _alone(rewrite_rules.replace_synonyms)),
    ("extended", True, _extended),
    ("retold", True, _drawn(_retold)),
    ("number", False, partial(_with_other_literal, kinds=_NUMERIC)),
    ("name", False, partial(_with_other_literal, kinds=("identifier", "path", "url", "error_code", "quoted"))),
    ("negation", False, _alone(rewrite_rules.negate)),
    ("opposite", False, _alone(rewrite_rules.replace_opposite)),
    ("subject", False, _with_other_subject),
    ("blend", False, _blended),
)
