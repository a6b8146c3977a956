"""The MCP server: its tools, the role that each needs, and how errors are reported to clients."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, cast

from anyio import AsyncFile, open_file
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolResult,
    ErrorData,
    InputRequiredResult,
    JSONRPCError,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from consolidation_pipeline.core.invalid_values import describe_errors
from consolidation_pipeline.core.memories.row_fields import check_storable
from consolidation_pipeline.errors import ConflictError, ConsolidationError, InvalidMemoryError, error_kind
from consolidation_pipeline.mcp import consolidation_tools, memory_tools, read_tools, source_tools, write_tools
from consolidation_pipeline.mcp.tool_context import ServerContext
from consolidation_pipeline.service.admin.api_keys import ROLES

_INSTRUCTIONS = """
Long-term memory for agents, separate for each project. Before a task, call get_consolidated_context and follow its
playbook entries. During a task, call search_consolidated_memories to answer a question, and trace_memory_lineage to
check the sources of a claim. After a task, call add_memory for each lesson learned, report_used_memories with the ids
that you used, and memory_feedback for a memory that misled you; edit_memory and delete_memory correct one that you
wrote. plan_consolidation, run_consolidation and rollback_consolidation maintain the memories: a run merges memories
that say the same and hides the originals. It deletes nothing and can be undone.
"""
_UNEXPECTED_MESSAGE = "internal: an unexpected error; the server's log has details"


@dataclass(frozen=True)
class ToolSpec:
    """A tool: its function, the lowest role that may call it, and hints about its effects for clients.

    Searching counts as read-only, although each result is counted as used.

    Attributes:
        destructive: does more than add, such as hiding merged memories; all of it can be undone.
        idempotent: a second call with the same arguments changes nothing more.
    """

    function: Callable[..., Any]
    role: str
    title: str
    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function.__name__

    def build(self) -> Tool:
        """Return the tool. It rejects unknown arguments: a search must not ignore a misspelt filter."""
        hints = ToolAnnotations(
            title=self.title,
            read_only_hint=self.read_only,
            destructive_hint=self.destructive,
            idempotent_hint=self.idempotent,
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
    ToolSpec(read_tools.read_playbook, "reader", "The playbook"),
    ToolSpec(read_tools.trace_memory_lineage, "reader", "Lineage of a memory"),
    ToolSpec(memory_tools.list_memories, "reader", "List memories"),
    ToolSpec(source_tools.list_sources, "reader", "Connected stores"),
    ToolSpec(source_tools.read_source_diff, "reader", "Diff of a store"),
    ToolSpec(memory_tools.get_memory, "agent", "A memory"),
    ToolSpec(write_tools.add_memory, "agent", "Add a memory", read_only=False),
    ToolSpec(write_tools.edit_memory, "agent", "Edit a memory", read_only=False, destructive=True),
    ToolSpec(
        write_tools.delete_memory, "agent", "Delete a memory", read_only=False, destructive=True, idempotent=False
    ),
    ToolSpec(write_tools.memory_feedback, "agent", "Feedback on a memory", read_only=False, idempotent=False),
    ToolSpec(write_tools.report_used_memories, "agent", "Report used memories", read_only=False),
    ToolSpec(consolidation_tools.plan_consolidation, "admin", "Preview a consolidation"),
    ToolSpec(consolidation_tools.run_consolidation, "admin", "Consolidate", read_only=False, destructive=True),
    ToolSpec(consolidation_tools.consolidation_status, "admin", "Status of a consolidation"),
    ToolSpec(consolidation_tools.rollback_consolidation, "admin", "Undo", read_only=False, destructive=True),
)


class ToolServer(MCPServer[ServerContext]):
    """MCP server with the tools that ``role`` may call; other tools are not listed and refused by name."""

    def __init__(self, context: ServerContext, role: str) -> None:
        @asynccontextmanager
        async def lifespan(_: MCPServer[ServerContext]) -> AsyncIterator[ServerContext]:
            yield context

        allowed = [spec for spec in TOOLS if ROLES.index(role) >= ROLES.index(spec.role)]
        self._forbidden = {
            spec.name: f"forbidden: {spec.name} needs the role {spec.role}; yours is {role}"
            for spec in TOOLS
            if spec not in allowed
        }
        tools = [spec.build() for spec in allowed]
        self._arguments: dict[str, list[str]] = {tool.name: list(tool.parameters["properties"]) for tool in tools}
        super().__init__(
            "consolidation",
            title="Consolidated memories",
            instructions=_INSTRUCTIONS.strip(),
            version=version("consolidation-pipeline"),
            tools=tools,
            lifespan=lifespan,
            log_level="WARNING",
            subscriptions=False,
        )

    async def run_stdio_async(self) -> None:
        """Serve standard input and output. Lines that are no messages are answered; the library drops them."""

        async def read_messages() -> AsyncIterator[str]:
            async for line in await _take_standard_input():
                if not line.strip():
                    continue
                answer = answer_unreadable(line)
                if answer is None:
                    yield line.decode()
                else:
                    await answers.send(SessionMessage(answer))

        async with stdio_server(cast("AsyncFile[str]", read_messages())) as (messages, answers):
            server = self._lowlevel_server
            await server.run(messages, answers, server.create_initialization_options())

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[ServerContext, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        Raises:
            ToolError: the call failed for a known reason; the message is for the agent.
            UnexpectedToolError: the call failed for an unknown reason; the log has the details.
        """
        if name in self._forbidden:
            raise ToolError(self._forbidden[name])
        if name not in self._arguments:
            raise ToolError(f"not_found: there is no tool {name!r}; tools: {', '.join(self._arguments)}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            message = _describe_error(error, self._arguments[name])
            if message is None:
                raise UnexpectedToolError(_UNEXPECTED_MESSAGE) from error.__cause__
            raise ToolError(message) from error.__cause__


async def _take_standard_input() -> AsyncFile[bytes]:
    """Return the lines of standard input, which child processes find empty, as the library does.

    The library replaces bytes that are no UTF-8: another text would be stored.
    """
    lines = await open_file(os.dup(0), "rb", closefd=False)  # a thread may read until the process ends
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), 0)
    return lines


def answer_unreadable(data: bytes) -> JSONRPCError | None:
    """Return the answer to data that are no message, with the id of the request if it can be read; None to a message.

    Its texts must be valid Unicode: neither other bytes than UTF-8 nor half of a surrogate pair can be stored.
    """
    try:
        jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError:
        pass
    else:
        return None
    code, problem, id_ = INVALID_REQUEST, "this is no JSON-RPC message", None
    try:
        message = json.loads(data.decode("utf-8", "surrogateescape"))
        # An answer has the id of a request of the server.
        if isinstance(message, dict) and not {"result", "error"} & message.keys():
            check_storable("id", message.get("id"))
            id_ = message.get("id")
        check_storable("message", message)
    except InvalidMemoryError as error:
        problem = str(error)
    except RecursionError:
        problem = "this is nested too deeply"
    except ValueError:
        code, problem = PARSE_ERROR, "this is no JSON"
    known = id_ if type(id_) in (int, str) else None
    return JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=problem))


def _describe_error(failure: ToolError, known: Collection[str]) -> str | None:
    """Return an error of a known kind as ``kind: message``, None for any other. ``known``: arguments of the tool."""
    error = failure.__cause__
    if isinstance(error, ValidationError) and not isinstance(failure, UnexpectedToolError):
        return f"invalid_arguments: {describe_errors(error.errors(), known)}"
    if isinstance(error, ToolError):
        return str(error)
    if not isinstance(error, ConsolidationError):
        return None
    conflicts = error.conflicts if isinstance(error, ConflictError) else ()
    suffix = "" if all(id_ in str(error) for id_ in conflicts) else f" (in conflict: {', '.join(conflicts)})"
    return f"{error_kind(error)}: {error}{suffix}"
