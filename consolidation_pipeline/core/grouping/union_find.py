"""Union of groups that have a member in common."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def unite(groups: Iterable[Sequence[T]]) -> dict[T, T]:
    """Return the representative of each member; groups with a member in common are one. A group of one has none."""
    parent: dict[T, T] = {}

    def find(member: T) -> T:
        while parent.setdefault(member, member) != member:
            member = parent[member]
        return member

    for group in groups:
        for member in group[1:]:
            parent[find(member)] = find(group[0])
    return {member: find(member) for member in list(parent)}
