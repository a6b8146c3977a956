"""Boilerplate: sentences that occur in so many memories of a project that they do not distinguish them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentence_splitter import split_pieces, split_sentences

# Boilerplate is in at least this many texts, and in at least this share of them. Ten repeats are a habit among 300
# texts, but a topic among 30,000. Chosen on a project with two placeholder sentences in two thirds of its memories.
MIN_TEXTS = 10
MIN_SHARE = 0.02

# A template has a few dozen lines. The limit keeps the stored list small in any project.
MAX_SENTENCES = 200

# What is still to be written: "TODO: add a rule".
_PLACEHOLDER_WORD = re.compile(r"TODO|TBD|FIXME|To be |None|N/A|this |here\b|the full ")
_PLACEHOLDER = re.compile(
    r"^\W*(?:TODO|TBD|FIXME|To be (?:determined|done|defined)|None\W*$|N/A\b"
    # What a template asks of its writer: "Describe this change", "Add a rule before relying on this lesson".
    r"|(?:Add|Write|Document|Describe|Record|Fill in|Insert|Enter|Summari[sz]e|Replace)\b[^.]{0,60}?\b"
    r"(?:this (?:change|commit|lesson|note|section|placeholder|template|memory|field|entry)|here)\W*$"
    # What points to the text that should stand here.
    r"|(?:Review|Read|See) the full (?:content|text|post|article|note)\b[^.]{0,30}\W*$)"
)


def is_placeholder(sentence: str) -> bool:
    """Return True for what is still to be written: "TODO", "Describe this change"."""
    return _PLACEHOLDER.match(sentence) is not None


def find_boilerplate(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the boilerplate of distinct texts in normal form: most frequent first, ties by the sentence.

    A sentence must occur in at least ``MIN_TEXTS`` texts and in ``MIN_SHARE`` of all. At most ``MAX_SENTENCES`` are
    returned.
    """
    counts: Counter[str] = Counter()
    total = 0
    for text in texts:
        total += 1
        counts.update({normalize_text(sentence) for sentence in split_sentences(text)})
    needed = max(MIN_TEXTS, MIN_SHARE * total)
    frequent = sorted((-count, sentence) for sentence, count in counts.items() if count >= needed)
    return tuple(sentence for _, sentence in frequent[:MAX_SENTENCES])


def strip_boilerplate(text: str, boilerplate: Collection[str]) -> str:
    """Return ``text`` without the sentences whose normal form is in ``boilerplate``.

    The rest keeps its words and white space. A text without boilerplate, or of nothing else, is returned unchanged.
    ``boilerplate``: sentences in normal form; a set is fastest.
    """
    if not boilerplate:
        return text
    kept: list[str] = []
    dropped = False
    for gap, sentence in split_pieces(text):
        if normalize_text(sentence) in boilerplate:
            dropped = True
        else:
            kept.append(gap + sentence)
    return "".join(kept).strip() if dropped and kept else text


def strip_repeats(texts: Sequence[str], boilerplate: Collection[str]) -> list[str]:
    """Return the texts without boilerplate, given and their own, and without placeholders.

    Their own boilerplate may not be that of the project, which is known from its first calibration on only. A text of
    nothing else is returned unchanged. ``boilerplate``: sentences in normal form.
    """
    distinct = dict.fromkeys(texts)
    placeholders = (
        normalize_text(sentence)
        for text in distinct
        if _PLACEHOLDER_WORD.search(text)
        for sentence in split_sentences(text)
        if is_placeholder(sentence)
    )
    dropped = {*boilerplate, *find_boilerplate(distinct), *placeholders}
    stripped = {text: strip_boilerplate(text, dropped).strip() for text in distinct}
    return [stripped[text] for text in texts]
