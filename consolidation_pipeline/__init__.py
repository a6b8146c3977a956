"""Consolidation of agents' memories in Postgres, as Dagster assets."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consolidation_pipeline.component import ConsolidationComponent as ConsolidationComponent

_COMPONENT = "ConsolidationComponent"


def __getattr__(name: str) -> Any:
    """Import the component when it is asked for: it takes seconds, and few processes need it."""
    if name != _COMPONENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from consolidation_pipeline.component import ConsolidationComponent

    return ConsolidationComponent


def __dir__() -> list[str]:
    return [*globals(), _COMPONENT]
