"""Limits that the environment sets to what projects may choose: models, files of models, and budgets.

An admin of one project chooses its options. Its texts go to the model, on the operator's bill.
"""

from __future__ import annotations

import logging
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.settings import Settings

logger = logging.getLogger(__name__)

# Option -> setting with the most that a project may choose.
_MAXIMA = {"budget_usd_per_day": "max_usd_per_day", "budget_tokens_per_run": "max_tokens_per_run"}
_FILE_PREFIX = "onnx:"


class OperatorLimits(NamedTuple):
    """Settings that limit what projects choose; ``llm_model``, ``embedding_model``: the environment's own."""

    llm_model: str | None
    embedding_model: str | None
    allowed_models: str
    max_usd_per_day: float | None
    max_tokens_per_run: int | None
    judge_dir: Path | None


def read_limits(settings: Settings) -> OperatorLimits:
    """Return the limits of the environment."""
    return OperatorLimits(*(getattr(settings, name) for name in OperatorLimits._fields))


def check_limits(options: ConsolidationOptions, limits: OperatorLimits) -> None:
    """Check the options that somebody chose.

    Raises:
        InvalidOptionError: One is beyond what the environment allows; the message names it and the limit.
    """
    for name, setting in _MAXIMA.items():
        limit, chosen = getattr(limits, setting), getattr(options, name)
        if limit is not None and name in options.model_fields_set and chosen > limit:
            variable = f"CONSOLIDATION_{setting.upper()}"
            raise InvalidOptionError(f"{name} = {chosen} is not allowed: {variable} limits it to {limit}")
    for name in ("llm_model", "embedding_model"):
        if refusal := _refuse_model(name, options, limits):
            raise InvalidOptionError(refusal)
    if refusal := _refuse_judge(options, limits):
        raise InvalidOptionError(refusal)


def apply_limits(options: ConsolidationOptions, limits: OperatorLimits) -> ConsolidationOptions:
    """Return the options within the limits, as they may have been chosen before there were any.

    Budgets are lowered. Without its LLM, a run writes extractive texts and asks no LLM as a judge; without its pair
    judge, fewer pairs merge. The path of a judge's file becomes absolute.

    Raises:
        InvalidOptionError: The embedding model is not allowed. No other one can take its place.
    """
    if refusal := _refuse_model("embedding_model", options, limits):
        raise InvalidOptionError(refusal)
    changed: dict[str, object] = {}
    for name, setting in _MAXIMA.items():
        limit = getattr(limits, setting)
        if limit is not None and getattr(options, name) > limit:
            changed[name] = limit
    if refusal := _refuse_model("llm_model", options, limits):
        logger.warning("no model writes texts or judges memories: %s", refusal)
        changed |= {"llm_model": None, "supersession_judge": "none"}
        if options.pair_judge == "llm":
            changed["pair_judge"] = "none"
    if refusal := _refuse_judge(options, limits):
        logger.warning("no judge confirms pairs: %s", refusal)
        changed["pair_judge"] = "none"
    elif (path := _find_judge_path(options, limits)) is not None:
        changed["pair_judge"] = f"{_FILE_PREFIX}{path}"
    return options.model_copy(update=changed) if changed else options


def _refuse_model(name: str, options: ConsolidationOptions, limits: OperatorLimits) -> str | None:
    """Return why a model is not allowed; None if it is the environment's own, local, or in its list."""
    model, patterns = getattr(options, name), limits.allowed_models
    own = (None, "local", getattr(limits, name))
    if not patterns or model in own or any(fnmatchcase(model, one.strip()) for one in patterns.split(",")):
        return None
    return f"{name} = {model} is not allowed: CONSOLIDATION_ALLOWED_MODELS has {patterns}"


def _refuse_judge(options: ConsolidationOptions, limits: OperatorLimits) -> str | None:
    """Return why a pair judge is not allowed. Whether its file exists makes no difference."""
    if not options.pair_judge.startswith(_FILE_PREFIX) or _find_judge_path(options, limits) is not None:
        return None
    folder = "is not set" if limits.judge_dir is None else f"has the models, below {limits.judge_dir}"
    return f"pair_judge = {options.pair_judge} is not allowed: CONSOLIDATION_JUDGE_DIR {folder}"


def _find_judge_path(options: ConsolidationOptions, limits: OperatorLimits) -> Path | None:
    """Return the path of a judge's file below the folder of the environment; None if it is not there, or no file."""
    if limits.judge_dir is None or not options.pair_judge.startswith(_FILE_PREFIX):
        return None
    folder = Path(os.path.normpath(limits.judge_dir))
    path = Path(os.path.normpath(folder / options.pair_judge.removeprefix(_FILE_PREFIX)))
    return path if folder in path.parents else None
