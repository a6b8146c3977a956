"""Score how relevant every active memory still is; importance is read, never written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.lifecycle.relevance import Rates, relevance
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.memories.relevance import DecayInputs, load_decay_inputs, save_relevance

_TABLES = ("task_memories", "consolidated_memories")
# Days that a score holds for in a run over everything: memories fade daily, by the job `decay` or else by the night's
# run, which begins a little earlier or later than the last one.
GOOD_FOR = 23 / 24
# Days are differences of instants here and there, exact to about 1e-12 of a score.
_SAME = 1e-9
# Quantiles of the spread that is shown.
_SHOWN = (0.0, 0.25, 0.5, 0.75, 1.0)
# Lower edges of the histogram's bins; the last one is open. Below the second, forgetting may archive by default.
BINS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Decay:
    """Memories scored and the spread of their relevance: minimum, quartiles and maximum (None without memories).

    ``written``: how many were given a new score. ``histogram``: how many lie in each of ``BINS``, lower edges included.
    """

    scored: int
    written: int
    as_of: datetime
    spread: tuple[float, ...] | None
    histogram: tuple[int, ...]


def score_relevance(run: ProjectRun) -> Decay:
    """Relevance of all active memories as of the run's instant, in one vectorised pass per table.

    A run over everything writes the scores that are new, of other inputs than the stored one, or ``GOOD_FOR`` days old:
    what stands there is the formula's value as of its own instant, ``relevance_at``. Any other job writes them all.
    """
    rates = Rates(age=run.options.decay_rate, access=run.options.access_decay_rate)
    keeps = run.job == "consolidate" and tuple(run.planned) == PHASES
    scores, written = [], 0
    with run.transaction() as connection:
        for table in _TABLES:
            rows = load_decay_inputs(connection, run.project.id, table, run.now)
            score = _relevance(rows, rates)
            due = ~_holds(rows, rates) if keeps else np.ones(len(score), dtype=bool)
            if due.any():
                save_relevance(connection, table, rows.ids[due], score[due], run.now)
            scores.append(score)
            written += int(due.sum())
    every = np.concatenate(scores)
    spread = tuple(round(float(q), 6) for q in np.quantile(every, _SHOWN)) if every.size else None
    bins = np.histogram(every, [*BINS, np.inf])[0].tolist()
    return Decay(len(every), written, run.now, spread, tuple(bins))


def _holds(rows: DecayInputs, rates: Rates) -> npt.NDArray[np.bool_]:
    """Which stored scores (n,) are fresh enough, and what the inputs of today give for their instant."""
    fresh = (rows.score_days >= 0.0) & (rows.score_days < GOOD_FOR)
    ago = np.where(fresh, rows.score_days, 0.0)
    return fresh & np.isclose(_relevance(rows, rates, ago), rows.score, rtol=_SAME, atol=0.0)


def _relevance(rows: DecayInputs, rates: Rates, ago: npt.NDArray[np.float64] | float = 0.0) -> npt.NDArray[np.float64]:
    """Relevance (n,) as it was ``ago`` days before the rows' instant, with the links of that instant."""
    ages, idle = rows.age_days - ago, rows.access_days - ago
    return np.asarray(relevance(ages, idle, rows.relations, rows.importance, rows.confidence, rates=rates)).reshape(-1)
