"""Asset `shadows`: runs of other options on copies of projects, a partition for each, PROJECT@NAME; promotion."""

from typing import Any

import dagster as dg
from pydantic import Field

from consolidation_pipeline.defs.asset_metadata import describe_code
from consolidation_pipeline.defs.maintenance import fail_without_traceback
from consolidation_pipeline.defs.names import PREFIX, prefixed
from consolidation_pipeline.defs.resources import TRIGGERED_BY_TAG, ConsolidationResource
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.shadow.promotion import promote
from consolidation_pipeline.service.shadow.report import ShadowReport
from consolidation_pipeline.service.shadow.shadows import DEFAULT_NAME, run_shadow

shadow_partitions = dg.DynamicPartitionsDefinition(name=prefixed("shadows"))

_TAG = "consolidation/shadow"


class ShadowConfig(dg.Config):
    """Policy of a shadow."""

    options: dict[str, Any] = Field(description="Options that differ from the project's, such as t_merge.")


def _materialize(
    context: dg.AssetExecutionContext, config: ShadowConfig, consolidation: ConsolidationResource
) -> dg.MaterializeResult[None]:
    """Run a project with other options on a copy of it. No live row changes; `consolidation shadow` has the texts."""
    slug, at, name = context.partition_key.partition("@")
    with fail_without_traceback():
        if not at or not consolidation.selects(slug):
            raise UsageError(f"{context.partition_key!r} is no shadow: name the partition PROJECT@NAME")
        report = run_shadow(
            consolidation.engine,
            slug,
            config.options,
            name=name,
            settings=consolidation.settings,
            triggered_by=context.run.tags.get(TRIGGERED_BY_TAG, "dagster"),
        )
    return dg.MaterializeResult(metadata=_describe(report))


# No texts: the records of Dagster would keep them after a memory was erased.
def _describe(report: ShadowReport) -> dict[str, Any]:
    difference, pairs, retrieval = report.difference, report.labelled_pairs, report.retrieval
    tests = report.memory_tests
    return {
        "options": report.options,
        "memories": report.memories,
        "merges_same": difference.merges_same,
        "merges_only_here": len(difference.merges_only_here),
        "merges_only_there": len(difference.merges_only_there),
        "merges_reworded": len(difference.merges_reworded),
        "knowledge_only_here": len(difference.knowledge_only_here),
        "knowledge_only_there": len(difference.knowledge_only_there),
        "tests": tests.tests,
        "tests_passed_before": tests.passed_before,
        "tests_passed_after": tests.passed_after,
        "refused_by_tests": sum(tests.refused_there.values()),
        "wrong_merges_here": pairs.wrong_merges_here,
        "wrong_merges_there": pairs.wrong_merges_there,
        "missed_here": pairs.missed_here,
        "missed_there": pairs.missed_there,
        "found_before": retrieval.found_before,
        "found_after": retrieval.found_after,
        "cost_usd": report.cost.usd,
        "changes": report.changes,
        "next_step": report.next_step[1],
    }


shadows = dg.asset(
    key_prefix=PREFIX,
    name="shadows",
    description="A run of other options on a copy of a project, PROJECT@NAME, and how it differs.",
    partitions_def=shadow_partitions,
    group_name=prefixed("shadows"),
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_code(run_shadow),
    tags={_TAG: "report"},
)(_materialize)

shadow = dg.define_asset_job(
    prefixed("shadow"),
    selection=dg.AssetSelection.tag(_TAG, "report"),
    description="Run other options on a copy of a project. For one partition PROJECT@NAME. Config: options.",
)


class PromotionConfig(dg.Config):
    """Shadow to promote."""

    project: str = Field(description="Project of the shadow.")
    name: str = Field(default=DEFAULT_NAME, description="Name of the shadow.")
    confirm: bool = Field(default=False, description="False: only try it, and change nothing.")


@dg.op(name=prefixed("promote_changes"))
def promote_changes(
    context: dg.OpExecutionContext, config: PromotionConfig, consolidation: ConsolidationResource
) -> None:
    """Make the changes and options of a shadow the project's, or none of them."""
    with fail_without_traceback():
        if not consolidation.selects(config.project):
            raise UsageError(f"this code location does not consolidate the project {config.project!r}")
        done = promote(
            consolidation.engine,
            config.project,
            config.name,
            settings=consolidation.settings,
            promoted_by=context.run.tags.get(TRIGGERED_BY_TAG, "dagster"),
            confirmed=config.confirm,
        )
    context.add_output_metadata({**vars(done), "job_id": str(done.job_id)})


@dg.job(
    name=prefixed("promote_shadow"),
    description="Make live exactly what the report of a shadow shows, in one job. Config: project, name, confirm.",
)
def promote_shadow() -> None:
    promote_changes()
