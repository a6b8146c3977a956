"""Agents that call the tools through the official client, and a project that they know something of."""

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
from consolidation_pipeline_tests.conftest import open_shared_engine
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, run_phases


class Failed(Exception):
    """A tool's answer was an error; the message is what the agent read."""


@dataclass(frozen=True)
class Agent:
    """Calls tools, as a client does that is connected to a server."""

    client: Client
    portal: BlockingPortal

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer, checked by the client against the tool's schema. Raises Failed."""
        answer = self.send(tool, **arguments)
        assert isinstance(answer.content[0], TextContent)
        if answer.is_error:
            raise Failed(answer.content[0].text)
        assert answer.structured_content is not None
        return dict(answer.structured_content)

    def send(self, tool: str, progress: Any = None, **arguments: Any) -> CallToolResult:
        """The whole answer."""
        return self.portal.call(lambda: self.client.call_tool(tool, arguments, progress_callback=progress))

    def refused(self, tool: str, **arguments: Any) -> str:
        """What a call that must fail says."""
        with pytest.raises(Failed) as failed:
            self.call(tool, **arguments)
        return str(failed.value)

    def tools(self) -> dict[str, Tool]:
        """The tools that the server lists."""
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}


@contextmanager
def connect(target: Any) -> Iterator[Agent]:
    """An agent at a server in this process, or at one that is started for it."""
    with start_blocking_portal() as portal:
        client = Client(target)
        with portal.wrap_async_context_manager(client):
            yield Agent(client, portal)


@dataclass(frozen=True)
class Outcome:
    """As ``launch.run_project`` tells it."""

    project: str
    job_id: UUID | None
    status: str = "completed"
    error: str | None = None


def run_without_dagster(pipeline: Pipeline) -> Callable[..., Outcome]:
    """Runs a project's phases as the assets do."""

    def run(slug: str, *, phases: Sequence[str] | None, triggered_by: str) -> Outcome:
        chosen = select_phases("consolidate", phases)
        with pipeline.open(slug, planned=chosen, triggered_by=triggered_by) as run:
            run_phases(run, chosen)
        return Outcome(slug, run.job_id)

    return run


Connect = Callable[..., AbstractContextManager[Agent]]


@pytest.fixture(scope="module")
def pipeline(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A database that the tests of a module share."""
    for engine in open_shared_engine(server):
        yield Pipeline(engine, Settings(), Path(tmp_path_factory.mktemp("mcp")))


@pytest.fixture
def enter(pipeline: Pipeline) -> Connect:
    """Connects an agent in memory: as whom, and to a server that runs projects how."""

    def connect_as(principal: Principal = LOCAL, *, runs: RunBackend | None = None) -> AbstractContextManager[Agent]:
        runs = runs or InProcessRunBackend(run_without_dagster(pipeline))
        return connect(ToolServer(context_of(pipeline.engine, principal, runs), principal.role))

    return connect_as


def context_of(engine: Engine, principal: Principal, runs: RunBackend) -> ServerContext:
    """Context of a server in this process."""
    return ServerContext(lambda: engine, Settings(), runs, principal)
