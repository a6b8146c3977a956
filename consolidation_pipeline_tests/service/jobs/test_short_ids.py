"""Rows that are named by the first digits of their ids."""

from __future__ import annotations

from uuid import UUID

import pytest

from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.jobs.short_ids import JOBS, KEYS, RELATIONS, SUGGESTIONS, NamedTable, find_row_id
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

FIRST, SECOND = (UUID(f"abcdef12-{at}000-4000-8000-000000000000") for at in (1, 2))


@pytest.mark.parametrize("table", [JOBS, KEYS, RELATIONS, SUGGESTIONS])
def test_unknown_digits_name_the_listing_command(pipeline: Pipeline, table: NamedTable) -> None:
    with pytest.raises(NotFoundError, match=f"no {table.noun} has an id .* see `{table.command}`"):
        find_row_id(pipeline.engine, table, "abcdef12")
    with pytest.raises(UsageError, match=f"'abcdef1' is no id of a {table.noun}: give one of `{table.command}`"):
        find_row_id(pipeline.engine, table, "abcdef1")
    assert find_row_id(pipeline.engine, table, str(FIRST)) == FIRST


def test_digits_of_several_rows_are_refused(pipeline: Pipeline) -> None:
    insert = "INSERT INTO {{s}}.api_keys (id, key_hash, role, name) VALUES ('{}', '{}', 'admin', 'one')"
    for id_ in (FIRST, SECOND):
        pipeline.write(insert.format(id_, id_.hex * 2))
    with pytest.raises(UsageError, match=f"several ids begin with abcdef12, such as {FIRST} and {SECOND}"):
        find_row_id(pipeline.engine, KEYS, "abcdef12")
    assert find_row_id(pipeline.engine, KEYS, "ABCDEF12-2") == SECOND
