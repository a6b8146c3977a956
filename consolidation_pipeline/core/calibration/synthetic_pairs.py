"""Synthetic labelled pairs made from a project's own texts: paraphrases and near-misses.

They stand in for pairs that nobody has labelled. The similarities that a model gives them tell where its threshold
belongs. No language model is asked. Every pair follows from its text, the other texts and the seed alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from consolidation_pipeline.core.calibration import rewrite_rules
from consolidation_pipeline.core.literals.literal_scanner import Literal, scan
from consolidation_pipeline.core.literals.literals import conflicts, literals
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.text_merge import split_sentences

# Longer texts are not varied: an embedding model might cut off the end, and the change with it.
MAX_TEXT_CHARS = 4_000

# Share of a text's content words that must be repeated words before swapping these makes another subject. With a
# smaller share, they are a detail among many that no cosine sees.
MIN_REPEATED_SHARE = 0.3

# Largest share of content words that the second halves of two blends may share: with more they might mean the same.
MAX_BLEND_OVERLAP = 0.15

_WORD = re.compile(r"[^\W\d_]{4,}")
_DIGITS = re.compile(r"\d+")
_NUMERIC = ("number", "version", "date")


@dataclass(frozen=True)
class SyntheticPair:
    """Two texts, the kind of change between them, and True in ``same`` if they mean the same."""

    kind: str
    same: bool
    a: str
    b: str


@dataclass(frozen=True)
class _Source:
    """Material for the variants: the project's texts, its words, and its literals by kind."""

    texts: Sequence[str]
    words: Sequence[str]
    literals: Mapping[str, Sequence[str]]


_Maker = Callable[[str, _Source, Random], str | tuple[str, str] | None]


def make_synthetic_pairs(texts: Sequence[str], *, seed: int, per_kind: int = 60) -> list[SyntheticPair]:
    """Make up to ``per_kind`` labelled pairs of each kind from ``texts``.

    Deterministic: the order of ``texts`` does not matter, and ``seed`` decides which of them are varied. A kind that
    does not apply is missing, such as another version where no text has one. A variant that equals its text up to
    normalisation is left out.

    Args:
        texts: texts of the project. Those longer than ``MAX_TEXT_CHARS`` characters are not used.
        seed: seed of the random choices.
        per_kind: largest number of pairs of each kind.
    """
    usable = sorted({text for text in texts if text.strip() and len(text) <= MAX_TEXT_CHARS})
    source = _gather(usable)
    return [pair for kind, same, make in _KINDS for pair in _make_pairs(kind, same, make, source, seed, per_kind)]


def _make_pairs(
    kind: str, same: bool, make: _Maker, source: _Source, seed: int, per_kind: int
) -> Iterator[SyntheticPair]:
    order = list(source.texts)
    Random(f"{seed} {kind}").shuffle(order)
    count = 0
    for text in order:
        made = make(text, source, Random(f"{seed} {kind} {text}"))
        a, b = (text, made) if isinstance(made, str) else made or ("", "")
        if normalize_text(a) == normalize_text(b):
            continue
        yield SyntheticPair(kind, same, a, b)
        count += 1
        if count == per_kind:
            return


def _gather(texts: Sequence[str]) -> _Source:
    words: set[str] = set()
    found: dict[str, set[str]] = {}
    for text in texts:
        words |= _content_words(text)
        for literal in scan(text):
            found.setdefault(literal.kind, set()).add(literal.text)
    return _Source(texts, sorted(words), {kind: sorted(values) for kind, values in found.items()})


# --- paraphrases ---------------------------------------------------------------------------------------------------


def _reordered(text: str, random: Random) -> str | None:
    sentences = split_sentences(text)
    if len(sentences) < 2:
        return None
    cut = random.randrange(1, len(sentences))
    return " ".join(sentences[cut:] + sentences[:cut])


def _shortened(text: str, random: Random) -> str | None:
    """Return the text without one sentence, or without one clause of a single sentence, that holds no literal."""
    sentences = split_sentences(text)
    parts, glue = (sentences, " ") if len(sentences) > 2 else (text.split(", "), ", ")
    spare = [at for at, part in enumerate(parts) if at and not literals(part)]
    if len(parts) < 3 or not spare:
        return None
    left_out = random.choice(spare)
    return glue.join(parts[:left_out] + parts[left_out + 1 :])


def _extended(text: str, source: _Source, random: Random) -> str | None:
    """Return the text followed by a sentence of another text that contradicts nothing."""
    other = random.choice(source.texts)
    sentence = random.choice(split_sentences(other))
    longer = f"{text.rstrip()} {sentence}"
    # The addition must stay a detail: as much text again would be another subject.
    if other == text or 2 * len(sentence) > len(text) or conflicts(text, longer):
        return None
    return longer


def _retold(text: str, random: Random) -> str | None:
    """Return the text with several of the changes above at once, as people make who note the same thing again."""
    retold = rewrite_rules.replace_synonyms(rewrite_rules.respell(text) or text) or text
    for change in (_shortened, _reordered):
        retold = change(retold, random) or retold
    return retold if literals(retold) == literals(text) else None


# --- near-misses ---------------------------------------------------------------------------------------------------


def _with_other_literal(text: str, source: _Source, random: Random, *, kinds: Sequence[str]) -> str | None:
    """Return the text with one literal of these kinds replaced: digits by others, names and quotations by others of the
    project.
    """
    found = [literal for literal in scan(text) if literal.kind in kinds]
    if not found:
        return None
    chosen = random.choice(found)
    other = _other(chosen, source, random)
    if other is None:
        return None
    # Replace every occurrence: a text that names both the old and the new value is no near-miss.
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
    """Return the text with every repeated word replaced by another word of the project.

    Only texts in which the repeated words make up the subject are changed.
    """
    counts = Counter(word.lower() for word in _WORD.findall(text))
    for word in rewrite_rules.FUNCTION_WORDS:
        counts.pop(word, None)
    repeated = sorted(word for word, count in counts.items() if count > 1)
    others = [word for word in source.words if word not in counts]
    if sum(counts[word] for word in repeated) < MIN_REPEATED_SHARE * counts.total() or len(others) < len(repeated):
        return None
    swapped = dict(zip(repeated, random.sample(others, len(repeated)), strict=True))
    return _WORD.sub(lambda match: swapped.get(match[0].lower(), match[0]), text) if swapped else None


def _blended(text: str, source: _Source, random: Random) -> tuple[str, str] | None:
    """Return two texts with the same first half, each followed by as many words from the end of another text."""
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
    """Return a maker from a change that needs the text alone."""
    return lambda text, _source, _random: change(text)


def _drawn(change: Callable[[str, Random], str | None]) -> _Maker:
    """Return a maker from a change that needs the text and random choices."""
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
