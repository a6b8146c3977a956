"""Stores of other programs that a component declares: an observable asset for each, and checks of what was written."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from consolidation_pipeline.defs.names import PREFIX, prefixed
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.errors import ConsolidationError
from consolidation_pipeline.service.sources.connections import ensure_connected
from consolidation_pipeline.service.sources.source_checks import check_store, observe_store

# Check that fails while a store cannot be connected.
CONNECTED = "store_is_connected"
_CHECKS = {
    CONNECTED: "The store is connected, as it is declared.",
    "hidden_rows_have_images": "Every row that is hidden in the store has an image there, from which it comes back.",
    "successors_are_found": "The row that stands for hidden ones is there, and the store's own search finds it.",
    "no_group_of_two_scopes": "No group that was written has rows of several scopes.",
}


def source_key(name: str) -> dg.AssetKey:
    """Return the key of the asset of a store."""
    return dg.AssetKey([PREFIX, "stores", name])


def build_source_definitions(declared: Mapping[str, Any], *, group_name: str | None) -> dg.Definitions:
    """Return the observable asset of a store, and its checks.

    Args:
        declared: Arguments of ``ensure_connected``.
        group_name: Group of the asset; None = that of the raw memories.
    """
    name, key = declared["name"], source_key(declared["name"])
    specs = [dg.AssetCheckSpec(check, asset=key, description=text, blocking=True) for check, text in _CHECKS.items()]

    @dg.observable_source_asset(
        key=key,
        group_name=group_name or prefixed("memories"),
        description=f"Memories of {declared['config']['kind']}, connected with project {declared['project']}.",
        metadata={"mode": declared["mode"]},
    )
    def source(consolidation: ConsolidationResource) -> dg.ObserveResult:
        ensure_connected(consolidation.engine, **declared)
        found = observe_store(consolidation.engine, name)
        return dg.ObserveResult(
            data_version=dg.DataVersion(found.version),
            metadata={
                "dagster/row_count": found.rows,
                "hidden": found.hidden,
                "project": found.project,
                "mode": found.mode,
            },
        )

    @dg.multi_asset_check(name=f"{key.to_python_identifier()}_checks", specs=specs, can_subset=True)
    def checks(
        context: dg.AssetCheckExecutionContext, consolidation: ConsolidationResource
    ) -> Iterator[dg.AssetCheckResult]:
        selected = {check.name for check in context.selected_asset_check_keys}
        try:
            ensure_connected(consolidation.engine, **declared)
        except ConsolidationError as error:
            if CONNECTED in selected:
                yield _build_result(key, CONNECTED, [str(error)])
            raise
        found = {CONNECTED: [], **check_store(consolidation.engine, name)}
        for check in selected:
            yield _build_result(key, check, found[check])

    return dg.Definitions(assets=[source], asset_checks=[checks])


def _build_result(key: dg.AssetKey, check: str, wrong: Sequence[str]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=check,
        passed=not wrong,
        metadata={"found": len(wrong), "first": dg.MetadataValue.json(list(wrong[:10]))},
    )
