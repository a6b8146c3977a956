"""What every tool works with: the store, the settings, who is calling and for which project.

What a tool works with is imported when it is called: a client starts the server and waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from threading import Semaphore
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context

from consolidation_pipeline.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from uuid import UUID

    from consolidation_pipeline.mcp.run_backends import RunBackend
    from consolidation_pipeline.service.admin.api_keys import Principal
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine

# Where the HTTP app leaves who is calling, in the scope of a request.
PRINCIPAL_KEY = "consolidation.principal"
# So many at once: a plan takes seconds, and much memory where a project is large.
MAX_CONCURRENT_PLANS = 2


@dataclass(frozen=True)
class ServerContext:
    """The world of a server's tools.

    ``local``: who calls where there is no HTTP request that says it; ``plans``: how many may be made at once.
    """

    open_store: Callable[[], Engine]
    settings: Settings
    runs: RunBackend
    local: Principal | None = None
    plans: Semaphore = field(default_factory=lambda: Semaphore(MAX_CONCURRENT_PLANS))

    @cached_property
    def engine(self) -> Engine:
        """The store, opened by the first call that needs it: a client waits for the greeting, not for a database."""
        return self.open_store()


@dataclass(frozen=True)
class Caller:
    """One call of a tool: its door and who is behind it."""

    door: ServerContext
    principal: Principal

    @property
    def engine(self) -> Engine:
        """The store."""
        return self.door.engine

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        return self.door.settings

    @property
    def name(self) -> str:
        """The name that stands in the ledger for what is done here."""
        return f"mcp:{self.principal.name or self.principal.role}"

    def choose(self, project: str) -> str:
        """The project a call is for: the caller's own, or the one it names.

        Raises:
            UsageError: none is named and the caller is bound to none. NotFoundError: the caller is bound to another.
        """
        from consolidation_pipeline.service.admin.projects import list_projects

        own = self.principal.project
        if own is None and not project:
            known = [backlog.slug for backlog in list_projects(self.engine)]
            hint = "there is none yet, `consolidation projects create NAME` makes one"
            raise UsageError(f"say which project: {', '.join(known) or hint}")
        if own is not None and project not in ("", own):
            raise NotFoundError(f"there is no project {project!r} for you; yours is {own}")
        return own or project

    def own(self, id_: UUID, noun: str) -> None:
        """Raise NotFoundError, just as if it were not there, where a row belongs to a project that is not the caller's.

        Of one that is really not there the service will say so.
        """
        from consolidation_pipeline.service.admin.ownership import find_owners, find_project

        own = self.principal.project
        if own is None:
            return
        # A server that was started for a project knows its name alone.
        mine = self.principal.project_id or find_project(self.engine, own).id
        if any(project_id != mine for project_id in find_owners(self.engine, [id_]).values()):
            raise NotFoundError(f"there is no {noun} {id_}")


def get_caller(ctx: Context[ServerContext]) -> Caller:
    """Who makes a call, and where."""
    context = ctx.request_context
    door, request = context.lifespan_context, context.request
    principal = door.local if request is None else request.scope[PRINCIPAL_KEY]
    if principal is None:
        raise LookupError("a call came without a principal")
    return Caller(door, principal)


ToolContext = Context[ServerContext, Any]
