"""``consolidation calibrate``: thresholds of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.output import (
    JsonFlag,
    fact_table,
    format_percent,
    make_console,
    print_json,
    shorten,
    show_progress,
)

if TYPE_CHECKING:
    from consolidation_pipeline.service.similarity.calibration import CalibrationProposal
    from consolidation_pipeline.store.similarity.calibrations import Calibration

_BAR = 20
_CHART_STEP = 4
_SHOWN_SENTENCES = 10
_SENTENCE_WIDTH = 80


def calibrate(
    project: Project,
    apply: Annotated[
        bool, typer.Option("--apply", help="Store the thresholds; the next run rebuilds the graph.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Derive similarity thresholds from the memories of a project.

    Shows new and current thresholds, with estimated wrong merges. Writes nothing without --apply.
    """
    from consolidation_pipeline.service.similarity.calibration import calibrate_project

    engine, settings = open_store()
    with show_progress(f"calibrating {project}", as_json=as_json):
        proposal = calibrate_project(engine, project, settings=settings, apply=apply)
    if as_json:
        print_json(_describe(project, proposal))
        return
    out = make_console()
    out.print(fact_table(f"{project}: calibration for {proposal.model}", _table_rows(proposal)))
    for line in _chart_lines(proposal.proposed):
        out.print(line, soft_wrap=True)


def _describe(project: str, proposal: CalibrationProposal) -> dict[str, Any]:
    current, proposed = proposal.current, proposal.proposed
    return {
        "project": project,
        "embedding_model": proposal.model,
        "applied": proposal.applied,
        "in_force": None if current is None else {**_snapshot(current), "created_at": current.created_at},
        "fresh": _snapshot(proposed),
        **proposed.report,
    }


def _snapshot(snapshot: Calibration) -> dict[str, Any]:
    return {
        "version": snapshot.version,
        "thresholds": dict(snapshot.thresholds),
        "memories": snapshot.memories,
        "centered": snapshot.center is not None,
        "boilerplate": list(snapshot.boilerplate),
    }


def _table_rows(proposal: CalibrationProposal) -> dict[str, Any]:
    current, proposed, report = proposal.current, proposal.proposed, proposal.proposed.report
    spread = report.get("spread") or {}
    thresholds = {} if current is None else current.thresholds
    tiers = {name: _format_threshold(thresholds.get(name), value) for name, value in proposed.thresholds.items()}
    sentences = [shorten(line, _SENTENCE_WIDTH) for line in proposed.boilerplate[:_SHOWN_SENTENCES]]
    profile = report["profile"]
    return {
        "memories": f"{proposed.memories} active, {report['contents']} distinct",
        **tiers,
        "median cosine": f"{spread['median']:.3f}" if spread else "too few distinct memories: the model's profile",
        "nearest neighbours": f"{spread['nearest']:.3f} (median)" if spread else None,
        "wrong merges": _format_interval(report.get("wrong"), "near-misses"),
        "paraphrases found": _format_interval(report.get("found"), "paraphrases"),
        "boilerplate": f"{len(proposed.boilerplate)} sentences, left out of {report['stripped']} memories",
        "such as": "\n".join(sentences) or None,
        "profile": ("measured: " if profile["measured"] else "not measured: ") + profile["source"],
        "in force": _format_state(proposal),
    }


def _format_threshold(current: float | None, new: float) -> str:
    if current is None or abs(current - new) < 1e-9:
        return f"{new:g}"
    return f"{new:g} (in force: {current:g})"


def _format_interval(found: Mapping[str, Any] | None, of: str) -> str | None:
    if found is None or found["share"] is None:
        return None
    share, low, high = (format_percent(found[name]) for name in ("share", "low", "high"))
    return f"{share} of {found['of']} {of} (95 %: {low} to {high})"


def _format_state(proposal: CalibrationProposal) -> str:
    if proposal.applied:
        return f"from now on, as version {proposal.proposed.version}; the next run rebuilds the graph"
    current = "none yet" if proposal.current is None else f"version {proposal.current.version}"
    return f"{current}; --apply puts this one in its place"


def _chart_lines(proposed: Calibration) -> Sequence[str]:
    """Return a chart of wrong merges and paraphrases found by threshold, with ``>`` at ``t_merge``.

    Every ``_CHART_STEP``-th threshold has a line. Empty if the project has no curve.
    """
    curve = proposed.report.get("curve")
    if not curve:
        return []
    t_merge = proposed.thresholds["t_merge"]
    marked = min(curve, key=lambda point: abs(point["threshold"] - t_merge))
    shown = [point for row, point in enumerate(curve) if row % _CHART_STEP == 0 or point is marked]
    head = f"  t_merge  {'wrong merges':{_BAR + 7}}  paraphrases found"
    return ["", head, *(_chart_line(point, marked=point is marked) for point in shown)]


def _chart_line(point: Mapping[str, Any], *, marked: bool) -> str:
    wrong, found = (_bar(point[name]["share"]) for name in ("wrong", "found"))
    return f"{'>' if marked else ' '} {point['threshold']:7.2f}  {wrong}  {found}"


def _bar(value: float | None) -> str:
    full = round((value or 0.0) * _BAR)
    return f"{'#' * full:{_BAR}} {format_percent(value) or '-':>6}"
