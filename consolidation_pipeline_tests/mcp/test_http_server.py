"""MCP over streamable HTTP: keys, roles, projects, and requests refused before any tool is called."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from threading import Semaphore, Thread

import httpx2
import pytest
import uvicorn
from anyio.from_thread import start_blocking_portal
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.mcp.http_server import McpApp
from consolidation_pipeline.mcp.server import TOOLS
from consolidation_pipeline.service.admin.api_keys import authenticate, create_key
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.settings import Settings
from consolidation_pipeline_tests.mcp.conftest import Agent
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class Keys:
    """Keys of a reader of all projects, an agent of `shop` and an admin of all projects."""

    reader: str
    agent: str
    admin: str


@pytest.fixture(scope="module")
def keys(pipeline: Pipeline) -> Keys:
    """Keys for the projects `shop` and `bank`."""
    for slug in ("shop", "bank"):
        ensure_project(pipeline.engine, slug)
    roles = (("reader", None), ("agent", "shop"), ("admin", None))
    return Keys(*(create_key(pipeline.engine, role=role, project=project)[1] for role, project in roles))


def create_host_app(pipeline: Pipeline, *, wait: int = 0, **settings: str) -> Starlette:
    """Return an application that mounts the MCP server; ``wait``: seconds that the rate limit asks to wait."""
    mcp = McpApp(pipeline.engine, Settings(**settings), authenticate, limit=lambda _: wait, plan_slots=Semaphore())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with mcp.run():
            yield

    return Starlette(routes=[Route("/mcp", endpoint=mcp)], lifespan=lifespan)


@contextmanager
def serve_app(app: Starlette) -> Iterator[str]:
    """Serve the application on a free port; yield the URL of the MCP server."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    thread = Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def connect_http_agent(url: str, *, mode: str = "auto", **headers: str) -> Iterator[Agent]:
    """Connect an agent that sends these headers."""
    with start_blocking_portal() as portal:
        http = httpx2.AsyncClient(headers=headers, timeout=30)
        client = Client(streamable_http_client(url, http_client=http), mode=mode)
        with portal.wrap_async_context_manager(http), portal.wrap_async_context_manager(client):
            yield Agent(client, portal)


def test_mcp_key_limits_role_and_project(pipeline: Pipeline, keys: Keys) -> None:
    with serve_app(create_app(pipeline.engine, Settings())) as url:
        with connect_http_agent(url, Authorization=f"Bearer {keys.agent}") as agent:
            added = agent.call("add_memory", content="Paid orders are final.")
            assert (added["project"], added["added"]) == ("shop", True)
            assert agent.expect_error("add_memory", content="x", project="bank").startswith("not_found: ")
            assert "needs the role admin; yours is agent" in agent.expect_error("run_consolidation")
        with connect_http_agent(url, mode="legacy", **{"X-API-Key": keys.reader}) as agent:
            assert set(agent.tools()) == {spec.name for spec in TOOLS if spec.role == "reader"}
            found = agent.call("search_consolidated_memories", query="orders", project="shop")["results"]
            assert [hit["id"] for hit in found] == [added["id"]]
        with connect_http_agent(url, Authorization=f"bearer {keys.admin}") as agent:
            assert agent.call("run_consolidation", project="shop")["status"] == "pending"
    by = pipeline.rows("SELECT triggered_by, trigger_type FROM {s}.consolidation_jobs")
    assert [tuple(row) for row in by] == [("mcp:admin of all projects", "manual")]


def test_mcp_key_of_a_scope_reaches_its_memories_alone(pipeline: Pipeline, keys: Keys) -> None:
    assert keys.agent
    _, secret = create_key(pipeline.engine, role="agent", project="bank", scope="ada")
    rows = [{"id": user, "content": f"The vault of {user} is open.", "user_id": user} for user in ("ada", "bob")]
    pipeline.add(rows, "bank")
    with (
        serve_app(create_app(pipeline.engine, Settings())) as url,
        connect_http_agent(url, Authorization=f"Bearer {secret}") as agent,
    ):
        found = agent.call("search_consolidated_memories", query="vault")["results"]
        assert [hit["content"] for hit in found] == ["The vault of ada is open."]
        assert "bob" not in str(agent.call("get_consolidated_context", task="close the vault"))
        assert agent.call("add_memory", content="The vault has two doors.", user_id="ada")["added"] is True
        for tool, arguments in (
            ("search_consolidated_memories", {"query": "vault", "scope": "bob"}),
            ("get_consolidated_context", {"task": "vault", "scope": "bob"}),
            ("trace_memory_lineage", {"memory_id": found[0]["id"]}),
            ("memory_feedback", {"memory_id": found[0]["id"], "helpful": True}),
        ):
            assert agent.expect_error(tool, **arguments).startswith("forbidden: this key is for scope ada only")
        assert "scope 'ada' only" in agent.expect_error("add_memory", content="The vault is blue.", user_id="bob")


def test_mcp_scope_is_named_by_a_user_id(pipeline: Pipeline) -> None:
    pipeline.configure_new("vaults", scope="user_id,agent_id")
    owners = ("ada", "clerk"), ("bob", "clerk"), ("bob", "cook")
    pipeline.add(
        [
            {"id": f"{user} {agent}", "content": f"The vault of {user} is open.", "user_id": user, "agent_id": agent}
            for user, agent in owners
        ],
        "vaults",
    )
    _, secret = create_key(pipeline.engine, role="agent", project="vaults", scope="ada")
    _, reader = create_key(pipeline.engine, role="reader", project="vaults")
    with serve_app(create_app(pipeline.engine, Settings())) as url:
        with connect_http_agent(url, Authorization=f"Bearer {secret}") as agent:
            for scope in ("", "ada", "ada/clerk"):
                found = agent.call("search_consolidated_memories", query="vault", scope=scope)["results"]
                assert [hit["content"] for hit in found] == ["The vault of ada is open."]
            refused = agent.expect_error("search_consolidated_memories", query="vault", scope="bob")
            assert refused == "forbidden: this key is for scope ada/clerk only"
        with connect_http_agent(url, Authorization=f"Bearer {reader}") as agent:
            assert "bob" not in str(agent.call("get_consolidated_context", task="close the vault", scope="ada"))
            refused = agent.expect_error("get_consolidated_context", task="close the vault", scope="bob")
            assert refused.startswith("usage: scope 'bob' may be any of 2")


def test_mcp_server_returns_401_without_valid_key(pipeline: Pipeline, keys: Keys) -> None:
    with TestClient(create_host_app(pipeline), base_url="http://localhost") as http:
        for headers in ({}, {"X-API-Key": "cnsl_nonsense"}, {"Authorization": f"Basic {keys.admin}"}):
            for method in ("POST", "GET", "DELETE"):
                answer = http.request(method, "/mcp", json=LIST_TOOLS, headers=headers)
                assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("changed", "status"),
    [({}, 200), ({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403), ({"Host": "mcp.test"}, 200)],
)
def test_mcp_server_refuses_foreign_host_and_origin(
    pipeline: Pipeline, keys: Keys, changed: dict[str, str], status: int
) -> None:
    headers = {"X-API-Key": keys.reader, **ACCEPT, **changed}
    with TestClient(create_host_app(pipeline, mcp_hosts="mcp.test, other.test"), base_url="http://localhost") as http:
        assert http.post("/mcp", json=LIST_TOOLS, headers=headers).status_code == status


def test_mcp_server_refuses_invalid_requests(pipeline: Pipeline, keys: Keys) -> None:
    headers = {"X-API-Key": keys.reader, **ACCEPT}
    with TestClient(create_host_app(pipeline), base_url="http://localhost") as http:
        refused = http.get("/mcp", headers=headers)
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert http.post("/mcp", content=b"x" * 1_000_001, headers=headers).status_code == 413
        for content, id_, problem in (
            (b"x", None, "this is no JSON"),
            (b'{"id": 7, "method": "tools/call", "params": "x"}', 7, "this is no JSON-RPC message"),
            (
                b'{"jsonrpc": "2.0", "id": 8, "method": "\xff"}',
                8,
                "message.method is '\\udcff': expected valid Unicode",
            ),
        ):
            unreadable = http.post("/mcp", content=content, headers=headers)
            assert (unreadable.status_code, unreadable.json()["id"]) == (400, id_)
            assert unreadable.json()["error"]["message"].startswith(problem)
    with TestClient(create_host_app(pipeline, wait=7), base_url="http://localhost") as http:
        limited = http.post("/mcp", json=LIST_TOOLS, headers=headers)
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "7")


def test_mcp_with_auth_off_grants_local_admin(pipeline: Pipeline) -> None:
    app = create_host_app(pipeline, api_auth="off")
    for _ in range(2):  # the application can be started twice
        with TestClient(app, base_url="http://localhost") as http:
            answer = http.post("/mcp", json=LIST_TOOLS, headers=ACCEPT)
        assert "rollback_consolidation" in answer.text
