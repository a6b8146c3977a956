"""``consolidation calibrate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import open_store
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
_STEP = 4
_SHOWN_SENTENCES = 10
_SENTENCE_WIDTH = 80


def calibrate(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")],
    apply: Annotated[bool, typer.Option("--apply", help="Put it in force; the next run rebuilds the graph.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Derive thresholds from a project's own memories.

    Shows them beside those in force, with what they would merge wrongly. Writes nothing without --apply.
    """
    from consolidation_pipeline.service.similarity.calibration import calibrate_project

    engine, settings = open_store()
    with show_progress(f"calibrating {project}", as_json=as_json):
        proposal = calibrate_project(engine, project, settings=settings, apply=apply)
    if as_json:
        print_json(_described(project, proposal))
        return
    out = make_console()
    out.print(fact_table(f"{project}: calibration for {proposal.model}", _rows(proposal)))
    for line in _chart(proposal.proposed):
        out.print(line, soft_wrap=True)


def _described(project: str, proposal: CalibrationProposal) -> dict[str, Any]:
    held, fresh = proposal.current, proposal.proposed
    return {
        "project": project,
        "embedding_model": proposal.model,
        "applied": proposal.applied,
        "in_force": None if held is None else {**_snapshot(held), "created_at": held.created_at},
        "fresh": _snapshot(fresh),
        **fresh.report,
    }


def _snapshot(snapshot: Calibration) -> dict[str, Any]:
    return {
        "version": snapshot.version,
        "thresholds": dict(snapshot.thresholds),
        "memories": snapshot.memories,
        "centered": snapshot.center is not None,
        "boilerplate": list(snapshot.boilerplate),
    }


def _rows(proposal: CalibrationProposal) -> dict[str, Any]:
    held, fresh, report = proposal.current, proposal.proposed, proposal.proposed.report
    spread = report.get("spread") or {}
    before = {} if held is None else held.thresholds
    tiers = {name: _beside(before.get(name), value) for name, value in fresh.thresholds.items()}
    sentences = [f"{shorten(line, _SENTENCE_WIDTH)}" for line in fresh.boilerplate[:_SHOWN_SENTENCES]]
    profile = report["profile"]
    return {
        "memories": f"{fresh.memories} active, {report['contents']} distinct",
        **tiers,
        "median cosine": f"{spread['median']:.3f}" if spread else "too few distinct memories: the model's profile",
        "nearest neighbours": f"{spread['nearest']:.3f} (median)" if spread else None,
        "wrong merges": _interval(report.get("wrong"), "near-misses"),
        "paraphrases found": _interval(report.get("found"), "paraphrases"),
        "boilerplate": f"{len(fresh.boilerplate)} sentences, left out of {report['stripped']} memories",
        "such as": "\n".join(sentences) or None,
        "profile": ("measured: " if profile["measured"] else "not measured: ") + profile["source"],
        "in force": _state(proposal),
    }


def _beside(before: float | None, now: float) -> str:
    if before is None or abs(before - now) < 1e-9:
        return f"{now:g}"
    return f"{now:g} (in force: {before:g})"


def _interval(found: Mapping[str, Any] | None, of: str) -> str | None:
    if found is None or found["share"] is None:
        return None
    return f"{format_percent(found['share'])} of {found['of']} {of} (95 %: {format_percent(found['low'])} to {format_percent(found['high'])})"


def _state(proposal: CalibrationProposal) -> str:
    if proposal.applied:
        return f"from now on, as version {proposal.proposed.version}; the next run rebuilds the graph"
    held = "none yet" if proposal.current is None else f"version {proposal.current.version}"
    return f"{held}; --apply puts this one in its place"


def _chart(fresh: Calibration) -> Sequence[str]:
    """The curve, one threshold in ``_STEP`` a line."""
    curve = fresh.report.get("curve") or []
    t_merge = fresh.thresholds["t_merge"]
    at = min(curve, key=lambda point: abs(point["threshold"] - t_merge))["threshold"] if curve else None
    lines = [point for row, point in enumerate(curve) if row % _STEP == 0 or point["threshold"] == at]
    head = f"  t_merge  {'wrong merges':{_BAR + 7}}  paraphrases found"
    return ["", head, *(_line(point, marked=point["threshold"] == at) for point in lines)] if lines else []


def _line(point: Mapping[str, Any], *, marked: bool) -> str:
    wrong, found = (_bar(point[name]["share"]) for name in ("wrong", "found"))
    return f"{'>' if marked else ' '} {point['threshold']:7.2f}  {wrong}  {found}"


def _bar(value: float | None) -> str:
    full = round((value or 0.0) * _BAR)
    return f"{'#' * full:{_BAR}} {format_percent(value) or '-':>6}"


COMMANDS = (calibrate,)
