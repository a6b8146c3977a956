"""Every knob of consolidation, once: its default, its range and what it does.

A project's ``config`` column holds what differs from the defaults; a job row holds the effective options it ran with.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

from cronsim import CronSim, CronSimError
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from consolidation_pipeline.errors import InvalidOptionError

Threshold = Literal["auto"] | Annotated[float, Field(ge=0.50, le=0.999)]
ClusterMethod = Literal["average", "complete", "components", "hdbscan"]
# Text search configurations that PostgreSQL 15 brings; a regconfig column refuses any other name.
# fmt: off
Language = Literal[
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek",
    "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese",
    "romanian", "russian", "serbian", "simple", "spanish", "swedish", "tamil", "turkish", "yiddish",
]
# fmt: on
LANGUAGES: tuple[str, ...] = get_args(Language)


def _also(*names: str) -> AliasChoices:
    return AliasChoices(*names)


class ConsolidationOptions(BaseModel):
    """Effective configuration of one project. Unknown keys and values out of range are refused.

    Aliases are the names used in the design documents the project grew from.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)

    merge: bool = Field(True, description="Near-duplicates become one merged memory.")
    summarize: bool = Field(True, description="Groups become patterns, batches become summaries.")
    archive: bool = Field(True, description="Stale memories are archived.")
    promote: bool = Field(True, description="The best patterns and principles become playbook entries.")
    forgetting: bool = Field(
        False, validation_alias=_also("forgetting", "forget_enabled"), description="Quarterly forgetting is on."
    )
    cross_type: bool = Field(False, description="Memories of different types may share a group.")
    language: Language = Field(
        "english", description="Language of new memories that name none, as full text search reads it; simple = any."
    )

    t_merge: Threshold = Field(
        "auto",
        validation_alias=_also("t_merge", "similarity_threshold", "similarity.merge", "consolidation.similarity.merge"),
        description="Cosine at and above which near-duplicates are merged, short texts from higher up; auto = "
        "calibrated on the project, never below the embedding model's profile.",
    )
    t_suggest: Threshold = Field(
        "auto", description="Cosine at and above which a person is asked about a merge; auto = calibrated."
    )
    t_pattern: Threshold = Field(
        "auto",
        validation_alias=_also("t_pattern", "similarity.pattern", "consolidation.similarity.pattern"),
        description="Cosine at and above which memories share a pattern group; auto = from the spread of the project's "
        "cosines.",
    )
    t_principle: Threshold = Field(
        "auto", description="Cosine at and above which patterns share a principle; auto = a little below t_pattern."
    )
    t_promote: float = Field(
        0.85,
        ge=0.70,
        le=0.95,
        validation_alias=_also("t_promote", "promote_confidence_threshold"),
        description="Confidence from which a pattern or principle is promoted to the playbook.",
    )
    center: bool = Field(True, description="Group on vectors with the project's mean taken off.")
    cluster_method: ClusterMethod = Field("average", description="How pattern groups are formed.")
    min_cluster_size: int = Field(2, ge=2, le=5, description="Fewest memories in a merged memory.")
    min_pattern_size: int = Field(
        3,
        ge=2,
        le=10,
        validation_alias=_also("min_pattern_size", "min_group_size", "consolidation.min_group_size"),
        description="Fewest distinct units in a pattern group.",
    )
    merge_style: Literal["lossless", "rewrite"] = Field(
        "lossless", description="Merged text is the union of sentences, or rewritten by the LLM without loss."
    )
    merge_max_chars: int = Field(8000, ge=200, le=100_000, description="Longest merged text, in whole sentences.")

    archive_stale_days: int = Field(90, ge=30, le=365, description="Days without access after which a memory is stale.")
    archive_min_reuse: int = Field(3, ge=0, le=10, description="Reuses that keep a memory from going stale.")
    archive_max_share: float = Field(
        0.5, ge=0, le=1, description="Largest share of a project's units that a run archives without being asked to."
    )
    forget_threshold: float = Field(0.01, ge=0, le=1, description="Relevance below which forgetting may archive.")
    sample_size: int = Field(20, ge=0, le=1000, description="Memories drawn for associations; 0 = all pairs.")
    decay_rate: float = Field(0.1, ge=0, le=10, description="Relevance lost with age, per day (exponent).")
    access_decay_rate: float = Field(0.05, ge=0, le=10, description="Relevance lost since the last access, per day.")

    new_threshold: int = Field(
        100,
        ge=10,
        le=1000,
        validation_alias=_also("new_threshold", "consolidation.threshold"),
        description="New memories since the last job that trigger a run.",
    )
    active_threshold: int = Field(
        1000,
        ge=500,
        le=10_000,
        validation_alias=_also("active_threshold", "consolidation_threshold"),
        description="Active memories above which the nightly run includes the project.",
    )
    schedule: str = Field(
        "0 2 * * *",
        pattern=r"^\S+(\s+\S+){4}$",
        validation_alias=_also("schedule", "consolidation.schedule"),
        description="Cron expression of the nightly run, UTC.",
    )
    timeout_seconds: int = Field(
        600,
        ge=60,
        le=3600,
        validation_alias=_also("timeout_seconds", "consolidation.timeout"),
        description="Longest a run may take, seconds: no phase begins later, and the daemon ends the one under way. "
        "The default is enough for 100,000 memories.",
    )
    rollback_days: int = Field(7, ge=1, le=365, description="Days for which a change can be rolled back.")
    audit_days: int = Field(
        90, ge=90, le=36_500, description="Days the ledger is kept, or rollback_days if those are more."
    )

    llm_model: str | None = Field(
        None,
        description="litellm model for patterns, principles, summaries, profiles, rewrites and suggestions; none = "
        "extractive, and no suggestions.",
    )
    embedding_model: str = Field("local", min_length=1, description="`local` or a litellm embedding model.")
    budget_usd_per_run: float = Field(1.0, ge=0, description="Most a run may spend, US dollars.")
    budget_usd_per_day: float = Field(
        5.0,
        ge=0,
        validation_alias=_also("budget_usd_per_day", "per_day"),
        description="Most a day may cost, US dollars.",
    )
    budget_tokens_per_run: int = Field(2_000_000, ge=0, description="Most tokens a run may use.")

    @field_validator("schedule")
    @classmethod
    def _comes(cls, schedule: str) -> str:
        try:
            CronSim(schedule, datetime(2026, 1, 1))
        except CronSimError as error:
            raise ValueError(str(error)) from None
        return schedule

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> ConsolidationOptions:
        tiers = [(n, getattr(self, n)) for n in ("t_merge", "t_suggest", "t_pattern")]
        given = [(name, value) for name, value in tiers if value != "auto"]
        for (upper, high), (lower, low) in pairwise(given):
            if high < low:
                raise ValueError(f"{upper} = {high} must not be below {lower} = {low}")
        return self

    def changed(self) -> dict[str, Any]:
        """The options that differ from the defaults, as JSON values."""
        return self.model_dump(mode="json", exclude_defaults=True)


# Every name an option goes by -> the option.
OPTION_NAMES: Mapping[str, str] = {
    alias: name
    for name, field in ConsolidationOptions.model_fields.items()
    for alias in (name, *getattr(field.validation_alias, "choices", ()))
}


def parse_options(config: Mapping[str, Any], *, base: ConsolidationOptions | None = None) -> ConsolidationOptions:
    """Options from a mapping of keys (or their aliases) to values, on top of ``base`` (the defaults).

    Raises:
        InvalidOptionError: a key is unknown or a value out of range; the message names key, value and range.
    """
    try:
        given = ConsolidationOptions.model_validate(dict(config)).model_dump(exclude_unset=True)
        merged = {**(base.model_dump(exclude_unset=True) if base else {}), **given}
        return ConsolidationOptions.model_validate(merged)
    except ValidationError as error:
        raise InvalidOptionError("; ".join(dict.fromkeys(_explain(e) for e in error.errors()))) from None


def _explain(error: Any) -> str:
    """One validation error as `key = value: what would be right`."""
    if not error["loc"]:
        return str(error["msg"]).removeprefix("Value error, ")
    key = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        return f"{key} is not an option; the options are {', '.join(ConsolidationOptions.model_fields)}"
    return f"{key} = {error['input']!r} is not allowed: expected {describe_range(key)}"


def describe_range(key: str) -> str:
    """What values option ``key`` (or an alias of it) takes, in words."""
    name = OPTION_NAMES[key]
    schema = ConsolidationOptions.model_json_schema(by_alias=False)["properties"][name]
    branches = schema.get("anyOf", [schema])
    return " or ".join(_describe_branch(branch) for branch in branches)


def _describe_branch(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " or ".join(repr(value) for value in schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum")
    kind = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text"}
    text = kind.get(schema.get("type", ""), "nothing")
    if "pattern" in schema:
        return "a cron expression of five fields"
    if low is not None and high is not None:
        return f"{text} from {low} to {high}"
    return f"{text} of at least {low}" if low is not None else text
