"""Verdicts on labelled pairs of texts: how many of each kind may merge, and how many more a pair judge may confirm.

    python benchmarks/judgement.py [FILE ...]        default: those that come with the product, and development.jsonl

A line of a file is a JSON object with ``a``, ``b`` and, as far as known, ``language`` and ``part`` or ``label``. Parts:
near and near_reworded (one thing that matters differs), para and light_edit (nothing does). The pairs that come with
the product were written before the word lists by somebody who had not seen them. Nobody reads them; no list or rule is
made from them.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path

from consolidation_pipeline.core.differences.explanation import explain_readings
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.embed.local import word_similarity

ROOT = Path(__file__).parent.parent
FILES = (
    ROOT / "consolidation_pipeline" / "core" / "calibration" / "labelled_pairs.jsonl",
    ROOT / "benchmarks" / "pairs" / "development.jsonl",
)


def main() -> None:
    """Print a table for each file."""
    read_text = cache(read)
    for file in [Path(name) for name in sys.argv[1:]] or FILES:
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        pairs: Counter[tuple[str, str]] = Counter()
        merged: Counter[tuple[str, str]] = Counter()
        judged: Counter[tuple[str, str]] = Counter()
        start = time.perf_counter()
        for row in rows:
            kind = row.get("language", ""), row.get("part") or row.get("label", "")
            pairs[kind] += 1
            found = explain_readings(read_text(row["a"]), read_text(row["b"]), word_similarity)
            merged[kind] += found.may_merge
            judged[kind] += found.verdict == "unexplained"
        seconds = time.perf_counter() - start
        print(f"\n{file.name}: {len(rows) / seconds:,.0f} pairs a second\n")
        print("| language | kind | pairs | may merge | share | a judge may confirm |\n|---|---|---:|---:|---:|---:|")
        for language, kind in sorted(pairs):
            count, of = merged[language, kind], pairs[language, kind]
            print(f"| {language} | {kind} | {of} | {count} | {count / of:.0%} | {judged[language, kind]} |")


if __name__ == "__main__":
    main()
