"""Key terms: extraction, and the terms that distinguish a group."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.text.key_terms import count_terms, extract_terms, find_key_terms
from consolidation_pipeline_tests.hypothesis_examples import examples

WORDS = st.lists(st.sampled_from("amber birch cedar delta ember flint pool_size 429 UTC".split()), max_size=6)
GROUPS = st.lists(st.lists(WORDS.map(" ".join), min_size=1, max_size=4), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Set pool_size in core/money.py to 1,000.", ["set", "pool_size", "core/money.py", "1,000"]),
        ("POST /api/v1/orders answers 429", ["POST", "/api/v1/orders", "answers", "429"]),
        ("Python 3.12 and hmac.compare_digest()", ["python", "3.12", "hmac.compare_digest()"]),
        ("The customer's cache; it isn't ours.", ["customer", "cache"]),
        ("Wir prüfen die Größe.", ["prüfen", "größe"]),
        ("Las facturas se redondean por línea.", ["facturas", "redondean", "línea"]),
        ("L’export n'est pas dans la file d'attente.", ["export", "file", "attente"]),
        ("Die in the mould, pour the wax", ["die", "mould", "pour", "wax"]),
        ("データ保存", ["デー", "ータ", "タ保", "保存"]),
        ("", []),
    ],
)
def test_terms_exclude_function_words(text: str, expected: list[str]) -> None:
    assert [term.surface for term in extract_terms(text)] == expected


def test_terms_unify_inflections_not_identifiers() -> None:
    stems = [term.stem for term in extract_terms("locks locked locking Lock re-renders re-rendered")]
    assert len(set(stems)) == 2
    assert len({term.stem for term in extract_terms("LOCKS locks_ lock_id lock_ids")}) >= 3


def test_key_terms_distinguish_groups() -> None:
    groups = [
        ["The job uses Redis for the lock.", "A job loses its lock in Redis."],
        ["The job writes an invoice PDF.", "Each invoice is a PDF of the job."],
    ]
    first, second = find_key_terms(groups)
    assert set(first[:2]) == {"lock", "redis"}
    assert set(second[:2]) == {"invoice", "PDF"}
    assert first[-1] == second[-1] == "job"


def test_key_terms_fill_up_with_single_text_terms() -> None:
    assert find_key_terms([["birch amber delta cedar"]]) == [("amber", "birch", "cedar")]
    assert find_key_terms([["amber birch", "birch amber", "cedar 12 flint"]]) == [("amber", "birch", "cedar")]
    assert find_key_terms([["amber birch cedar delta"] * 2], count=2) == [("amber", "birch")]
    assert find_key_terms([[""], []]) == [(), ()]
    assert find_key_terms([]) == []


@settings(deadline=None, max_examples=examples(60))
@given(GROUPS, st.randoms())
def test_key_terms_ignore_order(groups: list[list[str]], random: object) -> None:
    order = list(range(len(groups)))
    random.shuffle(order)  # type: ignore[attr-defined]
    found = find_key_terms([groups[at][::-1] for at in order])
    assert [found[order.index(at)] for at in range(len(groups))] == find_key_terms(groups)


def test_term_counts_are_per_text() -> None:
    counts = count_terms(["amber amber birch", "", "birch"])
    assert counts.terms == ["amber", "birch"]
    assert counts.matrix.toarray().tolist() == [[2, 1], [0, 0], [0, 1]]
    assert count_terms([]).matrix.shape[0] == 0
