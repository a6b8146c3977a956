"""Check of paid models: what their names tell without a request, and whether they answer a small one."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

from pydantic import BaseModel

from consolidation_pipeline.embed import is_local, remote
from consolidation_pipeline.errors import (
    BudgetExhaustedError,
    ConsolidationError,
    InvalidOptionError,
    SchemaOutOfDateError,
)
from consolidation_pipeline.llm.gateway import Gateway
from consolidation_pipeline.llm.litellm_import import find_missing_keys, has_provider
from consolidation_pipeline.llm.pricing import FALLBACK_PRICE, Pricing
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.service.admin.findings import Finding
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.model_access import open_embedder, open_spend_ledger
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, check_schema, connect_engine, database_url
from consolidation_pipeline.store.projects import Project, list_projects

# Options that name a model.
MODEL_OPTIONS = ("llm_model", "embedding_model")
_TIMEOUT_SECONDS = 30.0


class _Answer(BaseModel):
    answer: str


def check_provider(option: str, model: str | None) -> None:
    """Raise InvalidOptionError if no request to a model could be sent, as its name tells no provider."""
    if model is not None and not is_local(model) and not has_provider(model):
        raise InvalidOptionError(
            f"{option} = {model} names no provider that litellm knows: write PROVIDER/MODEL, such as "
            "openai/gpt-4o-mini, or openai/NAME for a server of your own"
        )


def find_model_problems(option: str, model: str | None) -> list[str]:
    """Return what is wrong or unknown about a model by its name, without a request; empty if nothing is.

    ``option``: the one that names it, of ``MODEL_OPTIONS``.
    """
    if model is None or is_local(model):
        return []
    if not has_provider(model):
        return [f"{model} names no provider that litellm knows: every request would fail"]
    problems = []
    # litellm also lists addresses and regions, which have defaults.
    keys = [name for name in find_missing_keys(model) if "KEY" in name or "TOKEN" in name]
    if keys:
        problems.append(f"{', '.join(keys)} is not set here, so requests to {model} may be refused")
    if not Pricing(model).is_listed:
        price = remote.FALLBACK_PRICE if option == "embedding_model" else FALLBACK_PRICE
        received = f" and ${price.output:g} received" if price.output else ""
        problems.append(
            f"{model} is in no price list: check its name; a model of your own server counts as "
            f"${price.input:g} per million tokens sent{received}"
        )
    return problems


def check_models(settings: Settings, *, ask: bool) -> Iterator[Finding]:
    """Check the paid models of all projects, each once. ``ask``: also send each a small request, which is billed."""
    engine = connect_engine(database_url(settings))
    try:
        check_schema(engine)
    except SchemaOutOfDateError:
        return  # the check of the database tells it
    with engine.connect() as connection:
        projects = list_projects(connection)
    used: dict[tuple[str, str], Project] = {}
    for project in projects:
        options = effective_options(project, settings)
        for option in MODEL_OPTIONS:
            model = getattr(options, option)
            if model is not None and not is_local(model):
                used.setdefault((option, model), project)
    if not any(option == "llm_model" for option, _ in used):
        yield Finding("language model", "ok", "none is configured: texts are extracted, which costs nothing")
    for (option, model), project in used.items():
        check = "language model" if option == "llm_model" else "embedding model"
        problems = find_model_problems(option, model)
        for problem in problems:
            yield Finding(check, "warning", f"{problem} (project {project.slug})")
        if ask:
            yield _ask(engine, project, settings, check, option, model)
        elif not problems:
            hint = "not asked, as that is billed: `consolidation doctor --ask-models` does"
            yield Finding(check, "ok", f"{model}: its key is set and its price known; {hint}")


def _ask(engine: Engine, project: Project, settings: Settings, check: str, option: str, model: str) -> Finding:
    """Send a small request within the budget of the project."""
    options, job_id = effective_options(project, settings), uuid4()
    try:
        if option == "embedding_model":
            open_embedder(engine, project, options, job_id, timeout=_TIMEOUT_SECONDS).embed(["Does the model answer?"])
            return Finding(check, "ok", f"{model} answers")
        # The id keeps the reply of an earlier check out.
        task = f'Reply with this JSON object: {{"answer": "yes"}}. This is check {job_id}.'
        prompt = Prompt("doctor", 1, "You are asked whether you work.", task, (), max_tokens=200)
        ledger = open_spend_ledger(engine, project, options, job_id)
        answer = Gateway(model, ledger, timeout=_TIMEOUT_SECONDS).ask(prompt, _Answer)
    except BudgetExhaustedError as error:
        return Finding(check, "warning", f"{model} was not asked: {error}")
    except ConsolidationError as error:
        return Finding(check, "problem", str(error))
    return Finding(check, "ok", f"{model} answers; that cost ${answer.usd:.6f}")
