"""Systems that do one thing well or badly, and a small dataset with known facts."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Sequence

from benchmarks.consolidation_bench.dataset import (
    Dataset,
    Duplicate,
    Fact,
    Memory,
    NearMiss,
    Question,
    Replacement,
    match_values,
)
from benchmarks.consolidation_bench.systems.system import ActiveMemory, System

TEXTS = {
    "port": "Kestrel listens on port 41.",
    "port again": "Port 41 is the one of Kestrel.",
    "other port": "Kestrel listens on port 42.",
    "old home": "The backups of Orion are in Lyon.",
    "new home": "The backups of Orion are in Porto and no longer in Lyon.",
    "metrics": "The metrics of Lumen go to Graz.",
    "more metrics": "The metrics of Lumen also go to Bern.",
}


def make_dataset() -> Dataset:
    """Return seven memories: two duplicates, their near-miss, a replaced and an added fact, each with its newer one."""
    values = {
        "port": ("Kestrel", "41"),
        "other port": ("Kestrel", "42"),
        "old home": ("Orion", "Lyon"),
        "new home": ("Orion", "Porto"),
        "metrics": ("Lumen", "Graz"),
        "more metrics": ("Lumen", "Bern"),
    }
    facts = {name: Fact(name, "ana", match_values(words)) for name, words in values.items()}
    return Dataset(
        "seven memories",
        [Memory(name, "ana", text, f"2026-01-0{day}T00:00Z") for day, (name, text) in enumerate(TEXTS.items(), 1)],
        facts,
        {name: frozenset([name.removesuffix(" again")]) for name in TEXTS},
        [NearMiss("number", "en", "port", "other port", both_hold=False)],
        [Duplicate("reworded", "en", "port", "port again")],
        [Replacement("en", "old home", "new home", True), Replacement("en", "metrics", "more metrics", False)],
        [Question("ana", "Which port does Kestrel listen on?", "port")],
    )


class Grouping(System):
    """System that keeps the first memory of each group. A subclass writes ``key``."""

    def load(self, memories: Sequence[Memory]) -> None:
        self.memories = list(memories)
        self.is_consolidated = False

    def consolidate(self) -> None:
        self.is_consolidated = True

    def active(self) -> list[ActiveMemory]:
        groups: dict[Hashable, list[Memory]] = defaultdict(list)
        for memory in self.memories:
            groups[self.key(memory) if self.is_consolidated else memory.id].append(memory)
        return [
            ActiveMemory(group[0].user, group[0].text, tuple(memory.id for memory in group))
            for group in groups.values()
        ]

    def key(self, memory: Memory) -> Hashable:
        raise NotImplementedError


class Perfect(Grouping):
    """System that knows the truth and can undo."""

    def key(self, memory: Memory) -> Hashable:
        return self.truth.tells[memory.id]

    def superseded(self) -> dict[str, str]:
        return self.truth.replaced

    def undo(self) -> bool:
        self.is_consolidated = False
        return True


class OneForAll(Grouping):
    """System that makes one memory of all."""

    def key(self, memory: Memory) -> Hashable:
        return memory.user


class Idle(Grouping):
    """System that does nothing."""

    def key(self, memory: Memory) -> Hashable:
        return memory.id


class Growing(Grouping):
    """System that changes a text in each run, and marks an older memory as the one that replaces a newer one."""

    runs = 0

    def key(self, memory: Memory) -> Hashable:
        return memory.id

    def consolidate(self) -> None:
        self.runs += 1

    def active(self) -> list[ActiveMemory]:
        first, *rest = super().active()
        return [first._replace(text=f"{first.text} Run {self.runs}."), *rest]

    def superseded(self) -> dict[str, str]:
        return {"new home": "old home"}


class Hanging(Idle):
    """System that never comes to an end."""

    def consolidate(self) -> None:
        time.sleep(600)


class Failing(Idle):
    """System that fails."""

    def consolidate(self) -> None:
        raise RuntimeError("no licence")


class Missing(Idle):
    """System whose package is not installed."""

    def load(self, memories: Sequence[Memory]) -> None:
        import a_package_that_nobody_has  # type: ignore[import-not-found]

        a_package_that_nobody_has.load(memories)
