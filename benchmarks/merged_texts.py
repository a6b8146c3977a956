"""Merged texts of groups that may merge: their length, what they leave out, and whether a literal is lost.

    python benchmarks/merged_texts.py DIR

Each line of ``DIR/SET.jsonl`` is a JSON object with ``content`` and the topic: ``label`` or ``dup_group``. Memories of
a topic of which every two may merge are a group. Labelled pairs are in ``DIR/pairs/real.jsonl``: ``a``, ``b`` and
``may_merge``. ``NAME_queries.jsonl`` is skipped.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SEED = 7
MERGES = 10_000
# Memories of a topic that are grouped, so that the time grows with the number of topics.
TOPIC_SIZE = 30


def load_rows(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def form_groups(rows: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Return the groups of distinct texts of one topic of which every two may merge."""
    from consolidation_pipeline.core.differences.explanation import explain
    from consolidation_pipeline.embed.local import word_similarity

    topics = defaultdict[str, list[str]](list)
    for row in rows:
        topic = row.get("dup_group") or row.get("label")
        if topic:
            topics[str(topic)].append(row["content"])
    groups = []
    for texts in topics.values():
        found: list[list[str]] = []
        for text in list(dict.fromkeys(texts))[:TOPIC_SIZE]:
            fitting = (one for one in found if all(explain(text, other, word_similarity).may_merge for other in one))
            group = next(fitting, None)
            if group is None:
                found.append([text])
            else:
                group.append(text)
        groups += [group for group in found if len(group) > 1]
    return groups


def print_merges(name: str, groups: Sequence[Sequence[str]]) -> None:
    """Print a row of the table."""
    from consolidation_pipeline.core.text.sentence_splitter import split_sentences
    from consolidation_pipeline.core.text.text_merge import merge_texts

    if not groups:
        return
    start = time.process_time()
    merged = [merge_texts(group) for group in groups]
    seconds = time.process_time() - start
    lengths = [len(text) / max(map(len, group)) for text, group in zip(merged, groups, strict=True)]
    left = sum(len(split_sentences(text)) for text in merged)
    given = sum(len(split_sentences(text)) for group in groups for text in group)
    whole = sum(text in group for text, group in zip(merged, groups, strict=True))
    print(
        f"| {name} | {len(groups)} | {sum(map(len, groups)) / len(groups):.1f} | {statistics.median(lengths):.2f} "
        f"| {statistics.mean(lengths):.2f} | {1 - left / given:.0%} | {whole / len(groups):.0%} "
        f"| {1000 * seconds / len(groups):.1f} |"
    )


def count_lost_literals(stores: Sequence[Sequence[str]], merges: int = MERGES) -> int:
    """Count literals of sources that are missing in their merged text, over random groups of two to six texts."""
    from consolidation_pipeline.core.text.text_merge import find_missing_literals, merge_texts

    draw = random.Random(SEED)
    lost = 0
    for number in range(merges):
        texts = stores[number % len(stores)]
        sources = draw.sample(texts, min(len(texts), draw.randint(2, 6)))
        lost += len(find_missing_literals(sources, merge_texts(sources)))
    return lost


def main() -> None:
    """Measure the sets of the folder given on the command line."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        raise SystemExit(f"usage: python {sys.argv[0]} DIR: DIR is the folder with the labelled .jsonl files")
    folder = Path(sys.argv[1])
    files = sorted(path for path in folder.glob("*.jsonl") if not path.stem.endswith("_queries"))
    stores = {path.stem: load_rows(path) for path in files}
    pairs = folder / "pairs" / "real.jsonl"
    print("| set | groups | size | length / longest, median | mean | sentences dropped | one source says all | ms |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    if pairs.exists():
        print_merges("pairs", [[row["a"], row["b"]] for row in load_rows(pairs) if row["may_merge"]])
    for name, rows in stores.items():
        print_merges(name, form_groups(rows))
    lost = count_lost_literals([[row["content"] for row in rows] for rows in stores.values()])
    print(f"\nliterals lost in {MERGES:,} random merges: {lost}")


if __name__ == "__main__":
    main()
