"""Pair judge of a project: what it is asked, what merges by it, and what happens when it fails."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from consolidation_pipeline.core.calibration.decision_errors import load_product_pairs
from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.embed.local import LocalEmbedder, word_similarity
from consolidation_pipeline.errors import InvalidOptionError, UsageError
from consolidation_pipeline.llm import retries
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.review.pair_labels import label_pair
from consolidation_pipeline.service.review.suggest_groups import SuggestGroup, read_suggest_groups
from consolidation_pipeline.service.review.suggestion_decisions import reject_suggestion
from consolidation_pipeline.service.review.suggestions import list_suggestions
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.similarity import pair_judgement, pair_judges
from consolidation_pipeline.service.similarity.calibration import calibrate_project
from consolidation_pipeline.service.similarity.graph_nodes import StandaloneProject
from consolidation_pipeline.service.similarity.pair_answers import PairAnswers
from consolidation_pipeline.service.similarity.pair_judgement import JudgedPairs
from consolidation_pipeline.service.similarity.pair_judges import DIFFERENT_BELOW, SAME_FROM, name_judge, open_judge
from consolidation_pipeline.store.similarity.clusters import load_clusters
from consolidation_pipeline.store.similarity.similarity_graph import ASK, MERGE
from consolidation_pipeline_tests.openai_server import (
    Behaviour,
    OpenAIServer,
    reply_with_broken_json,
    reply_with_error,
    reply_with_json,
    reply_with_text,
)
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.crash_helpers import judge_and_die, kill
from consolidation_pipeline_tests.service.model_replies import suggestion_reply
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, STEPS, Pipeline
from consolidation_pipeline_tests.service.similarity.judge_replies import (
    CONTRADICTING,
    DIFFERENT,
    OPTIONS,
    SAME,
    judge_with,
    oracle,
    pair_notes,
    shown_pairs,
)

DEVELOPMENT_PAIRS = Path(__file__).parents[3] / "benchmarks" / "pairs" / "development.jsonl"
GRAPH_PHASES = PHASES[:3]


@pytest.fixture
def project(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Project with pairs to judge, and an oracle as its judge."""
    provider.behaviour = oracle()
    pipeline.add(pair_notes())
    pipeline.configure(**OPTIONS)
    return pipeline


def judge(pipeline: Pipeline) -> JudgedPairs:
    """Run a job of the phases up to the graph, which completes, and return what the judge decided."""
    judged = pipeline.run_phases(GRAPH_PHASES, planned=GRAPH_PHASES)["similarity_graph"].judged
    assert isinstance(judged, JudgedPairs)
    return judged


def verdicts(pipeline: Pipeline) -> dict[str, int]:
    """Return the verdict on the two notes of each pair, by the name of the pair."""
    rows = pipeline.rows(
        "SELECT left(a.external_id, -2) AS name, n.verdict FROM {s}.memory_pairs n "
        "JOIN {s}.task_memories a ON a.id = n.a JOIN {s}.task_memories b ON b.id = n.b "
        "WHERE left(a.external_id, -2) = left(b.external_id, -2)"
    )
    return {row.name: row.verdict for row in rows}


def expected_verdicts(*, same: int) -> dict[str, int]:
    """Return the verdicts if the pairs that say the same have the verdict ``same``, and all others are asked about."""
    names = [f"different-{number}" for number in range(len(DIFFERENT))]
    return {**{f"same-{number}": same for number in range(len(SAME))}, **dict.fromkeys([*names, "value-0"], ASK)}


def judge_report(pipeline: Pipeline) -> dict[str, Any]:
    """Return the newest measurement of the judge."""
    query = "SELECT report -> 'judge' FROM {s}.similarity_calibrations ORDER BY version DESC LIMIT 1"
    report: dict[str, Any] = pipeline.value(query)
    return report


def list_groups(pipeline: Pipeline) -> list[SuggestGroup]:
    """Form the groups of the suggest tier and return them."""
    pipeline.run_phases(PHASES[:4])
    with pipeline.engine.connect() as connection:
        return read_suggest_groups(load_clusters(connection, pipeline.project().id, "suggest"))


def asked_pairs(provider: OpenAIServer) -> list[tuple[str, str]]:
    """Return all pairs that the provider was asked about, in the order asked."""
    return [pair for request in provider.requests for pair in shown_pairs(request)]


def open_answers(pipeline: Pipeline) -> PairAnswers:
    """Return the stored answers of the judge of a project, made if it is not there."""
    pipeline.configure_new(**OPTIONS)
    context = StandaloneProject(pipeline.engine, pipeline.project(), parse_options(OPTIONS), LocalEmbedder(), uuid4())
    found = open_judge(context)
    assert found is not None
    return PairAnswers(context, found)


def test_oracle_settles_pairs_that_rules_cannot(pipeline: Pipeline, provider: OpenAIServer) -> None:
    rows = list(map(json.loads, DEVELOPMENT_PAIRS.read_text("utf-8").splitlines()))
    unexplained = [row for row in rows if explain(row["a"], row["b"], word_similarity).verdict == "unexplained"]
    provider.behaviour = oracle((row["a"], row["b"]) for row in unexplained if row["may_merge"])
    answers = open_answers(pipeline)
    answers.ask({(row["a"], row["b"]): "" for row in unexplained})
    merged = {
        same: [answers.decide((row["b"], row["a"])) == "same" for row in unexplained if row["may_merge"] == same]
        for same in (True, False)
    }
    assert min(map(len, merged.values())) > 20
    assert sum(merged[True]) >= 0.85 * len(merged[True])
    assert sum(merged[False]) <= 0.02 * len(merged[False])


def test_confirmed_pairs_merge_after_measuring(project: Pipeline, provider: OpenAIServer) -> None:
    judged = judge(project)
    assert (judged.allowed, judged.decisions["same"], judged.waiting) == (True, len(SAME), {})
    assert verdicts(project) == expected_verdicts(same=MERGE)
    report = judge_report(project)
    assert report["allowed"]
    assert (report["missing"], report["judged"]["wrong"]["share"]) == (0, 0)
    assert report["judged"]["found"]["share"] == 1
    asked = asked_pairs(provider)
    assert len(asked) == len(set(asked))
    assert not any(set(pair) == set(CONTRADICTING) for pair in asked)
    assert all({(a, b), (b, a)} <= set(asked) for a, b in SAME)
    assert all(len({(a, b), (b, a)} & set(asked)) == 1 for a, b in DIFFERENT)


def test_rebuilt_graph_asks_nothing_again(project: Pipeline, provider: OpenAIServer) -> None:
    judge(project)
    before = len(provider.requests)
    assert judge(project).asked == 0
    calibrate_project(project.engine, SLUG, settings=project.settings, apply=True)
    assert judge(project).asked == 0
    assert verdicts(project) == expected_verdicts(same=MERGE)
    assert len(provider.requests) == before


def test_requests_have_pairs_of_one_scope(pipeline: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = oracle()
    users = ("ada", "bob")
    texts = {f"{user}-{at}": text for user, pair in zip(users, SAME, strict=False) for at, text in enumerate(pair)}
    pipeline.add([note(name, text, user_id=name[:3]) for name, text in texts.items()])
    pipeline.configure_new(**OPTIONS)
    judged = judge(pipeline)
    assert judged.decisions["same"] == len(users)
    user_of = {text: name[:3] for name, text in texts.items()}
    shown = [{user_of[t] for pair in shown_pairs(r) for t in pair if t in user_of} for r in provider.requests]
    assert [len(found) for found in shown if found] == [1] * (2 * len(users))


def test_confirmed_pairs_become_one_memory(project: Pipeline) -> None:
    done = project.run_phases(PHASES[: PHASES.index("merged_memories") + 1])
    assert done["merged_memories"].created == len(SAME)


def test_judge_that_says_same_to_all_may_not_merge(project: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = judge_with(lambda _: "same")
    judged = judge(project)
    assert (judged.allowed, verdicts(project)) == (False, expected_verdicts(same=ASK))
    assert judged.decisions["same"] >= len(SAME) + len(DIFFERENT)
    report = judge_report(project)
    assert not report["allowed"]
    assert "too many errors" in report["reason"]
    plan = project.plan()
    assert plan.pair_judge is not None
    assert (plan.pair_judge.allowed, plan.pair_judge.reason, plan.merges) == (False, report["reason"], [])


def test_judge_that_may_not_merge_ranks_questions(project: Pipeline, provider: OpenAIServer) -> None:
    favourite = set(SAME[-1])
    liked = {(pair.a, pair.b) for pair in load_product_pairs()}
    liked |= {(b, a) for a, b in liked}
    provider.behaviour = judge_with(lambda pair: "same" if set(pair) == favourite or pair in liked else "different")
    assert not judge(project).allowed
    plan = project.plan()
    assert set(plan.questions[0].texts.values()) == favourite
    assert plan.questions[0].asked_pairs[0]["judged"] == "same"
    [confirmed] = [group for group in list_groups(project) if group.confirmed]
    assert "the pair judge says the same" in confirmed.tell_rationale(["word"])


def test_answer_that_depends_on_order_is_unsure(project: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = judge_with(lambda pair: "same" if pair[0] < pair[1] else "different")
    judged = judge(project)
    assert judged.decisions["same"] == 0
    assert verdicts(project) == expected_verdicts(same=ASK)
    assert judge_report(project)["judged"]["found"]["share"] == 0


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(reply_with_broken_json, id="broken reply", marks=pytest.mark.slow),
        pytest.param(reply_with_text("they look alike to me"), id="no JSON", marks=pytest.mark.slow),
        pytest.param(reply_with_error(500), id="error 500"),
    ],
)
def test_failing_judge_leaves_pairs_to_next_run(
    project: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch, failing: Behaviour
) -> None:
    monkeypatch.setattr(retries, "_compute_wait", lambda *_: 0.0)
    provider.behaviour = failing
    judged = judge(project)
    assert (judged.allowed, judged.asked) == (False, 0)
    assert len(judged.waiting) == len(SAME) + len(DIFFERENT)
    assert verdicts(project) == expected_verdicts(same=ASK)
    assert judge_report(project)["missing"] > 0
    provider.behaviour = oracle()
    assert judge(project).allowed
    assert verdicts(project) == expected_verdicts(same=MERGE)


@pytest.mark.slow
def test_exhausted_budget_is_continued_by_next_run(
    project: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_judges, "PROMPT_PAIRS", 2)
    project.configure(**OPTIONS, budget_tokens_per_run=8_000)
    runs = []
    for _ in range(20):
        runs.append(judge(project))
        if runs[-1].allowed and not runs[-1].waiting:
            break
    assert len(runs) > 1
    assert project.value("SELECT count(*) FROM {s}.consolidation_events WHERE type = 'budget.exhausted'") >= 1
    assert verdicts(project) == expected_verdicts(same=MERGE)
    asked = asked_pairs(provider)
    assert len(asked) == len(set(asked))


@pytest.mark.slow
def test_killed_run_is_repeated_with_same_verdicts(project: Pipeline, provider: OpenAIServer) -> None:
    kill(project, judge_and_die, provider.api_base)
    assert verdicts(project) == expected_verdicts(same=ASK)
    before = len(provider.requests)
    assert judge(project).allowed
    assert verdicts(project) == expected_verdicts(same=MERGE)
    asked = asked_pairs(provider)
    assert before < len(provider.requests)
    assert len(asked) == len(set(asked))


def test_run_asks_most_similar_pairs_first(project: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_judgement, "MAX_PAIRS", 3)
    with project.open() as run:
        for name in GRAPH_PHASES:
            with run.phase(name):
                done = STEPS[name](run)
    assert (done.judged.more, run.unfinished) == (True, True)
    assert done.judged.decisions == {"different": len(DIFFERENT)}
    assert judge(project).decisions["same"] >= 1


@pytest.mark.slow
def test_judge_never_overrules_a_rejection(project: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_json(suggestion_reply)
    project.configure(**{**OPTIONS, "pair_judge": "none"})
    project.run()
    proposed = list_suggestions(project.engine, SLUG).suggestions
    [shown] = [one for one in proposed if {original.content for original in one.originals} == set(SAME[0])]
    reject_suggestion(project.engine, shown.id, decided_by="anna")
    provider.behaviour = oracle()
    project.configure(**OPTIONS)
    judge(project)
    assert verdicts(project) == {**expected_verdicts(same=MERGE), "same-0": ASK}


def test_project_without_judge_calls_no_model(project: Pipeline, provider: OpenAIServer) -> None:
    project.configure(**{**OPTIONS, "pair_judge": "none"})
    assert project.run_phases(GRAPH_PHASES)["similarity_graph"].judged is None
    assert provider.requests == []
    assert project.value("SELECT count(*) FROM {s}.pair_judgements") == 0
    assert verdicts(project) == expected_verdicts(same=ASK)


def test_removed_judge_merges_nothing_any_more(project: Pipeline) -> None:
    judge(project)
    project.configure(**{**OPTIONS, "pair_judge": "none"})
    project.run_phases(GRAPH_PHASES)
    assert verdicts(project) == expected_verdicts(same=ASK)


@pytest.mark.slow
def test_plan_prices_judge_and_sends_nothing(project: Pipeline, provider: OpenAIServer) -> None:
    plan = project.plan()
    assert plan.pair_judge is not None
    assert (plan.pair_judge.waiting, plan.pair_judge.confirmed) == (len(SAME) + len(DIFFERENT), 0)
    assert (plan.costs.completion_calls > 0, provider.requests) == (True, [])
    judge(project)
    assert 10 < len(provider.requests) <= plan.costs.completion_calls
    after = project.plan()
    assert after.pair_judge is not None
    assert (after.pair_judge.allowed, after.pair_judge.waiting) == (True, 0)
    assert len(after.merges) == len(SAME)


def test_plan_prices_labelled_pairs_once(project: Pipeline, provider: OpenAIServer) -> None:
    # Both orders are asked: the judge says the same of all pairs.
    provider.behaviour = judge_with(lambda _: "same")
    project.configure(**{**OPTIONS, "pair_judge": "none"})
    project.run_phases(GRAPH_PHASES)
    # The judge is also measured on labelled pairs that are too unlike to merge.
    unlike = list(combinations([a for a, _ in (*SAME, *DIFFERENT)], 2))
    for pair in (*SAME[:2], *DIFFERENT, *unlike):
        a, b = (project.value("SELECT id FROM {s}.task_memories WHERE execution_summary = :text", text=t) for t in pair)
        label_pair(project.engine, SLUG, a, b, same=pair in SAME, labelled_by="anna")
    other_calls = project.plan().costs.completion_calls
    project.configure(**OPTIONS)
    priced = project.plan().costs.completion_calls - other_calls
    judge(project)
    assert priced == len(provider.requests) > 10
    assert project.plan().costs.completion_calls == other_calls


def test_price_leaves_out_answers_and_stored_replies(pipeline: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_error(400)
    provider.then(judge_with(lambda _: "same"))
    pairs = {SAME[0]: ""}
    assert len(open_answers(pipeline).price(pairs)) == 2
    open_answers(pipeline).ask(pairs)
    assert len(open_answers(pipeline).price(pairs)) == 1  # in the second order
    # As after a kill before the answer is stored.
    pipeline.write("DELETE FROM {s}.pair_judgements")
    assert len(open_answers(pipeline).price(pairs)) == 1
    provider.behaviour = oracle()
    open_answers(pipeline).ask(pairs)
    pipeline.write("DELETE FROM {s}.pair_judgements")
    assert open_answers(pipeline).price(pairs) == []


def test_cross_encoder_confirms_pairs_above_limit(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, pipeline.settings.judge_dir = tmp_path / "judge.onnx", tmp_path
    for name in ("judge.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"a model")
    labelled = {frozenset((pair.a, pair.b)) for pair in load_product_pairs() if pair.same} | set(map(frozenset, SAME))
    scores = {True: SAME_FROM, False: DIFFERENT_BELOW}
    encoder = SimpleNamespace(score=lambda pairs: np.array([scores[frozenset(pair) in labelled] for pair in pairs]))
    monkeypatch.setattr(pair_judges, "CrossEncoder", lambda path: encoder if path == model else None)
    pipeline.add(pair_notes())
    pipeline.configure(**{**OPTIONS, "pair_judge": "onnx:judge.onnx", "llm_model": None})
    judged = judge(pipeline)
    assert (judged.allowed, judged.decisions) == (True, {"same": len(SAME), "unsure": len(DIFFERENT)})
    assert judged.name.startswith("onnx judge.onnx ")
    assert verdicts(pipeline) == expected_verdicts(same=MERGE)
    model.unlink()
    with pytest.raises(UsageError, match=r"judge\.onnx is not a file"):
        judge(pipeline)


def test_language_model_judge_needs_a_model() -> None:
    with pytest.raises(InvalidOptionError, match="pair_judge = llm needs llm_model"):
        name_judge(parse_options({"pair_judge": "llm"}))
