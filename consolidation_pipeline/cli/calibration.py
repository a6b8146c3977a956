"""``consolidation calibrate``: thresholds of a project, and the errors of its merge decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.label_pairs import label_pairs
from consolidation_pipeline.cli.output import (
    JsonFlag,
    fact_table,
    format_percent,
    make_console,
    print_json,
    shorten,
    show_progress,
)
from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.service.similarity.calibration import CalibrationProposal
    from consolidation_pipeline.store.similarity.calibrations import Calibration

_SHOWN_SENTENCES = 10
_SENTENCE_WIDTH = 80
# Pairs of a sitting that is proposed, and the width from which an interval says little.
_SITTING = 40
_WIDE_INTERVAL = 0.2
# Origins of the pairs that people decided on.
_ORIGINS = {"suggestion": "of suggestions", "label": "labelled"}


def calibrate(
    project: Project,
    apply: Annotated[
        bool, typer.Option("--apply", help="Store the thresholds; the next run rebuilds the graph.")
    ] = False,
    label: Annotated[
        int | None,
        typer.Option("--label", metavar="N", help="Label N pairs of the project, one by one."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Derive similarity thresholds from the memories of a project.

    Shows new and current thresholds, and how often the merge decision errs: on pairs that people of this project
    decided on or labelled, and on the labelled pairs that come with the product. A pair judge is asked about them too,
    within the budget. Puts nothing in force without --apply.

    --label N asks about the N pairs that tell most: same, different, skip or quit. Each answer is stored at once;
    nothing is merged. With --json it lists the pairs and asks nothing.
    """
    from consolidation_pipeline.service.similarity.calibration import calibrate_project

    if label is not None:
        if apply:
            raise UsageError("--label N and --apply are two steps: label first, then calibrate with --apply")
        label_pairs(project, label, as_json=as_json)
        return
    engine, settings = open_store()
    with show_progress(f"calibrating {project}", as_json=as_json):
        proposal = calibrate_project(engine, project, settings=settings, apply=apply)
    if as_json:
        print_json(_describe(project, proposal))
        return
    out = make_console()
    out.print(fact_table(f"{project}: calibration for {proposal.model}", _table_rows(project, proposal)))


def _describe(project: str, proposal: CalibrationProposal) -> dict[str, Any]:
    current, proposed = proposal.current, proposal.proposed
    return {
        "project": project,
        "embedding_model": proposal.model,
        "applied": proposal.applied,
        "in_force": None if current is None else {**_snapshot(current), "created_at": current.created_at},
        "fresh": _snapshot(proposed),
        **proposed.report,
        "product_pairs": proposal.product_errors,
    }


def _snapshot(snapshot: Calibration) -> dict[str, Any]:
    return {
        "version": snapshot.version,
        "thresholds": dict(snapshot.thresholds),
        "memories": snapshot.memories,
        "centered": snapshot.center is not None,
        "boilerplate": list(snapshot.boilerplate),
    }


def _table_rows(project: str, proposal: CalibrationProposal) -> dict[str, Any]:
    current, proposed, report = proposal.current, proposal.proposed, proposal.proposed.report
    spread = report.get("spread") or {}
    thresholds = {} if current is None else current.thresholds
    tiers = {name: _format_threshold(thresholds.get(name), value) for name, value in proposed.thresholds.items()}
    sentences = [shorten(line, _SENTENCE_WIDTH) for line in proposed.boilerplate[:_SHOWN_SENTENCES]]
    profile = report["profile"]
    return {
        "memories": f"{proposed.memories} active, made of {report['contents']} different texts",
        **tiers,
        "median cosine": f"{spread['median']:.3f}" if spread else "too few distinct memories: the model's profile",
        "nearest neighbours": f"{spread['nearest']:.3f} (median)" if spread else None,
        "this project's decisions": _format_decided(report.get("decided")),
        "more labels": _propose_labels(project, report.get("decided")),
        "pairs of the product": "\n".join(_format_shares(proposal.product_errors)),
        **_format_judge(report.get("judge")),
        "boilerplate": f"{len(proposed.boilerplate)} sentences, left out of {report['stripped']} memories",
        "such as": "\n".join(sentences) or None,
        "profile": ("measured: " if profile["measured"] else "not measured: ") + profile["source"],
        "in force": _format_state(proposal),
    }


def _format_threshold(current: float | None, new: float) -> str:
    if current is None or abs(current - new) < 1e-9:
        return f"{new:g}"
    return f"{new:g} (in force: {current:g})"


def _format_decided(errors: Mapping[str, Any] | None) -> str:
    """Return the origins of the pairs that people decided on, and the errors on them."""
    if errors is None:
        return "none yet: approve or reject suggestions, or label pairs"
    origins = [f"{errors['kinds'][kind]['of']} {words}" for kind, words in _ORIGINS.items() if kind in errors["kinds"]]
    wrong_merges = _format_interval(errors["wrong_merges"], "that would merge differ")
    return "\n".join(
        [f"pairs: {', '.join(origins)}", *_format_shares(errors), *([wrong_merges] if wrong_merges else [])]
    )


def _format_shares(errors: Mapping[str, Any]) -> list[str]:
    wrong = _format_interval(errors["wrong"], "that differ would merge")
    found = _format_interval(errors["found"], "that say the same would merge")
    return [line for line in (wrong, found) if line]


def _propose_labels(project: str, errors: Mapping[str, Any] | None) -> str | None:
    """Return how to label pairs, if the intervals are wide without them."""
    how = f"consolidation calibrate {project} --label {_SITTING}"
    if errors is None:
        return how
    widths = [errors[name]["high"] - errors[name]["low"] for name in ("wrong", "found")]
    return f"{how} (few pairs: an interval is {max(widths):.0%} wide)" if max(widths) > _WIDE_INTERVAL else None


def _format_judge(judge: Mapping[str, Any] | None) -> dict[str, str | None]:
    if judge is None:
        return {}
    permission = "its pairs merge" if judge["allowed"] else "its pairs do not merge"
    return {
        "pair judge": f"{judge['name']}: {permission}; {judge['reason']}",
        "with it": "\n".join(_format_shares(judge)),
    }


def _format_interval(found: Mapping[str, Any], of: str) -> str | None:
    if found["share"] is None:
        return None
    share, low, high = (format_percent(found[name]) for name in ("share", "low", "high"))
    return f"{share} of {found['of']} {of} (95 %: {low} to {high})"


def _format_state(proposal: CalibrationProposal) -> str:
    if proposal.applied:
        return f"from now on, as version {proposal.proposed.version}; the next run rebuilds the graph"
    current = "none yet" if proposal.current is None else f"version {proposal.current.version}"
    return f"{current}; --apply puts this one in its place"
