"""The pool ``llm``: how many phases ask paid models at once, over all runs, workers and projects.

An operator sets its limit in the Dagster UI, or by ``dagster instance concurrency set llm 2``; it has none until then.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

LLM_POOL = "llm"
TAKEN = f"takes a place in the pool {LLM_POOL}"
FREED = f"gives back its place in the pool {LLM_POOL}"
_ASK_SECONDS = 1.0


# `pool=` on the assets would do the same for every project; those without a model would wait for those with one.
@contextmanager
def place_in_pool(instance: dg.DagsterInstance, run: dg.DagsterRun, phase: str) -> Iterator[None]:
    """Wait for a place, where there is a limit, and hold it. Run monitoring frees the place of a killed run."""
    storage = instance.event_log_storage
    if not _is_limited(instance):
        yield
        return
    try:
        # A limit that is lifted meanwhile lets everybody go on.
        while _is_limited(instance) and not storage.claim_concurrency_slot(LLM_POOL, run.run_id, phase).is_claimed:
            time.sleep(_ASK_SECONDS)
        instance.report_engine_event(f"{phase} {TAKEN}", run)
        yield
        instance.report_engine_event(f"{phase} {FREED}", run)
    finally:
        storage.free_concurrency_slot_for_step(run.run_id, phase)


def _is_limited(instance: dg.DagsterInstance) -> bool:
    storage = instance.event_log_storage
    if any(pool.name == LLM_POOL for pool in storage.get_pool_limits()):
        return True
    by_default = instance.global_op_concurrency_default_limit is not None
    return by_default and storage.initialize_concurrency_limit_to_default(LLM_POOL)
