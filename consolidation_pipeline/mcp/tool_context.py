"""Context of a tool call: store, settings, caller and project.

Tools import ``service`` inside their functions: the client that starts the server waits for it, so start-up is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Semaphore
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.admin.api_keys import OF_SCOPE

if TYPE_CHECKING:
    from uuid import UUID

    from consolidation_pipeline.mcp.run_backends import RunBackend
    from consolidation_pipeline.service.admin.api_keys import Principal
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine
    from consolidation_pipeline.store.projects import Project

# Key in the ASGI scope under which the HTTP app puts the caller's principal.
PRINCIPAL_KEY = "consolidation.principal"
# A plan takes seconds, and much memory for a large project.
MAX_CONCURRENT_PLANS = 2


@dataclass(frozen=True)
class ServerContext:
    """Everything that the tools of one server share.

    Attributes:
        open_store: opens the store; called once, by the first tool call that needs it.
        run_backend: executes or queues consolidation runs.
        local_principal: the caller when there is no HTTP request (stdio).
        plan_slots: limits how many plans are made at once.
    """

    open_store: Callable[[], Engine]
    settings: Settings
    run_backend: RunBackend
    local_principal: Principal | None = None
    plan_slots: Semaphore = field(default_factory=lambda: Semaphore(MAX_CONCURRENT_PLANS))

    @cached_property
    def engine(self) -> Engine:
        """The store. Opened by the first call that needs it, so that starting the server does not wait for it."""
        return self.open_store()


@dataclass(frozen=True)
class Caller:
    """The caller of a tool, and the context of the server that was called."""

    context: ServerContext
    principal: Principal

    @property
    def engine(self) -> Engine:
        """The store."""
        return self.context.engine

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        return self.context.settings

    @property
    def name(self) -> str:
        """Name recorded in the ledger (``changed_by``)."""
        return f"mcp:{self.principal.name or self.principal.role}"

    def resolve_project(self, project: str) -> str:
        """Return the slug of the project that a call is for: the caller's own, else ``project``, a slug or id.

        Raises:
            UsageError: the caller is not bound to a project and ``project`` is empty.
            NotFoundError: the caller is bound to another project, or there is none with this slug or id.
        """
        return self.find_project(project).slug

    def find_project(self, reference: str) -> Project:
        """Return the project that a call is for; see ``resolve_project``."""
        from consolidation_pipeline.service.admin.projects import find_project, list_projects

        own = self.principal.project
        if own is None and not reference:
            slugs = [backlog.slug for backlog in list_projects(self.engine)]
            hint = "there is none yet; create one with `consolidation projects create NAME`"
            raise UsageError(f"name a project: {', '.join(slugs) or hint}")
        found = find_project(self.engine, own or reference)
        if own is not None and reference not in ("", own, str(found.id)):
            raise NotFoundError(f"you have no access to a project {reference!r}; your project is {own}")
        return found

    def limit_scope(self, scope: str, project: Project) -> str | None:
        """Return the scope of a search: the caller's own, else the one asked for; None = all.

        Raises:
            ToolError: the caller is limited to another scope.
            UsageError: several scopes may be meant.
        """
        from consolidation_pipeline.service.search.typed_scopes import is_named, resolve_scope

        own = self.principal.scope
        if own is None:
            return resolve_scope(self.engine, project, scope or None)
        if scope and not is_named(own, project, scope):
            raise ToolError(f"forbidden: this key is for scope {own} only")
        return own

    def find_memory(self, reference: str, *, project: str = "") -> UUID:
        """Return the id of a memory or playbook entry that an agent named, whole or by its first digits.

        Raises:
            UsageError: Several ids begin with these digits.
            NotFoundError: There is none, or it belongs to another project; see ``check_owners``.
        """
        return self.find_memories([reference], project=project)[0]

    def find_memories(self, references: Sequence[str], *, project: str = "") -> list[UUID]:
        """Return the ids of memories and playbook entries; see ``find_memory``."""
        from consolidation_pipeline.service.undo.lineage import find_memory_id

        bound = self.principal.project is not None or project
        project_id = self.find_project(project).id if bound else None
        ids = [find_memory_id(self.engine, reference, project_id=project_id) for reference in references]
        self.check_owners(ids, "memory", project=project)
        return ids

    def check_owner(self, id_: UUID, noun: str, *, project: str = "") -> None:
        """Raise NotFoundError if a row belongs to another project; see ``check_owners``."""
        self.check_owners([id_], noun, project=project)

    def check_owners(self, ids: Sequence[UUID], noun: str, *, project: str) -> None:
        """Check that rows belong to the caller's project and to ``project``, if it is given.

        A row that does not exist passes: the service reports it.

        Raises:
            NotFoundError: One of the rows belongs to another project, as if it did not exist; or the caller is bound to
                another project than ``project``.
        """
        from consolidation_pipeline.service.admin.projects import find_owners

        if self.principal.project is None and not project:
            return
        own_id = self.find_project(project).id
        for id_, project_id in find_owners(self.engine, ids).items():
            if project_id != own_id:
                raise NotFoundError(f"there is no {noun} {id_}" + (f" in project {project}" if project else ""))


def get_caller(ctx: Context[ServerContext], *, of_scope: bool = False) -> Caller:
    """Return the caller of the current tool call.

    Raises:
        ToolError: The caller is limited to a scope, and the tool (without ``of_scope``) reads any.
    """
    context, request = ctx.request_context.lifespan_context, ctx.request_context.request
    principal = context.local_principal if request is None else request.scope[PRINCIPAL_KEY]
    if principal is None:
        raise LookupError("a tool was called without a principal")
    if principal.scope is not None and not of_scope:
        raise ToolError(f"forbidden: this key is for scope {principal.scope} only: {OF_SCOPE}")
    return Caller(context, principal)


ToolContext = Context[ServerContext, Any]
