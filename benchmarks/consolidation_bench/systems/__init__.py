"""Systems that the benchmark knows, by name. Each is one class; see ``systems/system.py``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from benchmarks.consolidation_bench.systems.system import System

FOLDER = "benchmarks.consolidation_bench.systems"
SYSTEMS: Mapping[str, str] = {
    "consolidation": f"{FOLDER}.ours:Consolidation",
    "nothing": f"{FOLDER}.simple:Nothing",
    "exact": f"{FOLDER}.simple:ExactRepeats",
    "minhash": f"{FOLDER}.simple:MinHashRepeats",
    "greedy cosine": f"{FOLDER}.simple:GreedyCosine",
    "semhash": f"{FOLDER}.simple:SemHashRepeats",
    "mem0, words": f"{FOLDER}.mem0_memory:Mem0Words",
    "mem0, oracle": f"{FOLDER}.mem0_memory:Mem0Oracle",
    "langmem, words": f"{FOLDER}.langmem_memory:LangMemWords",
    "langmem, oracle": f"{FOLDER}.langmem_memory:LangMemOracle",
}


def load_system(name: str) -> type[System]:
    """Return the class of a system.

    Args:
        name: A key of ``SYSTEMS``, or ``module:Class`` of one's own.

    Raises:
        SystemExit: It is neither.
        ModuleNotFoundError: A package that the system needs is not installed.
    """
    module, colon, class_name = SYSTEMS.get(name, name).partition(":")
    if not colon:
        raise SystemExit(f"no system {name!r}: give module:Class or one of {', '.join(SYSTEMS)}")
    system: type[System] = getattr(import_module(module), class_name)
    return system
