"""Dagster component: the pipeline in somebody else's project, configured by a YAML file."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
from cronsim import CronSim, CronSimError
from pydantic import Field, field_validator

from consolidation_pipeline.definitions import build_definitions
from consolidation_pipeline.defs.names import PREFIX
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.defs.schedules import CRONS
from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.options import parse_options

# Only whether a cron can be parsed is of interest.
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


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
        del context
        url = None if self.database_url_env is None else dg.EnvVar(self.database_url_env)
        resource = ConsolidationResource(
            database_url=url,
            projects=self.projects,
            options=self.options,
            llm_model=self.llm_model,
            embedding_model=self.embedding_model,
            asset_key_prefix=self.asset_key_prefix,
        )
        return build_definitions(resource, crons=self.schedules, group_name=self.group_name)
