"""A flat map of a project: where its memories lie, and which of them form groups."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Four colours of the Okabe-Ito set, which colour-blind people tell apart: those whose contrast to white and to a
# near-black page are both above 3:1. The picture has no background of its own and stands on either.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
LONE_COLOR = "#808080"

# A few tens of kB of metadata per picture, and more dots than this would only cover each other.
MOST_POINTS = 2_000

GROUPED_SIZE, LONE_SIZE = 6, 3
_MARGIN, _CAPTION_HEIGHT = 12, 28

# Rows of length 1 that are no further apart than this along a direction differ by float32 rounding only.
_ROUNDING = 1e-6

_SPAN = 8
_ROUNDS = 24
# As many rows as directions are taken from: what more of them would move, no picture shows.
_MOST_ROWS = 4_000


def plane(x: NDArray[np.floating]) -> NDArray[np.float32]:
    """Coordinates (n, 2), float32, of L2-normalised rows ``x`` (n, d) along their two principal directions.

    The rows' mean is the origin. Subspace iteration over eight directions from a fixed start: deterministic, without
    a (d, d) matrix, and exact enough for a picture; of more than ``_MOST_ROWS`` rows, evenly spaced ones give the
    directions. Of each direction the entry of largest magnitude is positive, so the picture does not flip. A direction
    that does not exist (n < 2, d < 2) gives zeros.
    ValueError: ``x`` is not a finite matrix.
    """
    rows = np.asarray(x, dtype=np.float32)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"x has shape {rows.shape}; it must be a matrix (n, d) of finite numbers")
    points = np.zeros((len(rows), 2), dtype=np.float32)
    if rows.size:
        sample = rows[_spaced(len(rows), _MOST_ROWS)]
        mean = rows.mean(axis=0, dtype=np.float64)
        found = _project(rows, mean, _leading_directions(sample, sample.mean(axis=0, dtype=np.float64)))[:, :2]
        found[:, np.ptp(found, axis=0) <= _ROUNDING] = 0.0
        points[:, : found.shape[1]] = found
    return points


def map_svg(
    points: ArrayLike, labels: ArrayLike, *, width: int = 640, height: int = 400, total: int | None = None
) -> str:
    """A self-contained SVG picture of ``points`` (n, 2): groups in colour, lone points (label -1) small and grey.

    At most ``MOST_POINTS`` evenly spaced rows are drawn; the caption says how many of how many, and how many groups.
    Colours repeat after ``len(PALETTE)`` groups. Both axes have the same scale. ``width`` and ``height`` in pixels.
    ``total``: of how many memories the points are a sample, where they are one.
    ValueError: shapes that do not fit each other, or points that are not finite.
    """
    spots, groups = _checked(points, labels)
    shown = _spaced(len(spots), MOST_POINTS)
    placed = _placed(spots[shown], width, height - _CAPTION_HEIGHT)
    caption = _caption(len(shown), groups, total or len(spots))
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img">',
            f"<title>{caption}</title>",
            *_dots(placed, groups[shown]),
            f'<text x="{_MARGIN}" y="{height - _MARGIN}" font-family="sans-serif" font-size="12"'
            f' fill="{LONE_COLOR}">{caption}</text>',
            "</svg>",
        )
    )


def _spaced(n: int, most: int) -> NDArray[np.int64]:
    """At most ``most`` of n positions, evenly spaced."""
    taken = min(n, most)
    return np.arange(taken) * n // max(1, taken)


def _leading_directions(rows: NDArray[np.float32], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal columns (d, k), k <= 8, strongest first."""
    d = rows.shape[1]
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((d, min(_SPAN, d))))[0]
    for _ in range(_ROUNDS):
        basis = np.linalg.qr(_spread(rows, mean, basis))[0]
    strength, turn = np.linalg.eigh(basis.T @ _spread(rows, mean, basis))
    directions = basis @ turn[:, np.argsort(-strength)]
    largest = np.abs(directions).argmax(axis=0)
    return np.asarray(directions * np.where(directions[largest, np.arange(directions.shape[1])] < 0.0, -1.0, 1.0))


def _spread(rows: NDArray[np.float32], mean: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scatter matrix of the centred rows times ``basis``, without centring a copy of the rows."""
    along = _project(rows, mean, basis)
    return np.asarray((rows.T @ along.astype(np.float32)).astype(np.float64) - np.outer(mean, along.sum(axis=0)))


def _project(rows: NDArray[np.float32], mean: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((rows @ basis.astype(np.float32)).astype(np.float64) - mean @ basis)


def _checked(points: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    spots, groups = np.asarray(points, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if spots.ndim != 2 or spots.shape[1] != 2 or groups.shape != spots.shape[:1]:
        raise ValueError(f"points have shape {spots.shape} and labels {groups.shape}; they must be (n, 2) and (n,)")
    if not np.isfinite(spots).all():
        raise ValueError("points hold NaN or infinity; every coordinate must be finite")
    return spots, groups


def _placed(spots: NDArray[np.float64], width: int, height: int) -> NDArray[np.float64]:
    """Pixels inside the margins; y grows downwards in SVG."""
    if not len(spots):
        return spots
    low, high = spots.min(axis=0), spots.max(axis=0)
    room = np.array([width, height]) - 2.0 * _MARGIN
    extent = high - low
    scale = (room[extent > 0.0] / extent[extent > 0.0]).min(initial=np.inf)
    offset = (spots - (low + high) / 2.0) * (scale if np.isfinite(scale) else 0.0)
    return np.asarray(np.array([width, height]) / 2.0 + offset * (1.0, -1.0))


def _dots(placed: NDArray[np.float64], groups: NDArray[np.int64]) -> list[str]:
    # A line of almost no length with round ends is a dot: a quarter of the text of a circle element.
    shade = np.where(groups < 0, -1, groups % len(PALETTE))
    lines = []
    for number in np.unique(shade).tolist():
        color, size = (LONE_COLOR, LONE_SIZE) if number < 0 else (PALETTE[number], GROUPED_SIZE)
        path = "".join(f"M{a:.1f} {b:.1f}h.01" for a, b in placed[shade == number].tolist())
        lines.append(f'<path d="{path}" stroke="{color}" stroke-width="{size}" stroke-linecap="round"/>')
    return lines


def _caption(shown: int, groups: NDArray[np.int64], total: int) -> str:
    grouped = groups[groups >= 0]
    return (
        f"{shown:,} of {total:,} memories shown; "
        f"{len(np.unique(grouped)):,} groups in colour, {len(groups) - len(grouped):,} alone in grey"
    )
