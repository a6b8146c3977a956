"""Asset `threshold_calibration`: mean vector, boilerplate and thresholds for grouping."""

from collections.abc import Mapping
from typing import Any

from consolidation_pipeline.defs.asset_checks import project_checks
from consolidation_pipeline.defs.embedding_matrix import embedding_matrix
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.service.similarity.calibration import CalibrationResult, calibrate_thresholds
from consolidation_pipeline.store.checks.check import Check
from consolidation_pipeline.store.similarity.calibrations import find_disordered_thresholds


@phase_asset("similarity", table="similarity_calibrations", deps=[embedding_matrix])
def threshold_calibration(run: ProjectRun, phase: PhaseResult) -> None:
    """Fit thresholds to the project and its embedding model. They are kept until the project has grown by half."""
    phase.metrics = _describe(calibrate_thresholds(run))


def _describe(result: CalibrationResult) -> dict[str, Any]:
    snapshot = result.snapshot
    spread, decided = snapshot.report.get("spread") or {}, snapshot.report.get("decided") or {}
    return {
        "calibration_version": snapshot.version,
        "taken": result.renewed,
        "memories": snapshot.memories,
        "texts_stripped": result.stripped,
        "texts_embedded": result.embedded,
        "boilerplate_sentences": len(snapshot.boilerplate),
        **snapshot.thresholds,
        **{f"cosine_{name}": spread[name] for name in ("median", "nearest") if name in spread},
        **_describe_share("decided_wrong", decided.get("wrong")),
        **_describe_share("decided_found", decided.get("found")),
    }


def _describe_share(name: str, share: Mapping[str, Any] | None) -> dict[str, float]:
    if share is None or share["share"] is None:
        return {}
    return {name: share["share"], f"{name}_low": share["low"], f"{name}_high": share["high"]}


threshold_calibration_checks = project_checks(
    threshold_calibration,
    Check(
        "thresholds_are_in_order",
        find_disordered_thresholds,
        "1 >= t_merge >= t_suggest >= t_pattern > 0.",
    ),
)
