"""Syncs, writes and rollbacks of a store that are killed at any moment: the next one completes them."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline.service.undo.rollback import roll_back
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import connect_engine
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV, connect
from consolidation_pipeline_tests.service.sources.stores import FACTS, USERS, WORDINGS, Store, word
from consolidation_pipeline_tests.service.sources.test_folder import connect as connect_folder
from consolidation_pipeline_tests.service.sources.test_folder import hash_tree, put, read_tree

pytestmark = pytest.mark.slow

GROUPS = len(FACTS) * len(USERS)
ROUNDS = 10
# Notes of the folder, three of each fact.
NOTES = 45


def _write(url: str, store_url: str) -> None:
    os.environ[URL_ENV] = store_url
    write_source(connect_engine(url), SOURCE, quiet_seconds=0, max_share=1)


def _undo(url: str, store_url: str, job_id: UUID) -> None:
    os.environ[URL_ENV] = store_url
    roll_back(connect_engine(url), job_id, settings=Settings(), changed_by="tester", cascade=True)


def _sync(url: str, store_url: str) -> None:
    os.environ[URL_ENV] = store_url
    sync_source(connect_engine(url), SOURCE)


def kill_after(seconds: float, target: Callable[..., None], *arguments: Any) -> bool:
    """Call ``target`` in a new process and kill it after that time; return True if it ended before."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=target, args=arguments)
    child.start()
    child.join(seconds)
    child.kill()
    child.join()
    return child.exitcode != -signal.SIGKILL


def draw_seconds(chance: random.Random, longest: float) -> Iterator[float]:
    """Yield times after which to kill. They grow, so that an attempt ends also on a machine that is busy."""
    while True:
        yield chance.uniform(0.02, longest)
        longest *= 1.1


def count_rows(store: Store) -> Counter[int]:
    """Return how many facts have how many rows."""
    rows = Counter(text.rstrip(".").removeprefix("Note: ")[5:] for text in store.texts())
    return Counter(rows.values())


def wait_until_free(pipeline: Pipeline) -> None:
    """Wait until the server has dropped the locks of a killed process."""
    deadline = time.monotonic() + 30
    while pipeline.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") and time.monotonic() < deadline:
        time.sleep(0.02)


def test_killed_writes_and_rollbacks_are_completed(mem0_store: Store, store_url: str, pipeline: Pipeline) -> None:
    chance = random.Random(20261123)
    url = pipeline.engine.url.render_as_string(hide_password=False)
    connect(pipeline, mem0_store)
    before = mem0_store.checksum()
    kill_after(10, _sync, url, store_url)  # Starts the server of processes, which imports all modules.
    killed = 0
    for _ in range(ROUNDS):
        outcome = pipeline.run(PROJECT)
        seconds = draw_seconds(chance, 0.6)
        while not kill_after(next(seconds), _write, url, store_url):
            killed += 1
            wait_until_free(pipeline)
            assert set(count_rows(mem0_store)) <= {len(USERS), len(USERS) + WORDINGS - 1, len(USERS) * WORDINGS}
        assert count_rows(mem0_store) == {len(USERS): len(FACTS)}
        statuses = pipeline.rows(
            "SELECT status, count(*) AS n FROM {s}.source_writes WHERE status = 'written' GROUP BY 1"
        )
        assert [row.n for row in statuses] == [GROUPS]
        seconds = draw_seconds(chance, 0.6)
        while not kill_after(next(seconds), _undo, url, store_url, outcome.job_id):
            killed += 1
            wait_until_free(pipeline)
        wait_until_free(pipeline)
        with suppress(ConflictError):  # It was undone already if the process was killed after its last commit.
            pipeline.roll_back(outcome.job_id, cascade=True)
        write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
        assert mem0_store.checksum() == before
        assert pipeline.value("SELECT count(*) FROM {s}.source_rows WHERE state <> 'mirrored'") == 0
    assert killed


def _write_folder(url: str) -> None:
    write_source(connect_engine(url), SOURCE, quiet_seconds=0, max_share=1)


def _undo_folder(url: str) -> None:
    undo_writes(connect_engine(url), SOURCE)


def test_killed_writes_of_a_folder_are_completed(tmp_path: Path, pipeline: Pipeline) -> None:
    chance = random.Random(20261125)
    url = pipeline.engine.url.render_as_string(hide_password=False)
    folder = tmp_path / "notes"
    for number in range(NOTES):
        put(
            folder,
            f"note-{number}.md",
            word(f"The gateway of room {number // 3} listens on port 84{number // 3}", number % 3),
        )
    (folder / "MEMORY.md").write_text("".join(f"- [Note](note-{number}.md)\n" for number in range(NOTES)))
    connect_folder(pipeline, folder)
    pipeline.run(PROJECT)
    before = read_tree(folder)
    kill_after(10, _write_folder, url)  # Starts the server of processes, which imports all modules.
    undo_writes(pipeline.engine, SOURCE)
    killed = 0
    for _ in range(ROUNDS):
        for target in (_write_folder, _undo_folder):
            seconds = draw_seconds(chance, 0.6)
            while not kill_after(next(seconds), target, url):
                killed += 1
                wait_until_free(pipeline)
                assert sync_source(pipeline.engine, SOURCE).gone == 0
            wait_until_free(pipeline)
        assert undo_writes(pipeline.engine, SOURCE) == {}
        assert hash_tree(folder) == {name: found[0] for name, found in before.items()}
        assert pipeline.value("SELECT count(*) FROM {s}.source_rows WHERE state <> 'mirrored'") == 0
    assert killed


def test_killed_syncs_are_completed(mem0_store: Store, store_url: str, pipeline: Pipeline) -> None:
    chance = random.Random(20261124)
    url = pipeline.engine.url.render_as_string(hide_password=False)
    connect(pipeline, mem0_store)
    kill_after(10, _sync, url, store_url)
    for at in range(ROUNDS):
        texts = [f"Fact {at}.{number} was noted by somebody" for number in range(30)]
        mem0_store.add([("bob", text) for text in texts])
        mem0_store.connection.execute(
            "UPDATE mem0 SET payload = jsonb_set(payload, '{data}', to_jsonb('Edited in round ' || %s::text)) "
            "WHERE id = (SELECT id FROM mem0 ORDER BY md5(id::text || %s) LIMIT 1)",
            [at, str(at)],
        )
        mem0_store.connection.execute(
            "DELETE FROM mem0 WHERE id = (SELECT id FROM mem0 ORDER BY md5(id::text || %s) DESC LIMIT 1)", [str(at)]
        )
        seconds = draw_seconds(chance, 0.3)
        while not kill_after(next(seconds), _sync, url, store_url):
            wait_until_free(pipeline)
        active = pipeline.rows("SELECT execution_summary AS body FROM {s}.task_memories WHERE archived_at IS NULL")
        assert sorted(row.body for row in active) == mem0_store.texts()
