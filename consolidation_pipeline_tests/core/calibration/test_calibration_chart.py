"""The chart of a calibration's error curve."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from consolidation_pipeline.core.calibration.calibration_chart import curve_svg


def point(threshold: float, wrong: float | None, found: float | None) -> dict[str, Any]:
    def share(value: float | None) -> dict[str, float | None]:
        return {"share": value, "low": 0.0, "high": 1.0}

    return {"threshold": threshold, "wrong": share(wrong), "found": share(found)}


CURVE = [point(0.5, 0.4, 1.0), point(0.75, 0.1, 0.9), point(1.0, 0.0, 0.5)]


def test_chart_marks_threshold_in_force() -> None:
    root = ElementTree.fromstring(curve_svg(CURVE, 0.75, width=660, height=328))
    assert root.attrib["width"] == "660"
    paths = [element.attrib["d"] for element in root.iter() if element.tag.endswith("path")]
    assert any(path.startswith("M330.0 ") and "V" in path for path in paths)
    assert "in force: 0.75" in (root[0].text or "")


def test_chart_omits_curve_without_values() -> None:
    path_count = curve_svg(CURVE, 0.75).count("<path")
    without = [point(p["threshold"], None, p["found"]["share"]) for p in CURVE]
    assert curve_svg(without, 0.75).count("<path") == path_count - 2


def test_chart_clamps_threshold_to_its_edge() -> None:
    assert "M30.0 " in curve_svg(CURVE, 0.1)


def test_chart_rejects_single_point_curve() -> None:
    with pytest.raises(ValueError, match="at least two"):
        curve_svg(CURVE[:1], 0.5)
