"""Partitions: one per project; the partition key is the project's slug."""

import dagster as dg

PROJECTS = "projects"

projects = dg.DynamicPartitionsDefinition(name=PROJECTS)
