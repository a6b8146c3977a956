"""Answers of the recall gate that still hold: a refused group is asked again only if its searches may have changed.

What the gate finds for a group follows from the group, its queries, and the candidates: for each query, the nearest
memories that are searched. So an answer holds as long as the group is the same, all candidates are searched and the
same, and no memory that is new or changed is as near to a query as the farthest candidate. Fingerprints tell what is
the same: hashes of all that the gate reads of a memory or group.

Only answers of the first round are kept: what is searched in later rounds depends on what was refused before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b, sha256
from io import BytesIO
from itertools import pairwise
from typing import Any
from uuid import UUID
from zlib import compress, decompress

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.arrays import list_ranges
from consolidation_pipeline.core.text.text_merge import MergedText
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.merge_groups import Contents, Units
from consolidation_pipeline.service.similarity.recall_rows import RecallQueries, SearchedRows
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_ids, to_uuids
from consolidation_pipeline.store.search.recall import load_text_fingerprints
from consolidation_pipeline.store.similarity.recall_answers import load_recall_answers, replace_recall_answers

# Similarities of one pair that are computed beside different rows may differ by rounding.
ROUNDING = 1e-5
# Queries that are compared with new rows at a time.
_COMPARED = 256
_KEY_BYTES = 16
# Of the random factors that vectors are hashed by.
_SEED = 1979

Integers = npt.NDArray[np.int64]
Prints = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RefusedMerge:
    """A group that is not merged, and the query that speaks most against it.

    ``unit``: its number. ``memories``: its raw memories. ``query``: the memory whose text is searched for, None = a
    query of a reader. ``before``: place of the best source, ``after``: of the merged memory. ``above``: memory that is
    found first then.
    """

    unit: int
    memories: list[UUID]
    query: UUID | None
    before: int
    after: int
    above: UUID


@dataclass(frozen=True)
class Fingerprints:
    """Fingerprints of the rows (r,) and of the groups (g,)."""

    rows: Prints
    groups: Prints


@dataclass(frozen=True, eq=False)
class RecallAnswers:
    """Groups that the gate refused (n,), and what it compared to refuse those of its first round (k,).

    Attributes:
        members: Raw memories of the groups, S16, group by group.
        sizes: Number of raw memories of each group (n,).
        query: Memory whose text speaks most against the merge (n,), S16; empty = a query of a reader.
        above: Memory that is found first then (n,), S16.
        places: Place of the best source and of the merged memory (n, 2).
        keys: Hash of what each of the merged texts is made of (t,), S16; groups of equal texts share one.
        texts: These merged texts as compressed JSON, uint8.
        first: Positions of the groups of the first round among all (k,).
        groups: Fingerprints of these groups (k,).
        rows: Fingerprints of the rows (r,) that were searched for them, ascending.
        lowest: Similarity of the farthest candidate of each query (q,), group by group; -inf = all were candidates.
        queries: Number of queries of each group (k,).
        candidates: Positions of the candidates among ``rows`` (c,), group by group.
        counts: Number of candidates of each group (k,).
    """

    members: Ids
    sizes: Integers
    query: Ids
    above: Ids
    places: Integers
    keys: Ids
    texts: npt.NDArray[np.uint8]
    first: Integers
    groups: Prints
    rows: Prints
    lowest: npt.NDArray[np.float64]
    queries: Integers
    candidates: npt.NDArray[np.uint32]
    counts: Integers

    def list_refused(self) -> list[RefusedMerge]:
        """Return the refused groups, whose units have the number -1."""
        ends = np.cumsum(self.sizes).tolist()
        queries, above, members = (to_uuids(ids) for ids in (self.query, self.above, self.members))
        return [
            RefusedMerge(
                unit=-1,
                memories=members[end - size : end],
                query=queries[at] if self.query[at] else None,
                before=before,
                after=after,
                above=above[at],
            )
            for at, (end, size, (before, after)) in enumerate(
                zip(ends, self.sizes.tolist(), self.places.tolist(), strict=True)
            )
        ]

    def unpack_texts(self) -> dict[bytes, MergedText]:
        """Return the merged texts of the groups, by the hash of what they are made of."""
        texts = json.loads(decompress(self.texts.tobytes()))
        keys = (key.ljust(_KEY_BYTES, b"\0") for key in self.keys.tolist())
        return {key: MergedText(content, tuple(left_out)) for key, (content, left_out) in zip(keys, texts, strict=True)}

    @cached_property
    def _ends(self) -> tuple[Integers, Integers]:
        """Ends of the queries and of the candidates of each group (k,)."""
        return np.cumsum(self.queries), np.cumsum(self.counts)

    def list_lowest(self, at: int) -> npt.NDArray[np.float64]:
        """Return the similarity of the farthest candidate of each query of a group."""
        end = self._ends[0][at]
        return self.lowest[end - self.queries[at] : end]

    def list_candidates(self, at: int) -> Prints:
        """Return the fingerprints of the candidates of a group."""
        end = self._ends[1][at]
        return self.rows[self.candidates[end - self.counts[at] : end]]

    def pack(self) -> bytes:
        """Return the answers as bytes; ``unpack_answers`` reads them."""
        buffer = BytesIO()
        np.savez(buffer, **{one.name: getattr(self, one.name) for one in fields(self)})
        return buffer.getvalue()


def unpack_answers(packed: bytes) -> RecallAnswers:
    """Return the answers that ``RecallAnswers.pack`` packed."""
    with np.load(BytesIO(packed)) as arrays:
        return RecallAnswers(**{one.name: arrays[one.name] for one in fields(RecallAnswers)})


@dataclass(frozen=True, eq=False)
class HeldAnswers:
    """Answers that still hold: ``at`` (g,) position of each group in ``answers``, -1 = it is to be asked."""

    answers: RecallAnswers | None
    at: Integers

    @property
    def are_held(self) -> Mask:
        """True (g,) for groups that need not be asked."""
        return self.at >= 0


def load_answers(connection: Connection, run: ProjectRun) -> RecallAnswers | None:
    """Return the answers that the last run stored; None if there are none of this program and options."""
    packed = load_recall_answers(connection, run.project.id, describe_asking(run))
    return None if packed is None else unpack_answers(packed)


def store_answers(
    connection: Connection, run: ProjectRun, answers: RecallAnswers | None, settled: str | None = None
) -> None:
    """Store the answers in place of those before.

    Args:
        connection: Connection of the run.
        run: The run.
        answers: None = there are none.
        settled: Hash of all that they follow from (``changed_scopes.hash_inputs``). As long as it is the same, no group
            need be asked. None = the next run asks.
    """
    packed = None if answers is None else answers.pack()
    replace_recall_answers(connection, run.project.id, describe_asking(run), packed, settled)


def describe_asking(run: ProjectRun) -> str:
    """Return a hash of what answers follow from, besides rows and groups."""
    parts = (describe_code()["digest"], run.options.model_dump_json(), run.embedder.name)
    return sha256(json.dumps(parts).encode()).hexdigest()


def compute_fingerprints(
    connection: Connection,
    run: ProjectRun,
    contents: Contents,
    units: Units,
    rows: SearchedRows,
    queries: RecallQueries,
    scopes: Integers,
) -> Fingerprints:
    """Return the fingerprints of what the gate is asked about. ``scopes``: as for ``build_rows``."""
    known, keys = load_text_fingerprints(connection, run.project.id)
    stored = len(rows.ids) - len(rows.successors)
    texts = np.array([_hash([one.text, one.language]) for one in rows.texts], np.uint64).view(np.int64)
    scope_of = np.zeros(int(scopes.max(initial=0)) + 1, "S16")
    scope_of[scopes] = contents.nodes.scopes
    scope_of[0] = b""
    of_rows = _hash_columns(
        rows.ids,
        units.ids[rows.units],
        scope_of[rows.scopes],
        np.append(_find_keys(known, keys, rows.ids[:stored]), texts),
        rows.is_successor,
        _hash_vectors(rows.vectors),
    )
    ids = np.where(queries.nodes >= 0, contents.nodes.ids[queries.nodes], b"")
    of_queries = _hash_columns(ids, _find_keys(known, keys, ids), _hash_vectors(queries.vectors))
    return Fingerprints(of_rows, _hash_groups(units, rows, queries, of_rows, of_queries))


def _find_keys(known: Ids, keys: Integers, ids: Ids) -> Integers:
    """Return the key of each of ``ids`` (n,); 0 = it is none of the ``known``."""
    at = find_positions(known, ids.astype("S16"))
    return np.where(at >= 0, keys[at], 0) if len(keys) else np.zeros(len(ids), np.int64)


def _hash_groups(
    units: Units, rows: SearchedRows, queries: RecallQueries, of_rows: Prints, of_queries: Prints
) -> Prints:
    """Return a hash of each group (g,): its rows, and its queries with the units that say the same."""
    count = len(queries.groups)
    asked, alike = np.divmod(np.unique(queries.alike[0] * len(units) + queries.alike[1]), len(units))
    order = np.lexsort((units.ids[alike], asked))
    ends = np.searchsorted(asked[order], np.arange(count + 1))
    names = units.ids[alike][order]
    by_group, group_ends = _sort_queries(queries, len(rows.successors))
    hashes = []
    for group, (start, end) in enumerate(pairwise(group_ends.tolist())):
        parts: list[npt.NDArray[Any]] = [of_rows[rows.members[group]], of_rows[rows.successors[[group]]]]
        for query in by_group[start:end].tolist():
            used = queries.used.get(query, by_group[:0])
            parts += [of_queries[[query]], names[ends[query] : ends[query + 1]], of_rows[used]]
        hashes.append(_hash(parts))
    return np.array(hashes, np.uint64)


def _sort_queries(queries: RecallQueries, groups: int) -> tuple[Integers, Integers]:
    """Return the queries (q,) group by group, and where those of each group begin and end (g + 1,)."""
    order = np.argsort(queries.groups, kind="stable")
    return order, np.searchsorted(queries.groups[order], np.arange(groups + 1))


def _hash(parts: Iterable[str | npt.NDArray[Any]]) -> int:
    """Return a hash of texts and arrays, of 64 bits."""
    digest = blake2b(digest_size=8)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part.tobytes()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little")


def _hash_columns(*columns: npt.NDArray[Any]) -> Prints:
    """Return a hash of each row (n,) of columns (n,), of 64 bits."""
    parts = [np.ascontiguousarray(column) for column in columns]
    packed = np.concatenate([part.view(np.uint8).reshape(len(part), part.itemsize) for part in parts], axis=1)
    data, width = packed.tobytes(), packed.shape[1]
    digests = [blake2b(data[at : at + width], digest_size=8).digest() for at in range(0, len(data), width)]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _hash_vectors(x: Vectors) -> Prints:
    """Return a hash of each vector (n,) of ``x`` (n, d), of 64 bits.

    The sum of its words of 64 bits, each times an odd random factor, modulo 2**64: a multilinear hash (Carter and
    Wegman 1979), which reads the vectors once.
    """
    words = np.ascontiguousarray(np.pad(x, ((0, 0), (0, 1))) if x.shape[1] % 2 else x, np.float32).view(np.uint64)
    factors = np.random.default_rng(_SEED).integers(0, 2**63, words.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    hashes: Prints = np.einsum("nw,w->n", words, factors)
    return hashes


def find_held(
    answers: RecallAnswers | None, found: Fingerprints, rows: SearchedRows, queries: RecallQueries, active: Mask
) -> HeldAnswers:
    """Return which answers still hold.

    Args:
        answers: Those of the last run.
        found: Fingerprints of this run.
        rows: Rows of this run.
        queries: Queries of this run.
        active: True for the rows (r,) that the first round searches.
    """
    at = np.full(len(found.groups), -1)
    if answers is None:
        return HeldAnswers(None, at)
    known = {print_: number for number, print_ in enumerate(answers.groups.tolist())}
    at = np.array([known.get(print_, -1) for print_ in found.groups.tolist()], np.int64)
    is_gone = ~np.isin(answers.rows, found.rows[active])
    owners = np.repeat(np.arange(len(answers.counts)), answers.counts)
    lost = np.bincount(owners[is_gone[answers.candidates]], minlength=len(answers.counts))
    at[(at >= 0) & (lost[at] > 0)] = -1
    new = np.flatnonzero(active & ~np.isin(found.rows, answers.rows))
    at[np.unique(queries.groups[_find_near(answers, at, rows, queries, new)])] = -1
    return HeldAnswers(answers, at)


def _find_near(
    answers: RecallAnswers, at: Integers, rows: SearchedRows, queries: RecallQueries, new: Integers
) -> Integers:
    """Return the queries of held groups to which one of the ``new`` rows is as near as the farthest candidate."""
    order, ends = _sort_queries(queries, len(at))
    groups = np.flatnonzero(at >= 0)
    asked = order[list_ranges(np.diff(ends), groups)]
    lowest = answers.lowest[list_ranges(answers.queries, at[groups])]
    is_near = np.zeros(len(asked), np.bool_)
    for start in range(0, len(asked) if len(new) else 0, _COMPARED):
        block = asked[start : start + _COMPARED]
        near = queries.vectors[block] @ rows.vectors[new].T >= lowest[start : start + _COMPARED, None] - ROUNDING
        near &= (rows.scopes[new] == queries.scopes[block, None]) | (rows.scopes[new] == 0)
        is_near[start : start + _COMPARED] = near.any(axis=1)
    return asked[is_near]


def collect_answers(
    found: Fingerprints,
    held: HeldAnswers,
    queries: RecallQueries,
    active: Mask,
    refused: Mapping[int, RefusedMerge],
    *,
    texts: Mapping[bytes, MergedText],
    first: Integers,
    candidates: Integers,
    lowest: npt.NDArray[np.float64],
) -> RecallAnswers:
    """Return the answers of this run, for the next one.

    Args:
        found: Fingerprints.
        held: The answers that were not asked for again.
        queries: Queries.
        active: True for the rows (r,) that the first round searched.
        refused: The refused groups, by number.
        texts: Their merged texts by the hash of what they are made of, in the order of ``refused``.
        first: Those (k,) that the first round refused.
        candidates: Rows that competed with each query (q, c), -1 = none.
        lowest: Similarity of the farthest of these (q,).
    """
    searched = np.unique(found.rows[active])
    order, ends = _sort_queries(queries, len(found.groups))
    limits: list[npt.NDArray[np.float64]] = []
    nearest: list[Prints] = []
    for group in first.tolist():
        if held.answers is not None and held.at[group] >= 0:
            limits.append(held.answers.list_lowest(held.at[group]))
            nearest.append(held.answers.list_candidates(held.at[group]))
        else:
            asked = order[ends[group] : ends[group + 1]]
            limits.append(lowest[asked])
            nearest.append(np.unique(found.rows[candidates[asked][candidates[asked] >= 0]]))
    merges = [*refused.values()]
    return RecallAnswers(
        members=to_ids([id_ for one in merges for id_ in one.memories]),
        sizes=np.array([len(one.memories) for one in merges]),
        query=np.array([b"" if one.query is None else one.query.bytes for one in merges], "S16"),
        above=to_ids([one.above for one in merges]),
        places=np.array([(one.before, one.after) for one in merges]),
        keys=np.array([*texts], "S16"),
        texts=_pack_texts(texts.values()),
        first=find_positions(np.array([*refused]), first),
        groups=found.groups[first],
        rows=searched,
        lowest=np.concatenate(limits),
        queries=np.array([len(one) for one in limits]),
        candidates=np.searchsorted(searched, np.concatenate(nearest)).astype(np.uint32),
        counts=np.array([len(one) for one in nearest]),
    )


def _pack_texts(texts: Iterable[MergedText]) -> npt.NDArray[np.uint8]:
    packed = json.dumps([(text.content, text.dropped) for text in texts])
    return np.frombuffer(compress(packed.encode()), np.uint8)
