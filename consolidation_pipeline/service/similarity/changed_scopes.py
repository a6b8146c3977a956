"""Scopes that changed since their groups were formed: only these are compared and grouped again.

Groups lie within a scope, so they follow from its nodes, their vectors and pairs, the options and the calibration. A
hash of these is kept with the groups. Vectors and pairs are not part of it: a node whose vector changes is compared
again, and what is compared counts as changed until its groups are formed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.calibration.topic_threshold import limit_topic_size
from consolidation_pipeline.core.memories.memories import hash_text
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.graph_nodes import scope_keys, type_keys
from consolidation_pipeline.service.similarity.merge_groups import PairRules, number_contents
from consolidation_pipeline.service.similarity.recall_answers import describe_asking
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.search.recall import hash_recall_inputs
from consolidation_pipeline.store.similarity.grouped_scopes import load_grouped_scopes, replace_grouped_scopes
from consolidation_pipeline.store.similarity.recall_answers import load_settled, unsettle_answers
from consolidation_pipeline.store.similarity.similarity_graph import Nodes

Mask = npt.NDArray[np.bool_]
# Memories of the empty scope are found by searches in any scope, so the recall gate of each scope reads them.
_EMPTY = UUID(int=0)
_PACKED_NODE = np.dtype(
    [
        ("id", "S16"),
        ("type", "<i8"),
        ("repeats", "S16"),
        ("version", "<i8"),
        ("into", "S16"),
        ("reused", "<i8"),
        ("rejected", "<u8"),
    ]
)


@dataclass(frozen=True, eq=False)
class ScopeStates:
    """The scopes of all nodes of a project.

    ``hashes``: by scope, of its nodes and of all else that its groups follow from. ``of_node`` (n,): position of the
    scope of each node among them. ``changed``: scopes whose groups are to be formed. A scope that always counts as
    changed has an empty hash. ``settled``: scopes with groups that the recall gate refused, which it would refuse
    again, as nothing in the project changed.
    """

    hashes: Mapping[UUID, str]
    of_node: npt.NDArray[np.int64]
    changed: frozenset[UUID]
    settled: frozenset[UUID] = frozenset()

    def open_scopes(self, rows: npt.NDArray[np.int64]) -> ScopeStates:
        """Return it with the scopes of the nodes at ``rows`` as changed, and those that are ``settled`` with them."""
        if not len(rows):
            return self
        names = [*self.hashes]
        opened = {names[at] for at in np.unique(self.of_node[rows]).tolist()}
        changed = self.changed | self.settled | opened | ({_EMPTY} & self.hashes.keys())
        return replace(self, changed=frozenset(changed), settled=frozenset())

    def select_changed(self, also: Sequence[int] | npt.NDArray[np.int64] = ()) -> Mask:
        """Return True (n,) for the nodes of changed scopes, and of the scopes of the nodes at the rows ``also``."""
        chosen = np.array([scope in self.changed for scope in self.hashes], dtype=np.bool_)
        chosen[self.of_node[np.asarray(also, dtype=np.int64)]] = True
        return np.asarray(chosen[self.of_node], dtype=np.bool_)


def find_changed_scopes(connection: Connection, run: ProjectRun, nodes: Nodes, rules: PairRules) -> ScopeStates:
    """Return which scopes changed since their groups were formed.

    All count as changed in a project with a pair judge, whose answers are not in the hash, and in one with memory tests
    that forbid merges, as each run tells what these have kept apart.

    Args:
        nodes: All nodes of the project.
        rules: What people decided on merges.
    """
    hashes, of_node = _hash_scopes(run, nodes, rules)
    stored = load_grouped_scopes(connection, run.project.id)
    changed = {scope for scope, found in hashes.items() if not found or stored.get(scope) != found}
    settled = load_settled(connection, run.project.id, describe_asking(run)) if changed else None
    if settled is not None and settled == _hash_inputs(connection, run, hashes):
        return ScopeStates(hashes, of_node, frozenset(), frozenset(changed))
    return ScopeStates(hashes, of_node, frozenset(changed | ({_EMPTY} & hashes.keys()) if changed else ()))


def forget_groups(connection: Connection, run: ProjectRun, states: ScopeStates) -> None:
    """Note that the scopes that changed are to be grouped: pairs of theirs were added."""
    open_scopes = states.changed | states.settled
    kept = {scope: found for scope, found in states.hashes.items() if scope not in open_scopes}
    replace_grouped_scopes(connection, run.project.id, kept)
    if states.changed:
        unsettle_answers(connection, run.project.id)


def hash_inputs(connection: Connection, run: ProjectRun, states: ScopeStates) -> str | None:
    """Return a hash of all that groups and answers of the recall gate follow from; None if it cannot be known."""
    return _hash_inputs(connection, run, states.hashes)


def _hash_inputs(connection: Connection, run: ProjectRun, hashes: Mapping[UUID, str]) -> str | None:
    if not all(hashes.values()):
        return None
    parts = [*sorted((str(scope), found) for scope, found in hashes.items())]
    return sha256(json.dumps([parts, hash_recall_inputs(connection, run.project.id)]).encode()).hexdigest()


def note_groups(
    connection: Connection, run: ProjectRun, nodes: Nodes, rules: PairRules, *, open_groups: Iterable[int]
) -> None:
    """Note that all groups are formed, but for those of the scopes of the nodes at the rows ``open_groups``.

    ``nodes``: all nodes as they are after the merges that the groups ask for. Without these the scopes have changed.
    """
    hashes, of_node = _hash_scopes(run, nodes, rules)
    is_open = {*of_node[list(open_groups)].tolist()}
    complete = {scope: found for at, (scope, found) in enumerate(hashes.items()) if found and at not in is_open}
    replace_grouped_scopes(connection, run.project.id, complete)


def _hash_scopes(run: ProjectRun, nodes: Nodes, rules: PairRules) -> tuple[dict[UUID, str], npt.NDArray[np.int64]]:
    """Return ``hashes`` and ``of_node`` of ``ScopeStates``."""
    of_node = scope_keys(nodes)
    order = np.argsort(of_node, kind="stable")
    first = np.flatnonzero(np.diff(of_node[order], prepend=-1))
    scopes = to_uuids(nodes.scopes[order[first]])
    if run.options.pair_judge != "none" or any(test.kind == "must_not_merge" for test in run.memory_tests):
        return dict.fromkeys(scopes, ""), of_node
    limit = limit_topic_size(int(number_contents(nodes, rules).max(initial=-1)) + 1)
    common, rows = _hash_common(run, rules), _pack(nodes.select(order), rules)
    hashes = {}
    for scope, start, end in zip(scopes, first.tolist(), [*first[1:].tolist(), len(rows)], strict=False):
        part = rows[start:end]
        # A limit that no group can reach changes nothing.
        digest = sha256(f"{common}{min(limit, len(part))}".encode())
        digest.update(part.tobytes())
        hashes[scope] = digest.hexdigest()
    return hashes, of_node


def _pack(nodes: Nodes, rules: PairRules) -> npt.NDArray[np.void]:
    rows = np.zeros(len(nodes), dtype=_PACKED_NODE)
    rows["id"], rows["type"], rows["repeats"] = nodes.ids, type_keys(nodes), nodes.repeats
    rows["version"], rows["into"], rows["reused"] = nodes.graph_version, nodes.merged_into, nodes.reused
    rows["rejected"] = _hash_rejections(nodes, rules)
    return rows


def _hash_rejections(nodes: Nodes, rules: PairRules) -> npt.NDArray[np.uint64]:
    """Return for each node (n,) a hash of the groups of its unit that people rejected, 0 = none."""
    found = Counter[bytes]()
    for group in rules.rejected:
        number = hash_text("".join(id_.hex() for id_ in sorted(group)))
        found.update(dict.fromkeys(group, number))
    known = np.array(sorted(found), dtype="S16")
    numbers = np.array([0, *(found[id_] % 2**64 for id_ in known.tolist())], dtype=np.uint64)
    return numbers[1 + find_positions(known, np.where(nodes.merged_into != b"", nodes.merged_into, nodes.ids))]


def _hash_common(run: ProjectRun, rules: PairRules) -> str:
    """Return a hash of what the groups of all scopes follow from."""
    links = (rules.cannot_link, rules.variants)
    parts = {
        "code": describe_code()["digest"],
        "options": run.options.model_dump_json(),
        "model": run.embedder.name,
        "calibration": -1 if run.calibration is None else run.calibration.version,
        "thresholds": run.thresholds,
        "links": [[column.tobytes().hex() for column in (one.ids, one.merges, one.parts)] for one in links],
    }
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
