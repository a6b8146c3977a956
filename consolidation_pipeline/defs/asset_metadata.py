"""Metadata and tags that several assets share: table columns, numbers of derived texts, failures."""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import getsourcefile, getsourcelines
from typing import TYPE_CHECKING, Any

import dagster as dg

from consolidation_pipeline.store.database.schema import describe_columns

if TYPE_CHECKING:
    from consolidation_pipeline.service.knowledge.derive import DeriveResult

_MAX_FAILURES = 10


def describe_table(table: str) -> dict[str, Any]:
    """Return definition metadata of an asset for the catalog: its table's name and columns with their comments."""
    columns = [dg.TableColumn(name, kind, description=comment) for name, kind, comment in describe_columns(table)]
    return {"dagster/table_name": f"consolidation.{table}", "dagster/column_schema": dg.TableSchema(columns)}


def describe_code(work: Callable[..., Any]) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return definition metadata of an asset: the place of the function that computes it."""
    file, line = getsourcefile(work) or "", getsourcelines(work)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(file_path=file, line_number=line, label=f"{work.__name__} (line {line})")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def build_table(columns: Mapping[str, str], rows: Iterable[tuple[str | int, ...]]) -> dg.TableMetadataValue:
    """Return metadata that the UI shows as a table. ``columns`` maps each name to a Dagster column type."""
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns.items()])
    records = [dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows]
    return dg.MetadataValue.table(records, schema)


def build_image(alt: str, svg: str) -> dg.MarkdownMetadataValue:
    """Return metadata that the UI shows as an image."""
    return dg.MetadataValue.md(f"![{alt}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})")


def describe_derived(name: str, result: DeriveResult) -> dict[str, Any]:
    """Return the metadata of the asset ``name`` (patterns or principles), with failures if there are any."""
    return {
        "groups_in": result.groups,
        f"{name}_created": result.created,
        f"{name}_updated": result.updated,
        f"{name}_superseded": result.superseded,
        f"{name}_needs_review": result.needs_review,
        "groups_covered": result.covered,
        "groups_skipped": result.changed,
        "groups_discarded": result.discarded,
        "groups_failed": len(result.failures),
        **describe_failures(result.failures, result.stopped),
    }


def describe_failures(failures: Sequence[tuple[str, str]], stopped: str | None) -> dict[str, Any]:
    """Return the first ten failures of a phase and why it stopped early. Keys that do not apply are left out."""
    shown = {"failures": [": ".join(failure) for failure in failures[:_MAX_FAILURES]]} if failures else {}
    return {**shown, **({"stopped": stopped} if stopped else {})}
