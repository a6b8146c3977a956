"""Dagster components: the pipeline and its connected stores in somebody else's project, configured by YAML files."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
from cronsim import CronSim, CronSimError
from pydantic import Field, field_validator, model_validator

from consolidation_pipeline.connect.config import KINDS
from consolidation_pipeline.connect.folder_config import FOLDER
from consolidation_pipeline.definitions import build_definitions
from consolidation_pipeline.defs.declared_sources import build_source_definitions, source_key
from consolidation_pipeline.defs.names import PREFIX
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.defs.schedules import CRONS
from consolidation_pipeline.errors import InvalidOptionError, UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.intake.readers.folder_formats import FOLDER_FORMATS
from consolidation_pipeline.service.sources.connections import check_mode
from consolidation_pipeline.service.sources.stores import read_config
from consolidation_pipeline.store.database.schema import SOURCE_MODES

# Only whether a cron can be parsed is of interest.
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


class MemorySourceScaffolder(dg.Scaffolder[Any]):
    """Scaffolder of `MemorySourceComponent`."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write `defs.yaml` with the attributes that are needed, for a collection of mem0."""
        dg.scaffold_component(
            request, {"kind": "mem0", "url_env": "MEM0_DATABASE_URL", "project": "memories", "mode": "mirror"}
        )


@dg.scaffold_with(MemorySourceScaffolder)
class MemorySourceComponent(dg.Component, dg.Model, dg.Resolvable):
    """Connect a store in which agents keep their memories, such as mem0, with a project.

    An observable asset upstream of `synced_memories`, with checks of what was written into the store. The store is
    connected by the next update, and synced with the others. Needs a ConsolidationComponent in the same project.
    """

    kind: str = Field(description=f"Kind of store: {', '.join((*KINDS, FOLDER))}.")
    project: str = Field(description="Slug of the project for its memories; created if it is missing.")
    url_env: str | None = Field(
        None, description="Environment variable that holds the URL of the store's database; not of a folder."
    )
    path: str | None = Field(None, description="Kind folder: path of the folder.")
    format: str | None = Field(
        None,
        description=f"Kind folder: {', '.join(FOLDER_FORMATS)}; unset = by its files, which then have to be there "
        "when this is loaded.",
    )
    name: str | None = Field(None, description="Name of the source; unset = PROJECT-KIND.")
    mode: str = Field("mirror", description=f"One of {', '.join(SOURCE_MODES)}.")
    table: str | None = Field(None, description="Table or collection; unset = that of the kind.")
    scope: dict[str, str] | list[str] | None = Field(
        None, description="What separates memories: names such as user_id; of the kind table, names with their fields."
    )
    key: list[str] = Field([], description="Kind table: columns of the primary key.")
    text: str | None = Field(None, description="Where the text is: a column, or column.key for a value in JSON.")
    created: str | None = Field(None, description="Kind table: field of the creation time.")
    updated: str | None = Field(None, description="Kind table: field of the time of the last change.")
    metadata: str | None = Field(None, description="Kind table: JSON field that is kept as metadata.")
    vector: str | None = Field(None, description="Kind table: column of the vector.")
    embedding_model: str | None = Field(
        None, description="Model of its vectors; if it is the project's, they are taken along."
    )
    memory_type: str = Field("learning", description="Type of its memories.")
    group_name: str | None = Field(None, description="Group of the asset; unset = that of the raw memories.")

    @model_validator(mode="after")
    def _check(self) -> "MemorySourceComponent":
        try:
            check_mode(self.mode)
            # A configuration that cannot be read would fail at each update.
            read_config(self.declare()["config"]).scope_names  # noqa: B018
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def source_name(self) -> str:
        """Name of the source."""
        return self.name or f"{self.project}-{self.kind}"

    def declare(self) -> dict[str, Any]:
        """Return the arguments of ``ensure_connected``."""
        given = self.model_dump(
            exclude={"project", "name", "mode", "group_name"}, exclude_none=True, exclude_defaults=True
        )
        if isinstance(self.scope, list):
            given["scope"] = {each: each for each in self.scope}
        return {"name": self.source_name, "project": self.project, "mode": self.mode, "config": given}

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the asset of the store, and its checks. Nothing is read from the store."""
        del context
        return build_source_definitions(self.declare(), group_name=self.group_name)


class ConsolidationComponent(dg.Component, dg.Model, dg.Resolvable):
    """Consolidate the memories that agents write: merge, derive patterns, promote, score and archive them.

    Assets, checks, jobs, sensors and schedules, with one partition for each project. One component for each project of
    Dagster: the names of jobs, sensors and schedules are the same in each.
    """

    database_url_env: str | None = Field(
        None,
        description="Variable with the URL of the Postgres of the memories; unset = CONSOLIDATION_DATABASE_URL.",
    )
    projects: list[str] = Field(
        [], description="Slugs of the projects to consolidate, with * as a wildcard; empty = all."
    )
    options: dict[str, Any] = Field(
        {}, description="Options of all runs, over those of the projects, such as t_merge: 0.9 or forgetting: true."
    )
    llm_model: str | None = Field(None, description="litellm model of projects that set none.")
    embedding_model: str | None = Field(None, description="litellm embedding model of projects that set none.")
    schedules: dict[str, str] = Field(
        {}, description=f"Crons in UTC in place of the usual ones. Schedules: {', '.join(CRONS)}."
    )
    asset_key_prefix: list[str] = Field([PREFIX], min_length=1, description="Prefix of the keys of the assets.")
    group_name: str | None = Field(
        None, description="Group of all assets; unset = a group for each part of the pipeline."
    )

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        try:
            parse_options(options)
        except InvalidOptionError as error:
            raise ValueError(str(error)) from None
        return options

    @field_validator("schedules")
    @classmethod
    def _check_schedules(cls, schedules: dict[str, str]) -> dict[str, str]:
        for name, cron in schedules.items():
            if name not in CRONS:
                raise ValueError(f"schedule {name!r} does not exist; the schedules are {', '.join(CRONS)}")
            try:
                CronSim(cron, _ANY_TIME)
            except CronSimError as error:
                raise ValueError(f"schedule {name}: {cron!r} is not a cron of five fields: {error}") from None
        return schedules

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return all definitions. Nothing is read from the database."""
        stores = context.component_tree.get_all_components(of_type=MemorySourceComponent)
        url = None if self.database_url_env is None else dg.EnvVar(self.database_url_env)
        resource = ConsolidationResource(
            database_url=url,
            projects=self.projects,
            options=self.options,
            llm_model=self.llm_model,
            embedding_model=self.embedding_model,
            asset_key_prefix=self.asset_key_prefix,
            stores=[store.declare() for store in stores],
        )
        return build_definitions(
            resource,
            crons=self.schedules,
            group_name=self.group_name,
            stores=[source_key(store.source_name) for store in stores],
        )
