"""Options: ranges, aliases and messages."""

from __future__ import annotations

import re

import pytest

from consolidation_pipeline import errors
from consolidation_pipeline.core.calibration.model_thresholds import CONSERVATIVE, WORDLLAMA, resolve_thresholds
from consolidation_pipeline.errors import ConsolidationError, InvalidOptionError
from consolidation_pipeline.options import ConsolidationOptions, describe_range, parse_options

RANGES = [
    ("t_merge", 0.50, 0.999, 0.01),
    ("t_suggest", 0.50, 0.999, 0.01),
    ("t_pattern", 0.50, 0.999, 0.01),
    ("t_principle", 0.50, 0.999, 0.01),
    ("t_promote", 0.70, 0.95, 0.01),
    ("min_cluster_size", 2, 5, 1),
    ("min_pattern_size", 2, 10, 1),
    ("archive_stale_days", 30, 365, 1),
    ("archive_min_reuse", 0, 10, 1),
    ("forget_threshold", 0, 1, 0.01),
    ("new_threshold", 10, 1000, 1),
    ("active_threshold", 500, 10_000, 1),
    ("timeout_seconds", 60, 3600, 1),
    ("rollback_days", 1, 365, 1),
]


def non_default_options(options: ConsolidationOptions) -> dict[str, object]:
    """Return the options that differ from the defaults."""
    return options.model_dump(exclude_defaults=True)


@pytest.mark.parametrize(("key", "low", "high", "step"), RANGES)
def test_option_range_is_inclusive_and_enforced(key: str, low: float, high: float, step: float) -> None:
    assert getattr(parse_options({key: low}), key) == low
    assert getattr(parse_options({key: high}), key) == high
    for beyond in (low - step, high + step):
        with pytest.raises(InvalidOptionError, match=re.escape(f"{key} = {beyond!r} is not allowed")):
            parse_options({key: beyond})


def test_option_defaults_match_documented_ones() -> None:
    options = ConsolidationOptions()
    assert (options.t_merge, options.t_suggest, options.t_pattern, options.t_principle) == ("auto",) * 4
    assert (options.t_promote, options.center, options.cluster_method) == (0.85, True, "average")
    assert (options.min_cluster_size, options.min_pattern_size) == (2, 3)
    assert (options.archive_stale_days, options.archive_min_reuse, options.forget_threshold) == (90, 3, 0.01)
    assert (options.new_threshold, options.active_threshold, options.schedule) == (100, 1000, "0 2 * * *")
    assert (options.timeout_seconds, options.rollback_days, options.audit_days) == (600, 7, 90)
    assert (options.budget_usd_per_run, options.budget_usd_per_day, options.budget_tokens_per_run) == (1, 5, 2_000_000)
    assert (options.merge, options.archive, options.forgetting, options.cross_type) == (True, True, False, False)
    assert non_default_options(options) == {}


@pytest.mark.parametrize(
    ("alias", "name", "value"),
    [
        ("similarity_threshold", "t_merge", 0.9),
        ("consolidation_threshold", "active_threshold", 600),
        ("promote_confidence_threshold", "t_promote", 0.9),
        ("min_group_size", "min_pattern_size", 4),
        ("forget_enabled", "forgetting", True),
        ("per_day", "budget_usd_per_day", 2.0),
    ],
)
def test_option_aliases_set_named_option(alias: str, name: str, value: object) -> None:
    assert non_default_options(parse_options({alias: value})) == {name: value}


def test_unknown_option_is_refused_with_known_names() -> None:
    with pytest.raises(InvalidOptionError, match=r"t_merg is not an option; the options are merge, .*t_merge"):
        parse_options({"t_merg": 0.9})


def test_lower_tier_threshold_may_not_exceed_higher() -> None:
    assert parse_options({"t_merge": 0.8, "t_suggest": 0.8, "t_pattern": 0.8})
    with pytest.raises(InvalidOptionError, match=r"t_merge = 0\.7 must not be below t_suggest = 0\.8"):
        parse_options({"t_merge": 0.7, "t_suggest": 0.8})
    with pytest.raises(InvalidOptionError, match=r"t_merge = 0\.7 must not be below t_pattern = 0\.8"):
        parse_options({"t_merge": 0.7, "t_pattern": 0.8})


def test_options_override_their_base() -> None:
    base = parse_options({"llm_model": "openai/x", "t_merge": 0.9})
    options = parse_options({"t_merge": 0.95}, base=base)
    assert non_default_options(options) == {"llm_model": "openai/x", "t_merge": 0.95}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "abc", None, [], True])
def test_threshold_refuses_values_other_than_numbers(value: object) -> None:
    with pytest.raises(InvalidOptionError, match="t_merge = "):
        parse_options({"t_merge": value})


def test_every_option_has_description_and_range() -> None:
    for name, field in ConsolidationOptions.model_fields.items():
        assert field.description, name
        assert describe_range(name), name


def test_unknown_model_uses_strict_thresholds() -> None:
    assert resolve_thresholds("wordllama/l2_supercat_256", {}) == WORDLLAMA.thresholds()
    assert resolve_thresholds("somebody/new-model", {"t_merge": "auto"}) == CONSERVATIVE.thresholds()
    assert WORDLLAMA.t_suggest < CONSERVATIVE.t_suggest == 0.9


def test_lowered_threshold_lowers_lower_tiers() -> None:
    resolved = resolve_thresholds("wordllama/l2_supercat_256", {"t_merge": 0.5})
    assert (resolved["t_merge"], resolved["t_suggest"]) == (0.5, 0.5)


def test_raised_threshold_raises_higher_tiers() -> None:
    resolved = resolve_thresholds("wordllama/l2_supercat_256", {"t_pattern": 0.85})
    assert (resolved["t_merge"], resolved["t_suggest"], resolved["t_pattern"]) == (0.85, 0.85, 0.85)
    assert resolve_thresholds("wordllama/l2_supercat_256", {"t_merge": 0.9, "t_pattern": 0.6})["t_suggest"] == 0.6


def test_every_error_is_documented_with_exit_code() -> None:
    tree = errors.__doc__ or ""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ConsolidationError)]
    assert all(kind.__name__ in tree for kind in kinds)
    assert {kind.exit_code for kind in kinds} == {1, 2, 3, 4, 5}


def test_project_language_must_be_known_to_postgres() -> None:
    assert (ConsolidationOptions().language, parse_options({"language": "german"}).language) == ("auto", "german")
    message = "language = 'klingon' is not allowed: expected 'auto' or 'arabic'"
    with pytest.raises(InvalidOptionError, match=message):
        parse_options({"language": "klingon"})


def test_scope_option_is_normalized_and_explained() -> None:
    assert parse_options({}).scope == "user_id"
    assert parse_options({"scope": " metadata.team,user_id "}).scope == "user_id,metadata.team"
    expected = re.escape("scope = 'team' is not allowed: expected project (no walls), or any of user_id, agent_id")
    with pytest.raises(InvalidOptionError, match=expected):
        parse_options({"scope": "team"})


def test_pair_judge_is_a_name_or_a_model_path() -> None:
    assert parse_options({}).pair_judge == "none"
    assert parse_options({"pair_judge": "onnx:/models/a judge.onnx"}).pair_judge == "onnx:/models/a judge.onnx"
    expected = "expected 'none' or 'llm' or 'onnx:' with the path of a model file"
    for wrong in ("gpt", "onnx:", "onnx: "):
        with pytest.raises(InvalidOptionError, match=f"pair_judge = '{wrong}' is not allowed: {expected}"):
            parse_options({"pair_judge": wrong})
