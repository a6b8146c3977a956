"""Score how relevant every active memory still is; importance is read, never written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from consolidation_pipeline.core.relevance import Rates, relevance
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store.memories import load_decaying, save_relevance

_TABLES = ("task_memories", "consolidated_memories")
# Quantiles of the spread that is shown.
_SHOWN = (0.0, 0.25, 0.5, 0.75, 1.0)
# Lower edges of the histogram's bins; the last one is open. Below the second, forgetting may archive by default.
BINS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Decay:
    """Memories scored and the spread of their relevance: minimum, quartiles and maximum (None without memories).

    ``histogram``: how many lie in each of ``BINS``, lower edges included.
    """

    scored: int
    as_of: datetime
    spread: tuple[float, ...] | None
    histogram: tuple[int, ...]


def score_relevance(run: ProjectRun) -> Decay:
    """Relevance of all active memories as of the run's instant, in one vectorised pass per table."""
    rates = Rates(age=run.options.decay_rate, access=run.options.access_decay_rate)
    scores = []
    with run.engine.begin() as connection:
        for table in _TABLES:
            rows = load_decaying(connection, run.project.id, table, run.now)
            score = np.asarray(
                relevance(
                    rows.age_days, rows.access_days, rows.relations, rows.importance, rows.confidence, rates=rates
                )
            )
            if score.size:
                save_relevance(connection, table, rows.ids, score, run.now)
            scores.append(score.reshape(-1))
    every = np.concatenate(scores)
    spread = tuple(round(float(q), 6) for q in np.quantile(every, _SHOWN)) if every.size else None
    bins = np.histogram(every, [*BINS, np.inf])[0].tolist()
    return Decay(len(every), run.now, spread, tuple(bins))
