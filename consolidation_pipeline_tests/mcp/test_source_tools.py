"""Tools for connected stores: what agents may see of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from consolidation_pipeline.service.admin.api_keys import LOCAL, Principal
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.mcp.conftest import ConnectAgent
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV, connect
from consolidation_pipeline_tests.service.sources.conftest import make_store as make_store
from consolidation_pipeline_tests.service.sources.conftest import mem0_store as mem0_store
from consolidation_pipeline_tests.service.sources.conftest import store_url as store_url
from consolidation_pipeline_tests.service.sources.stores import FACTS, USERS, WORDINGS, Store
from consolidation_pipeline_tests.service.sources.test_dissolved import write_and_dissolve


@pytest.fixture
def pipeline(engine: Engine, settings: Settings, tmp_path: Path) -> Pipeline:
    """Pipeline on a database of its own: the tests connect the same table."""
    return Pipeline(engine, settings, tmp_path)


def test_agents_read_the_diff_of_their_project(
    mem0_store: Store, pipeline: Pipeline, connect_agent: ConnectAgent
) -> None:
    connect(pipeline, mem0_store, mode="mirror")
    pipeline.run(PROJECT)
    bank = ensure_project(pipeline.engine, "bank")
    with connect_agent(replace(LOCAL, role="reader")) as agent:
        answer = agent.call("list_sources", project=PROJECT)
        (listed,) = answer["sources"]
        assert (listed["name"], listed["kind"], listed["table"], listed["mode"]) == (SOURCE, "mem0", "mem0", "mirror")
        assert URL_ENV not in str(answer)
        diff = agent.call("read_source_diff", source=SOURCE, project=PROJECT, limit=1)
        assert (diff["total"], len(diff["groups"])) == (len(FACTS) * len(USERS), 1)
        assert (len(diff["groups"][0]["hidden"]), diff["restores"]) == (WORDINGS - 1, [])
    with connect_agent(Principal("reader", bank.id, "bank", uuid4(), "bank's")) as agent:
        assert agent.call("list_sources")["sources"] == []
        refused = agent.expect_error("read_source_diff", source=SOURCE)
        assert refused == f"not_found: there is no source '{SOURCE}' in project bank; sources: none"


def test_agents_read_which_rows_would_be_shown_again(
    mem0_store: Store, pipeline: Pipeline, connect_agent: ConnectAgent
) -> None:
    plan = write_and_dissolve(pipeline, mem0_store)
    with connect_agent(replace(LOCAL, role="reader")) as agent:
        (restore,) = agent.call("read_source_diff", source=SOURCE, project=PROJECT)["restores"]
    assert restore == {
        "id": str(plan.id),
        "memory_id": str(plan.memory_id),
        "texts": {key: plan.texts[key] for key in plan.hidden},
        "removed": None,
    }
