"""Binary COPY of vectors and columns between NumPy and Postgres, and rejected vectors."""

from __future__ import annotations

import uuid
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pgvector import Vector
from sqlalchemy import Connection, text

from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.database import vector_copy
from consolidation_pipeline.store.database.raw_connections import fetch_rows
from consolidation_pipeline.store.database.vector_copy import (
    Ids,
    Vectors,
    copy_columns,
    copy_vectors,
    format_vector,
    load_columns,
    load_columns_and_vectors,
    load_vectors,
    to_ids,
    to_uuids,
)
from consolidation_pipeline_tests.hypothesis_examples import examples

TRAILING_ZEROS = [UUID(int=0), UUID(int=1 << 64), UUID("ffffffff-ffff-4fff-bfff-ffffffffff00"), UUID(int=1)]


@pytest.fixture
def tables(connection: Connection) -> Connection:
    """Connection with a temporary table of vectors."""
    connection.execute(text("CREATE TEMP TABLE v (n serial, id uuid, embedding vector) ON COMMIT DROP"))
    return connection


def _load(connection: Connection, dimension: int) -> tuple[Ids, Vectors]:
    return load_vectors(connection, "SELECT id, embedding FROM v ORDER BY n", {}, dimension=dimension)


def _ids(n: int) -> Ids:
    return to_ids([uuid.UUID(int=i << 8) for i in range(n)])


def test_ids_keep_trailing_zero_bytes() -> None:
    assert to_uuids(to_ids(TRAILING_ZEROS)) == TRAILING_ZEROS
    assert to_uuids(to_ids(TRAILING_ZEROS)[::2]) == TRAILING_ZEROS[::2]
    assert to_uuids(to_ids([])) == []


def test_ids_sort_like_postgres(tables: Connection) -> None:
    ids = to_ids([*TRAILING_ZEROS, *(uuid.uuid4() for _ in range(200))])
    copy_vectors(tables, "v (id, embedding)", ids, np.ones((len(ids), 1), np.float32))
    loaded, _ = load_vectors(tables, "SELECT id, embedding FROM v ORDER BY id", {}, dimension=1)
    assert to_uuids(loaded) == to_uuids(np.sort(ids))


@pytest.mark.parametrize("n", [0, 1, 4])
def test_vectors_round_trip_unchanged(tables: Connection, n: int) -> None:
    ids = to_ids(TRAILING_ZEROS[:n])
    vectors = np.random.default_rng(1).standard_normal((n, 7)).astype(np.float32)
    copy_vectors(tables, "v (id, embedding)", ids, vectors)
    loaded_ids, loaded = _load(tables, 7)
    assert to_uuids(loaded_ids) == TRAILING_ZEROS[:n]
    assert loaded.shape == (n, 7)
    assert loaded.dtype == np.float32
    assert loaded.tobytes() == vectors.tobytes()


def test_vectors_round_trip_over_several_chunks(tables: Connection) -> None:
    vectors = np.random.default_rng(2).standard_normal((70_000, 3)).astype(np.float32)
    ids = _ids(len(vectors))
    copy_vectors(tables, "v (id, embedding)", ids, vectors)
    loaded_ids, loaded = _load(tables, 3)
    assert np.array_equal(loaded_ids, ids)
    assert loaded.tobytes() == vectors.tobytes()


@pytest.mark.parametrize("block", [1, 1 << 21])
def test_vectors_are_read_in_the_order_of_ids(tables: Connection, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(vector_copy, "_BLOCK_BYTES", block)
    ids, vectors = _ids(60), np.arange(120, dtype=np.float32).reshape(60, 2) + 1
    stored = np.random.default_rng(3).permutation(60)[:50]
    copy_vectors(tables, "v (id, embedding)", ids[stored], vectors[stored])
    wanted = np.arange(5, 60)
    (found, numbers), loaded = load_columns_and_vectors(
        tables,
        "SELECT id, n, embedding FROM v",
        {},
        {"id": "S16", "n": ">i4"},
        dimension=2,
        ids=ids[wanted],
    )
    both = np.intersect1d(wanted, stored)
    assert to_uuids(found) == to_uuids(ids[both])
    assert np.array_equal(loaded, vectors[both])
    assert numbers.tolist() == [1 + stored.tolist().index(row) for row in both]


_GENERATED = """
    SELECT CAST(lpad(to_hex(n), 32, '0') AS uuid) AS id, n, CAST(ARRAY[%(first)s, n] AS vector) AS embedding
    FROM generate_series(0, 59) AS n
"""


@pytest.mark.parametrize("rows", [20, 21])
def test_two_connections_read_many_vectors(tables: Connection, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(vector_copy, "_FEWEST_SPLIT", 20)
    wanted = np.arange(59 - rows, 59)
    ids = to_ids([uuid.UUID(int=n) for n in wanted.tolist()])
    (found, numbers), loaded = load_columns_and_vectors(
        tables, _GENERATED, {"first": 2.5}, {"id": "S16", "n": ">i4"}, dimension=2, ids=ids
    )
    assert np.array_equal(found, ids)
    assert numbers.tolist() == wanted.tolist()
    assert loaded.tolist() == [[2.5, n] for n in wanted.tolist()]
    with pytest.raises(EmbeddingError, match="not all vectors of 3 dimensions"):
        load_columns_and_vectors(tables, _GENERATED, {"first": 2.5}, {"id": "S16", "n": ">i4"}, dimension=3, ids=ids)


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(vector=arrays(np.float32, 5, elements=finite).filter(np.any))
def test_float32_survives_copy_text_and_binding(tables: Connection, vector: Vectors) -> None:
    tables.execute(text("TRUNCATE v"))
    copy_vectors(tables, "v (id, embedding)", to_ids(TRAILING_ZEROS[:1]), vector[None, :])
    written = tables.execute(text("SELECT CAST(:v AS vector) = embedding FROM v"), {"v": format_vector(vector)})
    assert written.scalar_one() is True
    bound = fetch_rows(tables, "SELECT CAST(%(v)s AS vector) = embedding FROM v", {"v": Vector(vector)})
    assert bound == [(True,)]
    assert _load(tables, 5)[1].tobytes() == vector.tobytes()


@pytest.mark.parametrize("lengths", [[3], [4, 3], [3, 4, 4], [3, 5], [1] * 38, [None, 4], [4, None], [2, 6, 4]])
def test_load_vectors_rejects_other_dimensions(tables: Connection, lengths: list[int | None]) -> None:
    for length in lengths:
        vector = None if length is None else format_vector(np.ones(length, np.float32))
        insert = "INSERT INTO v (id, embedding) VALUES (gen_random_uuid(), CAST(:v AS vector))"
        tables.execute(text(insert), {"v": vector})
    with pytest.raises(EmbeddingError, match="4 dimensions"):
        _load(tables, 4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
def test_copy_vectors_rejects_unusable_vector(tables: Connection, value: float) -> None:
    vectors = np.ones((3, 2), np.float32)
    vectors[1] = value
    with pytest.raises(EmbeddingError, match=str(to_uuids(_ids(3))[1])):
        copy_vectors(tables, "v (id, embedding)", _ids(3), vectors)
    assert tables.execute(text("SELECT count(*) FROM v")).scalar_one() == 0


def test_load_vectors_binds_parameters(tables: Connection) -> None:
    copy_vectors(tables, "v (id, embedding)", _ids(5), np.ones((5, 2), np.float32))
    wanted = to_uuids(_ids(5))[1:3]
    ids, _ = load_vectors(tables, "SELECT id, embedding FROM v WHERE id = ANY(%(ids)s)", {"ids": wanted}, dimension=2)
    assert sorted(to_uuids(ids)) == sorted(wanted)


def test_loaded_arrays_own_their_memory(tables: Connection) -> None:
    copy_vectors(tables, "v (id, embedding)", _ids(2), np.ones((2, 2), np.float32))
    ids, vectors = _load(tables, 2)
    vectors[0] = 5
    ids[0] = b"x"
    assert vectors.flags.c_contiguous


@pytest.mark.parametrize("n", [0, 1, 5, 70_000])
def test_columns_of_every_type_round_trip(tables: Connection, n: int) -> None:
    tables.execute(text("CREATE TEMP TABLE c (id uuid, r real, d float8, s int2, i int4, b bigint) ON COMMIT DROP"))
    values = np.resize([0.1, -1e30, np.nan, np.inf, 3.0], n)
    columns = {
        "id": _ids(n),
        "r": values.astype(np.float32),
        "d": values,
        "s": (np.arange(n) % 7 - 3).astype(np.int16),
        "i": np.arange(n, dtype=np.int32) - 2,
        "b": np.arange(n, dtype=np.int64) << 40,
    }
    copy_columns(tables, "c (id, r, d, s, i, b)", columns)
    kinds = {"id": "S16", "r": ">f4", "d": ">f8", "s": ">i2", "i": ">i4", "b": ">i8"}
    loaded = load_columns(tables, "SELECT id, r, d, s, i, b FROM c ORDER BY id", {}, kinds)
    for name, column in zip(columns, loaded, strict=True):
        assert column.dtype == columns[name].dtype
        assert column.tobytes() == columns[name].tobytes()


def test_load_columns_rejects_null(tables: Connection) -> None:
    with pytest.raises(EmbeddingError, match="rows of id, n"):
        load_columns(tables, "SELECT gen_random_uuid(), CAST(NULL AS bigint)", {}, {"id": "S16", "n": ">i8"})
