"""Measures of a system's result, each by the known facts of a dataset."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from benchmarks.consolidation_bench.dataset import Dataset, Question, squeeze
from benchmarks.consolidation_bench.systems.system import ActiveMemory


class Share(NamedTuple):
    """A count out of a number."""

    count: int
    of: int


@dataclass(frozen=True)
class State:
    """State of a system at one time. ``superseded``: memories that hold no longer, with the one that says so."""

    dataset: Dataset
    active: Sequence[ActiveMemory]
    superseded: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def told(self) -> frozenset[str]:
        """Facts that some active memory of their user tells."""
        texts: dict[str, list[str]] = defaultdict(list)
        for user, text, _ in self.active:
            texts[user].append(text)
        # Nearly every fact is told by a text that a source says, so those are read first.
        likely = {
            fact
            for user, text, sources in self.active
            for source in sources
            for fact in self.dataset.tells[source]
            if self.dataset.facts[fact].user == user and self.dataset.facts[fact].is_told_by(text)
        }
        others = (fact for id_, fact in self.dataset.facts.items() if id_ not in likely)
        return frozenset(likely) | {f.id for f in others if any(f.is_told_by(text) for text in texts[f.user])}

    @cached_property
    def groups(self) -> Mapping[str, frozenset[int]]:
        """Positions of the active memories that stand for each memory; without those that are gone."""
        found: dict[str, set[int]] = defaultdict(set)
        for at, memory in enumerate(self.active):
            for source in memory.sources:
                found[source].add(at)
        return {id_: frozenset(places) for id_, places in found.items()}

    @cached_property
    def texts(self) -> Counter[tuple[str, str]]:
        """Active texts with their users."""
        return Counter((user, squeeze(text)) for user, text, _ in self.active)

    def is_wrongly_merged(self, first: str, second: str) -> bool:
        """Return True if memories of two facts became one, or if one of the facts is told no more.

        Only memories that tell one of the facts and not the other count.
        """
        places = [self._places(fact, other) for fact, other in ((first, second), (second, first))]
        return bool(places[0] & places[1]) or not {first, second} <= self.told

    def _places(self, fact: str, other: str) -> set[int]:
        tells = self.dataset.tells
        return {
            place
            for memory in self._memories_of[fact]
            if other not in tells[memory]
            for place in self.groups.get(memory, ())
        }

    @cached_property
    def _memories_of(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for memory, facts in self.dataset.tells.items():
            for fact in facts:
                found[fact].append(memory)
        return found

    def is_missed(self, first: str, second: str) -> bool:
        """Return True if two memories that say the same are both active and never in one."""
        places = self.groups.get(first), self.groups.get(second)
        return all(places) and not (places[0] or frozenset()) & (places[1] or frozenset())


def count_wrong_merges(state: State) -> dict[str, Share]:
    """Return the near-misses that were wrongly merged: all, of each class, and of each language."""
    return _count_by(
        ((pair.difference, pair.language), state.is_wrongly_merged(pair.first, pair.second))
        for pair in state.dataset.near_misses
    )


def count_missed_duplicates(state: State) -> dict[str, Share]:
    """Return the duplicates that were missed: all, of each kind, and of each language."""
    return _count_by(
        ((pair.kind, pair.language), state.is_missed(pair.first, pair.second)) for pair in state.dataset.duplicates
    )


def count_mixed_memories(state: State) -> Share:
    """Return how many active memories stand for memories of which neither tells all facts of the other."""
    mixed = 0
    for memory in state.active:
        facts = sorted({state.dataset.tells[source] for source in memory.sources}, key=len)
        mixed += any(not small <= large for small, large in itertools.pairwise(facts))
    return Share(mixed, len(state.active))


def count_lost_facts(state: State) -> Share:
    """Return the facts that no active memory of their user tells any more, without those that were replaced."""
    current = state.dataset.current_facts
    return Share(sum(fact.id not in state.told for fact in current), len(current))


def count_superseded(state: State) -> Share:
    """Return the replaced memories that are marked by their newer one, or gone, while the newer one is active."""
    right = [
        older
        for older, newer in state.dataset.replaced.items()
        if newer in state.groups and (older not in state.groups or state.superseded.get(older) == newer)
    ]
    return Share(len(right), len(state.dataset.replaced))


def count_wrongly_superseded(state: State) -> Share:
    """Return how many facts were wrongly taken as replaced, out of the pairs of an older and a newer memory.

    Counted are memories that are marked though their fact holds, and newer or added facts that nothing tells any more.
    A mark is not judged if both facts cannot be true at a time and the marking memory is the newer one.
    """
    data, told = state.dataset, state.told
    wrong = {older for older, newer in state.superseded.items() if not _may_supersede(data, older, newer)}
    for pair in data.replacements:
        holding = (pair.newer,) if pair.is_replaced else (pair.older, pair.newer)
        wrong |= {memory for memory in holding if not data.tells[memory] <= told}
    return Share(len(wrong), len(data.replacements))


def _may_supersede(data: Dataset, older: str, newer: str) -> bool:
    if data.replaced.get(older) == newer:
        return True
    is_newer = data.created[older] < data.created[newer]
    return is_newer and data.tells[older] ^ data.tells[newer] in data.exclusive


def count_order_dependence(state: State, other: State) -> Share:
    """Return the near-misses and duplicates on which two states differ that come from two orders of loading."""
    data = state.dataset
    differs = [
        state.is_wrongly_merged(pair.first, pair.second) != other.is_wrongly_merged(pair.first, pair.second)
        for pair in data.near_misses
    ]
    differs += [state.is_missed(p.first, p.second) != other.is_missed(p.first, p.second) for p in data.duplicates]
    return Share(sum(differs), len(differs))


def count_changed_texts(before: State, after: State) -> Share:
    """Return how many active texts are in one of two states alone, out of those of the first."""
    changed = (before.texts - after.texts) + (after.texts - before.texts)
    return Share(changed.total(), before.texts.total())


def count_restored(state: State) -> Share:
    """Return how many memories are active with their own text."""
    own = Counter((memory.user, squeeze(memory.text)) for memory in state.dataset.memories)
    return Share((own & state.texts).total(), own.total())


def count_answered(dataset: Dataset, questions: Sequence[Question], found: Sequence[Sequence[str]]) -> Share:
    """Return the questions that one of the texts found for them answers."""
    answered = (
        any(dataset.facts[question.fact].is_told_by(text) for text in texts)
        for question, texts in zip(questions, found, strict=True)
    )
    return Share(sum(answered), len(questions))


def _count_by(judged: Iterable[tuple[tuple[str, str], bool]]) -> dict[str, Share]:
    counts: dict[str, list[bool]] = defaultdict(list)
    for (kind, language), is_bad in judged:
        for key in ("all", kind, language):
            counts[key].append(is_bad)
    return {key: Share(sum(bad), len(bad)) for key, bad in counts.items()}
