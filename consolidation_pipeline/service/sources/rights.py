"""Modes that fit a store and the rights of this user there."""

from __future__ import annotations

from consolidation_pipeline.connect.store import MIRROR_ONLY, Recognition
from consolidation_pipeline.errors import StoreError, UsageError
from consolidation_pipeline.service.sources.stores import open_store
from consolidation_pipeline.store.sources.sources import Source


def check_rights(found: Recognition, mode: str) -> None:
    """Raise UsageError if the mode writes, and the store is no table or the user may not write there."""
    if mode == "mirror":
        return
    if not found.is_table:
        what = f"mode {mode} needs a table, and {found.table} is none"
        raise UsageError(f"{what}: connect what it reads, or keep to mode mirror")
    if not (found.rights.write and found.rights.create_schema):
        lacking = [warning for warning in found.warnings if warning.endswith(MIRROR_ONLY)]
        raise UsageError(f"mode {mode} needs more rights: {'; '.join(lacking)}")


def explain_mirror(source: Source) -> str:
    """Return what keeps a store of mode mirror from being written to, as a sentence."""
    try:
        with open_store(source.config) as store:
            check_rights(store.probe(), "review")
    except UsageError as error:
        return f"in mode mirror nothing is written, and {error}"
    except StoreError:
        pass  # It is not known if another mode fits.
    return f"in mode mirror nothing is written; to write: consolidation source mode {source.name} review"
