"""Consolidation of agents' memories in Postgres, as Dagster assets."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consolidation_pipeline.component import ConsolidationComponent as ConsolidationComponent
    from consolidation_pipeline.component import MemorySourceComponent as MemorySourceComponent

_COMPONENTS = ("ConsolidationComponent", "MemorySourceComponent")


def __getattr__(name: str) -> Any:
    """Import the components when they are asked for: it takes seconds, and few processes need them."""
    if name not in _COMPONENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from consolidation_pipeline import component

    return getattr(component, name)


def __dir__() -> list[str]:
    return [*globals(), *_COMPONENTS]
