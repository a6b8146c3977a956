"""Archives as the real Letta fills and lists them. Its dependencies exclude ours, so it runs in a Python of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import psycopg
import pytest

from consolidation_pipeline.service.sources.connections import connect_source, disconnect_source
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import write_source
from consolidation_pipeline_tests.database_pool import STORE_SERVER_ENV
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV
from consolidation_pipeline_tests.service.sources.local_vectors import repeat_vectors
from consolidation_pipeline_tests.service.sources.stores import DIMENSION, FACTS, USERS, WORDINGS, all_wordings

PYTHON_ENV = "CONSOLIDATION_TESTS_LETTA_PYTHON"
TABLES = ("archival_passages", "passage_tags", "archives")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (os.environ.get(PYTHON_ENV) and os.environ.get(STORE_SERVER_ENV)),
        reason=f"{PYTHON_ENV} names no Python with Letta, or {STORE_SERVER_ENV} no server that it reaches by TCP",
    ),
]


def run_letta(command: str, url: str, folder: Path, given: str = "") -> dict[str, list[str]]:
    """Run the program of Letta's user; return the texts of each archive."""
    done = subprocess.run(
        [os.environ[PYTHON_ENV], str(Path(__file__).with_name("letta_program.py")), command],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LETTA_PG_URI": url, "LETTA_DIR": str(folder)},
        input=given,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    listed: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return listed


def read_tables(url: str) -> list[list[str]]:
    """Return all rows of Letta's tables."""
    with psycopg.connect(url) as store:
        return [[row for (row,) in store.execute(f"SELECT t::text FROM {name} t ORDER BY 1")] for name in TABLES]


def test_letta_lists_successors_only(store_url: str, pipeline: Pipeline, tmp_path: Path) -> None:
    memories = all_wordings()
    texts = sorted({text for _, text in memories})
    vectors = dict(zip(texts, repeat_vectors(texts, DIMENSION).tolist(), strict=True))
    filled = run_letta("fill", store_url, tmp_path, json.dumps({"vectors": vectors, "memories": memories}))
    assert {user: len(found) for user, found in filled.items()} == dict.fromkeys(USERS, len(FACTS) * WORDINGS)
    before = read_tables(store_url)
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config={"kind": "letta", "url_env": URL_ENV}, mode="write")
    sync_source(pipeline.engine, SOURCE)
    pipeline.run(PROJECT)
    written = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert (written.written, written.refused) == (len(FACTS) * len(USERS), {})
    listed = run_letta("read", store_url, tmp_path)
    for user in USERS:
        assert len(listed[user]) == len(FACTS)
        assert set(listed[user]) < set(filled[user])
    disconnect_source(pipeline.engine, SOURCE, restore=True)
    assert read_tables(store_url) == before
    assert run_letta("read", store_url, tmp_path) == filled
