"""Figures of a run as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.consolidation_bench.dataset import Dataset
from benchmarks.consolidation_bench.measure import Share

Figures = Mapping[str, Any]

# Measure -> heading, and True if a low share is good, False if a high one is, None if neither.
MEASURES: Mapping[str, tuple[str, bool | None]] = {
    "wrong_merges": ("wrong merges", True),
    "missed_duplicates": ("missed duplicates", True),
    "lost_facts": ("lost facts", True),
    "superseded": ("replaced facts known", False),
    "wrongly_superseded": ("wrongly replaced", True),
    "order_dependence": ("depends on order", True),
    "changed_by_second_run": ("second run changes", True),
    "restored_by_undo": ("restored by undo", False),
    "answered_before": ("recall@5 before", None),
    "answered_after": ("recall@5 after", False),
}


def write_report(dataset: Dataset, figures: Mapping[str, Figures]) -> str:
    """Return all tables of a run: every measure, wrong merges by class and language, missed duplicates by kind."""
    ran = {name: found for name, found in figures.items() if "skipped" not in found}
    parts = [
        f"{len(dataset.memories):,} memories ({dataset.name}), {len(dataset.near_misses):,} near-misses, "
        f"{len(dataset.duplicates):,} duplicates, {len(dataset.replacements):,} newer facts, "
        f"{len(dataset.questions):,} questions.\n",
        _write_main_table(ran),
    ]
    kinds = sorted({pair.difference for pair in dataset.near_misses})
    languages = sorted({pair.language for pair in dataset.near_misses})
    parts.append(_write_parts("Wrong merges by class", "wrong_merges", kinds, ran))
    parts.append(_write_parts("Wrong merges by language", "wrong_merges", languages, ran))
    kinds = sorted({pair.kind for pair in dataset.duplicates})
    languages = sorted({pair.language for pair in dataset.duplicates})
    parts.append(_write_parts("Missed duplicates by kind", "missed_duplicates", kinds, ran))
    parts.append(_write_parts("Missed duplicates by language", "missed_duplicates", languages, ran))
    parts.extend(f"{name}: left out, {found['skipped']}.\n" for name, found in figures.items() if "skipped" in found)
    return "\n".join(part for part in parts if part)


def _write_main_table(ran: Mapping[str, Figures]) -> str:
    """Return a row for each system; the best values are bold."""
    columns: list[tuple[str, list[str]]] = [
        ("model", [found["model"] for found in ran.values()]),
        ("memories left", [f"{found['active'] / found['memories']:.1%}" for found in ran.values()]),
    ]
    for key, (heading, is_low_good) in MEASURES.items():
        shares = [_pick(found[key]) for found in ran.values()]
        columns.append((heading, _write_shares(shares, is_low_good)))
    columns += [
        ("model calls", [f"{found['calls']:,}" for found in ran.values()]),
        ("tokens", [f"{found['tokens']:,}" for found in ran.values()]),
        ("seconds", [f"{found['seconds']:,.0f}" for found in ran.values()]),
        ("MB", [f"{found['megabytes']:,}" for found in ran.values()]),
    ]
    return _write_table("system", list(ran), columns)


def _write_parts(title: str, key: str, parts: Sequence[str], ran: Mapping[str, Figures]) -> str:
    """Return a table of the parts of a measure with a row for each system, or "" without parts."""
    columns = [
        (part, [_write_share(_pick(found[key], part)) for found in ran.values()])
        for part in parts
        if any(part in found[key] for found in ran.values())
    ]
    return f"{title}:\n\n{_write_table('system', list(ran), columns)}" if columns else ""


def _pick(figure: Any, part: str = "all") -> Share | None:
    """Return the share of a part, or None if there is nothing to measure."""
    share = figure.get(part) if isinstance(figure, Mapping) else figure
    return Share(*share) if share and share[1] else None


def _write_shares(shares: Sequence[Share | None], is_low_good: bool | None) -> list[str]:
    known = [share.count / share.of for share in shares if share]
    choose: Callable[[list[float]], float] = min if is_low_good else max
    best = choose(known) if known and is_low_good is not None else None
    return [
        f"**{_write_share(share)}**" if share and share.count / share.of == best else _write_share(share)
        for share in shares
    ]


def _write_share(share: Share | None) -> str:
    """Return a share as a percentage, or "–". More than all, as marks beyond the asked pairs can be, is a count."""
    if not share:
        return "–"
    return f"{share.count / share.of:.1%}" if share.count <= share.of else f"{share.count} of {share.of}"


def _write_table(corner: str, rows: Sequence[str], columns: Sequence[tuple[str, Sequence[str]]]) -> str:
    heads = " | ".join(heading for heading, _ in columns)
    lines = [f"| {corner} | {heads} |", "|---|" + "---:|" * len(columns)]
    lines += [f"| {name} | {' | '.join(cells[at] for _, cells in columns)} |" for at, name in enumerate(rows)]
    return "\n".join(lines) + "\n"
