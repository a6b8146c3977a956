import pytest

from consolidation_pipeline.core.triggers import Due, is_due, is_nightly_due


@pytest.mark.parametrize(("new_count", "expected"), [(0, False), (99, False), (100, True), (5000, True)])
def test_the_sensor_fires_from_the_threshold_on(new_count, expected):
    assert bool(is_due(new_count)) is expected


def test_the_sensor_threshold_is_configurable():
    assert is_due(10, threshold=10)
    assert not is_due(9, threshold=10)


@pytest.mark.parametrize(
    ("active_count", "new_count", "expected"),
    [(0, 0, False), (1000, 0, False), (1001, 0, True), (0, 1, True), (1000, 1, True)],
)
def test_the_night_takes_projects_that_are_large_or_have_anything_new(active_count, new_count, expected):
    assert bool(is_nightly_due(active_count, new_count)) is expected


def test_the_nightly_threshold_is_configurable():
    assert is_nightly_due(501, 0, threshold=500)
    assert not is_nightly_due(500, 0, threshold=500)


def test_the_reason_names_the_counts_that_decided():
    assert is_due(120).reason == "120 new memories since the last job reach new_threshold = 100"
    assert "99 new memories" in is_due(99).reason
    assert is_nightly_due(2000, 3).reason == "3 new memories since the last job"
    assert "2000 active memories exceed" in is_nightly_due(2000, 0).reason
    assert "nothing new" in is_nightly_due(7, 0).reason


def test_an_answer_is_as_true_as_it_is_due():
    assert Due(True, "")
    assert not Due(False, "")


def test_negative_counts_are_refused_by_name():
    with pytest.raises(ValueError, match="new_count is -1"):
        is_due(-1)
    with pytest.raises(ValueError, match="active_count is -2"):
        is_nightly_due(-2, 0)
    with pytest.raises(ValueError, match="new_count is -3"):
        is_nightly_due(0, -3)
