"""Options of consolidation: defaults, ranges and descriptions.

The ``config`` column of a project has its changed options, a job row all effective options of its run.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

from cronsim import CronSim, CronSimError
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.scopes import EXPECTED as SCOPES_EXPECTED
from consolidation_pipeline.scopes import normalize_scope

Threshold = Literal["auto"] | Annotated[float, Field(ge=0.50, le=0.999)]
ClusterMethod = Literal["average", "complete", "components", "hdbscan"]
# Text search configurations of PostgreSQL 15. A regconfig column refuses any other name.
# fmt: off
Language = Literal[
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek",
    "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese",
    "romanian", "russian", "serbian", "simple", "spanish", "swedish", "tamil", "turkish", "yiddish",
]
# fmt: on
LANGUAGES: tuple[str, ...] = get_args(Language)
LanguageOption = Literal["auto"] | Language

_CRON_PATTERN, _ONNX_PATTERN = r"^\S+(\s+\S+){4}$", r"^onnx:\S.*$"
PairJudge = Literal["none", "llm"] | Annotated[str, Field(pattern=_ONNX_PATTERN)]
# What a text of each pattern is called in messages.
_PATTERN_NAMES = {
    _CRON_PATTERN: "a cron expression of five fields",
    _ONNX_PATTERN: "'onnx:' with the path of a model file",
}
_MODEL_EXPECTED: dict[str, Any] = {
    "expected": "the name of a litellm model, no URL: a variable of its provider has the address, as OPENAI_API_BASE"
}


class ConsolidationOptions(BaseModel):
    """Effective options of a project. Unknown keys and values out of range are refused. Aliases are older names."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)

    merge: bool = Field(True, description="Merge near-duplicates into one memory.")
    summarize: bool = Field(True, description="Derive patterns, principles, summaries and profiles.")
    archive: bool = Field(True, description="Archive stale memories.")
    promote: bool = Field(True, description="Promote the best patterns and principles to playbook entries.")
    forgetting: bool = Field(
        False,
        validation_alias=AliasChoices("forgetting", "forget_enabled"),
        description="Run the quarterly forgetting.",
    )
    cross_type: bool = Field(False, description="Allow memories of different types in one group.")
    scope: str = Field(
        "user_id",
        description="What keeps memories apart: those of different users, by default, are never compared, merged or "
        "summarized together. Any of user_id, agent_id, session_id, metadata.KEY; or project = no walls.",
        json_schema_extra={"expected": SCOPES_EXPECTED},
    )
    language: LanguageOption = Field(
        "auto",
        description="Full text search language of new memories that name none; auto = that of their text, simple = no "
        "language.",
    )

    t_merge: Threshold = Field(
        "auto",
        validation_alias=AliasChoices(
            "t_merge", "similarity_threshold", "similarity.merge", "consolidation.similarity.merge"
        ),
        description="Lowest cosine at which near-duplicates are merged; short texts need more. auto = calibrated on "
        "the project, never below the embedding model's profile.",
    )
    t_suggest: Threshold = Field(
        "auto", description="Lowest cosine at which a person is asked about a merge. auto = calibrated."
    )
    t_pattern: Threshold = Field(
        "auto",
        validation_alias=AliasChoices("t_pattern", "similarity.pattern", "consolidation.similarity.pattern"),
        description="Lowest cosine of memories in one pattern group. auto = where the project's topics separate best.",
    )
    t_principle: Threshold = Field(
        "auto", description="Lowest cosine of patterns with one principle. auto = a little below t_pattern."
    )
    t_promote: float = Field(
        0.85,
        ge=0.70,
        le=0.95,
        validation_alias=AliasChoices("t_promote", "promote_confidence_threshold"),
        description="Lowest confidence at which a pattern or principle is promoted to the playbook.",
    )
    playbook_approval: Literal["person", "automatic"] = Field(
        "person",
        description="Who makes a promoted entry active: person = it waits in the review queue; automatic = the run, if "
        "three independent writers support it and its text has no risk.",
    )
    center: bool = Field(True, description="Subtract the project's mean vector before grouping.")
    cluster_method: ClusterMethod = Field("average", description="Clustering method of pattern groups.")
    min_cluster_size: int = Field(2, ge=2, le=5, description="Minimum number of memories in a merged memory.")
    min_pattern_size: int = Field(
        3,
        ge=2,
        le=10,
        validation_alias=AliasChoices("min_pattern_size", "min_group_size", "consolidation.min_group_size"),
        description="Minimum number of distinct texts in a pattern group.",
    )
    pair_judge: PairJudge = Field(
        "none",
        description="Judge of pairs with unexplained differences: llm = the LLM; onnx:PATH = a cross-encoder in a "
        "file below the operator's folder. Its pairs merge only if calibration measured that few merges are wrong.",
    )
    supersession_judge: Literal["none", "llm"] = Field(
        "none",
        description="Judge of what newer memories make outdated without words of change: llm = the LLM. What it finds "
        "waits for a person.",
    )
    merge_style: Literal["lossless", "rewrite"] = Field(
        "lossless", description="lossless = the union of the sentences; rewrite = reworded by the LLM without loss."
    )
    review_limit: int = Field(
        50, ge=0, le=10_000, description="Most proposed merges that wait for a person at a time; the rest is counted."
    )
    merge_max_chars: int = Field(
        8000, ge=200, le=100_000, description="Longest merged text in characters, cut at whole sentences."
    )

    recall_gate: bool = Field(
        True,
        description="Leave a group unmerged if a search for the text of one of its memories would find the merged "
        "memory at a lower place.",
    )

    archive_stale_days: int = Field(90, ge=30, le=365, description="Days without access after which a memory is stale.")
    archive_min_reuse: int = Field(
        3, ge=0, le=10, description="Number of reuses that keeps a memory from becoming stale."
    )
    archive_max_share: float = Field(
        0.5, ge=0, le=1, description="Largest share of a project's units that a run archives without a confirmed plan."
    )
    forget_threshold: float = Field(
        0.01, ge=0, le=1, description="Relevance below which forgetting may archive a memory."
    )
    sample_size: int = Field(20, ge=0, le=1000, description="Memories sampled for associations; 0 = all pairs.")
    decay_rate: float = Field(0.1, ge=0, le=10, description="Exponent per day by which relevance decays with age.")
    access_decay_rate: float = Field(
        0.05, ge=0, le=10, description="Exponent per day by which relevance decays since the last access."
    )

    new_threshold: int = Field(
        100,
        ge=10,
        le=1000,
        validation_alias=AliasChoices("new_threshold", "consolidation.threshold"),
        description="Number of new memories since the last job that triggers a run.",
    )
    active_threshold: int = Field(
        1000,
        ge=500,
        le=10_000,
        validation_alias=AliasChoices("active_threshold", "consolidation_threshold"),
        description="Number of active memories above which the nightly run includes the project.",
    )
    schedule: str = Field(
        "0 2 * * *",
        pattern=_CRON_PATTERN,
        validation_alias=AliasChoices("schedule", "consolidation.schedule"),
        description="Cron expression of the nightly run, UTC.",
    )
    timeout_seconds: int = Field(
        600,
        ge=60,
        le=3600,
        validation_alias=AliasChoices("timeout_seconds", "consolidation.timeout"),
        description="Longest time in seconds in which a phase of a run makes no progress, which is to compute or write "
        "a part of its work: after a longer one, no other phase begins, and the next run goes on. The daemon ends a "
        "run that takes as long for each of its phases. The default is enough for 100,000 memories.",
    )
    rollback_days: int = Field(7, ge=1, le=365, description="Days in which a change can be rolled back.")
    audit_days: int = Field(
        90, ge=90, le=36_500, description="Days for which the ledger is kept, at least rollback_days."
    )

    llm_model: str | None = Field(
        None,
        description="litellm model for patterns, principles, summaries, profiles, rewrites and suggestions. None = "
        "extractive texts.",
        json_schema_extra=_MODEL_EXPECTED,
    )
    embedding_model: str = Field(
        "local",
        min_length=1,
        description="`local` or a litellm embedding model.",
        json_schema_extra=_MODEL_EXPECTED,
    )
    budget_usd_per_run: float = Field(1.0, ge=0, description="Budget of a run, US dollars.")
    budget_usd_per_day: float = Field(
        5.0,
        ge=0,
        validation_alias=AliasChoices("budget_usd_per_day", "per_day"),
        description="Budget of a day (UTC), US dollars.",
    )
    budget_tokens_per_run: int = Field(2_000_000, ge=0, description="Budget of a run, tokens.")

    @field_validator("scope")
    @classmethod
    def _normalize_scope(cls, scope: str) -> str:
        return normalize_scope(scope)

    @field_validator("llm_model", "embedding_model")
    @classmethod
    def _check_model(cls, model: str | None) -> str | None:
        # Some providers of litellm take the server's address from the name: texts would go wherever it says.
        if model is not None and ("//" in model or not model.isprintable() or model != model.strip()):
            raise ValueError("a URL")
        return model

    @field_validator("schedule")
    @classmethod
    def _check_schedule(cls, schedule: str) -> str:
        try:
            CronSim(schedule, datetime(2026, 1, 1))
        except CronSimError as error:
            raise ValueError(str(error)) from None
        return schedule

    @model_validator(mode="after")
    def _check_threshold_order(self) -> ConsolidationOptions:
        tiers = [(n, getattr(self, n)) for n in ("t_merge", "t_suggest", "t_pattern")]
        given = [(name, value) for name, value in tiers if value != "auto"]
        for (upper, high), (lower, low) in pairwise(given):
            if high < low:
                raise ValueError(f"{upper} = {high} must not be below {lower} = {low}")
        return self


# Name or alias of an option -> name of the option.
OPTION_NAMES: Mapping[str, str] = {
    alias: name
    for name, field in ConsolidationOptions.model_fields.items()
    for alias in (name, *getattr(field.validation_alias, "choices", ()))
}


def check_judge(name: str, options: ConsolidationOptions, *, default_model: str | None = None) -> None:
    """Raise InvalidOptionError if a judge is the language model, and there is none.

    Args:
        name: ``pair_judge`` or ``supersession_judge``.
        options: Options of a project.
        default_model: Language model of projects without one of their own.
    """
    if getattr(options, name) == "llm" and not (options.llm_model or default_model):
        raise InvalidOptionError(f"{name} = llm needs llm_model: set a litellm model, or {name} = none")


def parse_options(config: Mapping[str, Any], *, base: ConsolidationOptions | None = None) -> ConsolidationOptions:
    """Return ``base`` (None = the defaults) with these options, by name or alias.

    Raises:
        InvalidOptionError: A key is unknown or a value is out of range. The message has key, value and range.
    """
    try:
        given = ConsolidationOptions.model_validate(dict(config)).model_dump(exclude_unset=True)
        merged = {**(base.model_dump(exclude_unset=True) if base else {}), **given}
        return ConsolidationOptions.model_validate(merged)
    except ValidationError as error:
        raise InvalidOptionError("; ".join(dict.fromkeys(_explain(e) for e in error.errors()))) from None


def _explain(error: Any) -> str:
    """Return the message of one validation error: key, value, and the allowed range."""
    if not error["loc"]:
        return str(error["msg"]).removeprefix("Value error, ")
    key = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        return f"{key} is not an option; the options are {', '.join(ConsolidationOptions.model_fields)}"
    return f"{key} = {error['input']!r} is not allowed: expected {describe_range(key)}"


def describe_range(key: str) -> str:
    """Return the allowed values of an option, given by name or alias, in words."""
    name = OPTION_NAMES[key]
    schema = ConsolidationOptions.model_json_schema(by_alias=False)["properties"][name]
    branches = [schema] if "expected" in schema else schema.get("anyOf", [schema])
    return " or ".join(_describe_branch(branch) for branch in branches)


def _describe_branch(schema: Mapping[str, Any]) -> str:
    if "expected" in schema:
        return str(schema["expected"])
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " or ".join(repr(value) for value in schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum")
    kind = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text"}
    text = kind.get(schema.get("type", ""), "nothing")
    if "pattern" in schema:
        return _PATTERN_NAMES[schema["pattern"]]
    if low is not None and high is not None:
        return f"{text} from {low} to {high}"
    return f"{text} of at least {low}" if low is not None else text
