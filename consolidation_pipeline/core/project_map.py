"""Map of a project: its memories projected to a plane, as an SVG picture with groups in colour."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Four colours of the Okabe-Ito set, which colour-blind people can distinguish. The picture has no background: their
# contrast is above 3:1 on white and on near-black pages.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
LONE_COLOR = "#808080"

# More dots would cover each other. A picture with this many has a few tens of kB.
MAX_POINTS = 2_000

GROUPED_SIZE, LONE_SIZE = 6, 3
# Pixels; the caption is part of the height.
_WIDTH, _HEIGHT, _MARGIN, _CAPTION_HEIGHT = 640, 400, 12, 28

# Rows of length 1 whose coordinates differ by no more than this differ by float32 rounding only.
_ROUNDING = 1e-6

_DIRECTIONS = 8
_ITERATIONS = 24
# Rows from which the directions are computed. More would not change the picture visibly.
_MAX_ROWS = 4_000


def project_to_plane(x: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the coordinates of the rows of ``x`` along their two principal directions; the mean is the origin.

    Subspace iteration over eight directions from a fixed start: deterministic, without a (d, d) matrix, and exact
    enough for a picture. At most ``_MAX_ROWS`` evenly spaced rows give the directions. The largest entry of each
    direction is positive, so the picture does not flip. A missing direction (n < 2, d < 2) gives zeros.

    Args:
        x: L2-normalised rows (n, d), finite.

    Returns:
        Float32 (n, 2).
    """
    rows = np.asarray(x, dtype=np.float32)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"x has shape {rows.shape}; it must be a matrix (n, d) of finite numbers")
    points = np.zeros((len(rows), 2), dtype=np.float32)
    if rows.size:
        sample = rows[_spread_evenly(len(rows), _MAX_ROWS)]
        mean = rows.mean(axis=0, dtype=np.float64)
        found = _project(rows, mean, _leading_directions(sample, sample.mean(axis=0, dtype=np.float64)))[:, :2]
        found[:, np.ptp(found, axis=0) <= _ROUNDING] = 0.0
        points[:, : found.shape[1]] = found
    return points


def render_svg(points: ArrayLike, labels: ArrayLike, *, total: int | None = None) -> str:
    """Return a self-contained SVG picture of points: groups in colour, lone points small and grey.

    At most ``MAX_POINTS`` evenly spaced rows are drawn. The caption gives the numbers of points and groups. Colours
    repeat after ``len(PALETTE)`` groups. Both axes have the same scale.

    Args:
        points: Coordinates (n, 2).
        labels: Group of each point, integers (n,); -1 = none.
        total: Number of memories that the points are a sample of; None = they are all.

    Raises:
        ValueError: The shapes do not match, or a coordinate is not finite.
    """
    spots, groups = _check(points, labels)
    shown = _spread_evenly(len(spots), MAX_POINTS)
    placed = _to_pixels(spots[shown], _WIDTH, _HEIGHT - _CAPTION_HEIGHT)
    caption = _describe(len(shown), groups, total or len(spots))
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
            f' viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
            f"<title>{caption}</title>",
            *_draw_dots(placed, groups[shown]),
            f'<text x="{_MARGIN}" y="{_HEIGHT - _MARGIN}" font-family="sans-serif" font-size="12"'
            f' fill="{LONE_COLOR}">{caption}</text>',
            "</svg>",
        )
    )


def _spread_evenly(n: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` of n positions, evenly spaced."""
    taken = min(n, most)
    return np.arange(taken) * n // max(1, taken)


def _leading_directions(rows: NDArray[np.float32], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return orthonormal columns (d, k), k <= 8, strongest first."""
    d = rows.shape[1]
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((d, min(_DIRECTIONS, d))))[0]
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(_apply_scatter(rows, mean, basis))[0]
    strength, turn = np.linalg.eigh(basis.T @ _apply_scatter(rows, mean, basis))
    directions = basis @ turn[:, np.argsort(-strength)]
    largest = np.abs(directions).argmax(axis=0)
    return np.asarray(directions * np.where(directions[largest, np.arange(directions.shape[1])] < 0.0, -1.0, 1.0))


def _apply_scatter(
    rows: NDArray[np.float32], mean: NDArray[np.float64], basis: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the scatter matrix of the centred rows times ``basis``, without a centred copy of the rows."""
    along = _project(rows, mean, basis)
    return np.asarray((rows.T @ along.astype(np.float32)).astype(np.float64) - np.outer(mean, along.sum(axis=0)))


def _project(rows: NDArray[np.float32], mean: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((rows @ basis.astype(np.float32)).astype(np.float64) - mean @ basis)


def _check(points: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    spots, groups = np.asarray(points, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if spots.ndim != 2 or spots.shape[1] != 2 or groups.shape != spots.shape[:1]:
        raise ValueError(f"points have shape {spots.shape} and labels {groups.shape}; they must be (n, 2) and (n,)")
    if not np.isfinite(spots).all():
        raise ValueError("points hold NaN or infinity; every coordinate must be finite")
    return spots, groups


def _to_pixels(spots: NDArray[np.float64], width: int, height: int) -> NDArray[np.float64]:
    """Return the points in pixels inside the margins; y grows downwards in SVG."""
    if not len(spots):
        return spots
    low, high = spots.min(axis=0), spots.max(axis=0)
    room = np.array([width, height]) - 2.0 * _MARGIN
    extent = high - low
    scale = (room[extent > 0.0] / extent[extent > 0.0]).min(initial=np.inf)
    offset = (spots - (low + high) / 2.0) * (scale if np.isfinite(scale) else 0.0)
    return np.asarray(np.array([width, height]) / 2.0 + offset * (1.0, -1.0))


def _draw_dots(placed: NDArray[np.float64], groups: NDArray[np.int64]) -> list[str]:
    # A line of almost no length with round ends is a dot, in a quarter of the text of a circle element.
    shade = np.where(groups < 0, -1, groups % len(PALETTE))
    lines = []
    for number in np.unique(shade).tolist():
        color, size = (LONE_COLOR, LONE_SIZE) if number < 0 else (PALETTE[number], GROUPED_SIZE)
        path = "".join(f"M{a:.1f} {b:.1f}h.01" for a, b in placed[shade == number].tolist())
        lines.append(f'<path d="{path}" stroke="{color}" stroke-width="{size}" stroke-linecap="round"/>')
    return lines


def _describe(shown: int, groups: NDArray[np.int64], total: int) -> str:
    grouped = groups[groups >= 0]
    return (
        f"{shown:,} of {total:,} memories shown; "
        f"{len(np.unique(grouped)):,} groups in colour, {len(groups) - len(grouped):,} alone in grey"
    )
