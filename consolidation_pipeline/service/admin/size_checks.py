"""Checks of sizes: the largest tables, those that retention prunes, and those that only grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from consolidation_pipeline.service.admin.findings import Finding
from consolidation_pipeline.store.admin.table_sizes import TableSize, list_table_sizes, measure_dagster
from consolidation_pipeline.store.database.engine import Engine

# Rows past their retention are removed from these. The others keep every row until its project is deleted.
PRUNED = ("consolidation_changes", "consolidation_events", "memory_votes", "vote_queries")
# A run replaces the rows of these, or deletes them.
REBUILT = (
    *("memory_neighbors", "compared_memories", "relevance_scores", "memory_clusters", "grouping_embeddings"),
    *("pending_uses", "compared_scopes", "grouped_scopes", "recall_answers", "discarded_groups", "compared_sentences"),
)
_LISTED = 5


def check_sizes(engine: Engine) -> Iterator[Finding]:
    """Tell how large the tables are, which of them grow, and what prunes them."""
    with engine.connect() as connection:
        tables, dagster = list_table_sizes(connection), measure_dagster(connection)
    yield Finding("tables", "ok", f"{_format(tables)} in all; the largest: {_list(tables[:_LISTED])}")
    pruned = [table for table in tables if table.name in PRUNED]
    yield Finding(
        "ledger size",
        "ok",
        f"{_list(pruned)}; `consolidation prune`, or the weekly schedule, removes what is past its retention",
    )
    kept = [table for table in tables if table.name not in (*PRUNED, *REBUILT)]
    yield Finding(
        "growth", "ok", f"{_format(kept)} never shrink but by `projects delete` and `erase`: {_list(kept[:_LISTED])}"
    )
    if dagster:
        size = _format([TableSize("dagster", dagster, 0)])
        yield Finding("Dagster size", "ok", f"{size}: runs and their event logs, kept until you delete runs in the UI")


def _list(tables: Sequence[TableSize]) -> str:
    return ", ".join(f"{table.name} {_format([table])} ({table.rows:,} rows)" for table in tables)


def _format(tables: Sequence[TableSize]) -> str:
    total = sum(table.bytes for table in tables)
    return f"{total / 1e9:.1f} GB" if total >= 1e9 else f"{total / 1e6:.1f} MB"
