"""The options in force for a project: its own over those of the environment over the defaults."""

from __future__ import annotations

import json
from functools import lru_cache

from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.projects import Project


def effective_options(project: Project, settings: Settings) -> ConsolidationOptions:
    """The project's options; models set in the environment are the default for all projects."""
    return _read_options(json.dumps(project.config), settings.llm_model, settings.embedding_model)


@lru_cache(maxsize=1_000)
def _read_options(config: str, llm_model: str | None, embedding_model: str | None) -> ConsolidationOptions:
    """Options of a project's config (JSON): every search asks, and few projects differ."""
    named = {"llm_model": llm_model, "embedding_model": embedding_model}
    base = parse_options({key: value for key, value in named.items() if value})
    return parse_options(json.loads(config), base=base)
