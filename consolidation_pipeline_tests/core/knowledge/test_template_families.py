"""Template families: slots, values and what is no family."""

from __future__ import annotations

from consolidation_pipeline.core.knowledge.template_families import find_template


def tell(texts: list[str]) -> str | None:
    found = find_template(texts)
    return found.text if found else None


def test_slots_hold_ranges_and_frequent_values() -> None:
    texts = [f"Export of {name} took {seconds} s" for name in ("mail", "search") for seconds in (31, 40, 58, 100)]
    assert tell(texts) == "Export of {mail, search} took {31 … 100} s"


def test_values_of_one_text_stay_together() -> None:
    opens = {"north": "9:30", "east": "7:00", "west": "8:15"}
    texts = [f"The gate in the {name} opens at {hour}." for name, hour in opens.items()]
    told = "The gate in the … opens at …: east / 7:00, north / 9:30, west / 8:15."
    assert tell(texts) == tell(texts[::-1]) == told
    # Two lists would be read as pairs, however many texts there are.
    many = [f"The gate in the {name} lets {one} in" for name in "bcdefghij" for one in (f"{name}.cat", f"{name}.dog")]
    found = tell(many)
    assert found is not None
    assert found.startswith("The gate in the … lets … in: b / b.cat, b / b.dog, c / c.cat, ")
    assert found.endswith(", d / d.dog, …")


def test_same_value_in_two_slots_is_one() -> None:
    texts = [f"Call {name} at the desk of {name}" for name in ("ann.b", "bo.c", "cy.d")]
    assert tell(texts) == "Call {ann.b, bo.c, cy.d} at the desk of {ann.b, bo.c, cy.d}"


def test_values_with_a_unit_make_a_range() -> None:
    texts = [f"The job failed {count}x in a row" for count in (12, 3, 4, 5)]
    assert tell(texts) == "The job failed {3x … 12x} in a row"


def test_family_needs_three_texts() -> None:
    assert tell(["Queue grew to 5 jobs", "Queue grew to 6 jobs", "Queue grew to 6 jobs"]) is None
    assert tell([]) is None


def test_words_that_change_a_claim_are_no_slot() -> None:
    assert tell(["Never restart the worker", "Always restart the worker", "Please restart the worker"]) is None


def test_largest_family_by_weight_wins() -> None:
    texts = [f"Disk {at} is full" for at in range(3)] + [f"Node {at} left the cluster" for at in range(4)]
    found = find_template(texts)
    assert found is not None
    assert found.members == (3, 4, 5, 6)
    heavy = find_template(texts, [5.0] * 3 + [1.0] * 4)
    assert heavy is not None
    assert heavy.text == "Disk {0, 1, 2} is full"


def test_order_of_texts_does_not_matter() -> None:
    texts = [f"Export of {name} took {seconds} s" for name in ("mail", "search") for seconds in (31, 40)]
    assert tell(texts) == tell(texts[::-1])
