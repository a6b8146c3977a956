"""Hold a project's calibration (its mean, its boilerplate, its thresholds) until the project has outgrown it.

Between renewals nothing about grouping changes, so that a graph that grew equals one built at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.service.similarity.calibration_fit import fit_calibration, select_calibration_options
from consolidation_pipeline.service.similarity.graph_nodes import ProjectContext, StandaloneProject
from consolidation_pipeline.service.similarity.grouping_vectors import (
    StrippedTexts,
    refresh_stripped_texts,
    save_stripped_texts,
)
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.vector_copy import Ids
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.calibrations import Calibration, append_calibration, load_calibration

# Growth of the active memories after which the calibration is taken anew (pipeline.md).
RENEWAL_GROWTH = 1.5
# Under this version no memory was compared.
NEVER_COMPARED = 0


@dataclass(frozen=True, eq=False)
class CalibrationResult:
    """The snapshot in force, and whether it was ``taken`` just now.

    ``stripped``: memories, of those that were new to it, whose boilerplate is left out; ``embedded``: texts embedded
    for that. ``looked_at``: ids ``S16`` (n,) of the memories, new to it or changed, that it was held against now.
    """

    snapshot: Calibration
    taken: bool
    stripped: int
    embedded: int
    looked_at: Ids


@dataclass(frozen=True)
class CalibrationProposal:
    """A calibration taken now beside the one in force, if there is any; ``applied`` = it is in force now."""

    model: str
    held: Calibration | None
    fresh: Calibration
    applied: bool


def calibrate_thresholds(run: ProjectRun, *, renew: bool = True) -> CalibrationResult:
    """Hold the project's calibration, or take it: for the first time, or (``renew``) when the project outgrew it.

    Held, only memories that are new or changed since are looked at, for boilerplate.

    Raises:
        EmbeddingError: the model gave no usable vector for a text without its boilerplate, or for a planted one.
    """
    held = run.calibration
    subject = run.project.id, run.embedder.name
    with run.engine.connect() as connection:
        trigger = find_renewal_reason(
            held, run, lambda: similarity_graph.count_units(connection, *subject), renew=renew
        )
        version = held.version if held is not None and trigger is None else NEVER_COMPARED
        new = similarity_graph.load_uncompared_ids(connection, *subject, version)
    if held is not None and trigger is None:
        wording = refresh_stripped_texts(run, new, held.boilerplate)
        return CalibrationResult(held, False, len(wording.hashes), len(wording.vectors), new)
    fresh, wording = fit_calibration(run, held, trigger or "first")
    with run.writing() as connection:
        _store(connection, run, fresh, wording)
    run.calibration = fresh
    return CalibrationResult(fresh, True, len(wording.hashes), len(wording.vectors), new)


def calibrate_project(engine: Engine, slug: str, *, settings: Settings, apply: bool) -> CalibrationProposal:
    """A calibration taken now. ``apply``: store it, under the project's lock; the next run rebuilds the graph.

    Raises:
        NotFoundError; ProjectBusyError: a run holds the project and ``apply`` is set; EmbeddingError;
        BudgetExhaustedError.
    """
    with engine.connect() as connection:
        project = get_project(connection, slug)
    options = effective_options(project, settings)
    # Done by hand, so what a paid model costs stands under an id of its own.
    look = StandaloneProject(engine, project, options, open_embedder(engine, project, options, uuid4()))
    if not apply:
        return _propose(look)[0]
    with hold_project(engine, project):
        proposal, wording = _propose(look)
        with engine.begin() as connection:
            _store(connection, look, proposal.fresh, wording)
    return replace(proposal, applied=True)


def _propose(look: StandaloneProject) -> tuple[CalibrationProposal, StrippedTexts]:
    with look.engine.connect() as connection:
        held = load_calibration(connection, look.project.id, look.embedder.name)
    fresh, wording = fit_calibration(look, held, "request")
    return CalibrationProposal(look.embedder.name, held, fresh, applied=False), wording


def find_renewal_reason(
    held: Calibration | None, run: ProjectContext, count_active: Callable[[], int], *, renew: bool
) -> str | None:
    """Why a calibration has to be taken; None: the one held does."""
    if held is None:
        return "first"
    if not renew:
        return None
    if dict(held.options) != select_calibration_options(run):
        return "options"
    return "growth" if count_active() >= RENEWAL_GROWTH * max(held.memories, 1) else None


def _store(connection: Connection, subject: ProjectContext, fresh: Calibration, wording: StrippedTexts) -> None:
    append_calibration(connection, subject.project.id, subject.embedder.name, fresh)
    save_stripped_texts(connection, subject, wording)
    # Its similarities were those of other vectors.
    similarity_graph.clear_neighbors(connection, subject.project.id, subject.embedder.name)
