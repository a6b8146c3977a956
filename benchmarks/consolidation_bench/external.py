"""Labelled files as datasets: pairs of texts that may or may not become one, and sets with groups of duplicates."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.consolidation_bench.dataset import Dataset, Duplicate, Fact, Memory, NearMiss, squeeze

START = datetime(2026, 1, 5, tzinfo=UTC)


def load_dataset(path: Path) -> Dataset:
    """Return the memories of a file of JSON lines.

    - Pairs: ``a`` and ``b``, with ``may_merge``, or with ``part`` (near and near_reworded may not); and, as far as
      known, ``cls`` and ``language``. Each pair has a user of its own.
    - Sets: ``content``, and ``dup_group`` where it is known that memories say the same. They have one user.

    A fact counts as told if a text contains one of the texts that tell it, as nothing else is known of these files.

    Raises:
        SystemExit: The file is missing, or its rows are neither.
    """
    if not path.is_file():
        raise SystemExit(f"{path}: no such file")
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    if rows and all("a" in row and "b" in row for row in rows):
        return _load_pairs(path.stem, rows)
    if rows and all("content" in row for row in rows):
        return _load_set(path.stem, rows)
    raise SystemExit(f"{path}: rows need either a and b, or content")


def _load_pairs(name: str, rows: list[dict[str, Any]]) -> Dataset:
    data = Dataset(name)
    for number, row in enumerate(rows):
        language = row.get("language") or "en"
        user = f"pair-{number}"
        kind = row.get("cls") or row.get("label") or "pair"
        may_merge = row["may_merge"] if "may_merge" in row else not str(row.get("part", "")).startswith("near")
        ids = [f"{user}-a", f"{user}-b"]
        groups = [[row["a"], row["b"]]] if may_merge else [[row["a"]], [row["b"]]]
        facts = [Fact(f"{user}-fact-{at}", user, wordings=tuple(texts)) for at, texts in enumerate(groups)]
        data.facts.update({fact.id: fact for fact in facts})
        for at, (id_, text) in enumerate(zip(ids, (row["a"], row["b"]), strict=True)):
            data.memories.append(_make_memory(len(data.memories), id_, user, text, language))
            data.tells[id_] = frozenset([facts[min(at, len(facts) - 1)].id])
        if may_merge:
            data.duplicates.append(Duplicate(row.get("part") or kind, language, *ids))
        else:
            data.near_misses.append(NearMiss(kind, language, facts[0].id, facts[1].id))
    return data


def _load_set(name: str, rows: list[dict[str, Any]]) -> Dataset:
    data, groups = Dataset(name), defaultdict(list)
    for number, row in enumerate(rows):
        groups[row.get("dup_group") or squeeze(row["content"])].append((f"m{number:05}", row["content"]))
    for number, members in enumerate(groups.values()):
        fact = Fact(f"f{number:05}", "all", wordings=tuple(dict.fromkeys(text for _, text in members)))
        data.facts[fact.id] = fact
        data.tells.update({id_: frozenset([fact.id]) for id_, _ in members})
        for id_, text in members[1:]:
            kind = "exact" if squeeze(text) == squeeze(members[0][1]) else "reworded"
            data.duplicates.append(Duplicate(kind, "en", members[0][0], id_))
    data.memories.extend(
        _make_memory(number, f"m{number:05}", "all", row["content"], "en") for number, row in enumerate(rows)
    )
    return data


def _make_memory(number: int, id_: str, user: str, text: str, language: str) -> Memory:
    return Memory(id_, user, text, (START + timedelta(minutes=number)).isoformat(), language)
