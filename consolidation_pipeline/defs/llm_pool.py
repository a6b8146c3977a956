"""Concurrency pool ``consolidation_llm``: limits how many phases use paid models at once, over all runs and workers.

The limit is set in the Dagster UI, or by ``dagster instance concurrency set consolidation_llm 2``. There is none by
default.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from consolidation_pipeline.defs.names import prefixed

LLM_POOL = prefixed("llm")
SLOT_TAKEN = f"takes a slot of the pool {LLM_POOL}"
SLOT_FREED = f"frees its slot of the pool {LLM_POOL}"
_POLL_SECONDS = 1.0


# `pool=` on the assets would limit every project, also those that use no paid model.
@contextmanager
def hold_pool_slot(instance: dg.DagsterInstance, run: dg.DagsterRun, phase: str) -> Iterator[None]:
    """Wait for a slot, if there is a limit, and hold it. Run monitoring frees the slot of a killed run."""
    storage = instance.event_log_storage
    if not _is_limited(instance):
        yield
        return
    from dagster._core.storage.event_log import SqlEventLogStorage  # Slow to import, and few set a limit.

    try:
        # If the limit is removed meanwhile, the phase goes on.
        while _is_limited(instance) and not storage.claim_concurrency_slot(LLM_POOL, run.run_id, phase).is_claimed:
            # Dagster assigns a freed slot to a step that waits already; one that was just being added would miss it.
            if isinstance(storage, SqlEventLogStorage) and storage.has_unassigned_slots(LLM_POOL):
                storage.assign_pending_steps([LLM_POOL])
            time.sleep(_POLL_SECONDS)
        instance.report_engine_event(f"{phase} {SLOT_TAKEN}", run)
        yield
        instance.report_engine_event(f"{phase} {SLOT_FREED}", run)
    finally:
        storage.free_concurrency_slot_for_step(run.run_id, phase)


def _is_limited(instance: dg.DagsterInstance) -> bool:
    storage = instance.event_log_storage
    if any(pool.name == LLM_POOL for pool in storage.get_pool_limits()):
        return True
    has_default = instance.global_op_concurrency_default_limit is not None
    return has_default and storage.initialize_concurrency_limit_to_default(LLM_POOL)
