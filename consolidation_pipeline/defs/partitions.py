"""Partitions: one per project; the partition key is the project's slug."""

import dagster as dg

from consolidation_pipeline.defs.names import prefixed

PROJECTS = prefixed("projects")

projects = dg.DynamicPartitionsDefinition(name=PROJECTS)
