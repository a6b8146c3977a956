"""Asset checks: built from functions that list violations, one step per asset and project."""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.service.memory_tests.evaluation import find_newly_failing
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.store.admin.asset_rows import find_model_failure
from consolidation_pipeline.store.checks.check import Check, find_violations, list_jobs_to_check
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.projects import Project, get_project, list_projects

_MAX_SHOWN = 10


def check_model(asset: dg.AssetsDefinition) -> Check:
    """Return the check that the language model gave a text for every group of a phase."""
    return Check(
        "model_wrote_every_text",
        partial(find_model_failure, phase=asset.key.path[-1]),
        "The language model gave a usable text for every group; groups without one have the text that needs no model.",
        blocking=False,
    )


def check_memory_tests() -> Check:
    """Return the check that no memory test fails that passed before the run."""
    return Check(
        "memory_tests_hold",
        find_newly_failing,
        "Every memory test that passed before the run still passes.",
    )


def project_checks(asset: dg.AssetsDefinition | dg.AssetSpec, *checks: Check) -> dg.AssetChecksDefinition:
    """Return the checks of an asset. They share one step, since Dagster's cost is per step; each has its own result."""
    specs = _build_specs(asset, checks)
    outputs = {spec.name: spec.get_python_identifier() for spec in specs}

    @dg.multi_asset_check(name=f"{asset.key.to_python_identifier()}_checks", specs=specs, can_subset=True)
    def evaluate(
        context: dg.AssetCheckExecutionContext, consolidation: ConsolidationResource
    ) -> Iterator[dg.AssetCheckResult | dg.AssetCheckEvaluation | dg.Output[None]]:
        selected = {key.name: key.asset_key for key in context.selected_asset_check_keys}
        with autocommit_connection(consolidation.engine) as connection:
            if context.has_partition_key:
                project = get_project(connection, context.partition_key)
                jobs = list_jobs_to_check(connection, project.id, context.run.run_id, PHASES)
                passed = None if jobs is None else consolidation.find_passed_job(project.slug)
                for check in (check for check in checks if check.name in selected):
                    if check.blocking and passed is not None:
                        yield _build_skipped_result(selected[check.name], check, passed)
                        continue
                    violations = find_violations(check, connection, project.id, jobs)
                    yield _build_result(selected[check.name], check, violations)
                return
            # "Execute all" in the UI starts a run without a partition.
            known = [project for project in list_projects(connection) if consolidation.selects(project.slug)]
            for check in (check for check in checks if check.name in selected):
                yield from _evaluate_projects(connection, selected[check.name], check, known)
                yield dg.Output(None, outputs[check.name])

    return evaluate


def _build_specs(asset: dg.AssetsDefinition | dg.AssetSpec, checks: Sequence[Check]) -> list[dg.AssetCheckSpec]:
    with warnings.catch_warnings():
        # Partitioned checks are a preview feature. Unpartitioned ones would show only the project checked last.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(
                check.name,
                asset=asset.key,
                description=check.description,
                blocking=check.blocking,
                partitions_def=projects,
            )
            for check in checks
        ]


def _build_result(key: dg.AssetKey, check: Check, violations: Sequence[str]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=check.name,
        passed=not violations,
        severity=_severity(check),
        metadata=_describe(violations),
    )


def _build_skipped_result(key: dg.AssetKey, check: Check, passed: UUID) -> dg.AssetCheckResult:
    """Return the result of a check that passed in the complete job ``passed``, since which nothing has changed."""
    result = _build_result(key, check, ())
    skipped = dg.MetadataValue.text(f"nothing has changed since job {passed}")
    return result._replace(metadata={**result.metadata, "skipped": skipped})


def _evaluate_projects(
    connection: Connection, key: dg.AssetKey, check: Check, known: Sequence[Project]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the evaluation of a check for each project, then one of the check as a whole, which Dagster waits for."""
    failed = []
    for project in known:
        evaluation = evaluate_check(connection, key, check, project)
        failed += [] if evaluation.passed else [project.slug]
        yield evaluation
    whole = {"projects": dg.MetadataValue.int(len(known)), "failed": dg.MetadataValue.json(failed[:_MAX_SHOWN])}
    yield _build_evaluation(key, check, passed=not failed, metadata=whole)


def evaluate_check(connection: Connection, key: dg.AssetKey, check: Check, project: Project) -> dg.AssetCheckEvaluation:
    """Evaluate a check of the asset ``key`` for a project, outside of a run of that partition."""
    violations = find_violations(check, connection, project.id)
    return _build_evaluation(key, check, passed=not violations, metadata=_describe(violations), partition=project.slug)


def _build_evaluation(key: dg.AssetKey, check: Check, **values: Any) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=key, check_name=check.name, severity=_severity(check), blocking=check.blocking, **values
    )


def _describe(violations: Sequence[str]) -> dict[str, dg.MetadataValue[Any]]:
    shown = dg.MetadataValue.json(list(violations[:_MAX_SHOWN]))
    return {"found": dg.MetadataValue.int(len(violations)), "first": shown}


def _severity(check: Check) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN
