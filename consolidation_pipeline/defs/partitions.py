"""The one partitions definition: a partition is a project, its key the project's slug."""

import dagster as dg

PROJECTS = "projects"

projects = dg.DynamicPartitionsDefinition(name=PROJECTS)
