"""Interface of a connected store, and what goes in and out of it.

A database and a folder of notes fulfil it, so that sync, write-back, undo and erasure are the same for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from consolidation_pipeline.errors import ConflictError

# End of the warnings about rights without which a store is only read.
MIRROR_ONLY = "only mode mirror works"


@dataclass(frozen=True)
class SourceRow:
    """A memory as its store has it.

    ``key``: the value of the key column, or a JSON array of several; of a folder, the path. ``stamp``: SHA-256 of what
    matters of it. ``vector``: as Postgres text, None if it was not asked for. ``fields``: further fields of the memory.
    ``problem``: why it cannot be read.
    """

    key: str
    stamp: str
    text: str
    scope: dict[str, str]
    created: str | None
    updated: str | None
    metadata: dict[str, Any]
    vector: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def scope_key(scope: Mapping[str, str]) -> str:
    """Return a scope of a store as text, for comparison."""
    return repr(sorted(scope.items()))


@dataclass(frozen=True, kw_only=True)
class GroupWrite:
    """Order to write one group into its store.

    Args:
        write_id: Id of the write, in the sidecar and with us.
        group_id: Our id of the merged memory.
        stamps: Key -> stamp of all sources, as they were when the merge was decided.
        keep: Key of the source that says everything and stays; None = a new row is inserted.
        text: Text of the new row.
        vector: Its vector as Postgres text.
    """

    write_id: UUID
    group_id: str
    stamps: Mapping[str, str]
    keep: str | None = None
    text: str | None = None
    vector: str | None = None


@dataclass(frozen=True)
class Receipt:
    """Result of a write: the write's id, the key of the successor, whether it is new, and the keys of hidden rows."""

    write_id: UUID
    successor: str
    inserted: bool
    hidden: list[str]
    links: int


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes of which a store told since ``drop_changes``.

    ``keys``: rows that changed; None = all have to be compared, for ``reason`` if that is not the rule. ``numbers``: of
    the entries that told of them. ``pending``: keys of which the next reading tells. ``others``: number of memories
    with other keys; None = unknown. ``partitions``: of a table that has some.
    """

    keys: Sequence[str] | None = None
    reason: str | None = None
    numbers: Sequence[int] = ()
    pending: Sequence[str] = ()
    others: int | None = None
    partitions: Sequence[int] = ()


@dataclass(frozen=True)
class Conflict:
    """A row that somebody changed after it was written, so that its write cannot be undone as it was.

    ``table``: of a folder, its path. ``key``: empty = all rows of the table. ``hidden``: keys of the rows that stay
    hidden for it, where that is told. ``is_taken``: a new row has the key of the hidden one.
    """

    table: str
    key: str
    reason: str
    hidden: tuple[str, ...] = ()
    is_taken: bool = False

    @property
    def place(self) -> str:
        """Table and key in words."""
        return f"{self.table} {self.key}".rstrip()


@dataclass(frozen=True)
class Rights:
    """Rights of this user on the tables of a store. ``watch``: make the trigger that tells of changes."""

    read: bool
    write: bool
    create_schema: bool
    watch: bool


@dataclass(frozen=True)
class Recognition:
    """Findings in a store.

    Args:
        table: Name of the table, or path of the folder.
        server: What keeps it, for people.
        memories: Rows that are memories.
        skipped: Rows of the table that are none.
        scopes: Number of scopes.
        dimension: Length of the vectors; None = there are none.
        sidecar_name: What is made there in modes that write, in words.
        is_table: It can be written to; False = a view or a foreign table, which can only be read.
        warnings: Sentences for the person who connects.
    """

    kind: str
    table: str
    server: str
    memories: int
    skipped: int
    scopes: int
    dimension: int | None
    rights: Rights
    sidecar_name: str = "schema consolidation_sidecar and a trigger that tells of changes"
    is_table: bool = True
    warnings: list[str] = field(default_factory=list)


class StoreConfig(Protocol):
    """Configuration of a store, as far as it is known without opening it."""

    @property
    def kind(self) -> str:
        """Kind of the store."""

    @property
    def memory_type(self) -> str:
        """Type of its memories, where they name none."""

    @property
    def embedding_model(self) -> str | None:
        """Model of its vectors, if it is that of the project."""

    @property
    def place(self) -> str:
        """Name of the table, or path of the folder."""

    @property
    def address(self) -> str:
        """Option by which commands of people find the store without its source."""

    @property
    def scope_names(self) -> tuple[str, ...]:
        """Fields of a memory that separate the memories of the store."""

    @property
    def can_insert(self) -> bool:
        """True if new rows are written; False = a successor is always one of the sources."""

    @property
    def reuses_keys(self) -> bool:
        """True if a new row may have the key of one that is gone, as a file the name of another."""

    def overlaps(self, other: StoreConfig) -> bool:
        """Return True if both may write the same rows."""

    def may_hide(self, key: str) -> bool:
        """Return True if the row with this key can be hidden by itself."""

    def dump(self) -> dict[str, Any]:
        """Return what is stored of it."""


class MemoryStore(Protocol):
    """A store that is open. What is changed within ``transaction`` is changed at its end, or not at all."""

    @property
    def has_vectors(self) -> bool:
        """True if its rows may have vectors."""

    def probe(self) -> Recognition:
        """Examine the store without changing anything.

        Raises:
            UsageError: It cannot be connected.
        """

    def probe_sidecar(self) -> int | None:
        """Return the version of the sidecar; None if there is none."""

    def find_writer(self, name: str) -> str | None:
        """Return the name of another source than ``name`` that writes to it, as its sidecar says."""

    def prepare(self, name: str, config: StoreConfig) -> None:
        """Make the sidecar, with the configuration of a source, and a trigger that tells of changes if possible."""

    def release(self, name: str, *, forget: bool) -> None:
        """End what ``prepare`` began; with ``forget`` remove the sidecar too, if nothing is left to be undone."""

    def transaction(self, *, discard: bool = False) -> AbstractContextManager[Any]:
        """Return a context in which all is changed or nothing; with ``discard`` nothing, in any case."""

    def snapshot(self) -> AbstractContextManager[Any]:
        """Return a context in which all that is read is of one moment."""

    def explain_hidden(self) -> str | None:
        """Return why rows may be there that are not seen; None if all are."""

    def explain_keyless(self) -> str | None:
        """Return how many rows are no memories as they have no key, within ``snapshot``; None if none."""

    def read_changes(self, ignored: Sequence[str] = ()) -> Changes:
        """Return what changed, of one moment. Rows with ``ignored`` keys are not counted among the others."""

    def drop_changes(self, changes: Changes) -> None:
        """Forget changes that were read and stored."""

    def iter_stamps(self) -> Iterator[tuple[str, str]]:
        """Yield key and stamp of every memory, within ``snapshot``."""

    def iter_rows(self, keys: Sequence[str] | None = None, *, vectors: bool = False) -> Iterator[SourceRow]:
        """Yield the memories with ``keys``, or all, within ``snapshot`` or ``transaction``."""

    def find_shared_keys(self, keys: Sequence[str] | None = None) -> dict[str, int]:
        """Return those of ``keys``, or of all, that several memories have, with their number; within ``snapshot``."""

    def sample_rows(self, count: int) -> list[SourceRow]:
        """Return up to ``count`` memories that have a vector."""

    def lock(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the stamps of the memories with ``keys`` that exist, and keep others from changing them."""

    def count_scopes(self) -> Iterable[tuple[Mapping[str, str], int]]:
        """Return scope and number of memories of every scope."""

    def find_places(self, rows: Sequence[SourceRow], keys: set[str], limit: int) -> dict[str, int | None]:
        """Return for each row the place of the best of ``keys`` where the store's program looks for its text.

        None = not among the first ``limit``. Rows for which that cannot be told are left out.
        """

    def write_group(self, source: str, group: GroupWrite) -> Receipt:
        """Keep or add the successor, hide the other rows, keep their images.

        Raises:
            ConflictError: A source changed or is gone since the merge was decided.
            UsageError: The store cannot be given such a row.
        """

    def make_patch(self, groups: Sequence[GroupWrite]) -> bytes:
        """Return what the writes of these groups would change as a patch; those that would be refused are left out.

        Raises:
            UsageError: The store has no files.
        """

    def read_receipts(self, write_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Return what committed writes did, by id: successor, inserted, hidden, links, and ``undone``."""

    def find_undone(self, write_ids: Sequence[UUID]) -> list[UUID]:
        """Return those of committed writes that are undone."""

    def find_images(self, write_ids: Sequence[UUID]) -> set[str]:
        """Return the keys of the hidden rows of committed writes whose images are there."""

    def undo_write(self, write_id: UUID) -> list[Conflict]:
        """Put back what a write changed. Return what stands in the way; then nothing was changed."""

    def list_open(self, name: str) -> list[UUID]:
        """Return the writes that are not undone, of a source by this name or of earlier ones on the same rows."""

    def undo_open(self, name: str) -> dict[UUID, list[Conflict]]:
        """Undo the writes of ``list_open``, newest first; return what stands in the way of each that stays."""

    def set_apart(self, write_id: UUID, apart: UUID, keys: Sequence[str]) -> None:
        """Make a new write ``apart`` of the hidden rows ``keys`` of a write, in the transaction that is open.

        It has no successor, and is undone when these keys are free again.
        """

    def erase_rows(self, keys: Sequence[str]) -> int:
        """Remove rows for good, with their images and links to them; return the number of rows."""


def check_stamps(group: GroupWrite, found: Mapping[str, str]) -> None:
    """Raise ConflictError unless ``found``, the present stamps by key, are those of the group."""
    changed = tuple(key for key, stamp in group.stamps.items() if found.get(key) != stamp)
    if changed:
        raise ConflictError(
            f"{len(changed)} of its {len(group.stamps)} rows changed or are gone in the store since the merge was "
            "decided; sync first",
            changed,
        )
