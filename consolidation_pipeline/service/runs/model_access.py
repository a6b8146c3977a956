"""Access to paid models: completions and embeddings share one spend ledger and the project's budgets."""

from __future__ import annotations

from uuid import UUID

from consolidation_pipeline.core.jobs.spending import Budgets
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline.store.projects import Project


def open_spend_ledger(engine: Engine, project: Project, options: ConsolidationOptions, job_id: UUID) -> SpendLedger:
    """Return the spend ledger of a job; ``job_id`` may be the id of a manual action."""
    budgets = Budgets(options.budget_usd_per_run, options.budget_usd_per_day, options.budget_tokens_per_run)
    return SpendLedger(engine, project.id, job_id, budgets)


def open_embedder(
    engine: Engine, project: Project, options: ConsolidationOptions, job_id: UUID, *, timeout: float | None = None
) -> Embedder:
    """Return the project's embedding model; a paid one uses the spend ledger. ``timeout``: see ``load_embedder``."""
    ledger = open_spend_ledger(engine, project, options, job_id)
    return load_embedder(options.embedding_model, ledger=ledger, timeout=timeout)
