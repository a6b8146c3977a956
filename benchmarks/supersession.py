"""Supersession of an older memory by a newer one: how many of the expected ones are found, and how many others.

python benchmarks/supersession.py [FILE ...]        default: the development sequences
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from consolidation_pipeline_tests.core.knowledge.sequences import SEQUENCES, judge_sequence, load_sequences


def main() -> None:
    """Print each row that is not as expected, and a table for each file."""
    for file in [Path(name) for name in sys.argv[1:]] or [SEQUENCES]:
        counts: Counter[tuple[str, str]] = Counter()
        for row in load_sequences(file):
            found = judge_sequence(row)
            status = found.status if found else None
            kind = "superseded" if row["expect"] else "not superseded"
            counts.update([(kind, "rows"), *([(kind, "found")] if status else [])])
            if status == row["expect"]:
                counts[kind, "as expected"] += 1
            else:
                print(f"{row['language']} {row['cls']}: {status}, not {row['expect']}: {row['older']} | {row['newer']}")
        print(file)
        for kind in ("superseded", "not superseded"):
            print(kind, {name: counts[kind, name] for name in ("rows", "found", "as expected")})


if __name__ == "__main__":
    main()
