"""Judgement of the pairs that are asked about: those with unexplained differences only may be confirmed by a judge."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.differences.explanation import explain_readings
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.core.similarity.similarity_join import SLACK, reaches
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.judge_calibration import may_merge
from consolidation_pipeline.service.similarity.pair_answers import PURPOSE, PairAnswers
from consolidation_pipeline.service.similarity.pair_judges import Pair, open_judge
from consolidation_pipeline.store.database.vector_copy import to_ids, to_uuids
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.pair_judgements import load_rejected_groups
from consolidation_pipeline.store.similarity.similarity_graph import ASK, MERGE, Neighbors, Nodes

# Pairs that a run asks the judge about, the most similar first: a few minutes of a language model.
MAX_PAIRS = 500
# Texts whose readings are kept: about 200 MB.
_KEPT_READINGS = 20_000


@dataclass(frozen=True)
class JudgedPairs:
    """Decisions of the judge ``name``.

    ``same``: positions of the pairs that it confirms. ``allowed``: these may merge. ``decisions``: number of contents
    by decision. ``asked``: number of new answers. ``waiting``: contents that the next run would ask about, with their
    scopes; ``more``: there are others after them. ``failed``: messages of requests without a usable reply.
    ``stopped``: why the judge was not asked on.
    """

    name: str
    allowed: bool
    same: npt.NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    decisions: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    waiting: Mapping[Pair, str] = field(default_factory=dict)
    more: bool = False
    failed: Sequence[str] = ()
    stopped: str | None = None

    @property
    def metrics(self) -> dict[str, Any]:
        """Numbers of the phase."""
        return {
            "judge": self.name,
            "judge_allowed": self.allowed,
            **{f"judged_{name}": self.decisions[name] for name in ("same", "different", "unsure")},
            "judge_answers": self.asked,
            "judge_waiting": len(self.waiting),
            **({"judge_failures": [*self.failed]} if self.failed else {}),
            **({"judge_stopped": self.stopped} if self.stopped else {}),
        }


def judge_graph(run: ProjectRun, nodes: Nodes) -> JudgedPairs | None:
    """Judge the stored pairs that are asked about, and let those merge that an allowed judge confirms.

    A run that applies a plan uses stored answers only, and so does one whose measurement of the judge was stopped.
    Pairs without an answer are left to the next run.
    """
    if run.options.pair_judge == "none":
        return None
    project, model = run.project.id, run.embedder.name
    with run.reading() as connection:
        lowest = run.thresholds["t_merge"] - SLACK
        found = similarity_graph.load_neighbors(connection, project, model, lowest)
    has_stopped = any(stop["purpose"] == PURPOSE for stop in run.stopped)
    judged = judge_pairs(run, nodes, found, ask=run.plan is None and not has_stopped)
    if judged is not None and judged.allowed and judged.same.size:
        with run.transaction() as connection:
            similarity_graph.set_verdict(connection, project, model, found.select(judged.same), MERGE)
    return judged


def judge_pairs(run: ProjectRun, nodes: Nodes, found: Neighbors, *, ask: bool) -> JudgedPairs | None:
    """Return the decisions of the project's judge on the pairs of ``found`` that are asked about; None without one.

    Judged are pairs that reach ``t_merge`` and have unexplained differences only. A changed value, name or word that
    says the opposite is never overruled.

    Args:
        ask: ask about pairs without an answer, at most ``MAX_PAIRS``; else only stored answers are used.
    """
    judge = open_judge(run)
    if judge is None:
        return None
    rows_of = _group_by_texts(run, nodes, found)
    answers = PairAnswers(run, judge)
    candidates, more = _select_candidates(rows_of, answers)
    scopes = nodes.scopes[find_positions(nodes.ids, found.a[[rows_of[pair][0] for pair in candidates]])]
    scope_of = dict(zip(candidates, map(bytes.hex, scopes.tolist()), strict=True))
    if ask:
        answers.ask(scope_of)
    decided = {pair: answers.decide(pair) for pair in candidates}
    waiting = {pair: scope_of[pair] for pair, decision in decided.items() if decision is None}
    if ask and (waiting or more):
        run.unfinished = True
    return JudgedPairs(
        name=judge.name,
        allowed=may_merge(run.calibration, judge.name),
        same=np.array([row for pair in decided if decided[pair] == "same" for row in rows_of[pair]], dtype=np.intp),
        decisions=Counter(filter(None, map(answers.decide, rows_of))),
        asked=answers.asked,
        waiting=waiting,
        more=more,
        failed=answers.failed,
        stopped=None if answers.stopped is None else run.record_stop(PURPOSE, answers.stopped),
    )


def price_judgement(run: ProjectRun, judged: JudgedPairs | None, measured: Mapping[Pair, str]) -> list[Bill]:
    """Return the highest possible bill of each request about the ``waiting`` pairs of ``judged``.

    Args:
        measured: Pairs that the judge is asked about before, with their scopes. None of them is asked twice.
    """
    judge = open_judge(run)
    if judge is None or judged is None:
        return []
    answers, known = PairAnswers(run, judge), set(map(frozenset, measured))
    waiting = {pair: scope for pair, scope in judged.waiting.items() if frozenset(pair) not in known}
    return [*answers.price(measured), *answers.price(waiting)]


def _group_by_texts(run: ProjectRun, nodes: Nodes, found: Neighbors) -> dict[Pair, list[int]]:
    """Return the positions of the pairs that are asked about by their texts, the most similar first.

    Pairs of sources of one merged memory are left out, and pairs that a person rejected.
    """
    rows = np.flatnonzero((found.verdict == ASK) & reaches(found.similarity, run.thresholds["t_merge"]))
    rows = rows[np.lexsort((found.b[rows], found.a[rows], -found.similarity[rows]))]
    i, j = (find_positions(nodes.ids, side[rows]) for side in (found.a, found.b))
    rows = rows[(i >= 0) & (j >= 0) & ~_find_settled(run, nodes, i, j)]
    ids = to_uuids(np.unique(np.concatenate([found.a[rows], found.b[rows]])))
    with run.reading() as connection:
        texts = load_texts(connection, ids)
    rows_of: dict[Pair, list[int]] = defaultdict(list)
    for row, a, b in zip(rows.tolist(), to_uuids(found.a[rows]), to_uuids(found.b[rows]), strict=True):
        one, other = sorted((texts[a], texts[b]))
        rows_of[one, other].append(row)
    return rows_of


def _find_settled(
    run: ProjectRun, nodes: Nodes, i: npt.NDArray[np.int64], j: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return True (m,) for pairs of nodes that are in one merged memory, or that a person rejected."""
    into = nodes.merged_into
    settled = np.asarray((into[i] == into[j]) & (into[i] != b""))
    rejections: dict[bytes, set[int]] = defaultdict(set)
    with run.reading() as connection:
        for number, ids in enumerate(load_rejected_groups(connection, run.project.id)):
            for id_ in to_ids(ids).tolist():
                rejections[id_].add(number)
    if rejections:
        none = set[int]()
        groups = [
            rejections.get(own, none) | rejections.get(merged, none)
            for own, merged in zip(nodes.ids.tolist(), into.tolist(), strict=True)
        ]
        settled |= np.array(
            [bool(groups[a] & groups[b]) for a, b in zip(i.tolist(), j.tolist(), strict=True)], dtype=np.bool_
        )
    return settled


def _select_candidates(pairs: Iterable[Pair], answers: PairAnswers) -> tuple[list[Pair], bool]:
    """Return the pairs with unexplained differences only that are confirmed or not decided, and True if there are more.

    Of the others that are not decided, the first ``MAX_PAIRS`` are returned.
    """
    read_once = lru_cache(maxsize=_KEPT_READINGS)(read)
    candidates, undecided, more = list[Pair](), 0, False
    for pair in pairs:
        decision = answers.decide(pair)
        if decision in ("different", "unsure"):
            continue
        if decision is None and undecided == MAX_PAIRS:
            more = True
            continue
        one, other = map(read_once, pair)
        if explain_readings(one, other, word_similarity).verdict == "unexplained":
            candidates.append(pair)
            undecided += decision is None
    return candidates, more
