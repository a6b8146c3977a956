"""Measurement of the pair judge on labelled pairs: only a measured judge may merge without asking a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consolidation_pipeline.core.calibration.decision_errors import LabelledPair, count_errors, load_product_pairs
from consolidation_pipeline.core.differences.explanation import Explanation, explain
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.graph_nodes import ProjectContext
from consolidation_pipeline.service.similarity.pair_answers import PURPOSE, PairAnswers
from consolidation_pipeline.service.similarity.pair_judges import Pair, name_judge, open_judge
from consolidation_pipeline.store.similarity.calibrations import Calibration

# Upper bound of the share of different pairs that may merge, by the rules and the judge together (95 % interval).
WRONG_LIMIT = 0.05


def measure_judge(context: ProjectContext, decided: Sequence[LabelledPair], *, ask: bool) -> dict[str, Any] | None:
    """Return the errors of the merge decision with the project's judge, as JSON values; None if it has no judge.

    The judge is asked about the unexplained ones of the pairs that come with the product and of the ``decided`` ones.
    ``wrong`` and ``found`` are those of ``count_errors``, for the whole decision; ``judged`` is the same for the pairs
    that the judge was asked about. ``allowed``: its pairs may merge; ``reason``: why, or why not.

    Args:
        ask: ask about pairs without an answer; else only stored answers are used.
    """
    judge = open_judge(context)
    if judge is None:
        return None
    pairs, explained = _explain_labelled(decided)
    answers = PairAnswers(context, judge)
    unexplained = [pair for pair, found in zip(pairs, explained, strict=True) if found.verdict == "unexplained"]
    if ask:
        answers.ask({(pair.a, pair.b): pair.scope for pair in unexplained})
        if answers.stopped is not None and isinstance(context, ProjectRun):
            context.record_stop(PURPOSE, answers.stopped)
    decisions = {pair: answers.decide((pair.a, pair.b)) for pair in unexplained}
    merged = [found.may_merge or decisions.get(pair) == "same" for pair, found in zip(pairs, explained, strict=True)]
    errors = count_errors(pairs, merged)
    missing = sum(decision is None for decision in decisions.values())
    return {
        "name": judge.name,
        **{name: errors[name] for name in ("pairs", "wrong", "found")},
        "judged": _select_shares(count_errors(unexplained, [decisions[pair] == "same" for pair in unexplained])),
        "missing": missing,
        "allowed": not missing and errors["wrong"]["high"] <= WRONG_LIMIT,
        "reason": _explain_bound(errors["wrong"]["high"], missing, answers),
    }


def _select_shares(errors: dict[str, Any]) -> dict[str, Any]:
    return {name: errors[name] for name in ("pairs", "wrong", "found")}


def _explain_bound(high: float, missing: int, answers: PairAnswers) -> str:
    if missing:
        cause = str(answers.stopped or next(iter(answers.failed), "it was not asked"))
        return f"not measured: {missing} labelled pairs have no answer ({cause})"
    bound = f"up to {high:.1%} of different pairs would merge, {WRONG_LIMIT:.0%} are allowed"
    return bound if high <= WRONG_LIMIT else f"too many errors: {bound}"


def complete_measurement(run: ProjectRun, current: Calibration) -> bool:
    """Ask about the product's pairs that the calibration in force lacks; return True if all have an answer now.

    False if the calibration lacks none, or if the run applies a plan.
    """
    report = current.report.get("judge")
    if run.plan is not None or not report or not report["missing"]:
        return False
    measured = measure_judge(run, (), ask=True)
    return measured is not None and not measured["missing"]


def is_measured(run: ProjectRun) -> bool:
    """Return True if the project has no pair judge, or if the calibration in force lacks none of its answers."""
    name = name_judge(run.options)
    return name is None or _find_report(run.calibration, name).get("missing") == 0


def list_measured_pairs(decided: Sequence[LabelledPair]) -> dict[Pair, str]:
    """Return the pairs that a judge is measured on, with their scopes; see ``measure_judge``."""
    pairs, explained = _explain_labelled(decided)
    found = zip(pairs, explained, strict=True)
    return {(pair.a, pair.b): pair.scope for pair, why in found if why.verdict == "unexplained"}


def _explain_labelled(decided: Sequence[LabelledPair]) -> tuple[list[LabelledPair], list[Explanation]]:
    """Return the pairs that come with the product and the ``decided`` ones, and the explanation of each."""
    pairs = [*load_product_pairs(), *decided]
    return pairs, [explain(pair.a, pair.b, word_similarity) for pair in pairs]


def may_merge(calibration: Calibration | None, judge: str) -> bool:
    """Return True if the pairs of the judge with this name may merge: the calibration has measured and allowed it."""
    return bool(_find_report(calibration, judge).get("allowed"))


def explain_permission(calibration: Calibration | None, judge: str) -> str:
    """Return why the pairs of the judge with this name may merge, or why not."""
    return str(_find_report(calibration, judge).get("reason", "not measured: the next run does that"))


def describe_judge(run: ProjectRun) -> str:
    """Return the pair judge of a project in words, and whether its pairs may merge."""
    judge = name_judge(run.options)
    if judge is None:
        return "none"
    effect = "its pairs merge" if may_merge(run.calibration, judge) else "its pairs are only asked about first"
    return f"{judge}: {effect} ({explain_permission(run.calibration, judge)})"


def _find_report(calibration: Calibration | None, judge: str) -> Mapping[str, Any]:
    report = {} if calibration is None else calibration.report.get("judge") or {}
    return report if report.get("name") == judge else {}
