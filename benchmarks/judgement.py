"""Verdicts on labelled pairs of texts: how many of each kind may merge.

    python benchmarks/judgement.py [FILE ...]        default: benchmarks/pairs/*.jsonl

A line of a file is a JSON object with ``a``, ``b`` and, as far as known, ``language`` and ``part`` or ``label``. Parts:
near and near_reworded (one thing that matters differs), para and light_edit (nothing does). ``held_out.jsonl`` was
written before the word lists by somebody who had not seen them. Nobody reads it; no list or rule is made from it.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np

from consolidation_pipeline.core.differences.explanation import explain_readings
from consolidation_pipeline.core.differences.reading import read
from consolidation_pipeline.embed import load_embedder

PAIRS = Path(__file__).parent / "pairs"


def main() -> None:
    """Print a table for each file."""
    read_text, similarity = cache(read), load_similarity()
    for file in [Path(name) for name in sys.argv[1:]] or sorted(PAIRS.glob("*.jsonl")):
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        pairs: Counter[tuple[str, str]] = Counter()
        merged: Counter[tuple[str, str]] = Counter()
        start = time.perf_counter()
        for row in rows:
            kind = row.get("language", ""), row.get("part") or row.get("label", "")
            pairs[kind] += 1
            merged[kind] += explain_readings(read_text(row["a"]), read_text(row["b"]), similarity).may_merge
        seconds = time.perf_counter() - start
        print(f"\n{file.name}: {len(rows) / seconds:,.0f} pairs a second\n")
        print("| language | kind | pairs | may merge | share |\n|---|---|---:|---:|---:|")
        for language, kind in sorted(pairs):
            count, of = merged[language, kind], pairs[language, kind]
            print(f"| {language} | {kind} | {of} | {count} | {count / of:.0%} |")


def load_similarity():  # type: ignore[no-untyped-def]
    """Return the cosine of two words by the model inside the package."""
    embedder = load_embedder("local")

    @cache
    def embed(word: str) -> np.ndarray:
        vector = np.asarray(embedder.embed([word]))[0]
        return vector / np.linalg.norm(vector)

    return lambda one, other: float(embed(one) @ embed(other))


if __name__ == "__main__":
    main()
