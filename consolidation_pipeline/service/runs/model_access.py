"""Whatever is paid for is paid through one ledger: completions and embeddings share the project's budgets."""

from __future__ import annotations

from uuid import UUID

from consolidation_pipeline.core.jobs.spending import Budgets
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline.store.projects import Project


def budgets_of(options: ConsolidationOptions) -> Budgets:
    """The budgets that a project is configured with."""
    return Budgets(options.budget_usd_per_run, options.budget_usd_per_day, options.budget_tokens_per_run)


def open_spend_ledger(engine: Engine, project: Project, options: ConsolidationOptions, job_id: UUID) -> SpendLedger:
    """The ledger that a job of the project spends through; ``job_id`` may be that of something done by hand."""
    return SpendLedger(engine, project.id, job_id, budgets_of(options))


def open_embedder(
    engine: Engine, project: Project, options: ConsolidationOptions, job_id: UUID, *, patience: float | None = None
) -> Embedder:
    """The project's embedding model, which pays through the ledger where it is not free.

    ``patience``: as ``embed.load_embedder`` takes it.
    """
    return load_embedder(
        options.embedding_model, ledger=open_spend_ledger(engine, project, options, job_id), patience=patience
    )
