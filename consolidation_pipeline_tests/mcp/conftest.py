"""Fixtures of MCP: agents that call tools through the official client, and servers for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client import Client
from mcp.types import CallToolResult, TextContent, Tool

from consolidation_pipeline.mcp.run_backends import InProcessRunBackend, RunBackend
from consolidation_pipeline.mcp.server import ToolServer
from consolidation_pipeline.mcp.tool_context import ServerContext
from consolidation_pipeline.service.admin.api_keys import LOCAL, Principal
from consolidation_pipeline.service.runs.phases import select_phases
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.database_pool import DatabasePool
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, run_phases


class ToolError(Exception):
    """A tool returned an error; the message is its text."""


@dataclass(frozen=True)
class Agent:
    """Client that is connected to a server and calls its tools."""

    client: Client
    portal: BlockingPortal

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the structured result of a tool, validated by the client against the tool's schema.

        Raises:
            ToolError: the tool returned an error.
        """
        answer = self.send(tool, **arguments)
        assert isinstance(answer.content[0], TextContent)
        if answer.is_error:
            raise ToolError(answer.content[0].text)
        assert answer.structured_content is not None
        return dict(answer.structured_content)

    def send(self, tool: str, progress: Any = None, **arguments: Any) -> CallToolResult:
        """Return the complete result of a tool."""
        return self.portal.call(lambda: self.client.call_tool(tool, arguments, progress_callback=progress))

    def expect_error(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must fail and return its error text."""
        with pytest.raises(ToolError) as failed:
            self.call(tool, **arguments)
        return str(failed.value)

    def tools(self) -> dict[str, Tool]:
        """Return the tools that the server lists, by name."""
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}


@contextmanager
def connect(target: Any) -> Iterator[Agent]:
    """Connect an agent to a server object in this process, or to a server process started for it."""
    with start_blocking_portal() as portal:
        client = Client(target)
        with portal.wrap_async_context_manager(client):
            yield Agent(client, portal)


@dataclass(frozen=True)
class LaunchOutcome:
    """Result of a run, with the fields of ``launch.RunOutcome`` that the tools read."""

    project: str
    job_id: UUID | None
    status: str = "completed"
    error: str | None = None


def run_without_dagster(pipeline: Pipeline) -> Callable[..., LaunchOutcome]:
    """Return a function that runs a project's phases in this process."""

    def run(slug: str, *, phases: Sequence[str] | None, triggered_by: str, run_id: str) -> LaunchOutcome:
        chosen = select_phases("consolidate", phases)
        with pipeline.open(slug, planned=chosen, triggered_by=triggered_by, run_id=run_id) as run:
            run_phases(run, chosen)
        return LaunchOutcome(slug, run.job_id)

    return run


ConnectAgent = Callable[..., AbstractContextManager[Agent]]


@pytest.fixture(scope="module")
def pipeline(databases: DatabasePool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Pipeline on a database shared by the tests of a module."""
    with databases.engine() as engine:
        yield Pipeline(engine, Settings(), Path(tmp_path_factory.mktemp("mcp")))


@pytest.fixture
def connect_agent(pipeline: Pipeline) -> ConnectAgent:
    """Function that connects an agent as a principal, to a server with a run backend."""

    def connect_as(principal: Principal = LOCAL, *, runs: RunBackend | None = None) -> AbstractContextManager[Agent]:
        runs = runs or InProcessRunBackend(run_without_dagster(pipeline))
        return connect(ToolServer(create_server_context(pipeline.engine, principal, runs), principal.role))

    return connect_as


def create_server_context(engine: Engine, principal: Principal, runs: RunBackend) -> ServerContext:
    """Return the context of a server in this process."""
    return ServerContext(lambda: engine, Settings(), runs, principal)
