"""Inputs of the recall gate: the memories that a search finds before and after a run, its queries, and their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.arrays import list_ranges
from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.knowledge.inherited_columns import most_frequent
from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.service.similarity.graph_nodes import scope_keys
from consolidation_pipeline.service.similarity.merge_groups import Contents, Units
from consolidation_pipeline.service.similarity.successors import (
    Bodies,
    estimate_vectors,
    hash_bodies,
    merge_all,
    select_bodies,
    sort_by_source_count,
)
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_ids, to_uuids
from consolidation_pipeline.store.knowledge.abstractions import load_unit_vectors
from consolidation_pipeline.store.knowledge.merged_memories import load_consolidated
from consolidation_pipeline.store.search.recall import (
    TextWords,
    load_bodies,
    load_logged_queries,
    load_words,
    parse_words,
)
from consolidation_pipeline.store.similarity.similarity_graph import MERGE

# Newest queries of readers that are repeated.
MAX_LOGGED_QUERIES = 200
# Groups whose texts a worker process merges at a time.
_MERGED_GROUPS = 100

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Successor:
    """The text of the merged memory of a group, and its language; ``bodies``: of its sources, by node.

    ``key``: hash of what the text is made of, under which ``ProjectRun.merged_texts`` has it.
    """

    key: bytes
    text: str
    language: str
    bodies: Mapping[int, str]


@dataclass(frozen=True)
class SearchedRows:
    """Memories that a search may find (r,): active raw and merged memories, then the successors of the groups.

    ``vectors`` (r, d): plain ones. ``scopes``: number of the scope, 0 = the empty one. ``groups``: number of the group,
    -1 = of none. ``units``: number of the unit. ``members``: rows of each group but its successor. ``successors``: row
    of each group's successor. ``archived``: True for rows that the run archives if their group is not merged.
    """

    ids: Ids
    vectors: Vectors
    scopes: Integers
    groups: Integers
    units: Integers
    members: Sequence[Integers]
    successors: Integers
    archived: npt.NDArray[np.bool_]
    texts: Sequence[Successor]

    @property
    def is_successor(self) -> npt.NDArray[np.bool_]:
        """True for the rows of successors (r,)."""
        return np.arange(len(self.ids)) >= len(self.ids) - len(self.successors)


@dataclass(frozen=True)
class RecallQueries:
    """Queries (q,) whose places are compared.

    ``groups``: of each. ``nodes``: the raw memory whose text it is, -1 = a query of a reader, of which only the vector
    is known. ``used``: rows that helped its reader, by number of the query. ``alike`` (p,): pairs of a query and a unit
    with a memory that says the same.
    """

    vectors: Vectors
    groups: Integers
    scopes: Integers
    nodes: Integers
    used: Mapping[int, Integers]
    alike: tuple[Integers, Integers]

    def are_alike(self, queries: Integers, units: Integers) -> npt.NDArray[np.bool_]:
        """Return for each query and unit, of any shape, if they are ``alike``."""
        wanted, known = (one * len(self.groups) + other for one, other in ((units, queries), self.alike[::-1]))
        return np.isin(wanted, known)


def build_rows(
    connection: Connection,
    run: ProjectRun,
    contents: Contents,
    units: Units,
    plain: Vectors,
    chosen: Integers,
    *,
    scopes: Integers,
    is_searched: npt.NDArray[np.bool_],
    is_archived: npt.NDArray[np.bool_],
) -> SearchedRows:
    """Return the rows of a project whose units ``chosen`` are about to be merged.

    Args:
        connection: Connection of the run.
        run: The run.
        contents: Contents of the project.
        units: Their units.
        plain: Plain vectors (n, d) of the nodes that are searched; other rows are not read.
        chosen: Numbers of the units (g,).
        scopes: Number of the scope of each node (n,), see ``number_scopes``.
        is_searched: True for the nodes (n,) that are searched.
        is_archived: True for the nodes (n,) that the run archives if nothing is merged.
    """
    nodes = contents.nodes
    group_of_unit = np.full(len(units), -1)
    group_of_unit[chosen] = np.arange(len(chosen))
    is_merged = nodes.merged_into != b""
    raw, sources = np.flatnonzero(is_searched & ~is_merged), np.flatnonzero(is_searched & is_merged)
    merged_ids, first = np.unique(nodes.merged_into[sources], return_index=True)
    first = sources[first]
    merged_vectors = _load_merged_vectors(connection, run, nodes.merged_into, plain, merged_ids)
    found = np.r_[raw, first]
    groups = np.r_[group_of_unit[units.unit_of_row[found]], np.arange(len(chosen))]
    vector_of = dict(zip(merged_ids.tolist(), merged_vectors, strict=True))
    texts, successors = _build_successors(connection, run, contents, units, plain, chosen, vector_of)
    vectors = np.empty((len(found) + len(chosen), plain.shape[1]), np.float32)
    np.take(plain, raw, axis=0, out=vectors[: len(raw)], mode="clip")  # without a copy in between
    vectors[len(raw) : len(found)], vectors[len(found) :] = merged_vectors, successors
    order = np.argsort(groups[: len(found)], kind="stable")
    ends = np.searchsorted(groups[order], np.arange(len(chosen) + 1))
    return SearchedRows(
        ids=np.concatenate([nodes.ids[raw], merged_ids, units.ids[chosen]]),
        vectors=vectors,
        scopes=scopes[np.r_[found, units.representatives[chosen]]],
        groups=groups,
        units=np.append(units.unit_of_row[found], chosen),
        members=[order[ends[group] : ends[group + 1]] for group in range(len(chosen))],
        successors=len(found) + np.arange(len(chosen)),
        archived=np.append(is_archived[found], np.zeros(len(chosen), np.bool_)),
        texts=texts,
    )


def number_scopes(run: ProjectRun, contents: Contents) -> Integers:
    """Return the number of the scope of each node (n,), 0 = the empty one, and for all in a project without walls."""
    if run.options.scope == NO_WALLS:
        return np.zeros(len(contents.nodes), np.int64)
    numbers = 1 + scope_keys(contents.nodes)
    return np.where(contents.nodes.scopes == b"", 0, numbers)


def _load_merged_vectors(
    connection: Connection, run: ProjectRun, merged_into: Ids, plain: Vectors, merged_ids: Ids
) -> Vectors:
    """Return the vectors (m, d) of merged memories; of one that has none of the model, the mean of its sources."""
    stored = load_unit_vectors(connection, to_uuids(merged_ids), run.embedder.name, plain.shape[1])
    vectors = np.zeros((len(merged_ids), plain.shape[1]), np.float32)
    for at, id_ in enumerate(to_uuids(merged_ids)):
        known = stored.get(id_)
        vectors[at] = plain[merged_into == merged_ids[at]].mean(axis=0) if known is None else known
    return vectors


def _build_successors(
    connection: Connection,
    run: ProjectRun,
    contents: Contents,
    units: Units,
    plain: Vectors,
    chosen: Integers,
    merged_vectors: Mapping[bytes, Vectors],
) -> tuple[list[Successor], Vectors]:
    """Return the merged text and vector of each of the ``chosen`` units."""
    nodes = contents.nodes
    order = np.argsort(units.unit_of_row, kind="stable")
    ends = np.searchsorted(units.unit_of_row[order], np.arange(len(units) + 1))
    members = [order[ends[unit] : ends[unit + 1]] for unit in chosen.tolist()]
    joined = np.concatenate(members)
    ids = dict(zip(joined.tolist(), to_uuids(nodes.ids[joined]), strict=True))
    loaded = load_bodies(connection, [*ids.values()])
    into_ids = np.unique(nodes.merged_into[joined])
    existing = load_consolidated(connection, to_uuids(into_ids[into_ids != b""]))
    ordered = [
        [first, *(row for row in rows.tolist() if row != first)]
        for first, rows in zip(units.representatives[chosen].tolist(), members, strict=True)
    ]
    into = dict(zip(ids.values(), map(_to_uuid, nodes.merged_into[joined].tolist()), strict=True))
    merged_of = [
        sort_by_source_count(existing[id_] for id_ in {into[ids[row]] for row in rows} - {None} if id_ is not None)
        for rows in ordered
    ]
    joined_bodies = [
        select_bodies({ids[row]: loaded[ids[row]][0] for row in rows}, into, merged)
        for rows, merged in zip(ordered, merged_of, strict=True)
    ]
    keys = _merge_missing(run, joined_bodies)
    texts: list[Successor] = []
    vectors: list[Vectors | None] = []
    for rows, merged, key in zip(ordered, merged_of, keys, strict=True):
        content = run.merged_texts[key].content
        bodies = {row: loaded[ids[row]][0] for row in rows}
        texts.append(Successor(key, content, most_frequent(loaded[ids[row]][1] for row in sorted(rows)), bodies))
        verbatim = next((plain[row] for row, body in bodies.items() if body == content), None)
        kept = next((merged_vectors[to_ids([row.id])[0]] for row in merged if row.content == content), None)
        vectors.append(verbatim if verbatim is not None else kept)
    missing = [at for at, vector in enumerate(vectors) if vector is None]
    made = estimate_vectors(run, [texts[at].text for at in missing], [plain[members[at]] for at in missing])
    for at, vector in zip(missing, made, strict=True):
        vectors[at] = vector
    return texts, np.stack([vector for vector in vectors if vector is not None])


def _merge_missing(run: ProjectRun, groups: Sequence[Bodies]) -> list[bytes]:
    """Merge the texts of the groups that the run does not know yet, and return the key of each group's text."""
    keys = [hash_bodies(bodies) for bodies in groups]
    missing = {key: bodies for key, bodies in zip(keys, groups, strict=True) if key not in run.merged_texts}
    merge = partial(merge_all, max_chars=run.options.merge_max_chars)
    portions = split_chunks([*missing.values()], size=_MERGED_GROUPS)
    count = sum(len(bodies.others) for bodies in missing.values())
    merged = chain.from_iterable(compute_in_order(merge, portions, memories=count))
    run.merged_texts.update(zip(missing, merged, strict=True))
    return keys


def _to_uuid(id_: bytes) -> UUID | None:
    return UUID(bytes=id_.ljust(16, b"\0")) if id_ else None


def list_queries(
    connection: Connection, run: ProjectRun, contents: Contents, units: Units, rows: SearchedRows, plain: Vectors
) -> RecallQueries:
    """Return each text of a source that is not the merged text, and the queries of readers whom a source helped."""
    texts = [(group, node) for group, one in enumerate(rows.texts) for node in _list_distinct(one)]
    groups, nodes = (np.array(column, np.int64) for column in zip(*texts, strict=True)) if texts else ([], [])
    logged = _list_logged(connection, run, contents, rows, plain.shape[1])
    groups = np.r_[np.asarray(groups, np.int64), np.array([group for group, _ in logged], np.int64)]
    nodes = np.asarray(nodes, np.int64)
    return RecallQueries(
        vectors=np.concatenate([plain[nodes], *(vector[None] for vector, _ in logged.values())]),
        groups=groups,
        scopes=rows.scopes[rows.successors[groups]],
        nodes=np.r_[nodes, np.full(len(logged), -1)],
        used={number: np.array(used) for number, (_, used) in enumerate(logged.values(), len(nodes))},
        alike=_find_alike(contents, units, nodes),
    )


def _find_alike(contents: Contents, units: Units, nodes: Integers) -> tuple[Integers, Integers]:
    """Return the pairs of a query, the text of a node, and a unit with a memory that says the same.

    It may be merged with the node, or has its text, in another scope or of another memory type.
    """
    pairs = contents.pairs.select(contents.verdict == MERGE)
    content, other = np.concatenate([pairs.i, pairs.j]), np.concatenate([pairs.j, pairs.i])
    order = np.argsort(content, kind="stable")
    counts = np.bincount(content, minlength=contents.count)
    asked = contents.content_of_row[nodes]
    found = other[order][list_ranges(counts, asked)]
    text = np.unique(contents.nodes.repeats, return_inverse=True)[1].reshape(-1)
    repeats = np.bincount(text)
    repeating = np.argsort(text, kind="stable")[list_ranges(repeats, text[nodes])]
    every = np.arange(len(nodes))
    return (
        np.concatenate([np.repeat(every, counts[asked]), np.repeat(every, repeats[text[nodes]])]),
        np.concatenate([units.unit_of_content[found], units.unit_of_row[repeating]]),
    )


def _list_distinct(successor: Successor) -> list[int]:
    """Return a node for each distinct text that differs from the merged text, the smallest, ascending."""
    first = {body: node for node, body in sorted(successor.bodies.items(), reverse=True)}
    return sorted(node for body, node in first.items() if body != successor.text)


def _list_logged(
    connection: Connection, run: ProjectRun, contents: Contents, rows: SearchedRows, dimension: int
) -> dict[tuple[int, UUID], tuple[Vectors, list[int]]]:
    """Return the vector of a query and the rows that helped, by group and query."""
    row_of = {rows.ids[row]: row for members in rows.members for row in members.tolist()}
    for successor in rows.texts:
        for node in successor.bodies:
            into = contents.nodes.merged_into[node]
            if into in row_of:
                row_of[contents.nodes.ids[node]] = row_of[into]
    row_of_memory = dict(zip(to_uuids(np.array(list(row_of), "S16")), row_of.values(), strict=True))
    logged = load_logged_queries(
        connection,
        run.project.id,
        list(row_of_memory),
        model=run.embedder.name,
        dimension=dimension,
        limit=MAX_LOGGED_QUERIES,
    )
    vector_of = dict(zip(to_uuids(logged.ids), logged.vectors, strict=True))
    found: dict[tuple[int, UUID], tuple[Vectors, list[int]]] = {}
    for query, memory in logged.uses:
        row = row_of_memory[memory]
        found.setdefault((int(rows.groups[row]), query), (vector_of[query], []))[1].append(row)
    return dict(sorted(found.items()))


class WordTable:
    """Words of rows and queries, loaded when they are needed."""

    def __init__(
        self,
        connection: Connection,
        contents: Contents,
        rows: SearchedRows,
        queries: RecallQueries,
        asked: npt.NDArray[np.bool_],
    ) -> None:
        """Load the words of the groups that are ``asked`` about (g,), and of their queries."""
        self._connection = connection
        self._ids = rows.ids
        self._texts, self._first = rows.texts, len(rows.ids) - len(rows.successors)
        self._vocabulary: dict[str, int] = {}
        # The texts one after the other: size and number of words of each, and their words and how often each occurs.
        # The first one has no words.
        self._sizes, self._lengths = [0], [0]
        self._words: list[int] = []
        self._counts: list[int] = []
        self._arrays: tuple[Integers, Integers, Integers, Integers] | None = None
        # Position of the text of each row, -1 = not loaded, and of each query.
        self._places = np.full(len(rows.ids), -1)
        self._queries = np.zeros(len(queries.nodes), np.int64)
        by_text = (queries.nodes >= 0) & asked[queries.groups]
        nodes, of_query = np.unique(queries.nodes[by_text], return_inverse=True)
        self._queries[by_text] = self._load(contents.nodes.ids[nodes])[of_query.reshape(-1)]
        members = [rows.members[group] for group in np.flatnonzero(asked).tolist()]
        self.load(np.concatenate([rows.successors[asked], *members]))

    def load(self, rows: Integers) -> None:
        """Load the words of ``rows``, of any shape; -1 = none."""
        found = np.unique(rows)
        missing = found[(found >= 0) & (self._places[found] < 0)]
        stored, made = missing[missing < self._first], missing[missing >= self._first]
        self._places[stored] = self._load(self._ids[stored])
        texts = [self._texts[at] for at in (made - self._first).tolist()]
        if texts:
            parsed = parse_words(self._connection, [one.text for one in texts], [one.language for one in texts])
            self._places[made] = self._add(parsed)

    def count(self, rows: Integers, queries: Integers) -> tuple[Integers, Integers]:
        """Return sizes of the texts of ``rows`` (b, n), and how often each has each word of its query (b, n, m).

        ``rows``: -1 = none. ``queries`` (b,): their number; those with fewer than m words have others that no text has.
        """
        sizes, lengths, words, counts = self._list_arrays()
        asked, texts = self._queries[queries], np.where(rows < 0, 0, self._places[rows])
        most = int(lengths[asked].max(initial=0))
        of_query = np.repeat(np.arange(len(queries)), lengths[asked])
        own = words[list_ranges(lengths, asked)]
        # Number of each word among those of the queries, and its column among those of each query; -1 = it is none.
        used, numbers = np.unique(own), np.full(len(self._vocabulary), -1)
        numbers[used] = np.arange(len(used))
        columns = np.full((len(queries), len(used)), -1)
        columns[of_query, numbers[own]] = np.arange(len(own)) - np.searchsorted(of_query, of_query)
        at = list_ranges(lengths, texts.reshape(-1))
        cell = np.repeat(np.arange(texts.size), lengths[texts.reshape(-1)])
        at, cell = (part[numbers[words[at]] >= 0] for part in (at, cell))
        found = columns[cell // max(1, texts.shape[1]), numbers[words[at]]]
        is_wanted = found >= 0
        counted = np.zeros((texts.size, most), np.int64)
        counted[cell[is_wanted], found[is_wanted]] = counts[at[is_wanted]]
        return sizes[texts], counted.reshape(*texts.shape, most)

    def _list_arrays(self) -> tuple[Integers, Integers, Integers, Integers]:
        if self._arrays is None:
            columns = (self._sizes, self._lengths, self._words, self._counts)
            sizes, lengths, words, counts = (np.array(column, np.int64) for column in columns)
            self._arrays = sizes, lengths, words, counts
        return self._arrays

    def _load(self, ids: Ids) -> Integers:
        """Load the words of memories, and return their positions."""
        uuids = to_uuids(ids)
        loaded = load_words(self._connection, uuids) if uuids else {}
        return self._add([loaded[id_] for id_ in uuids])

    def _add(self, texts: Sequence[TextWords]) -> Integers:
        """Add the words of texts, and return their positions."""
        known, first = self._vocabulary, len(self._sizes)
        for size, lexemes, counts in texts:
            self._sizes.append(size)
            self._lengths.append(len(lexemes))
            self._words += [known.setdefault(lexeme, len(known)) for lexeme in lexemes]
            self._counts += counts
        self._arrays = None
        return np.arange(first, first + len(texts))
