"""Effective options of a project: its own, then those of the environment, then the defaults."""

from __future__ import annotations

import json
from functools import lru_cache

from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.runs.operator_limits import OperatorLimits, apply_limits, read_limits
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.projects import Project


def effective_options(project: Project, settings: Settings) -> ConsolidationOptions:
    """Return the options of a project. Models that it does not set come from the environment, and so do upper limits.

    Raises:
        InvalidOptionError: The environment does not allow its embedding model, to which searches send their texts.
    """
    return _read_options(json.dumps(project.config), read_limits(settings))


@lru_cache(maxsize=1_000)
def _read_options(config: str, limits: OperatorLimits) -> ConsolidationOptions:
    """Parse a project's config (JSON). Cached, because every search needs it."""
    models = {"llm_model": limits.llm_model, "embedding_model": limits.embedding_model}
    base = parse_options({key: value for key, value in models.items() if value})
    return apply_limits(parse_options(json.loads(config), base=base), limits)
