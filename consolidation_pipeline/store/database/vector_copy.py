"""Binary COPY of vectors and columns between Postgres and NumPy: one strided view, no Python object per row.

Ids are ``S16``: the 16 bytes of a UUID, which sort as in Postgres. (NumPy drops trailing NULs when an element becomes
``bytes``; ``to_uuids`` restores them.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from consolidation_pipeline.core.vectors import find_positions, find_unusable
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.database.raw_connections import autocommit_connection

Ids = npt.NDArray[np.bytes_]
Vectors = npt.NDArray[np.float32]

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_CHUNK_ROWS = 65_536
# Rows with vectors from which two connections read them.
_FEWEST_SPLIT = 20_000
# Bytes that are received before they are read as vectors: they stay in the cache.
_BLOCK_BYTES = 1 << 21


def to_ids(uuids: Sequence[UUID]) -> Ids:
    """Return UUIDs as an ``S16`` array of shape (n,)."""
    return np.frombuffer(b"".join(u.bytes for u in uuids), dtype="S16")


def to_uuids(ids: Ids) -> list[UUID]:
    """Return the UUIDs of an ``S16`` array of shape (n,)."""
    raw = np.ascontiguousarray(ids).tobytes()
    return [UUID(bytes=raw[at : at + 16]) for at in range(0, len(raw), 16)]


def format_vector(vector: Vectors) -> str:
    """Return a vector of shape (d,) as Postgres text; exact, as float32 survives the conversion to decimals."""
    return f"[{','.join(map(repr, vector.tolist()))}]"


def load_vectors(
    connection: Connection, query: str, parameters: Mapping[str, Any], *, dimension: int
) -> tuple[Ids, Vectors]:
    """Return ids ``S16`` (n,) and vectors float32 (n, dimension) of a query that selects ``id, embedding``.

    Raises:
        EmbeddingError: A vector has another length than ``dimension``.
    """
    (ids,), vectors = load_columns_and_vectors(connection, query, parameters, {"id": "S16"}, dimension=dimension)
    return ids, vectors


def load_columns_and_vectors(
    connection: Connection,
    query: str,
    parameters: Mapping[str, Any],
    kinds: Mapping[str, str],
    *,
    dimension: int,
    ids: Ids | None = None,
) -> tuple[tuple[npt.NDArray[Any], ...], Vectors]:
    """Return columns as ``load_columns`` does, and the vectors, which the query selects last.

    Args:
        query: SQL with ``%(name)s`` for each parameter, without nulls.
        kinds: Name -> dtype of each column before the vector, ``id`` among them; see ``load_columns``.
        ids: Ids ``S16`` (n,), ascending without repeats: only rows with one of these are returned, in this order. Then
            no vector is copied twice, and Postgres need not write them to disk to sort them. Many are read by two
            connections, so the query must see nothing that is not committed. None = all rows, in the order of the
            query.

    Returns:
        Columns of shape (n,) and vectors float32 (n, dimension).

    Raises:
        EmbeddingError: A vector has another length than ``dimension``.
    """
    record = _vector_record(dimension, kinds)
    if ids is None:
        blocks = _iter_vector_rows(connection, query, parameters, record, dimension)
        parts = [(_columns(rows, kinds), rows["vector"].astype(np.float32)) for rows in blocks]
        parts = parts or [(_columns(np.empty(0, record), kinds), np.empty((0, dimension), np.float32))]
        columns = tuple(np.concatenate(column) for column in zip(*(part for part, _ in parts), strict=True))
        return columns, np.concatenate([vectors for _, vectors in parts])
    columns = _columns(np.empty(len(ids), record), kinds)
    vectors, is_found = np.empty((len(ids), dimension), np.float32), np.zeros(len(ids), np.bool_)

    def read(connection: Connection, query: str, parameters: Mapping[str, Any]) -> None:
        for rows in _iter_vector_rows(connection, query, parameters, record, dimension):
            at = find_positions(ids, rows["id"])
            if (at < 0).any():
                rows, at = rows[at >= 0], at[at >= 0]
            for column, values in zip(columns, _columns(rows, kinds), strict=True):
                column[at] = values
            vectors[at], is_found[at] = rows["vector"], True

    if len(ids) < _FEWEST_SPLIT:
        read(connection, query, parameters)
    else:
        # Postgres takes longer to send vectors than it takes to read them here, and does so on one core a connection.
        (middle,) = to_uuids(ids[len(ids) // 2 :][:1])
        bound = {**parameters, "middle": middle}
        with ThreadPoolExecutor(1) as thread, autocommit_connection(connection.engine) as other:
            rest = thread.submit(read, other, f"SELECT * FROM ({query}) AS rows WHERE id >= %(middle)s", bound)
            read(connection, f"SELECT * FROM ({query}) AS rows WHERE id < %(middle)s", bound)
            rest.result()
    if is_found.all():
        return columns, vectors
    return tuple(column[is_found] for column in columns), vectors[is_found]


def copy_vectors(connection: Connection, target: str, ids: Ids, vectors: Vectors) -> None:
    """Copy ids ``S16`` (n,) and vectors float32 (n, d) into ``target``, written as ``table (id, embedding)``.

    Raises:
        EmbeddingError: A vector holds NaN or infinity, or is zero; nothing is written.
    """
    bad = find_unusable(vectors)
    if bad.size:
        raise EmbeddingError(
            f"{bad.size} vectors are NaN, infinite or zero, the first of memory {to_uuids(ids[bad[:1]])[0]}"
        )
    rows = np.zeros(len(ids), dtype=_vector_record(vectors.shape[1], {"id": "S16"}))
    rows["fields"], rows["id size"], rows["id"] = 2, 16, ids
    rows["size"], rows["dimension"], rows["vector"] = 4 + 4 * vectors.shape[1], vectors.shape[1], vectors
    _copy_in(connection, target, rows)


def pass_vectors(connection: Connection, query: str, parameters: Mapping[str, Any], target: str) -> int:
    """Copy the rows of a query, which selects vectors as ``bytea``, into a table; return their number.

    The bytes are those that ``vector_send`` gives, and arrive as vectors: both types have the same form in binary COPY.

    Args:
        query: SQL with ``%(name)s`` for each parameter.
        target: Written as ``table (id, embedding)``, with columns of type ``vector`` for those of ``bytea``.
    """
    cursor = _cursor(connection)
    with cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT binary)", parameters) as copy:
        blocks = list(copy)
    with cursor.copy(f"COPY {target} FROM STDIN (FORMAT binary)") as copy:
        for block in blocks:
            copy.write(block)
    return int(cursor.rowcount)


def load_columns(
    connection: Connection, query: str, parameters: Mapping[str, Any], kinds: Mapping[str, str]
) -> tuple[npt.NDArray[Any], ...]:
    """Return the columns of a query as arrays of shape (n,), in the machine's byte order.

    Args:
        query: SQL with ``%(name)s`` for each parameter. It must replace nulls, which have no fixed width.
        kinds: Name -> dtype of each column: S16 for uuid, >f4 real, >f8 double precision, >i2 smallint, >i4 integer,
            >i8 bigint.

    Raises:
        EmbeddingError: A row does not have these widths.
    """
    return _columns(_copy_out(connection, query, parameters, _record(kinds), f"rows of {', '.join(kinds)}"), kinds)


def load_packed_columns(
    connection: Connection, query: str, parameters: Mapping[str, Any], kinds: Mapping[str, str]
) -> tuple[npt.NDArray[Any], ...]:
    """Return columns as ``load_columns`` does, of a query that packs many rows into each ``bytea``.

    For millions of rows: the driver takes as long for one row of COPY as for a packet of a thousand. The query packs
    by the send functions of the types.
    """
    with _cursor(connection) as cursor:
        cursor.execute(query, parameters, binary=True)
        packed = b"".join(row[0] for row in cursor)
    return _columns(np.frombuffer(packed, dtype=np.dtype(list(kinds.items()))), kinds)


def load_labelled_columns(
    connection: Connection, query: str, parameters: Mapping[str, Any], kinds: Mapping[str, str]
) -> tuple[npt.NDArray[np.object_], tuple[npt.NDArray[Any], ...]]:
    """Return labels by row and columns, of a query that selects a label before each packet.

    Args and packets as of ``load_packed_columns``.

    Returns:
        Labels, object (n,), and the columns, each (n,).
    """
    record = np.dtype(list(kinds.items()))
    with _cursor(connection) as cursor:
        packets = cursor.execute(query, parameters, binary=True).fetchall()
    rows = np.frombuffer(b"".join(packet for _, packet in packets), dtype=record)
    labels = np.array([label for label, _ in packets], dtype=object)
    return labels.repeat([len(packet) // record.itemsize for _, packet in packets]), _columns(rows, kinds)


def copy_columns(connection: Connection, target: str, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Copy columns of shape (n,) into ``target``, written as ``table (name, ..)``; dtypes as in ``load_columns``."""
    kinds = {name: column.dtype.newbyteorder(">").str for name, column in columns.items()}
    rows = np.zeros(len(next(iter(columns.values()))), dtype=_record(kinds))
    rows["fields"] = len(columns)
    for name, column in columns.items():
        rows[f"{name} size"], rows[name] = column.dtype.itemsize, column
    _copy_in(connection, target, rows)


def _columns(rows: npt.NDArray[np.void], kinds: Mapping[str, str]) -> tuple[npt.NDArray[Any], ...]:
    return tuple(rows[name].astype(rows.dtype[name].newbyteorder("=")) for name in kinds)


def _record(kinds: Mapping[str, str]) -> np.dtype[np.void]:
    """Return the dtype of a row as binary COPY writes it: number of fields, then size and bytes of each field."""
    return np.dtype([("fields", ">i2"), *_sized(kinds)])


def _sized(kinds: Mapping[str, str]) -> list[tuple[str, str]]:
    return [field for name, kind in kinds.items() for field in ((f"{name} size", ">i4"), (name, kind))]


def _vector_record(dimension: int, kinds: Mapping[str, str]) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("fields", ">i2"),
            *_sized(kinds),
            ("size", ">i4"),
            ("dimension", ">i2"),
            ("unused", ">i2"),
            ("vector", ">f4", (dimension,)),
        ]
    )


def _copy_out(
    connection: Connection, query: str, parameters: Mapping[str, Any], record: np.dtype[np.void], what: str
) -> npt.NDArray[np.void]:
    buffer = bytearray()
    for block in _iter_copied(connection, query, parameters):
        buffer += block
    body = memoryview(buffer)[len(_HEADER) : -len(_TRAILER)]
    if len(body) % record.itemsize:
        raise _unfit(what)
    return np.frombuffer(body, dtype=record)


def _iter_vector_rows(
    connection: Connection, query: str, parameters: Mapping[str, Any], record: np.dtype[np.void], dimension: int
) -> Iterator[npt.NDArray[np.void]]:
    """Yield the rows of a query in blocks.

    Raises:
        EmbeddingError: A vector has another length than ``dimension``.
    """
    size = record.itemsize

    def read(body: memoryview) -> npt.NDArray[np.void]:
        rows = np.frombuffer(body, dtype=record)
        # Rows of other sizes may add up to whole records by chance; the view is right up to the first of them.
        wrong = np.flatnonzero((rows["size"] != 4 + 4 * dimension) | (rows["dimension"] != dimension))
        if wrong.size:
            raise EmbeddingError(
                f"memory {to_uuids(rows['id'][wrong[:1]])[0]} has no vector of {dimension} dimensions: "
                "its model changed their length; set another embedding_model, which embeds all memories again"
            )
        return rows

    blocks = _iter_copied(connection, query, parameters)
    buffer = bytearray(next(blocks)[len(_HEADER) :])
    for block in blocks:
        buffer += block
        if len(buffer) >= _BLOCK_BYTES + size:
            end = len(buffer) // size * size
            yield read(memoryview(buffer)[:end])
            buffer = buffer[end:]
    body = memoryview(buffer)[: -len(_TRAILER)]
    if len(body) % size:
        raise _unfit(f"vectors of {dimension} dimensions")
    if len(body):
        yield read(body)


def _iter_copied(connection: Connection, query: str, parameters: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the bytes of binary COPY, the header with the first."""
    with _cursor(connection).copy(f"COPY ({query}) TO STDOUT (FORMAT binary)", parameters) as copy:
        yield from copy


def _unfit(what: str) -> EmbeddingError:
    return EmbeddingError(
        f"the stored rows are not all {what}: set another embedding_model, which embeds all memories again"
    )


def _copy_in(connection: Connection, target: str, rows: npt.NDArray[np.void]) -> None:
    with _cursor(connection).copy(f"COPY {target} FROM STDIN (FORMAT binary)") as copy:
        copy.write(_HEADER)
        for start in range(0, len(rows), _CHUNK_ROWS):
            copy.write(rows[start : start + _CHUNK_ROWS].tobytes())
        copy.write(_TRAILER)


def _cursor(connection: Connection) -> Any:
    return connection.connection.cursor()
