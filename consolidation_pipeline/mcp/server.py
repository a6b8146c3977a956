"""The MCP server: which tools there are, who may call them, what clients are told of them and of their errors."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from consolidation_pipeline.errors import ConflictError, ConsolidationError, kind_of
from consolidation_pipeline.mcp import consolidation_tools, read_tools, write_tools
from consolidation_pipeline.mcp.tool_context import ServerContext
from consolidation_pipeline.service.admin.api_keys import ROLES

_INSTRUCTIONS = """
Long-term memory of agents, by project. Before a task: get_consolidated_context, and follow its playbook entries. During
it: search_consolidated_memories for a question, trace_memory_lineage to see what a claim rests on. After it: add_memory
for what you learned, memory_feedback for what helped or misled you. plan_consolidation, run_consolidation and
rollback_consolidation tidy up: a run merges what says the same and hides the sources, deletes nothing, can be undone.
"""


@dataclass(frozen=True)
class ToolSpec:
    """A tool: its function, the least role that may call it, and what clients are told of its effects.

    Counting a memory as used is bookkeeping, so searching is told as reading. ``destructive``: more than adding, such
    as hiding what was merged, though all of it can be undone. ``repeatable``: a second call changes nothing more.
    """

    function: Callable[..., Any]
    role: str
    title: str
    read_only: bool = True
    destructive: bool = False
    repeatable: bool = True

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function.__name__

    def build(self) -> Tool:
        """The tool, which refuses arguments it does not know: a misspelt filter must not find everything."""
        hints = ToolAnnotations(
            title=self.title,
            read_only_hint=self.read_only,
            destructive_hint=self.destructive,
            idempotent_hint=self.repeatable,
            open_world_hint=False,
        )
        tool = Tool.from_function(
            self.function,
            title=self.title,
            description=inspect.getdoc(self.function),
            annotations=hints,
            structured_output=True,
        )
        arguments = tool.fn_metadata.arg_model
        arguments.model_config["extra"] = "forbid"
        arguments.model_rebuild(force=True)
        tool.parameters = arguments.model_json_schema(by_alias=True)
        return tool


TOOLS = (
    ToolSpec(read_tools.search_consolidated_memories, "reader", "Search memories"),
    ToolSpec(read_tools.get_consolidated_context, "reader", "Context for a task"),
    ToolSpec(read_tools.trace_memory_lineage, "reader", "Lineage of a memory"),
    ToolSpec(write_tools.add_memory, "agent", "Add a memory", read_only=False),
    ToolSpec(write_tools.memory_feedback, "agent", "Feedback on a memory", read_only=False, repeatable=False),
    ToolSpec(consolidation_tools.plan_consolidation, "admin", "Preview a consolidation"),
    ToolSpec(consolidation_tools.run_consolidation, "admin", "Consolidate", read_only=False, destructive=True),
    ToolSpec(consolidation_tools.consolidation_status, "admin", "How a consolidation goes"),
    ToolSpec(consolidation_tools.rollback_consolidation, "admin", "Undo", read_only=False, destructive=True),
)


class ToolServer(MCPServer[ServerContext]):
    """The tools of one role."""

    def __init__(self, door: ServerContext, role: str) -> None:
        @asynccontextmanager
        async def lifespan(_: MCPServer[ServerContext]) -> AsyncIterator[ServerContext]:
            yield door

        allowed = [offer for offer in TOOLS if ROLES.index(role) >= ROLES.index(offer.role)]
        self._refused = {
            offer.name: f"forbidden: {offer.name} needs the role {offer.role}; yours is {role}"
            for offer in TOOLS
            if offer not in allowed
        }
        super().__init__(
            "consolidation",
            title="Consolidated memories",
            instructions=_INSTRUCTIONS.strip(),
            version=version("consolidation-pipeline"),
            tools=[offer.build() for offer in allowed],
            lifespan=lifespan,
            log_level="WARNING",
            subscriptions=False,
        )

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[ServerContext, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        Raises:
            ToolError: what is wrong, in words. UnexpectedToolError: nobody foresaw it; the log has more.
        """
        if name in self._refused:
            raise ToolError(self._refused[name])
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            told = _describe_error(error)
            if told is None:
                raise
            raise ToolError(told) from error.__cause__


def build_server(door: ServerContext, role: str) -> ToolServer:
    """A server with the tools that ``role`` may call, on a transport of the caller's choice."""
    return ToolServer(door, role)


def _describe_error(failure: ToolError) -> str | None:
    """A failure that was foreseen, as ``kind: message``; None for any other."""
    error = failure.__cause__
    if isinstance(error, ValidationError) and not isinstance(failure, UnexpectedToolError):
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
        return f"invalid_arguments: {'; '.join(wrong)}"
    if isinstance(error, ToolError):
        return str(error)
    if not isinstance(error, ConsolidationError):
        return None
    conflicts = error.conflicts if isinstance(error, ConflictError) else ()
    unnamed = "" if all(id_ in str(error) for id_ in conflicts) else f" (in conflict: {', '.join(conflicts)})"
    return f"{kind_of(error)}: {error}{unnamed}"
