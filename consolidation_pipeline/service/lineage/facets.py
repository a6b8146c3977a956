"""Facets of our own, as classes of the OpenLineage library. Their JSON schemas are in ``schemas/``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import attr
from openlineage.client.generated.base import RunFacet

# Identifies who made an event and its facets.
PRODUCER = f"urn:consolidation-pipeline:{version('consolidation-pipeline')}"


@attr.define
class MemoryLineageRunFacet(RunFacet):
    """Memories and what became of them: a group of changes each, at most ``MOST_GROUPS``."""

    groups: list[dict[str, Any]]
    groupCount: int

    @staticmethod
    def _get_schema() -> str:
        return "urn:consolidation-pipeline:openlineage:1-0-0:MemoryLineageRunFacet.json"


@attr.define
class ConsolidationRunFacet(RunFacet):
    """Trigger of the run, its cost, and the seconds of its phases."""

    project: str
    trigger: str
    costUsd: float
    modelCalls: int
    modelTokens: int
    phases: list[dict[str, Any]]

    @staticmethod
    def _get_schema() -> str:
        return "urn:consolidation-pipeline:openlineage:1-0-0:ConsolidationRunFacet.json"
