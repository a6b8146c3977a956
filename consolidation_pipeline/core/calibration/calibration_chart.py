"""Chart of a calibration curve: wrong merges and paraphrases found at each merge threshold, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consolidation_pipeline.core.project_map import LONE_COLOR, PALETTE

_MARGIN, _CAPTION_HEIGHT = 30, 28


def curve_svg(curve: Sequence[Mapping[str, Any]], marked: float, *, width: int = 640, height: int = 320) -> str:
    """Return a self-contained SVG chart of a calibration curve, in the colours of the project map.

    Each share is drawn as a line with its 95 % interval as a band.

    Args:
        curve: points with ``threshold``, and under ``wrong`` and ``found`` each ``share`` (None = of nothing), ``low``
            and ``high``, as in a calibration's report.
        marked: threshold in force, drawn as a dashed line.
        width: width in pixels.
        height: height in pixels, with the caption.

    Raises:
        ValueError: there are fewer than two points.
    """
    if len(curve) < 2:
        raise ValueError(f"the curve has {len(curve)} points; a line needs at least two")
    frame = _Frame(curve[0]["threshold"], curve[-1]["threshold"], width, height - _CAPTION_HEIGHT)
    caption = f"wrong merges (orange) and paraphrases found (blue) by t_merge; in force: {marked:g}"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img">',
            f"<title>{caption}</title>",
            *_axes(frame),
            *_series(curve, "found", PALETTE[0], frame),
            *_series(curve, "wrong", PALETTE[1], frame),
            f'<path d="M{frame.x(marked):.1f} {frame.y(0):.1f}V{frame.y(1):.1f}" stroke="{LONE_COLOR}"'
            ' stroke-dasharray="4 3"/>',
            _text(_MARGIN, height - 10, caption),
            "</svg>",
        )
    )


class _Frame:
    """Scale from thresholds and shares to pixels; y grows downwards in SVG."""

    def __init__(self, low: float, high: float, width: int, height: int) -> None:
        self.low, self.high, self._width, self._height = low, high, width, height

    def x(self, threshold: float) -> float:
        """Return the pixel of a threshold; one outside the curve lies on its edge."""
        part = (min(max(threshold, self.low), self.high) - self.low) / (self.high - self.low)
        return _MARGIN + part * (self._width - 2 * _MARGIN)

    def y(self, share: float) -> float:
        """Return the pixel of a share."""
        return self._height - _MARGIN - share * (self._height - 2 * _MARGIN)


def _series(curve: Sequence[Mapping[str, Any]], name: str, color: str, frame: _Frame) -> list[str]:
    points = [point for point in curve if point[name]["share"] is not None]
    if not points:
        return []
    at = [frame.x(point["threshold"]) for point in points]
    low, line, high = ([frame.y(point[name][key]) for point in points] for key in ("low", "share", "high"))
    band = [*zip(at, high, strict=True), *zip(reversed(at), reversed(low), strict=True)]
    return [
        f'<path d="{_path(band)}Z" fill="{color}" fill-opacity="0.2"/>',
        f'<path d="{_path(list(zip(at, line, strict=True)))}" fill="none" stroke="{color}" stroke-width="2"/>',
    ]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _axes(frame: _Frame) -> list[str]:
    border = f"M{frame.x(frame.low):.1f} {frame.y(1):.1f}V{frame.y(0):.1f}H{frame.x(frame.high):.1f}"
    shares = [_text(2, frame.y(share) + 4, f"{share:.0%}") for share in (0.0, 0.5, 1.0)]
    ends = [_text(frame.x(t) - 8, frame.y(0) + 16, f"{t:g}") for t in (frame.low, frame.high)]
    return [f'<path d="{border}" fill="none" stroke="{LONE_COLOR}"/>', *shares, *ends]


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-family="sans-serif" font-size="12" fill="{LONE_COLOR}">{text}</text>'
