"""Pair judge on the command line: `calibrate`, `run` and `plan` say if its pairs merge."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from consolidation_pipeline_tests.cli.conftest import Cli, Write
from consolidation_pipeline_tests.openai_server import OpenAIServer, client_environment, openai_server
from consolidation_pipeline_tests.service.similarity.judge_replies import MODEL, judge_with, oracle, pair_notes

PHASES = "embedding_matrix,threshold_calibration,similarity_graph"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """Provider of a model that knows which pairs are the same."""
    with openai_server(oracle()) as running:
        for name, value in client_environment(running.api_base).items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def judged(cli: Cli, write: Write, provider: OpenAIServer) -> OpenAIServer:
    """Project `notes` with pairs to judge and a language model as its judge."""
    cli("import", write(*map(json.dumps, pair_notes())), "--project", "notes")
    options = ("pair_judge=llm", f"llm_model={MODEL}", "t_suggest=0.6", "t_merge=0.6")
    assert cli("projects", "configure", "notes", *options).code == 0
    return provider


@pytest.mark.slow
@pytest.mark.usefixtures("judged")
def test_measured_judge_is_shown_with_its_errors(cli: Cli) -> None:
    shown = " ".join(cli("calibrate", "notes").out.split())
    assert f"llm {MODEL}, prompt 1: its pairs merge; up to" in shown
    answer = cli("calibrate", "notes", "--json").json
    assert (answer["judge"]["allowed"], answer["judge"]["missing"], answer["in_force"]) == (True, 0, None)
    assert cli("run", "notes", "--phases", PHASES).code == 0
    assert "they merge; a run asks it about 0 pairs" in " ".join(cli("plan", "notes").out.split())


@pytest.mark.slow
def test_judge_with_many_errors_is_said_not_to_merge(cli: Cli, judged: OpenAIServer) -> None:
    judged.behaviour = judge_with(lambda _: "same")
    shown = " ".join(cli("calibrate", "notes").out.split())
    assert "its pairs do not merge; too many errors: up to" in shown
    assert cli("run", "notes", "--phases", PHASES).code == 0
    assert "which do not merge but are asked about first (too many errors" in " ".join(cli("plan", "notes").out.split())


def test_missing_cross_encoder_is_a_usage_error(cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("import", write(*map(json.dumps, pair_notes())), "--project", "notes")
    refused = cli("projects", "configure", "notes", "pair_judge=onnx:/nowhere/judge.onnx")
    assert (refused.code, "CONSOLIDATION_JUDGE_DIR is not set" in refused.err) == (2, True)
    monkeypatch.setenv("CONSOLIDATION_JUDGE_DIR", "/nowhere")
    for path in ("/nowhere/judge.onnx", f"/nowhere/{'a' * 5000}"):
        cli("projects", "configure", "notes", f"pair_judge=onnx:{path}")
        answer = cli("calibrate", "notes")
        assert (answer.code, f"{path} is not a file" in answer.err) == (2, True)
