"""The map of a project."""

from __future__ import annotations

import numpy as np
import pytest

from consolidation_pipeline.service.admin import project_browser
from consolidation_pipeline.store.admin.project_browser import MapPoints
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline


@pytest.mark.parametrize("groups", [["a", "b", "a"], [None, "a", None], ["", "a", None], ["", "", ""]])
def test_map_draws_groups_with_and_without_key(
    shared: Pipeline, monkeypatch: pytest.MonkeyPatch, groups: list[str | None]
) -> None:
    shared.clear()
    shared.add([note("a", LESSONS[0])])
    points = MapPoints(np.eye(3, dtype=np.float32), groups, 3)
    monkeypatch.setattr(project_browser, "load_map_points", lambda *_, **__: points)
    drawn = project_browser.draw_map(shared.engine, SLUG)
    assert drawn is not None
    assert "3 of 3 memories shown" in drawn


def test_map_shows_units_of_a_consolidated_project(pipeline: Pipeline) -> None:
    pipeline.add([])
    assert project_browser.draw_map(pipeline.engine, SLUG) is None
    pipeline.consolidate([note("a", LESSONS[0]), note("b", LESSONS[0]), note("c", LESSONS[1])])
    assert "2 of 2 memories shown" in (project_browser.draw_map(pipeline.engine, SLUG) or "")
