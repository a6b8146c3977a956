"""The numbers of patterns and principles, under their stable names."""

from typing import Any

from consolidation_pipeline.defs.failure_metadata import describe_troubles
from consolidation_pipeline.service.knowledge.derive import DeriveResult


def describe_formed(name: str, done: DeriveResult) -> dict[str, Any]:
    """Metadata of the asset ``name``; why a group failed, or the phase stopped, only where one did."""
    return {
        "groups_in": done.groups,
        f"{name}_created": done.created,
        f"{name}_updated": done.updated,
        f"{name}_superseded": done.superseded,
        f"{name}_needs_review": done.needs_review,
        "groups_covered": done.covered,
        "groups_skipped": done.changed,
        "groups_discarded": done.discarded,
        "groups_failed": len(done.failures),
        **describe_troubles(done.failures, done.stopped),
    }
