"""Calibration of a project: keep the snapshot in force, or renew it when the project has grown.

Between renewals nothing about grouping changes, so that a graph that grew equals one that was built at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from consolidation_pipeline.core.calibration.decision_errors import load_product_pairs, measure_errors
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.service.similarity.calibration_fit import (
    fit_calibration,
    load_decided_pairs,
    select_calibration_options,
)
from consolidation_pipeline.service.similarity.graph_nodes import ProjectContext, StandaloneProject
from consolidation_pipeline.service.similarity.grouping_vectors import (
    StrippedTexts,
    refresh_stripped_texts,
    save_stripped_texts,
)
from consolidation_pipeline.service.similarity.judge_calibration import (
    complete_measurement,
    is_measured,
    list_measured_pairs,
)
from consolidation_pipeline.service.similarity.pair_judges import Pair
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.vector_copy import Ids, to_uuids
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.calibrations import Calibration, append_calibration, load_calibration
from consolidation_pipeline.store.similarity.similarity_graph import Nodes

# Growth of the number of units after which the calibration is renewed.
RENEWAL_GROWTH = 1.5
# No memory was compared under this version.
NEVER_COMPARED = 0


@dataclass(frozen=True, eq=False)
class CalibrationResult:
    """The snapshot in force; ``renewed``: it was made just now.

    ``checked_ids``: ids S16 (n,) of memories that are new to the snapshot or changed, which were checked for its
    boilerplate now. ``stripped``: number of them that hold boilerplate. ``embedded``: number of texts embedded for it.
    """

    snapshot: Calibration
    renewed: bool
    stripped: int
    embedded: int
    checked_ids: Ids


@dataclass(frozen=True)
class CalibrationProposal:
    """A new calibration beside the one in force, if there is one; ``applied``: the new one is in force now.

    ``product_errors``: errors of the merge decision on the labelled pairs that come with the product, see
    ``measure_errors``.
    """

    model: str
    current: Calibration | None
    proposed: Calibration
    applied: bool
    product_errors: Mapping[str, Any]


def calibrate_thresholds(run: ProjectRun, *, renew: bool = True) -> CalibrationResult:
    """Keep the project's calibration, or make a new one; see ``find_renewal_reason``.

    If it is kept, only new or changed memories are checked for boilerplate, and a pair judge whose measurement was not
    completed is asked about the rest.

    Args:
        renew: make a new calibration if the project has grown or its options changed; else only if it has none.

    Raises:
        EmbeddingError: the model gave no usable vector for a text without its boilerplate.
    """
    current = run.calibration
    key = run.project.id, run.embedder.name
    with run.reading() as connection:
        reason = find_renewal_reason(current, run, lambda: similarity_graph.count_units(connection, *key), renew=renew)
    if current is not None and reason is None and renew and complete_measurement(run, current):
        reason = "judge"
    version = current.version if current is not None and reason is None else NEVER_COMPARED
    with run.reading() as connection:
        uncompared = similarity_graph.load_uncompared_ids(connection, *key, version)
    if current is not None and reason is None:
        stripped = refresh_stripped_texts(run, uncompared, current.boilerplate)
        return CalibrationResult(current, False, len(stripped.hashes), len(stripped.vectors), uncompared)
    snapshot, stripped = fit_calibration(run, current, reason or "first", ask_judge=run.plan is None)
    with run.transaction() as connection:
        _save_calibration(connection, run, snapshot, stripped)
    run.calibration = snapshot
    return CalibrationResult(snapshot, True, len(stripped.hashes), len(stripped.vectors), uncompared)


def list_pairs_to_measure(run: ProjectRun, nodes: Nodes) -> dict[Pair, str]:
    """Return the labelled pairs that the next run asks the pair judge about first, with their scopes.

    They come with the product, or a person decided on them. Empty if the judge is measured, and for a run that applies
    a plan.
    """
    if run.plan is not None or is_measured(run):
        return {}
    with run.reading() as connection:
        decided = load_decided_pairs(connection, run, load_texts(connection, to_uuids(nodes.ids)))
    return list_measured_pairs(decided)


def calibrate_project(engine: Engine, slug: str, *, settings: Settings, apply: bool) -> CalibrationProposal:
    """Propose a new calibration; with ``apply`` store it under the project's lock. The next run rebuilds the graph.

    Raises:
        NotFoundError: no such project. ProjectBusyError: a run holds the project and ``apply`` is set. EmbeddingError,
        BudgetExhaustedError: texts could not be embedded.
    """
    with engine.connect() as connection:
        project = get_project(connection, slug)
    options = effective_options(project, settings)
    # There is no job: what a paid model costs is recorded under a random job id.
    job_id = uuid4()
    context = StandaloneProject(engine, project, options, open_embedder(engine, project, options, job_id), job_id)
    if not apply:
        return _propose(context)[0]
    with hold_project(engine, project):
        proposal, stripped = _propose(context)
        with engine.begin() as connection:
            _save_calibration(connection, context, proposal.proposed, stripped)
    return replace(proposal, applied=True)


def _propose(context: StandaloneProject) -> tuple[CalibrationProposal, StrippedTexts]:
    with context.engine.connect() as connection:
        current = load_calibration(connection, context.project.id, context.embedder.name)
    proposed, stripped = fit_calibration(context, current, "request", ask_judge=True)
    errors = measure_errors(load_product_pairs(), word_similarity)
    return CalibrationProposal(context.embedder.name, current, proposed, False, errors), stripped


def find_renewal_reason(
    current: Calibration | None, context: ProjectContext, count_units: Callable[[], int], *, renew: bool
) -> str | None:
    """Return the reason why a new calibration is needed: first, options or growth; None if the current one is kept.

    Args:
        count_units: counts the units of the project; called only if needed.
        renew: as in ``calibrate_thresholds``.
    """
    if current is None:
        return "first"
    if not renew:
        return None
    if dict(current.options) != select_calibration_options(context):
        return "options"
    return "growth" if count_units() >= RENEWAL_GROWTH * max(current.memories, 1) else None


def _save_calibration(
    connection: Connection, context: ProjectContext, snapshot: Calibration, stripped: StrippedTexts
) -> None:
    append_calibration(connection, context.project.id, context.embedder.name, snapshot)
    save_stripped_texts(connection, context, stripped)
    # The stored similarities are those of the former vectors.
    similarity_graph.clear_neighbors(connection, context.project.id, context.embedder.name)
