"""Threshold profiles of embedding models, and the thresholds in force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.core.calibration.model_thresholds import (
    CONSERVATIVE,
    PROFILES,
    TIERS,
    WORDLLAMA,
    find_profile,
    resolve_thresholds,
)
from consolidation_pipeline.errors import InvalidOptionError

LOCAL = "wordllama/l2_supercat_256"


@pytest.mark.parametrize("model", PROFILES)
def test_profile_thresholds_descend_and_name_source(model: str) -> None:
    for profile in (find_profile(model), find_profile(model, centered=False)):
        assert 1.0 > profile.t_suggest >= profile.t_pattern > profile.t_principle > 0.0
        assert list(profile.thresholds()) == list(TIERS)
        assert profile.thresholds()["t_merge"] == profile.t_suggest
        assert profile.source


def test_only_local_profile_is_measured() -> None:
    assert [model for model, profile in PROFILES.items() if profile.measured] == [LOCAL]


def test_only_local_profile_requires_shared_words() -> None:
    for centered in (True, False):
        assert find_profile(LOCAL, centered=centered).shared_words == 0.5
        assert find_profile("somebody/new-model", centered=centered).shared_words == 0.0


def test_plain_vectors_need_higher_thresholds() -> None:
    centered, plain = find_profile(LOCAL), find_profile(LOCAL, centered=False)
    assert (centered, plain) == (WORDLLAMA, WORDLLAMA.plain)
    assert all(plain.thresholds()[name] > value for name, value in centered.thresholds().items())


@pytest.mark.parametrize("name", ["text-embedding-3-small", "openai/text-embedding-3-small"])
def test_profile_lookup_ignores_provider_prefix(name: str) -> None:
    assert find_profile(name) is PROFILES["openai/text-embedding-3-small"]


def test_unknown_model_gets_conservative_profile() -> None:
    assert find_profile("somebody/new-model") is CONSERVATIVE


def test_given_threshold_overrides_recommendation() -> None:
    recommended = {"t_merge": 0.7, "t_suggest": 0.6, "t_pattern": 0.35, "t_principle": 0.3}
    assert resolve_thresholds(LOCAL, {"t_merge": "auto"}, recommended=recommended) == recommended
    assert resolve_thresholds(LOCAL, {"t_merge": 0.9}, recommended=recommended)["t_merge"] == 0.9
    lowered = resolve_thresholds(LOCAL, {"t_merge": 0.5}, recommended=recommended)
    assert lowered == recommended | {"t_merge": 0.5, "t_suggest": 0.5}


def test_auto_merge_threshold_follows_suggest_threshold() -> None:
    recommended = {"t_merge": 0.5, "t_suggest": 0.5, "t_pattern": 0.4, "t_principle": 0.2}
    assert resolve_thresholds(LOCAL, {}, recommended=recommended) == recommended
    raised = resolve_thresholds(LOCAL, {"t_suggest": 0.8}, recommended=recommended)
    assert raised == recommended | {"t_merge": 0.8, "t_suggest": 0.8}
    lowered = resolve_thresholds(LOCAL, {"t_suggest": 0.3}, recommended=recommended)
    assert lowered == recommended | {"t_suggest": 0.3, "t_pattern": 0.3}


def test_tier_above_next_higher_tier_is_rejected() -> None:
    with pytest.raises(InvalidOptionError, match=r"t_pattern = 0\.8 is above t_suggest = 0\.7"):
        resolve_thresholds(LOCAL, {"t_suggest": 0.7, "t_pattern": 0.8})


COSINES = st.floats(-1, 1)


@given(
    st.sampled_from([*PROFILES, "somebody/new-model"]),
    st.booleans(),
    st.dictionaries(st.sampled_from(TIERS), COSINES | st.just("auto")),
    st.none() | st.fixed_dictionaries(dict.fromkeys((*TIERS, "t_graph"), COSINES)),
)
def test_resolved_thresholds_descend_and_keep_given(
    model: str, centered: bool, given: dict[str, float | str], recommended: dict[str, float] | None
) -> None:
    chosen = {name: value for name, value in given.items() if value != "auto"}
    limits = [chosen[name] for name in TIERS[:3] if name in chosen]
    if limits != sorted(limits, reverse=True):  # type: ignore[type-var]
        with pytest.raises(InvalidOptionError, match="set one that is not above the other"):
            resolve_thresholds(model, given, centered=centered, recommended=recommended)
        return
    found = resolve_thresholds(model, given, centered=centered, recommended=recommended)
    assert found["t_merge"] >= found["t_suggest"] >= found["t_pattern"]
    assert found.items() >= chosen.items()
    # Every pair that may merge or be asked about is stored.
    assert found["t_suggest"] >= found.get("t_graph", found["t_pattern"]) >= found["t_pattern"]
    assert "t_graph" not in found or "t_pattern" not in chosen
