"""Limits that the environment sets to what projects may choose: models, and budgets.

An admin of one project chooses its options. Its texts go to the model, on the operator's bill.
"""

from __future__ import annotations

import logging
from fnmatch import fnmatchcase

from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.settings import Settings

logger = logging.getLogger(__name__)

# Option -> setting with the most that a project may choose.
_MAXIMA = {"budget_usd_per_day": "max_usd_per_day", "budget_tokens_per_run": "max_tokens_per_run"}


def check_limits(options: ConsolidationOptions, settings: Settings) -> None:
    """Check the options that somebody chose.

    Raises:
        InvalidOptionError: One is beyond what the environment allows; the message names it and the limit.
    """
    for name, setting in _MAXIMA.items():
        limit, chosen = getattr(settings, setting), getattr(options, name)
        if limit is not None and name in options.model_fields_set and chosen > limit:
            variable = f"CONSOLIDATION_{setting.upper()}"
            raise InvalidOptionError(f"{name} = {chosen} is not allowed: {variable} limits it to {limit}")
    for name in ("llm_model", "embedding_model"):
        _check_model(name, options, settings)


def apply_limits(options: ConsolidationOptions, settings: Settings) -> ConsolidationOptions:
    """Return the options within the limits, as they may have been chosen before there were any.

    Budgets are lowered. Without its LLM, a run writes extractive texts.

    Raises:
        InvalidOptionError: The embedding model is not allowed. No other one can take its place.
    """
    _check_model("embedding_model", options, settings)
    changed: dict[str, object] = {}
    for name, setting in _MAXIMA.items():
        limit = getattr(settings, setting)
        if limit is not None and getattr(options, name) > limit:
            changed[name] = limit
    try:
        _check_model("llm_model", options, settings)
    except InvalidOptionError as error:
        logger.warning("no model writes texts: %s", error)
        changed["llm_model"] = None
    return options.model_copy(update=changed) if changed else options


def _check_model(name: str, options: ConsolidationOptions, settings: Settings) -> None:
    """Raise InvalidOptionError unless a model is the environment's own, local, or in its list."""
    model, patterns = getattr(options, name), settings.allowed_models
    own = (None, "local", getattr(settings, name))
    if patterns and model not in own and not any(fnmatchcase(model, one.strip()) for one in patterns.split(",")):
        raise InvalidOptionError(f"{name} = {model} is not allowed: CONSOLIDATION_ALLOWED_MODELS has {patterns}")
