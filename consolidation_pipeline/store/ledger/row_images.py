"""SQL of the images of rows in the ledger: how they hold vectors, and what they leave out as it is known otherwise.

A vector is base64 of its bytes, which is exact and takes less than half as much as its text. Images of earlier versions
have the text, which begins with a bracket.

Lists of more than ``_LONG`` ids are not repeated:

- The lineage of a row whose sources are its parents is ``{"similarities": [..], ..}``, in the order of the image's
  ``source_memory_ids``, without their ids.
- If an update changes ``source_memory_ids`` of a row that is no merged memory, each of its images has ``{"only":
  [..]}``: the ids that the other image lacks. Whoever undoes merged memories reads the whole lists of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Table

from consolidation_pipeline.store.database.schema import consolidated_memories, task_memories
from consolidation_pipeline.store.database.sql import compose

# Stored in tables of their own.
_PARTS = ("files", "lineage")
_VECTOR = "embedding"
_SOURCES = "source_memory_ids"
# Shorter lists stay whole: they are read more easily, and take little space.
_LONG = 100


def whole_image(table: Table) -> str:
    """Return SQL of row ``t`` as jsonb, without generated columns, with files and lineage."""
    names = [c.name for c in table.c if c.computed is None]
    columns = [f"{_read_column(name)} AS {name}" for name in names]
    parts = _part_images(table)
    if "lineage" in parts:
        parts["lineage"] = compose(_SHORT_LINEAGE, lineage=_LINEAGE, long=str(_LONG))
    named = [f"{query} AS {name}" for name, query in parts.items()]
    return f"(SELECT to_jsonb(r) FROM (SELECT {', '.join([*columns, *named])}) r)"


def columns_image(table: Table, names: Sequence[str]) -> str:
    """Return SQL of the named columns and parts of row ``t`` as jsonb."""
    kept = [f"'{name}', {_read_column(name)}" for name in names if name not in _PARTS]
    parts = [f"'{name}', {query}" for name, query in _part_images(table).items() if name in names]
    return f"jsonb_build_object({', '.join([*kept, *parts])})"


# Postgres breaks base64 into lines.
_ENCODED_VECTOR = rf"translate(encode(vector_send(t.{_VECTOR}), 'base64'), E'\n', '')"


def _read_column(name: str) -> str:
    return _ENCODED_VECTOR if name == _VECTOR else f"t.{name}"


# Of row `t`: what belongs to it and is stored in tables of its own, as jsonb.
_FILES = """(
    SELECT coalesce(jsonb_agg(path ORDER BY path), '[]') FROM consolidation.memory_files f WHERE f.owner_id = t.id)"""
_LINEAGE = """(
    SELECT coalesce(jsonb_agg(jsonb_build_object(
        'parent_id', parent_id, 'parent_kind', parent_kind, 'similarity', similarity, 'job_id', job_id)
        ORDER BY parent_id), '[]')
    FROM consolidation.memory_lineage l WHERE l.child_id = t.id)"""
_SHORT_LINEAGE = """(
    SELECT CASE
        WHEN count(*) > /* long */ AND array_agg(parent_id ORDER BY parent_id) = t.source_memory_ids
            AND min(parent_kind) = 'raw' AND max(parent_kind) = 'raw'
            AND count(DISTINCT job_id) <= 1 AND count(job_id) IN (0, count(*))
        THEN jsonb_build_object('parent_kind', 'raw', 'job_id', (array_agg(job_id))[1],
            'similarities', jsonb_agg(similarity ORDER BY parent_id))
        ELSE /* lineage */ END
    FROM consolidation.memory_lineage s WHERE s.child_id = t.id)"""


def _part_images(table: Table) -> dict[str, str]:
    """Return name -> SQL of the image of each part of row ``t``."""
    if table is consolidated_memories:
        return {"files": _FILES, "lineage": _LINEAGE}
    return {"files": _FILES} if table is task_memories else {}


# An ordered list without repeats can be made again from its elements.
_IS_SET = """coalesce(/* ids */ = (
    SELECT jsonb_agg(d.id ORDER BY d.id COLLATE "C") FROM (
        SELECT DISTINCT e.id FROM jsonb_array_elements_text(/* ids */) AS e(id)) d), /* ids */ = '[]')"""
_SHORTEN = """CASE
    WHEN t.kind <> 'merged' AND jsonb_array_length(/* one */) + jsonb_array_length(/* other */) > 2 * /* long */
        AND /* one_is_set */ AND /* other_is_set */
    THEN /* image */ || jsonb_build_object('source_memory_ids', jsonb_build_object('only', (
        SELECT coalesce(jsonb_agg(d.id ORDER BY d.id), '[]') FROM (
            SELECT jsonb_array_elements(/* one */) AS id EXCEPT SELECT jsonb_array_elements(/* other */)) d)))
    ELSE /* image */ END"""


def shorten_images(table: Table, names: Sequence[str]) -> tuple[str, str]:
    """Return SQL of the images before and after an update of the columns ``names`` of ``t``, without common ids."""
    previous, new = "before.state", "after.state"
    if table is not consolidated_memories or _SOURCES not in names:
        return previous, new

    def shorten(image: str, against: str) -> str:
        one, other = (f"({state} -> '{_SOURCES}')" for state in (image, against))
        checks = {"one_is_set": compose(_IS_SET, ids=one), "other_is_set": compose(_IS_SET, ids=other)}
        return compose(_SHORTEN, image=image, one=one, other=other, long=str(_LONG), **checks)

    return shorten(previous, new), shorten(new, previous)


# The row is as the newer image left it.
COMPLETE_IMAGES = """
    UPDATE wave w SET previous_state = w.previous_state || jsonb_build_object('source_memory_ids', ARRAY(
        (SELECT unnest(t.source_memory_ids)
         EXCEPT SELECT jsonb_array_elements_text(w.new_state -> 'source_memory_ids' -> 'only')::uuid)
        UNION SELECT jsonb_array_elements_text(w.previous_state -> 'source_memory_ids' -> 'only')::uuid ORDER BY 1))
    FROM consolidation.consolidated_memories t
    WHERE t.id = w.entity_id AND jsonb_typeof(w.previous_state -> 'source_memory_ids') = 'object'
"""
# The bytes of the vectors of the images `image`, as an image holds them now.
VECTOR_BYTES = "decode(image ->> 'embedding', 'base64')"
HAS_VECTOR_BYTES = "left(image ->> 'embedding', 1) <> '['"

# Edges of the images before, in `wave`.
PREVIOUS_EDGES = """
    SELECT w.project_id, w.entity_id, e.parent_id, e.parent_kind, e.similarity, e.job_id
    FROM wave w, jsonb_to_recordset(
        CASE jsonb_typeof(w.previous_state -> 'lineage') WHEN 'array' THEN w.previous_state -> 'lineage' END)
        AS e(parent_id uuid, parent_kind text, similarity real, job_id uuid)
    UNION ALL
    SELECT w.project_id, w.entity_id, e.parent_id::uuid, w.previous_state -> 'lineage' ->> 'parent_kind',
        e.similarity::real, (w.previous_state -> 'lineage' ->> 'job_id')::uuid
    FROM wave w, ROWS FROM (
        jsonb_array_elements_text(w.previous_state -> 'source_memory_ids'),
        jsonb_array_elements_text(w.previous_state -> 'lineage' -> 'similarities')) AS e(parent_id, similarity)
    WHERE jsonb_typeof(w.previous_state -> 'lineage') = 'object'
"""
