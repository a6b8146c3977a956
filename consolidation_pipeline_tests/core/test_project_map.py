"""The map of a project: projection of vectors to the plane, and its SVG."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.project_map import LONE_COLOR, MAX_POINTS, PALETTE, project_to_plane, render_svg
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.hypothesis_examples import examples


def make_rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Return unit rows (n, d) with two dominant principal directions."""
    spread = np.ones(d)
    spread[:2] = 6.0, 3.0
    return normalize(np.random.default_rng(seed).standard_normal((n, d)) * spread + 2.0)


def read_points(svg: str) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in re.findall(r"M(-?[\d.]+) (-?[\d.]+)h", svg)]


def test_plane_matches_principal_directions():
    x = make_rows(400, 40)
    _, _, directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    expected = (x - x.mean(axis=0)) @ directions[:2].T
    points = project_to_plane(x)
    assert points.dtype == np.float32
    signs = np.sign((points * expected).sum(axis=0))
    assert np.allclose(points, expected * signs, atol=1e-3)


def test_large_plane_uses_sampled_directions():
    x = make_rows(9000, 16)
    _, _, directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    found, exact = project_to_plane(x), (x - x.mean(axis=0)) @ directions[:2].T
    for axis in range(2):
        assert abs(np.corrcoef(found[:, axis], exact[:, axis])[0, 1]) > 0.99
    assert np.allclose(found.mean(axis=0), 0.0, atol=1e-4)


def test_plane_is_deterministic_and_follows_rows():
    x = make_rows(300, 24)
    order = np.random.default_rng(1).permutation(len(x))
    assert (project_to_plane(x) == project_to_plane(x)).all()
    assert np.allclose(project_to_plane(x[order]), project_to_plane(x)[order], atol=1e-4)


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 99))
def test_plane_is_finite_and_centered(n, d, seed):
    x = normalize(np.random.default_rng(seed).standard_normal((n, d)))
    points = project_to_plane(x)
    assert points.shape == (n, 2)
    assert np.isfinite(points).all()
    assert np.allclose(points.sum(axis=0), 0.0, atol=1e-4)


@pytest.mark.parametrize("x", [make_rows(1, 8), np.repeat(make_rows(1, 8), 5, axis=0), np.zeros((4, 3), np.float32)])
def test_identical_rows_lie_at_plane_origin(x):
    assert not project_to_plane(x).any()


def test_one_dimension_leaves_second_axis_empty():
    points = project_to_plane(np.array([[1.0], [-1.0], [1.0]], dtype=np.float32))
    assert np.allclose(points[:, 0], [2 / 3, -4 / 3, 2 / 3])
    assert not points[:, 1].any()


@pytest.mark.parametrize("bad", [np.ones(3), np.array([[np.nan, 1.0]])])
def test_plane_rejects_invalid_matrix(bad):
    with pytest.raises(ValueError, match="it must be a matrix"):
        project_to_plane(bad)


def test_map_svg_is_well_formed_and_self_contained():
    svg = render_svg(project_to_plane(make_rows(50, 8)), np.arange(50) % 7 - 1)
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert svg.count("http") == 1
    assert not re.search(r"<(script|image|style|rect)|href", svg)


def test_map_draws_every_point_inside_frame():
    found = read_points(render_svg(project_to_plane(make_rows(500, 8)), np.full(500, -1)))
    assert len(found) == 500
    assert all(0 <= a <= 640 and 0 <= b <= 400 for a, b in found)


def test_map_axes_share_one_scale():
    (a, _), (b, _), (_, top), (_, bottom) = read_points(render_svg([[0, 0], [8, 0], [4, 1], [4, -1]], [-1] * 4))
    assert b - a == pytest.approx(4 * (bottom - top), abs=0.5)


def test_map_colors_groups_and_greys_single_points():
    svg = render_svg([[0, 0], [1, 1], [2, 0]], [-1, 0, len(PALETTE) + 1])
    assert [color for color in (LONE_COLOR, *PALETTE) if f'stroke="{color}"' in svg] == [LONE_COLOR, *PALETTE[:2]]


def test_map_caption_counts_points_and_groups():
    labels = np.r_[np.zeros(500), np.ones(700), -np.ones(3300)]
    svg = render_svg(np.random.default_rng(0).standard_normal((4500, 2)), labels)
    assert len(read_points(svg)) == MAX_POINTS
    assert "2,000 of 4,500 memories shown; 2 groups in colour, 3,300 alone in grey" in svg
    assert "2 of 48,123 memories shown" in render_svg([[0.0, 0.0], [1.0, 1.0]], [-1, -1], total=48_123)


def test_empty_project_has_empty_map():
    svg = render_svg(np.empty((0, 2)), np.empty(0))
    assert read_points(svg) == []
    assert "0 of 0 memories shown" in svg


def test_map_centers_coinciding_points():
    assert set(read_points(render_svg([[5, 5], [5, 5]], [0, 0]))) == {(320.0, 186.0)}


@pytest.mark.parametrize(
    ("points", "labels", "message"),
    [([[0, 0]], [0, 1], r"labels \(2,\)"), ([[0, 0, 0]], [0], r"shape \(1, 3\)"), ([[np.nan, 0]], [0], "NaN")],
)
def test_map_rejects_invalid_points(points, labels, message):
    with pytest.raises(ValueError, match=message):
        render_svg(points, labels)


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("color", [*PALETTE, LONE_COLOR])
def test_map_colors_contrast_with_light_and_dark(color):
    assert 1.05 / (luminance(color) + 0.05) >= 3.0
    assert (luminance(color) + 0.05) / (luminance("#15171C") + 0.05) >= 3.0
