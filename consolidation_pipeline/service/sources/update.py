"""Update of all connected stores: sync, then write where the mode says so.

Those that keep failing are tried less, and those that wait for a person not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from consolidation_pipeline.errors import ConflictError, ConsolidationError, UnrecordedWritesError
from consolidation_pipeline.service.sources.connections import list_connected
from consolidation_pipeline.service.sources.sync import SyncResult, sync_source
from consolidation_pipeline.service.sources.write_back import WriteResult, write_source
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.sources.sources import Source, save_failure

# Time after a first failure until a store is tried again, doubled with each further one; and the longest.
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=5), timedelta(hours=1)


@dataclass(frozen=True)
class Failing:
    """Updates of a store that failed one after the other, the last with ``error``.

    ``next_try_at``: None = it is left alone until a person syncs it.
    """

    failures: int
    next_try_at: datetime | None
    error: str

    def describe(self) -> str:
        """Return a sentence on it, without the name of the store."""
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        if self.next_try_at is None:
            return f"{self.error}; failed {times}, left alone until a `source sync` succeeds"
        return f"{self.error}; failed {times}, tried again at {self.next_try_at:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True)
class SourceUpdate:
    """Result for one source.

    ``write``: None if its mode is not write. ``error``: why it was not finished. ``waits``: why it was left alone.
    """

    name: str
    project: str
    sync: SyncResult | None = None
    write: WriteResult | None = None
    error: str | None = None
    waits: str | None = None


def find_failing(source: Source) -> Failing | None:
    """Return the failures of a store since its last sync that ended; None without any."""
    found = source.last_sync.get("failing")
    if found is None:
        return None
    next_try_at = found["next_try_at"]
    return Failing(found["failures"], next_try_at and datetime.fromisoformat(next_try_at), found["error"])


def find_wait(source: Source) -> Failing | None:
    """Return the failures of a store that is not to be tried yet; None if it may be."""
    failing = find_failing(source)
    if failing is None or failing.next_try_at is None:
        return failing
    return failing if failing.next_try_at > datetime.now(UTC) else None


def update_sources(
    engine: Engine, selects: Callable[[str], bool] = lambda _: True, *, everything: bool = True
) -> list[SourceUpdate]:
    """Sync the connected stores of the projects that ``selects`` names, one after the other.

    A store that cannot be reached, or a project that a run holds, does not keep the others from being updated.

    Args:
        everything: Also try stores that failed a moment ago; else they wait, up to ``LONGEST_WAIT``.
    """
    return [
        _update(engine, source, find_wait(source) if not everything else None)
        for source in list_connected(engine)
        if selects(source.project)
    ]


def _update(engine: Engine, source: Source, wait: Failing | None) -> SourceUpdate:
    if wait is not None:
        return SourceUpdate(source.name, source.project, waits=wait.describe())
    sync = None
    try:
        sync = sync_source(engine, source.name)
        write = write_source(engine, source.name) if source.mode == "write" else None
    except UnrecordedWritesError as error:  # the next try would find the same
        failing = _record_failure(engine, source, error, is_final=True)
        return SourceUpdate(source.name, source.project, sync, error=failing.describe())
    except ConflictError as error:  # another sync or run is at work: over soon
        return SourceUpdate(source.name, source.project, sync, error=str(error))
    except ConsolidationError as error:
        return SourceUpdate(source.name, source.project, sync, error=_record_failure(engine, source, error).describe())
    return SourceUpdate(source.name, source.project, sync, write)


def _record_failure(engine: Engine, source: Source, error: ConsolidationError, *, is_final: bool = False) -> Failing:
    before = find_failing(source)
    failures = 1 + (before.failures if before is not None else 0)
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(failures - 1, 10))
    next_try_at = None if is_final else datetime.now(UTC) + wait
    failing = Failing(failures, next_try_at, " ".join(str(error).split()))
    with engine.begin() as connection:
        save_failure(connection, source.id, asdict(failing) | {"next_try_at": next_try_at and next_try_at.isoformat()})
    return failing
