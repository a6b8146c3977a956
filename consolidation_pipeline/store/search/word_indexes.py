"""GIN indexes on words, one for each table of a large project, and how frequent its words are.

As with vectors, an index is of one project and holds only rows that a search may find: in an index of all projects, a
word that is rare in one of them would lead to the rows of all others. New rows go into the index at once, as a list of
pending ones would be read by every search.

The frequencies are kept as the comment of the index, so that they are dropped with it. They need not be exact: they
tell which words of a query lead to few rows, and how much a word says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import UUID

from cachetools import TTLCache, cached
from sqlalchemy import Connection, text

from consolidation_pipeline.core.search.words import WordFrequencies
from consolidation_pipeline.store.database.sql import compose, quote_literal
from consolidation_pipeline.store.search.vector_indexes import SEARCHABLE, ProjectIndex, digest, find_complete

# Rows that are counted: those with the lowest ids, which are digests and so a random choice, the same at any time.
_SAMPLE = 20_000
# Rows of the sample that have a frequent word. Any other word counts as rare.
_MIN_FREQUENT = 20
# Texts with a rare word, as a share of the fewest with a frequent one: about the mean under Zipf's law.
_RARE_SHARE = 0.25
# Words are counted again if the project has grown or shrunk by this share.
_CHANGED_SHARE = 0.1
# Seconds after which frequencies that another process counted are noticed.
_CACHE_SECONDS = 60.0


@dataclass(frozen=True)
class WordIndex(ProjectIndex):
    """Index on the words of a project's memories in one table."""

    # Bytes that a row takes while the index is built.
    row_bytes = 2_048
    # SQL of the method and key of the index.
    definition = "USING gin (content_tsv) WITH (fastupdate = off)"

    @property
    def prefix(self) -> str:
        """Beginning of the name."""
        return f"{self.table}_words_{digest(self.project_id.hex)}_"

    @property
    def name(self) -> str:
        """Name of the index in the schema."""
        return f"{self.prefix}idx"


def find_word_indexes(connection: Connection, project_id: UUID) -> Mapping[str, WordIndex]:
    """Return the complete indexes on a project's words, by table."""
    return find_complete(connection, (WordIndex(table, project_id) for table in SEARCHABLE))


_COUNT_ROWS = "SELECT count(*) FROM consolidation./* table */ WHERE /* condition */"
_COUNT_WORDS = """
    SELECT word, count(*) FROM (
        SELECT content_tsv FROM consolidation./* table */ WHERE /* condition */ ORDER BY id LIMIT :sample) rows,
        unnest(tsvector_to_array(content_tsv)) word
    GROUP BY word HAVING count(*) >= :frequent ORDER BY word
"""


def count_words(connection: Connection, index: WordIndex, *, again: bool = False) -> None:
    """Count the words of the rows in an index, ``again`` even if about as many rows were counted before.

    An index that was dropped meanwhile, as its project was deleted, is left alone.
    """
    parts = {"table": index.table, "condition": index.condition}
    rows = connection.execute(text(compose(_COUNT_ROWS, **parts))).scalar_one()
    known = _read_frequencies(connection, index.name)
    if not again and known is not None and abs(rows - known.rows) <= _CHANGED_SHARE * known.rows:
        return
    bound = {"sample": _SAMPLE, "frequent": _MIN_FREQUENT}
    counted = connection.execute(text(compose(_COUNT_WORDS, **parts)), bound)
    scale = max(1.0, rows / _SAMPLE)
    comment = json.dumps({"rows": rows, "words": {word: round(count * scale) for word, count in counted}})
    cursor: Any = connection.connection.cursor()  # by the driver itself, as SQLAlchemy would interpret a colon
    if cursor.execute(_EXISTS, (f'consolidation."{index.name}"',)).fetchone()[0]:
        cursor.execute(f'COMMENT ON INDEX consolidation."{index.name}" IS {quote_literal(comment)}')
    load_frequencies.cache_clear()


_EXISTS = "SELECT to_regclass(%s) IS NOT NULL"
_READ_COMMENT = "SELECT obj_description(to_regclass(:name), 'pg_class')"


def _read_frequencies(connection: Connection, name: str) -> WordFrequencies | None:
    """Return the frequencies of an index; None if its words were not counted."""
    comment = connection.execute(text(_READ_COMMENT), {"name": f'consolidation."{name}"'}).scalar()
    if comment is None:
        return None
    found = json.loads(comment)
    rare = _MIN_FREQUENT * _RARE_SHARE * max(1.0, found["rows"] / _SAMPLE)
    return WordFrequencies(found["rows"], found["words"], max(1, round(rare)))


@cached(TTLCache(maxsize=256, ttl=_CACHE_SECONDS), key=lambda connection, name: (connection.engine, name), lock=Lock())
def load_frequencies(connection: Connection, name: str) -> WordFrequencies | None:
    """Return the frequencies of an index, cached for ``_CACHE_SECONDS``; None if its words were not counted."""
    return _read_frequencies(connection, name)
