"""A whole session of an agent over MCP: add, plan, run, search, trace, judge, roll back."""

from __future__ import annotations

import pytest

from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline_tests.cli.conftest import LESSONS
from consolidation_pipeline_tests.mcp.conftest import ConnectAgent
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline


@pytest.mark.slow
def test_agent_uses_all_tools_in_one_session(connect_agent: ConnectAgent, pipeline: Pipeline) -> None:
    ensure_project(pipeline.engine, SLUG)
    with connect_agent() as agent:
        added = [agent.call("add_memory", project=SLUG, content=text, tags=["db"]) for text in LESSONS]
        assert all(one["added"] for one in added)
        again = agent.call("add_memory", project=SLUG, content=LESSONS[0], tags=["db"])
        assert (again["id"], again["added"], again["status"]) == (added[0]["id"], False, "active")

        planned = agent.call("plan_consolidation", project=SLUG)
        assert planned["totals"]["merge_groups"] == 1
        assert set(planned["merges"][0]["sources"]) == {one["id"] for one in added[:3]}
        assert planned["left_to_a_person"][0]["reasons"][0].startswith("different values: 30 s / 60 s")

        done = agent.call("run_consolidation", project=SLUG)
        assert (done["status"], done["memories_merged"], done["error_message"]) == ("completed", 3, None)
        assert agent.call("consolidation_status", project=SLUG) == done
        assert agent.call("consolidation_status", job_id=done["job_id"]) == done

        question = {"query": "when to run the database migrations", "project": SLUG}
        (merged,) = agent.call("search_consolidated_memories", **question, kinds=["merged"])["results"]
        assert merged["source_count"] == 3
        traced = agent.call("trace_memory_lineage", memory_id=merged["id"])
        assert {source["id"] for source in traced["sources"]} == {one["id"] for one in added[:3]}
        assert agent.call("trace_memory_lineage", memory_id=added[0]["id"])["derived"][0]["id"] == merged["id"]

        context = agent.call("get_consolidated_context", task="deploy a release with migrations", project=SLUG)
        assert merged["id"] in {memory["id"] for memory in context["memories"]}
        assert context["tokens"] <= 2000
        (contradiction,) = agent.call("get_consolidated_context", task="why the search client times out", project=SLUG)[
            "contradictions"
        ]
        assert {side["words"] for side in contradiction["sides"]} == {"30 s", "60 s"}

        # As the context tells it.
        named = merged["id"].replace("-", "")[:12]
        judged = agent.call("memory_feedback", memory_id=named, helpful=True, note="[1] was right")
        assert agent.call("get_memory", memory_id=named)["id"] == merged["id"]
        used = agent.call("report_used_memories", ids=[named])
        assert used["recorded"] + used["repeated"] == 1
        assert judged["importance"] > judged["importance_before"]
        reverted = agent.call("rollback_consolidation", target=judged["group_id"])
        assert (reverted["changes"], reverted["redone"]) == (1, False)

        undone = agent.call("rollback_consolidation", target=done["undo"], reason="a test")
        assert (undone["scope"], undone["memories_restored"]) == ("job", 3)
        found = agent.call("search_consolidated_memories", **question, limit=3)["results"]
        assert {hit["id"] for hit in found} == {one["id"] for one in added[:3]}
        assert agent.expect_error("rollback_consolidation", target=done["undo"]).startswith("conflict: ")
