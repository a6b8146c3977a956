"""Errors of the merge decision on labelled pairs, and the pairs that come with the product."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.calibration.decision_errors import LabelledPair, load_product_pairs, measure_errors
from consolidation_pipeline.core.calibration.threshold_estimates import wilson_interval
from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline_tests.hypothesis_examples import examples

LABELS = [
    LabelledPair("The cache is cleared at night.", "Note: the cache is cleared at night.", True, "label"),
    LabelledPair("Rotate the key.", "Rotate the key and the password.", True, "detail"),
    LabelledPair("The clerk checks vouchers.", "The clerk checks coupons.", True, "synonym"),
    LabelledPair("The clerk checks invoices.", "The clerk checks invoices!", False, "mistake"),
    LabelledPair("The limit is 30 seconds.", "The limit is 60 seconds.", False, "value"),
    LabelledPair("The job runs before the backup.", "The job runs after the backup.", False, "value"),
]


def test_product_pairs_are_labelled_by_part() -> None:
    pairs = load_product_pairs()
    parts = Counter((pair.kind, pair.same) for pair in pairs)
    assert parts.keys() == {("near", False), ("near_reworded", False), ("para", True), ("light_edit", True)}
    assert min(parts.values()) >= 100
    assert len({(pair.a, pair.b) for pair in pairs}) == len(pairs)
    assert all(pair.a.strip() and pair.b.strip() and pair.a != pair.b for pair in pairs)


def test_measured_errors_count_merged_pairs() -> None:
    found = measure_errors(LABELS, None)
    assert found["pairs"] == 6
    assert (found["found"]["share"], found["found"]["of"]) == (0.6667, 3)
    assert (found["wrong"]["share"], found["wrong"]["of"]) == (0.3333, 3)
    assert (found["wrong_merges"]["share"], found["wrong_merges"]["of"]) == (0.3333, 3)
    shares = {kind: (share["share"], share["of"]) for kind, share in found["kinds"].items()}
    assert shares == {"label": (1, 1), "detail": (1, 1), "synonym": (0, 1), "mistake": (1, 1), "value": (0, 2)}
    assert list(shares) == sorted(shares)


def test_measured_errors_use_word_similarity() -> None:
    found = measure_errors(LABELS, lambda *_: 0.9)
    assert found["found"]["share"] == 1.0
    assert found["kinds"]["synonym"]["share"] == 1.0


def test_measured_shares_have_wilson_intervals() -> None:
    wrong = measure_errors(LABELS, None)["wrong"]
    interval = wilson_interval(1, 3)
    assert (wrong["low"], wrong["high"]) == pytest.approx((interval.low, interval.high), abs=1e-4)


def test_shares_of_no_pairs_are_unknown() -> None:
    unknown = {"share": None, "low": 0.0, "high": 1.0, "of": 0}
    shares = dict.fromkeys(("wrong", "found", "wrong_merges"), unknown)
    assert measure_errors([], None) == {"pairs": 0, **shares, "kinds": {}}
    assert measure_errors(LABELS[:1], None)["wrong"] == unknown


def test_measured_errors_are_json_values() -> None:
    found = measure_errors(LABELS, None)
    assert json.loads(json.dumps(found)) == found


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.sampled_from(load_product_pairs()), max_size=12), st.randoms(use_true_random=False))
def test_measured_errors_agree_with_explain(pairs: list[LabelledPair], random: object) -> None:
    found = measure_errors(pairs, None)
    for name, same in (("wrong", False), ("found", True)):
        verdicts = [explain(pair.a, pair.b).may_merge for pair in pairs if pair.same == same]
        assert found[name]["of"] == len(verdicts)
        assert found[name]["share"] == (round(sum(verdicts) / len(verdicts), 4) if verdicts else None)
    random.shuffle(pairs)  # type: ignore[attr-defined]
    assert measure_errors(pairs, None) == found
