"""Limits of the environment to what projects choose, and model names that hold an address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.admin.projects import configure_project, create_project
from consolidation_pipeline.service.jobs.job_requests import request_job
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.operator_limits import apply_limits, check_limits, read_limits
from consolidation_pipeline.settings import Settings
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline

SETTINGS = Settings(allowed_models="openai/*, ollama/llama3", max_usd_per_day=2.5, max_tokens_per_run=1000)
LIMITS = read_limits(SETTINGS)


@pytest.mark.parametrize("option", ["llm_model", "embedding_model"])
@pytest.mark.parametrize("name", ["oobabooga/http://127.0.0.1:9/v1", "//internal/x", "openai/x\n", " openai/x"])
def test_model_name_holds_no_address(option: str, name: str) -> None:
    with pytest.raises(InvalidOptionError, match="expected the name of a litellm model, no URL"):
        parse_options({option: name})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"llm_model": "groq/llama"},
            "llm_model = groq/llama is not allowed: CONSOLIDATION_ALLOWED_MODELS has openai/",
        ),
        ({"llm_model": "ollama/llama3:70b"}, "llm_model = ollama/llama3:70b is not allowed"),
        ({"embedding_model": "cohere/embed"}, "embedding_model = cohere/embed is not allowed"),
        ({"budget_usd_per_day": 2.6}, "budget_usd_per_day = 2.6 is not allowed: CONSOLIDATION_MAX_USD_PER_DAY limits"),
        ({"budget_tokens_per_run": 1001}, "CONSOLIDATION_MAX_TOKENS_PER_RUN limits it to 1000"),
    ],
)
def test_choice_beyond_limits_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        check_limits(parse_options(options), LIMITS)


@pytest.mark.parametrize(
    "options", [{}, {"llm_model": "openai/gpt-4o"}, {"llm_model": "ollama/llama3", "budget_usd_per_day": 2.5}]
)
def test_choice_within_limits_is_allowed(options: dict[str, Any]) -> None:
    check_limits(parse_options(options), LIMITS)


@pytest.mark.parametrize("path", ["/etc/passwd", "/nowhere/x", "../x", "/models/../etc/passwd", "/models"])
def test_judge_outside_its_folder_is_refused(path: str) -> None:
    options = parse_options({"pair_judge": f"onnx:{path}"})
    for folder, reason in ((None, "is not set"), (Path("/models"), "has the models, below /models")):
        limits = LIMITS._replace(judge_dir=folder)
        expected = re.escape(f"pair_judge = onnx:{path} is not allowed: CONSOLIDATION_JUDGE_DIR {reason}")
        with pytest.raises(InvalidOptionError, match=f"^{expected}$"):
            check_limits(options, limits)
        assert apply_limits(options, limits).pair_judge == "none"


@pytest.mark.parametrize("path", ["judge/model.onnx", "/models/judge/model.onnx", "./judge/../judge/model.onnx"])
def test_judge_below_its_folder_is_allowed(path: str) -> None:
    limits, options = LIMITS._replace(judge_dir=Path("/models/")), parse_options({"pair_judge": f"onnx:{path}"})
    check_limits(options, limits)
    assert apply_limits(options, limits).pair_judge == "onnx:/models/judge/model.onnx"


def test_model_of_environment_needs_no_permission() -> None:
    own = LIMITS._replace(llm_model="groq/llama", embedding_model="cohere/embed")
    check_limits(parse_options({"llm_model": "groq/llama", "embedding_model": "cohere/embed"}), own)


def test_older_choices_are_lowered_to_limits() -> None:
    chosen = parse_options({"llm_model": "groq/llama", "budget_usd_per_day": 9, "budget_tokens_per_run": 10})
    limited = apply_limits(chosen, LIMITS)
    assert (limited.llm_model, limited.budget_usd_per_day, limited.budget_tokens_per_run) == (None, 2.5, 10)
    judged = parse_options({"llm_model": "groq/llama", "pair_judge": "llm", "supersession_judge": "llm"})
    limited = apply_limits(judged, LIMITS)
    assert (limited.llm_model, limited.pair_judge, limited.supersession_judge) == (None, "none", "none")
    with pytest.raises(InvalidOptionError, match="embedding_model = cohere/embed is not allowed"):
        apply_limits(parse_options({"embedding_model": "cohere/embed"}), LIMITS)


@pytest.mark.database
def test_projects_and_triggers_stay_within_limits(pipeline: Pipeline) -> None:
    engine, refused = pipeline.engine, {"budget_usd_per_day": 3}
    create_project(engine, SLUG, {}, settings=SETTINGS)
    with pytest.raises(InvalidOptionError, match=r"limits it to 2\.5"):
        create_project(engine, "other", refused, settings=SETTINGS)
    with pytest.raises(InvalidOptionError, match=r"limits it to 2\.5"):
        configure_project(engine, SLUG, settings=SETTINGS, config=refused)
    with pytest.raises(InvalidOptionError, match=r"limits it to 2\.5"):
        request_job(engine, SLUG, options=refused, triggered_by="somebody", settings=SETTINGS)
    pipeline.configure(budget_usd_per_day=3)
    assert effective_options(pipeline.project(), SETTINGS).budget_usd_per_day == 2.5
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_jobs") == 0
