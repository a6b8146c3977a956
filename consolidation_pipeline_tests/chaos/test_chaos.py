"""Chaos test: agents, operators and runs work while processes are killed and services fail.

``make chaos`` runs for five minutes; ``CONSOLIDATION_CHAOS_SECONDS`` sets another duration. A failure names the seed.
``CONSOLIDATION_CHAOS_SEED`` sets it again; the interleaving of processes still differs from run to run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from psycopg import sql

from consolidation_pipeline.llm import retries
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.store.database.engine import connect_engine, upgrade, with_driver
from consolidation_pipeline_tests.chaos import clients
from consolidation_pipeline_tests.chaos.clients import OPTIONS, SLUGS, ChaosConfig, Client
from consolidation_pipeline_tests.chaos.faults import ChaosRun, PostgresServer, UnreliableServices
from consolidation_pipeline_tests.chaos.verify import count_by_action, find_faults, read_logs, run_until_unchanged
from consolidation_pipeline_tests.openai_server import client_environment, openai_server
from consolidation_pipeline_tests.service.corpus import near_miss_notes, reworded_notes
from consolidation_pipeline_tests.service.fork_server import start_fork_server
from consolidation_pipeline_tests.service.full_undo import roll_back_everything
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.webhook_receiver import run_receiver

SECONDS = float(os.environ.get("CONSOLIDATION_CHAOS_SECONDS", "4"))
SEED = os.environ.get("CONSOLIDATION_CHAOS_SEED", str(random.randrange(10**6)))
ROLES = ("agent", "agent", "reader", "auditor", "operator", "worker", "worker", "deliverer")
# Short runs have no launcher, since importing Dagster takes seconds.
LONG_RUN_ROLES = (*ROLES, "operator", "launcher")
SHOWN_LINES = 150


@pytest.fixture
def database(tmp_path: Path) -> Iterator[tuple[PostgresServer, str]]:
    """Server for this test and the URL of a migrated database on it."""
    server = PostgresServer(tmp_path / uuid4().hex)  # A run that was killed leaves the files of its server.
    server.execute(sql.SQL("CREATE DATABASE chaos"))
    url = with_driver(server.url.replace("/postgres?", "/chaos?"), "psycopg")
    engine = connect_engine(url)
    upgrade(engine)
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    yield server, url
    engine.dispose()
    server.delete()


@pytest.mark.slow
@pytest.mark.timeout(600 + 6 * SECONDS)
def test_no_failure_loses_or_duplicates_memories(
    database: tuple[PostgresServer, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"CONSOLIDATION_CHAOS_SEED={SEED} CONSOLIDATION_CHAOS_SECONDS={SECONDS:g}, timeline in {tmp_path}")
    server, url = database
    services = UnreliableServices(random.Random(SEED))
    with (
        openai_server(services.reply_as_model) as provider,
        run_receiver() as receiver,
        start_fork_server(clients.__name__) as fork_server,
    ):
        receiver.answer = services.receive
        for name, value in client_environment(provider.api_base).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(retries, "_compute_wait", lambda *_: 0.0)
        config = ChaosConfig(url, str(tmp_path), 0.0, provider.api_base, receiver.url)
        pipeline = Pipeline(connect_engine(url), config.settings, tmp_path)
        seed_projects(pipeline)
        fork_server.wait_until_ready()
        config = ChaosConfig(url, str(tmp_path), time.time() + SECONDS, provider.api_base, receiver.url)
        log = Client(config, "faults", services.rng, pipeline.engine).log
        chaos_run = ChaosRun(
            SEED, config, server, fork_server, "chaos", LONG_RUN_ROLES if SECONDS >= 60 else ROLES, log
        )
        chaos_run.run()
        services.is_reliable = True
        chaos_run.join(120)
        run_until_unchanged(pipeline)
        timeline = read_logs(tmp_path)
        faults = list(find_faults(pipeline, timeline, services.delivered_ids))
        print(count_by_action(timeline))
        assert not faults, "\n".join([f"seed {SEED}", *faults, *map(str, timeline[-SHOWN_LINES:])])
        for slug in SLUGS:
            roll_back_everything(pipeline, slug)


def seed_projects(pipeline: Pipeline) -> None:
    """Add embedded facts and near misses to each project."""
    for slug in SLUGS:
        pipeline.configure_new(slug, **OPTIONS[slug])
        pipeline.add([*reworded_notes(times=2), *near_miss_notes()], slug)
        with pipeline.open(slug, planned=()) as run:
            embed_memories(run)
