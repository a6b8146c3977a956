"""Decay: compute the relevance of every active memory. Importance is read, never written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.lifecycle.relevance import DecayRates, compute_relevance
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.schema import MEMORY_TABLES
from consolidation_pipeline.store.memories.relevance import DecayInputs, load_decay_inputs, save_relevance

# A full run keeps scores up to this age. It is an hour less than a day, as a nightly run may begin a little earlier
# than the last one.
MAX_SCORE_AGE_DAYS = 23 / 24
# Relative tolerance of a score. Rounding of the days changes a score by about 1e-12 of its value.
_TOLERANCE = 1e-9
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
# Lower edges of the histogram's bins; the last bin is open. Below the second edge, forgetting may archive.
HISTOGRAM_BINS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class DecayResult:
    """Numbers of active memories (``scored``) and of those with a new score (``written``), and their relevance.

    ``spread``: minimum, quartiles and maximum; None if there are no memories. ``histogram``: memories in each of
    ``HISTOGRAM_BINS``, lower edges included.
    """

    scored: int
    written: int
    as_of: datetime
    spread: tuple[float, ...] | None
    histogram: tuple[int, ...]


def score_relevance(run: ProjectRun) -> DecayResult:
    """Compute the relevance of all active memories as of the run's time, in one vectorised pass per table.

    A stored score holds for the time ``relevance_at``. A full run keeps it if it is younger than
    ``MAX_SCORE_AGE_DAYS`` and its inputs have not changed. Any other run writes all scores.
    """
    rates = DecayRates(age=run.options.decay_rate, access=run.options.access_decay_rate)
    keeps_valid = run.job == "consolidate" and tuple(run.planned) == PHASES
    scores, written = [], 0
    for table in MEMORY_TABLES:
        with run.transaction() as connection:
            rows = load_decay_inputs(connection, run.project.id, table, run.now)
            score = _relevance(rows, rates)
            due = ~_are_valid(rows, rates) if keeps_valid else np.ones(len(score), dtype=bool)
            if due.any():
                save_relevance(connection, table, rows.ids[due], score[due], run.now)
        scores.append(score)
        written += int(due.sum())
    relevance = np.concatenate(scores)
    spread = tuple(round(float(q), 6) for q in np.quantile(relevance, _QUANTILES)) if relevance.size else None
    bins = np.histogram(relevance, [*HISTOGRAM_BINS, np.inf])[0].tolist()
    return DecayResult(len(relevance), written, run.now, spread, tuple(bins))


def _are_valid(rows: DecayInputs, rates: DecayRates) -> npt.NDArray[np.bool_]:
    """Return a mask (n,): True for a stored score that is fresh, and that today's inputs give for its time."""
    fresh = (rows.score_days >= 0.0) & (rows.score_days < MAX_SCORE_AGE_DAYS)
    ago = np.where(fresh, rows.score_days, 0.0)
    return fresh & np.isclose(_relevance(rows, rates, ago), rows.score, rtol=_TOLERANCE, atol=0.0)


def _relevance(
    rows: DecayInputs, rates: DecayRates, ago: npt.NDArray[np.float64] | float = 0.0
) -> npt.NDArray[np.float64]:
    """Return the relevance (n,) ``ago`` days before the time of the rows, whose relations count."""
    ages, idle = rows.age_days - ago, rows.access_days - ago
    return compute_relevance(ages, idle, rows.relations, rows.importance, rows.confidence, rates=rates)
