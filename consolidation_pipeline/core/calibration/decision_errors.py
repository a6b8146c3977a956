"""Errors of the merge decision, measured on labelled pairs of texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from consolidation_pipeline.core.calibration.threshold_estimates import Share, wilson_interval
from consolidation_pipeline.core.differences.alignment import Similarity
from consolidation_pipeline.core.differences.pair_screen import find_mergeable

# Parts of the pairs that come with the product: texts that may become one, and texts of which one thing differs.
_SAME_PARTS = ("para", "light_edit")


@dataclass(frozen=True)
class LabelledPair:
    """Two texts; ``same``: they may become one. ``kind``: origin of the pair. ``scope``: that of its memories."""

    a: str
    b: str
    same: bool
    kind: str
    scope: str = ""


@cache
def load_product_pairs() -> tuple[LabelledPair, ...]:
    """Return the labelled pairs that come with the product.

    They were written before the word lists of ``core.differences`` by somebody who had not seen these. No list or rule
    is made from them.
    """
    lines = (files(__package__) / "labelled_pairs.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return tuple(LabelledPair(row["a"], row["b"], row["part"] in _SAME_PARTS, row["part"]) for row in rows)


def measure_errors(pairs: Sequence[LabelledPair], similarity: Similarity | None) -> dict[str, Any]:
    """Return the errors of ``count_errors`` if pairs merge whose every difference is harmless.

    Args:
        similarity: as in ``explain``.
    """
    texts = sorted({text for pair in pairs for text in (pair.a, pair.b)})
    at = {text: number for number, text in enumerate(texts)}
    merged = find_mergeable(texts, [at[pair.a] for pair in pairs], [at[pair.b] for pair in pairs], similarity)
    return count_errors(pairs, merged.tolist())


def count_errors(pairs: Sequence[LabelledPair], merged: Sequence[bool]) -> dict[str, Any]:
    """Return the share of different pairs that would merge (``wrong``), and of equal ones (``found``), as JSON values.

    ``wrong_merges``: share of the pairs that would merge that are different. ``kinds``: share that would merge, by
    kind. Every share comes with its 95 % interval.

    Args:
        merged: True for each pair that would merge.
    """
    found: Counter[bool | str] = Counter()
    for pair, is_merged in zip(pairs, merged, strict=True):
        found.update({pair.same: is_merged, pair.kind: is_merged})
    of = Counter[bool | str](key for pair in pairs for key in (pair.same, pair.kind))
    shares = {key: _describe(wilson_interval(found[key], total)) for key, total in of.items()}
    nothing = _describe(wilson_interval(0, 0))
    return {
        "pairs": len(pairs),
        "wrong": shares.get(False, nothing),
        "found": shares.get(True, nothing),
        "wrong_merges": _describe(wilson_interval(found[False], found[False] + found[True])),
        "kinds": {kind: shares[kind] for kind in sorted(key for key in of if isinstance(key, str))},
    }


def _describe(share: Share) -> dict[str, Any]:
    value = None if share.value is None else round(share.value, 4)
    return {"share": value, "low": round(share.low, 4), "high": round(share.high, 4), "of": share.total}
