"""Threshold profiles of embedding models, and the higher similarity that short texts need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.calibration.model_thresholds import (
    CONSERVATIVE,
    LONG_WORDS,
    PROFILES,
    SHORT_TEXT_TOLERANCE,
    SHORT_WORDS,
    WORDLLAMA,
    find_profile,
    required_similarity,
    resolve_thresholds,
)
from consolidation_pipeline.errors import InvalidOptionError

LOCAL = "wordllama/l2_supercat_256"


@pytest.mark.parametrize("model", PROFILES)
def test_profile_thresholds_descend_and_name_source(model: str) -> None:
    for profile in (find_profile(model), find_profile(model, centered=False)):
        assert 1.0 > profile.t_merge > profile.t_suggest >= profile.t_pattern > profile.t_principle > 0.0
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


def test_auto_merge_threshold_respects_profile_minimum() -> None:
    recommended = {"t_merge": 0.5, "t_suggest": 0.4, "t_pattern": 0.3, "t_principle": 0.2}
    assert resolve_thresholds(LOCAL, {}, recommended=recommended)["t_merge"] == WORDLLAMA.t_merge


def test_tier_above_next_higher_tier_is_rejected() -> None:
    with pytest.raises(InvalidOptionError, match=r"t_pattern = 0\.8 is above t_suggest = 0\.7"):
        resolve_thresholds(LOCAL, {"t_suggest": 0.7, "t_pattern": 0.8})


@settings(deadline=None)
@given(st.floats(0.5, 0.999), st.lists(st.integers(0, 1000), max_size=30))
def test_required_similarity_falls_with_word_count(t: float, words: list[int]) -> None:
    required = required_similarity(t, sorted(words))
    assert required.shape == (len(words),)
    assert (np.diff(required) <= 0).all()
    assert (required >= t).all()
    assert (required <= max(t, 1.0 - SHORT_TEXT_TOLERANCE)).all()


@settings(deadline=None)
@given(st.floats(0.5, 0.999), st.floats(0.5, 0.999), st.integers(0, 60))
def test_required_similarity_rises_with_threshold(one: float, other: float, words: int) -> None:
    low, high = sorted((one, other))
    assert required_similarity(low, words) <= required_similarity(high, words)


def test_required_similarity_follows_formula() -> None:
    assert (SHORT_WORDS, LONG_WORDS, SHORT_TEXT_TOLERANCE) == (13, 26, 0.01)
    found = required_similarity(0.61, [0, 13, 14, 18, 26, 500])
    assert found == pytest.approx([0.99, 0.99, 0.97, 0.85, 0.61, 0.61])
    assert required_similarity(0.995, 40) == required_similarity(0.995, 1) == 0.995
