"""The asset `associations`: metadata, checks and order."""

from __future__ import annotations

import dagster as dg
import pytest
from sqlalchemy import text

from consolidation_pipeline.defs.associations import associations, associations_checks
from consolidation_pipeline.defs.decay_scores import decay_scores, decay_scores_checks
from consolidation_pipeline.defs.names import RESOURCE, asset_key
from consolidation_pipeline.defs.partitions import PROJECTS
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import configure_project
from consolidation_pipeline_tests.defs.conftest import Sample

COUNTS = {"contradicts", "explains", "shares_theme", "parallel_context"}


def materialize(instance: dg.DagsterInstance, slug: str, *assets: dg.AssetsDefinition) -> dg.ExecuteInProcessResult:
    """Run these assets with their checks as one job."""
    checks = [associations_checks, decay_scores_checks]
    job = dg.define_asset_job("associate", selection=dg.AssetSelection.assets(*assets))
    definitions = dg.Definitions(
        assets=[associations, decay_scores],
        asset_checks=checks,
        jobs=[job],
        resources={RESOURCE: ConsolidationResource()},
        executor=dg.in_process_executor,
    )
    instance.add_dynamic_partitions(PROJECTS, [slug])
    return definitions.resolve_job_def("associate").execute_in_process(
        partition_key=slug, instance=instance, raise_on_error=False
    )


def metadata(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, object]:
    (event,) = [e for e in result.get_asset_materialization_events() if e.asset_key == asset_key(asset)]
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_associations_asset_reports_and_passes_checks(
    engine: Engine, sample: Sample, instance: dg.DagsterInstance
) -> None:
    sample("alpha", 60)
    result = materialize(instance, "alpha", associations)
    assert result.success
    values = metadata(result, "associations")
    counted = {"memories_in", "relations_found", "relations_added", "embeddings_failed", "dagster/partition_row_count"}
    assert counted | COUNTS == set(values)
    assert values["memories_in"] == 20
    assert values["relations_added"] == values["relations_found"] == sum(int(str(values[name])) for name in COUNTS) > 0
    checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    assert checks == {"relations_have_two_ends": True, "candidates_do_not_count": True}
    assert metadata(materialize(instance, "alpha", associations), "associations")["relations_added"] == 0
    with engine.connect() as connection:
        query = "SELECT status, phases_completed, metrics FROM consolidation.consolidation_jobs ORDER BY created_at"
        jobs = connection.execute(text(query)).all()
    assert [(job.status, job.phases_completed) for job in jobs] == [("completed", ["associations"])] * 2
    assert jobs[0].metrics["associations"]["relations_added"] == values["relations_added"]


def test_associations_run_before_decay_scores(sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 30)
    result = materialize(instance, "alpha", associations, decay_scores)
    assert result.success
    order = [event.asset_key.path[-1] for event in result.get_asset_materialization_events() if event.asset_key]
    assert order == ["associations", "decay_scores"]
    histogram = metadata(result, "decay_scores")["relevance_histogram"]
    assert isinstance(histogram, dg.TableMetadataValue)
    assert histogram.records[0].data["relevance"] == "0 to 0.01"
    total = sum(record.data["memories"] for record in histogram.records)
    assert total == metadata(result, "decay_scores")["memories_in"] == 30


@pytest.mark.slow
def test_associations_asset_skips_without_model(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 10)
    with engine.begin() as connection:
        options = {"embedding_model": "no-such-provider/model"}
        configure_project(connection, "alpha", config=options, consolidation_enabled=True)
    result = materialize(instance, "alpha", associations)
    assert result.success
    values = metadata(result, "associations")
    assert "no-such-provider/model cannot be loaded or reached" in str(values["skipped"])
    assert (values["memories_in"], values["relations_added"], values["embeddings_failed"]) == (0, 0, 10)
