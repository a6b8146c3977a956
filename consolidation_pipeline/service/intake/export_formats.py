"""File formats of an export: JSON Lines, CSV and Parquet. Rows are streamed; Parquet is written in small batches."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Any

from consolidation_pipeline.errors import UsageError

FORMATS = ("jsonl", "csv", "parquet")

Row = Mapping[str, Any]
WriteRow = Callable[[Row], Any]
OpenWriter = Callable[[IO[bytes]], AbstractContextManager[WriteRow]]

# Rows of a Parquet row group. They are held in memory until it is written.
_ROWS_IN_GROUP = 5_000

# Columns of CSV and Parquet, each with its kind. Those of raw memories have the names that an import reads.
_RAW_COLUMNS = {
    "source": "text",
    "id": "text",
    "memory_type": "text",
    "content": "text",
    "goal": "text",
    "result": "text",
    "feedback": "text",
    "lessons_learned": "text",
    "tags": "texts",
    "files": "texts",
    "tool_usage": "json",
    "error_patterns": "json",
    "metadata": "json",
    "success": "boolean",
    "importance": "float",
    "pinned": "boolean",
    "reused_count": "integer",
    "last_accessed_at": "time",
    "learned_at": "time",
    "language": "text",
    "task_id": "text",
    "user_id": "text",
    "agent_id": "text",
    "session_id": "text",
}
# The text of derived memories is in `text`, not in `content`, so that an import rejects them.
_DERIVED_COLUMNS = {
    "kind": "text",
    "abstraction_level": "integer",
    "pattern_type": "text",
    "text": "text",
    "confidence_score": "float",
    "consolidation_method": "text",
    "needs_review": "boolean",
    "details": "json",
    "reuse_count": "integer",
    "created_at": "time",
    "updated_at": "time",
    "sources": "sources",
}


def prepare_writer(format: str, *, with_derived: bool, is_terminal: bool) -> OpenWriter:
    """Return a function that opens a writer of ``format`` on a binary file. Nothing is written before that.

    Args:
        format: One of ``FORMATS``.
        with_derived: Add the columns of derived memories to CSV and Parquet.
        is_terminal: True if the file is a terminal, which cannot show Parquet.

    Raises:
        UsageError: The format is unknown, needs a package that is not installed, or is binary and for a terminal.
    """
    columns = {**_RAW_COLUMNS, **(_DERIVED_COLUMNS if with_derived else {})}
    if format == "jsonl":
        return _write_jsonl
    if format == "csv":
        return lambda file: _write_csv(file, columns)
    if format != "parquet":
        raise UsageError(f"unknown format {format!r}; known formats: {', '.join(FORMATS)}")
    if is_terminal:
        raise UsageError("parquet is binary: name a file, or send standard output to a file or a pipe")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UsageError("parquet needs pyarrow: pip install 'consolidation-pipeline[parquet]'") from None
    return lambda file: _write_parquet(file, columns)


@contextmanager
def _write_jsonl(file: IO[bytes]) -> Iterator[WriteRow]:
    yield lambda row: file.write(_encode_line(row))


def _encode_line(row: Row) -> bytes:
    # An import decodes text in these two columns as JSON if it can, so text is written as JSON.
    coded = {name: json.dumps(row[name]) for name in ("tool_usage", "error_patterns") if isinstance(row.get(name), str)}
    fields = {name: value for name, value in {**row, **coded}.items() if not _is_empty(value)}
    return _to_json(fields).encode() + b"\n"


@contextmanager
def _write_csv(file: IO[bytes], columns: Mapping[str, str]) -> Iterator[WriteRow]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(columns)
    try:
        yield lambda row: writer.writerow([_format_cell(row.get(name), kind) for name, kind in columns.items()])
    finally:
        text.detach()  # The caller closes the file.


def _format_cell(value: Any, kind: str) -> Any:
    if _is_empty(value):
        return ""
    if kind in ("texts", "json", "sources", "boolean"):
        return _to_json(value)
    return _to_text(value) if kind == "time" else value


@contextmanager
def _write_parquet(file: IO[bytes], columns: Mapping[str, str]) -> Iterator[WriteRow]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    source = {name: pa.string() for name in ("id", "kind", "source", "external_id")} | {"similarity": pa.float32()}
    types = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "json": pa.string(),
        "boolean": pa.bool_(),
        "integer": pa.int64(),
        "float": pa.float64(),
        "time": pa.timestamp("us", "UTC"),
        "sources": pa.list_(pa.struct(list(source.items()))),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    json_columns = [name for name, kind in columns.items() if kind == "json"]
    rows: list[Row] = []

    def flush() -> None:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
        rows.clear()

    def write(row: Row) -> None:
        texts = {name: _to_json(row[name]) for name in json_columns if row.get(name) is not None}
        rows.append({**row, **texts, "id": str(row["id"])})
        if len(rows) == _ROWS_IN_GROUP:
            flush()

    with ParquetWriter(file, schema, compression="zstd") as writer:
        yield write
        if rows:
            flush()


def _is_empty(value: Any) -> bool:
    return value is None or value == [] or value == {}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_to_text)


def _to_text(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
