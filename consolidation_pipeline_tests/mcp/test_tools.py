"""MCP tools: schemas and hints, roles, projects, error messages, runs and progress."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from threading import Event, Semaphore
from typing import Any
from uuid import uuid4

import pytest

from consolidation_pipeline.mcp.run_backends import InProcessRunBackend, PollRun, QueuedRunBackend
from consolidation_pipeline.mcp.server import TOOLS, ToolServer
from consolidation_pipeline.service.admin.api_keys import LOCAL, Principal
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.service.jobs.job_status import describe_job
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.mcp.conftest import ConnectAgent, LaunchOutcome, connect, create_server_context
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, run_phases

READ_TOOLS = {
    "search_consolidated_memories",
    "get_consolidated_context",
    "read_playbook",
    "trace_memory_lineage",
    "list_memories",
    "list_sources",
    "read_source_diff",
    "get_memory",
    "plan_consolidation",
    "consolidation_status",
}
TOOL_HINTS = {
    **dict.fromkeys(READ_TOOLS, (True, False, True, False)),
    "add_memory": (False, False, True, False),
    "edit_memory": (False, True, True, False),
    "delete_memory": (False, True, False, False),
    "memory_feedback": (False, False, False, False),
    "report_used_memories": (False, False, True, False),
    "run_consolidation": (False, True, True, False),
    "rollback_consolidation": (False, True, True, False),
}


@pytest.fixture(scope="module")
def shop_admin(pipeline: Pipeline) -> Principal:
    """Admin of the project `shop`; another project, `bank`, exists."""
    ids = [ensure_project(pipeline.engine, slug).id for slug in ("shop", "bank")]
    return Principal("admin", ids[0], "shop", uuid4(), "shop's")


def test_every_tool_has_hints_schema_and_description(connect_agent: ConnectAgent) -> None:
    with connect_agent() as agent:
        tools = agent.tools()
    assert set(tools) == set(TOOL_HINTS)
    for name, tool in tools.items():
        hints = tool.annotations
        assert hints is not None
        hints_found = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
        assert hints_found == TOOL_HINTS[name], name
        assert tool.title
        assert tool.description
        assert tool.output_schema is not None
        assert tool.input_schema["additionalProperties"] is False
        described = {"task_id", "session_id", "agent_id", "user_id"}
        for argument, schema in tool.input_schema["properties"].items():
            assert "description" in schema or argument in described, (name, argument)


def test_mcp_page_lists_server_tools() -> None:
    lines = Path(PROJECT_ROOT, "docs", "mcp.md").read_text().splitlines()
    rows = [line.split("|") for line in lines if line.startswith("| `")]
    listed = [(row[1].strip(" `"), row[2].strip()) for row in rows]
    assert listed == [(spec.name, spec.role) for spec in TOOLS]


@pytest.mark.parametrize(("role", "count"), [("reader", 7), ("agent", 13), ("admin", 17)])
def test_role_lists_and_calls_only_its_tools(connect_agent: ConnectAgent, role: str, count: int) -> None:
    with connect_agent(replace(LOCAL, role=role)) as agent:
        listed = agent.tools()
        assert len(listed) == count
        for spec in TOOLS:
            if spec.name not in listed:
                message = f"forbidden: {spec.name} needs the role {spec.role}; yours is {role}"
                assert agent.expect_error(spec.name) == message
        error = agent.expect_error("drop_everything")
        assert error.startswith("not_found: there is no tool 'drop_everything'; tools: search_consolidated_memories, ")
        assert error.count(", ") == count - 1


def test_project_argument_is_needed_with_several(connect_agent: ConnectAgent, shop_admin: Principal) -> None:
    with connect_agent() as agent:
        assert agent.expect_error("consolidation_status") == "usage: name a project: bank, shop"
        error = agent.expect_error("plan_consolidation", project="nowhere")
        assert error.startswith("not_found: there is no project 'nowhere'")
    with connect_agent(shop_admin) as agent:
        assert agent.call("add_memory", content="Paid orders are final.")["project"] == "shop"
        assert agent.call("search_consolidated_memories", query="orders", project="shop")["project"] == "shop"


def test_every_tool_takes_the_own_project_by_slug_or_id(connect_agent: ConnectAgent, shop_admin: Principal) -> None:
    with connect_agent(shop_admin) as agent:
        for tool in agent.tools().values():
            assert "project" in tool.input_schema["properties"], tool.name
        memory = agent.call("add_memory", content="Vans are loaded at six.", project=str(shop_admin.project_id))["id"]
        for project in ("shop", str(shop_admin.project_id), ""):
            assert agent.call("trace_memory_lineage", memory_id=memory, project=project)["project"] == "shop"
        calls: list[tuple[str, dict[str, Any]]] = [
            ("trace_memory_lineage", {"memory_id": memory}),
            ("memory_feedback", {"memory_id": memory, "helpful": True}),
            ("report_used_memories", {"ids": [memory]}),
            ("get_memory", {"memory_id": memory}),
            ("edit_memory", {"memory_id": memory, "content": "x"}),
            ("delete_memory", {"memory_id": memory}),
            ("list_memories", {}),
            ("consolidation_status", {"job_id": memory}),
            ("rollback_consolidation", {"target": memory}),
        ]
        for name, arguments in calls:
            error = agent.expect_error(name, **arguments, project="bank")
            assert error == "not_found: you have no access to a project 'bank'; your project is shop", name
    with connect_agent() as agent:
        error = agent.expect_error("trace_memory_lineage", memory_id=memory, project="bank")
        assert error == f"not_found: there is no memory {memory} in project bank"


def test_tools_hide_rows_of_foreign_projects(
    connect_agent: ConnectAgent, shop_admin: Principal, pipeline: Pipeline
) -> None:
    with connect_agent() as agent:
        memory = agent.call("add_memory", project="bank", content="The vault opens at nine.")["id"]
        change = agent.call("memory_feedback", memory_id=memory, helpful=False)["group_id"]
    no_access = "not_found: you have no access to a project 'bank'; your project is shop"
    calls: list[tuple[str, dict[str, str]]] = [
        *((name, {}) for name in ("plan_consolidation", "run_consolidation", "consolidation_status")),
        ("search_consolidated_memories", {"query": "vault"}),
        ("get_consolidated_context", {"task": "open"}),
        ("add_memory", {"content": "x"}),
    ]
    for principal in (shop_admin, replace(shop_admin, project_id=None)):
        with connect_agent(principal) as agent:
            for name, arguments in calls:
                assert agent.expect_error(name, **arguments, project="bank") == no_access
            traced = agent.expect_error("trace_memory_lineage", memory_id=memory)
            assert traced == f"not_found: there is no memory {memory}"
            assert agent.expect_error("memory_feedback", memory_id=memory, helpful=True).endswith(f"no memory {memory}")
            assert agent.expect_error("report_used_memories", ids=[memory]).endswith(f"no memory {memory}")
            assert agent.expect_error("rollback_consolidation", target=change).startswith("not_found: ")
    with connect_agent() as agent:
        job = agent.call("run_consolidation", project="bank", phases=["embedding_matrix"])["job_id"]
    with connect_agent(shop_admin) as agent:
        assert agent.expect_error("consolidation_status", job_id=job) == f"not_found: there is no job {job}"
        assert agent.expect_error("rollback_consolidation", target=job).startswith("not_found: ")
    assert pipeline.rows("SELECT id FROM {s}.task_memories WHERE source = 'mcp' AND execution_summary = 'x'") == []


@pytest.mark.usefixtures("shop_admin")
@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("search_consolidated_memories", {"query": "x", "limit": 0}, "invalid_arguments: limit: "),
        (
            "search_consolidated_memories",
            {"query": "x", "level": [2]},
            "invalid_arguments: level: unknown field; known are as_of, ",
        ),
        (
            "search_consolidated_memories",
            {"query": "x", "levels": [7]},
            "usage: 7 is not a level: give one of 0, 1, 2, 3",
        ),
        ("search_consolidated_memories", {"query": "x", "types": ["rock"]}, "usage: 'rock' is not a memory_type"),
        ("search_consolidated_memories", {"query": "x", "min_match": 2}, "invalid_arguments: min_match: "),
        ("search_consolidated_memories", {"query": "x", "since": "soon"}, "invalid_arguments: since: "),
        ("get_consolidated_context", {"task": "x", "token_budget": 0}, "invalid_arguments: token_budget: "),
        (
            "trace_memory_lineage",
            {"memory_id": "x"},
            "usage: 'x' is not the id of a memory: give the id or its first 8 ",
        ),
        ("report_used_memories", {"ids": ["x"]}, "usage: 'x' is not the id of a memory: give the id or its first 8 "),
        ("rollback_consolidation", {"target": "x"}, "invalid_arguments: target: expected an id (UUID), not 'x'"),
        ("trace_memory_lineage", {"memory_id": str(uuid4()), "depth": 99}, "invalid_arguments: depth: "),
        ("add_memory", {"content": " "}, "invalid_memory: "),
        ("add_memory", {"content": "x\0y"}, "invalid_memory: "),
        ("add_memory", {"content": "x" * 100_001}, "invalid_memory: "),
        ("add_memory", {"content": "x", "memory_type": "rock"}, "invalid_memory: "),
        (
            "add_memory",
            {"content": "x", "importance": 2},
            "invalid_arguments: importance: expected a number <= 1.0, not 2",
        ),
        ("list_memories", {"text": "x\0y"}, "invalid_memory: text is 'x\\x00y': expected text without NUL bytes"),
        ("memory_feedback", {"memory_id": str(uuid4())}, "usage: "),
        ("run_consolidation", {"phases": ["dreaming"]}, "invalid_scope: phase dreaming does not exist"),
        ("rollback_consolidation", {"target": str(uuid4())}, "not_found: "),
    ],
)
def test_invalid_tool_arguments_return_clear_errors(
    connect_agent: ConnectAgent, tool: str, arguments: dict[str, object], message: str
) -> None:
    named = {} if {"memory_id", "target"} & set(arguments) else {"project": "shop"}
    with connect_agent() as agent:
        text = agent.expect_error(tool, **arguments, **named)
    assert text.startswith(message)
    assert "Traceback" not in text
    assert "http" not in text


def test_plan_tool_refuses_concurrent_plans(pipeline: Pipeline, shop_admin: Principal) -> None:
    context = replace(create_server_context(pipeline.engine, shop_admin, QueuedRunBackend()), plan_slots=Semaphore(0))
    with connect(ToolServer(context, "admin")) as agent:
        assert agent.expect_error("plan_consolidation") == "busy: other plans are being made; try again in 5 s"
        context.plan_slots.release()
        for _ in range(2):
            assert agent.call("plan_consolidation")["project"] == "shop"


def test_unexpected_tool_error_hides_its_message(
    connect_agent: ConnectAgent, shop_admin: Principal, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(slug: str, **_: object) -> LaunchOutcome:
        raise ZeroDivisionError(f"secret of {slug}")

    with caplog.at_level(logging.ERROR), connect_agent(shop_admin, runs=InProcessRunBackend(fail)) as agent:
        error = agent.expect_error("run_consolidation")
    assert error == "internal: an unexpected error; the server's log has details"
    assert "secret of shop" in caplog.text


def test_run_tool_joins_running_run(connect_agent: ConnectAgent, shop_admin: Principal) -> None:
    may_end, started = Event(), []

    def run(slug: str, **_: object) -> LaunchOutcome:
        started.append(slug)
        may_end.wait(60)
        return LaunchOutcome(slug, None, "failed", "the run never opened the project")

    class ReleaseOnThirdStart(InProcessRunBackend):
        starts = 0

        def start(self, *arguments: Any, **options: Any) -> PollRun:
            poll = super().start(*arguments, **options)
            self.starts += 1
            if self.starts == 3:
                may_end.set()
            return poll

    with connect_agent(shop_admin, runs=ReleaseOnThirdStart(run)) as agent:
        for _ in range(2):
            answer = agent.call("run_consolidation", wait_seconds=0)
            assert (answer["status"], answer["job_id"]) == ("pending", None)
        answer = agent.call("run_consolidation")
    assert (answer["status"], answer["error_message"]) == ("failed", "the run never opened the project")
    assert started == ["shop"]


def test_in_process_runs_of_other_phases_queue(pipeline: Pipeline) -> None:
    may_begin, begun = Event(), list[Any]()

    def run(slug: str, *, phases: Any, triggered_by: str, run_id: str) -> LaunchOutcome:
        del run_id
        may_begin.wait(60)
        begun.append(phases)
        return LaunchOutcome(slug, None, "failed", triggered_by)

    backend = InProcessRunBackend(run)
    asked = (None, ["decay_scores"], None)
    polls = [backend.start(pipeline.engine, "shop", phases=phases, triggered_by="ann") for phases in asked]
    assert [poll() for poll in polls[1:2]] == [None]
    may_begin.set()
    while any(poll() is None for poll in polls):
        time.sleep(0.01)
    assert begun == [None, ["decay_scores"]]


def test_run_tool_reports_progress(connect_agent: ConnectAgent, shop_admin: Principal, pipeline: Pipeline) -> None:
    reports: list[tuple[float, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        assert total == 1.0
        reports.append((progress, message))

    def run(slug: str, *, run_id: str, **_: object) -> LaunchOutcome:
        with pipeline.open(slug, planned=("embedding_matrix", "decay_scores"), run_id=run_id) as opened:
            with opened.phase("embedding_matrix"):
                pass
            while not reports:
                time.sleep(0.01)
            with opened.phase("decay_scores"):
                pass
        return LaunchOutcome(slug, opened.job_id)

    with connect_agent(shop_admin, runs=InProcessRunBackend(run)) as agent:
        answer = agent.send("run_consolidation", progress=report)
    assert answer.structured_content is not None
    assert answer.structured_content["status"] == "completed"
    assert reports[0] == (0.5, "done: embedding_matrix")


def test_run_tool_reports_no_other_job(pipeline: Pipeline) -> None:
    may_end = Event()

    def run(slug: str, **_: object) -> LaunchOutcome:
        may_end.wait(60)
        return LaunchOutcome(slug, None, "failed", "the project is busy")

    with pipeline.open("shop", planned=("decay_scores",)) as other:
        poll = InProcessRunBackend(run).start(pipeline.engine, "shop", phases=None, triggered_by="ann")
        assert describe_job(pipeline.engine, "shop")["job_id"] == other.job_id
        assert poll() is None
        may_end.set()
        run_phases(other, ("decay_scores",))


def test_queued_run_tool_requests_one_job(
    connect_agent: ConnectAgent, shop_admin: Principal, pipeline: Pipeline
) -> None:
    with connect_agent(shop_admin, runs=QueuedRunBackend()) as agent:
        requested = agent.call("run_consolidation")
        assert (requested["status"], requested["progress"]) == ("pending", 0)
        assert agent.call("run_consolidation")["job_id"] == requested["job_id"]
        pipeline.run("shop")
        assert agent.call("consolidation_status", job_id=requested["job_id"])["status"] == "completed"


def test_search_tool_leaves_out_results_below_min_match(connect_agent: ConnectAgent, shop_admin: Principal) -> None:
    with connect_agent(shop_admin) as agent:
        for text in ("Parcels above 30 kg go by freight.", "Parcels are weighed at the gate."):
            agent.call("add_memory", content=text)
        query = {"query": "how do parcels above 30 kg go?"}
        everything = agent.call("search_consolidated_memories", **query)["results"]
        best = everything[0]["match"]
        assert best > everything[1]["match"]
        assert agent.call("search_consolidated_memories", **query, min_match=best)["results"] == everything[:1]


def test_as_of_is_read_by_three_tools(connect_agent: ConnectAgent, shop_admin: Principal) -> None:
    with connect_agent(shop_admin) as agent:
        agent.call("add_memory", content="Refunds take five days.")
        assert agent.call("search_consolidated_memories", query="refunds")["results"]
        calls = {
            "search_consolidated_memories": {"query": "refunds"},
            "get_consolidated_context": {"task": "Refund an order."},
            "read_playbook": {},
        }
        for tool, arguments in calls.items():
            then = agent.call(tool, as_of="2026-01-01", **arguments)
            assert not any(then.get(name) for name in ("results", "memories", "entries"))
            refused = agent.expect_error(tool, as_of="2999-01-01", **arguments)
            assert refused.startswith("usage: as_of is '2999-01-01', in the future")
            assert agent.expect_error(tool, as_of="soon", **arguments).startswith("usage: as_of is 'soon': give a day")


def test_memory_is_edited_deleted_and_restored(connect_agent: ConnectAgent, shop_admin: Principal) -> None:
    agent_key = replace(shop_admin, role="agent", name="robot")
    with connect_agent(agent_key) as agent:
        own = agent.call("add_memory", content="The till opens at eight.")["id"]
        done = agent.call("edit_memory", memory_id=own, content="The till opens at nine.", tags=["till"])
        assert done["changed"] == ["content", "tags"]
        read = agent.call("get_memory", memory_id=own)
        assert (read["content"], read["version"]) == ("The till opens at nine.", done["version"])
        listed = agent.call("list_memories", text="till opens", limit=5)
        assert [(row["id"], row["status"]) for row in listed["memories"]] == [(own, "active")]
        deleted = agent.call("delete_memory", memory_id=own, reason="wrong")
        assert deleted["memories"] == [own]
        assert agent.expect_error("edit_memory", memory_id=own, content="x").startswith("conflict: ")
    with connect_agent(shop_admin) as admin:
        for target in (deleted["group_id"], done["group_id"]):
            admin.call("rollback_consolidation", target=target)
        assert admin.call("get_memory", memory_id=own)["content"] == "The till opens at eight."
        other = admin.call("add_memory", content="The safe is checked by two.")["id"]
    with connect_agent(agent_key) as agent:
        error = agent.expect_error("delete_memory", memory_id=other)
        assert error.startswith("forbidden: memory ")
