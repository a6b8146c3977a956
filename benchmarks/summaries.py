"""Topics and examples of summaries without a model, on labelled memories that are split among users.

    python benchmarks/summaries.py DIR SET [SET ...] [--by row|label] [--users 5] [--print]

The rows of ``DIR/SET.jsonl`` (``id``, ``content``, ``created_at``, ``label``) are split by the hash of their id or of
their label. No database is needed. *Of one label*: mean share of the topic of a text that has its label. *Together*:
mean share of the texts with its label that are in its topic. *In topics*: share of the texts. *Examples*: mean share of
the texts told in one line that have their most frequent label. ``--print``: print the summaries.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from quality import load_corpus

# Topics of short questions: an eighth of the memories, in lines of this length.
LINE_CHARS = 185
# Shorter texts may stand in a line by chance.
SHORTEST = 12


def split_users(rows: Sequence[dict[str, Any]], by: str, users: int) -> list[list[dict[str, Any]]]:
    """Return the rows of each user."""
    parts: list[list[dict[str, Any]]] = [[] for _ in range(users)]
    for row in rows:
        key = str(row["id"] if by == "row" else row["label"])
        parts[int(hashlib.sha256(key.encode()).hexdigest(), 16) % users].append(row)
    return parts


def measure_topics(labels: Sequence[str], topics: Sequence[Sequence[int]]) -> list[tuple[float, float]]:
    """Return the shares "of one label" and "together" for each text that is in a topic."""
    totals, shares = Counter(labels), []
    for topic in topics:
        counts = Counter(labels[at] for at in topic)
        shares += [(counts[labels[at]] / len(topic), counts[labels[at]] / totals[labels[at]]) for at in topic]
    return shares


def measure_examples(content: str, labels: dict[str, str]) -> Iterator[float]:
    """Yield the share of the most frequent label among the memories that each line tells, if it tells several."""
    for line in content.lower().split("\n"):
        told = [label for text, label in labels.items() if len(text) > SHORTEST and text in line]
        if len(told) > 1 and not line.startswith("-"):
            yield Counter(told).most_common(1)[0][1] / len(told)


def main() -> None:
    """Measure what the command line asks for."""
    from consolidation_pipeline.core.knowledge.topic_summaries import MAX_CHARS, summarize_topics
    from consolidation_pipeline.core.knowledge.topics import find_topics
    from consolidation_pipeline.core.text.boilerplate import find_boilerplate

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--by", choices=("row", "label"), default="row")
    parser.add_argument("--users", type=int, default=5)
    parser.add_argument("--print", action="store_true")
    given = parser.parse_args()
    print("| set | topics | of one label | together | in topics | examples |\n|---|---:|---:|---:|---:|---:|")
    for name in given.sets:
        rows = load_corpus(given.folder / f"{name}.jsonl").rows
        boilerplate = find_boilerplate({row["content"] for row in rows})
        shares, agreeing, texts, topics, summaries = [], list[float](), 0, 0, []
        for part in split_users(rows, given.by, given.users):
            days = [date.fromisoformat(row["created_at"][:10]) for row in part]
            contents = [row["content"] for row in part]
            summaries.append(summarize_topics(contents, days, boilerplate=boilerplate).content)
            labels = {row["content"]: str(row["label"]) for row in sorted(part, key=lambda row: str(row["content"]))}
            room = min(MAX_CHARS, sum(map(len, contents)) / 8)
            found = find_topics(list(labels), [contents.count(text) for text in labels], most=round(room / LINE_CHARS))
            shares += measure_topics(list(labels.values()), found)
            agreeing += measure_examples(
                summaries[-1], {text.strip().rstrip(".").lower(): label for text, label in labels.items()}
            )
            texts, topics = texts + len(labels), topics + len(found)
        pure, together = np.mean(shares, axis=0)
        examples = f"{np.mean(agreeing):.3f}" if agreeing else "–"
        print(f"| {name} | {topics} | {pure:.3f} | {together:.3f} | {len(shares) / texts:.3f} | {examples} |")
        if given.print:
            print("\n\n".join(summaries))


if __name__ == "__main__":
    main()
