"""Sentences that stand in so many memories of a project that they say nothing about any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.text_merge import split_sentences

# Both must hold: in a store of 300 ten repeats are a habit and no chance, in one of 30,000 they are a topic. Found on a
# store where two placeholder sentences stand in two thirds of the memories and make them look alike.
FEWEST_CONTENTS = 10
LEAST_SHARE = 0.02

# A template has a few dozen lines; a bound keeps the snapshot and the look-up small whatever the project holds.
MOST_SENTENCES = 200


def find_boilerplate(texts: Iterable[str]) -> tuple[str, ...]:
    """Sentences, in normal form, that stand in many of the distinct ``texts``: most frequent first, then by text.

    In at least ``FEWEST_CONTENTS`` texts and ``LEAST_SHARE`` of all; the ``MOST_SENTENCES`` most frequent of them. A
    sentence counts once per text. One pass; the order of the texts does not matter.
    """
    found: Counter[str] = Counter()
    total = 0
    for text in texts:
        total += 1
        found.update({normalize_text(sentence) for sentence in split_sentences(text)})
    needed = max(FEWEST_CONTENTS, LEAST_SHARE * total)
    frequent = sorted((-count, sentence) for sentence, count in found.items() if count >= needed)
    return tuple(sentence for _, sentence in frequent[:MOST_SENTENCES])


def strip_boilerplate(text: str, boilerplate: Collection[str]) -> str:
    """``text`` without its sentences whose normal form is in ``boilerplate`` (a set is fastest).

    What is kept stays as written, white space between kept sentences included. A text that holds none, or nothing else,
    comes back unchanged: it would be empty.
    """
    if not boilerplate:
        return text
    kept: list[str] = []
    end = 0
    dropped = False
    for sentence in split_sentences(text):
        start = text.index(sentence, end)
        if normalize_text(sentence) in boilerplate:
            dropped = True
        else:
            kept.append(text[end:start] + sentence)
        end = start + len(sentence)
    return "".join(kept).strip() if dropped and kept else text
