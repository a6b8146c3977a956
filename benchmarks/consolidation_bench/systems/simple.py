"""Simple systems: nothing, exact repeats, MinHash, greedy cosine, SemHash. Each user's memories are taken alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.consolidation_bench.dataset import Memory, squeeze
from benchmarks.consolidation_bench.systems.system import ActiveMemory, System
from benchmarks.consolidation_bench.vectors import Vectors, embed

# Found by users of these methods most often: SemHash's default, that of text-dedup, and that of mem0 for entities.
SEMHASH_THRESHOLD = 0.9
MINHASH_THRESHOLD = 0.7
COSINE_THRESHOLD = 0.95
PERMUTATIONS = 128
SHINGLE_CHARS = 5

Groups = list[list[int]]


class Deduplication(System):
    """System that keeps the first memory of each group. A subclass writes ``group``."""

    def load(self, memories: Sequence[Memory]) -> None:
        """Keep the memories of each user; compute their vectors."""
        self._memories: dict[str, list[Memory]] = defaultdict(list)
        for memory in memories:
            self._memories[memory.user].append(memory)
        self._vectors = {user: embed([memory.text for memory in own]) for user, own in self._memories.items()}
        self._groups = {user: [[at] for at in range(len(own))] for user, own in self._memories.items()}

    def consolidate(self) -> None:
        """Group the memories that are left; keep the first of each group."""
        for user, own in self._memories.items():
            left = [group[0] for group in self._groups[user]]
            merged = self.group([own[at].text for at in left], self._vectors[user][left])
            groups = self._groups[user]
            self._groups[user] = [[at for place in group for at in groups[place]] for group in merged]

    def active(self) -> list[ActiveMemory]:
        """Return the first memory of each group, with the ids of all."""
        return [
            ActiveMemory(user, own[group[0]].text, tuple(own[at].id for at in group))
            for user, own in self._memories.items()
            for group in self._groups[user]
        ]

    def search(self, user: str, query: str, k: int) -> list[str]:
        """Return the texts with the nearest vectors."""
        kept = [group[0] for group in self._groups.get(user, [])]
        if not kept:
            return []
        scores = self._vectors[user][kept] @ embed([query])[0]
        return [self._memories[user][kept[at]].text for at in np.argsort(-scores, kind="stable")[:k]]

    def undo(self) -> bool:
        """Return False: what was dropped is gone."""
        return False

    def group(self, texts: Sequence[str], vectors: Vectors) -> Groups:
        """Return the groups of equal texts, as positions, the one that is kept first."""
        raise NotImplementedError


class Nothing(Deduplication):
    """System that leaves every memory as it is."""

    def group(self, texts: Sequence[str], vectors: Vectors) -> Groups:  # noqa: ARG002
        """Return each text alone."""
        return [[at] for at in range(len(texts))]


class ExactRepeats(Deduplication):
    """Equal texts, apart from case and spaces."""

    def group(self, texts: Sequence[str], vectors: Vectors) -> Groups:  # noqa: ARG002
        """Return the groups of equal texts."""
        groups: dict[str, list[int]] = {}
        for at, text in enumerate(texts):
            groups.setdefault(squeeze(text), []).append(at)
        return list(groups.values())


class GreedyCosine(Deduplication):
    """Each memory joins the first kept one with a cosine of at least 0.95, else it is kept."""

    def group(self, texts: Sequence[str], vectors: Vectors) -> Groups:
        """Return the groups around the kept texts."""
        groups: Groups = []
        kept: list[int] = []
        for at in range(len(texts)):
            near = np.flatnonzero(vectors[kept] @ vectors[at] >= COSINE_THRESHOLD)
            if near.size:
                groups[near[0]].append(at)
            else:
                kept.append(at)
                groups.append([at])
        return groups


class MinHashRepeats(Deduplication):
    """Each memory joins the first kept one with an estimated overlap of character shingles of at least 0.7."""

    def group(self, texts: Sequence[str], vectors: Vectors) -> Groups:  # noqa: ARG002
        """Return the groups around the kept texts."""
        from datasketch import MinHash, MinHashLSH

        index = MinHashLSH(threshold=MINHASH_THRESHOLD, num_perm=PERMUTATIONS)
        groups: dict[int, list[int]] = {}
        for at, text in enumerate(texts):
            folded = squeeze(text)
            shingles = {folded[start : start + SHINGLE_CHARS] for start in range(len(folded) - SHINGLE_CHARS + 1)}
            sketch = MinHash(num_perm=PERMUTATIONS)
            sketch.update_batch([shingle.encode() for shingle in shingles or {folded}])
            if near := index.query(sketch):
                groups[min(near)].append(at)
            else:
                index.insert(at, sketch)
                groups[at] = [at]
        return list(groups.values())


class SemHashRepeats(Deduplication):
    """SemHash with its default threshold of 0.9, on the vectors that all systems share."""

    def group(self, texts: Sequence[str], vectors: Vectors) -> Groups:
        """Return the records that SemHash keeps, each with those it dropped for it."""
        from semhash import SemHash

        records = [{"id": str(at), "text": text} for at, text in enumerate(texts)]
        hashed = SemHash.from_embeddings(vectors, records, model=_Encoder(), columns=["text"])
        result = hashed.self_deduplicate(threshold=SEMHASH_THRESHOLD)
        groups = {int(record["id"]): [int(record["id"])] for record in result.selected}
        for dropped in result.filtered:
            groups[int(dropped.duplicate_of["id"])].append(int(dropped.record["id"]))
        return list(groups.values())


class _Encoder:
    """Encoder as SemHash wants one."""

    def encode(self, inputs: Sequence[str], **_: object) -> Vectors:
        return embed(list(inputs))
