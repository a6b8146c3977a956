"""Agents write and search, people decide and undo, runs go on, and all the while everything around them fails.

``make chaos`` blows for five minutes, ``CONSOLIDATION_CHAOS_SECONDS`` for so long. What fails is told with the seed of
the storm, which ``CONSOLIDATION_CHAOS_SEED`` gives again: the same dice, though processes never meet quite alike twice.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import sql

from consolidation_pipeline.llm import retries
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.store.database.engine import connect_engine, upgrade, with_driver
from consolidation_pipeline_tests.chaos import clients
from consolidation_pipeline_tests.chaos.clients import OPTIONS, SLUGS, Actor, Scene
from consolidation_pipeline_tests.chaos.faults import Outside, Server, Storm
from consolidation_pipeline_tests.chaos.verify import come_to_rest, count_done, find_faults, read_logs, undo_everything
from consolidation_pipeline_tests.openai_server import openai_server
from consolidation_pipeline_tests.service.corpus import near_misses, reworded
from consolidation_pipeline_tests.service.fork_server import open_nursery
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.webhook_receiver import run_receiver

SECONDS = float(os.environ.get("CONSOLIDATION_CHAOS_SECONDS", "4"))
SEED = os.environ.get("CONSOLIDATION_CHAOS_SEED", str(random.randrange(10**6)))
CAST = ("agent", "agent", "reader", "auditor", "operator", "worker", "worker", "post")
# Dagster takes seconds to be imported.
LONG_CAST = (*CAST, "operator", "launcher")
SHOWN = 150


@pytest.fixture
def database(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A server of its own, and the URL of a migrated database on it."""
    server = Server(tmp_path)
    server.execute(sql.SQL("CREATE DATABASE chaos"))
    url = with_driver(server.url.replace("/postgres?", "/chaos?"), "psycopg")
    engine = connect_engine(url)
    upgrade(engine)
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    yield server, url
    engine.dispose()
    server.stop()


@pytest.mark.slow
@pytest.mark.timeout(600 + 6 * SECONDS)
def test_no_failure_loses_or_duplicates_memories(
    database: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"CONSOLIDATION_CHAOS_SEED={SEED} CONSOLIDATION_CHAOS_SECONDS={SECONDS:g}, timeline in {tmp_path}")
    server, url = database
    outside = Outside(random.Random(SEED))
    with (
        openai_server(outside.model) as provider,
        run_receiver() as receiver,
        open_nursery(clients.__name__) as nursery,
    ):
        receiver.answer = outside.receive
        for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL"):
            monkeypatch.setenv(name, provider.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setattr(retries, "_wait", lambda *_: 0.0)
        scene = Scene(url, str(tmp_path), 0.0, provider.api_base, receiver.url)
        pipeline = Pipeline(connect_engine(url), scene.settings, tmp_path)
        begin(pipeline)
        nursery.grow_up()
        scene = Scene(url, str(tmp_path), time.time() + SECONDS, provider.api_base, receiver.url)
        log = Actor(scene, "storm", outside.dice, pipeline.engine).log
        storm = Storm(SEED, scene, server, nursery, "chaos", LONG_CAST if SECONDS >= 60 else CAST, log)
        storm.blow()
        outside.calm = True
        storm.leave(120)
        come_to_rest(pipeline)
        timeline = read_logs(tmp_path)
        faults = list(find_faults(pipeline, timeline, outside.taken))
        print(count_done(timeline))
        assert not faults, "\n".join([f"seed {SEED}", *faults, *map(str, timeline[-SHOWN:])])
        for slug in SLUGS:
            undo_everything(pipeline, slug)


def begin(pipeline: Pipeline) -> None:
    """Facts that everybody was told, searchable by meaning; and some that a person has to decide on."""
    for slug in SLUGS:
        pipeline.configure_new(slug, **OPTIONS[slug])
        pipeline.add([*reworded(times=2), *near_misses()], slug)
        with pipeline.open(slug, planned=()) as run:
            embed_memories(run)
