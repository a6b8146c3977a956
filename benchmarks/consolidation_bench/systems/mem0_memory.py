"""mem0: its own ``add`` for each memory, with rules in the place of its language model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"

from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage

from benchmarks.consolidation_bench.dataset import Dataset, Memory
from benchmarks.consolidation_bench.systems.rule_model import OracleRule, Rule, RuleModel, WordRule
from benchmarks.consolidation_bench.systems.system import ActiveMemory, System
from benchmarks.consolidation_bench.vectors import DIMENSION, embed

_EXISTING = re.compile(r"## Existing Memories\n(.*?)\n\n## New Messages\n(.*?)\n\n## Observation Date", re.DOTALL)
MOST_MEMORIES = 1_000_000


class LocalVectors(Embeddings):
    """Vectors that all systems share, for LangChain."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts."""
        return [[float(value) for value in vector] for vector in embed(texts)]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return self.embed_documents([text])[0]


class _Mem0(System):
    """Memory of mem0. Loaded memories are stored as they are; consolidation adds them again with ``infer``."""

    def __init__(self, folder: Path, truth: Dataset) -> None:
        super().__init__(folder, truth)
        os.environ["MEM0_DIR"] = str(folder)
        self._rule = self.make_rule()
        self._loaded: list[Memory] = []
        self._memory = self._open("raw")

    def make_rule(self) -> Rule:
        """Return the rule of the model."""
        raise NotImplementedError

    def _open(self, name: str) -> Any:
        from mem0 import Memory as Mem0

        store = {"path": str(self.folder / name), "collection_name": name, "embedding_model_dims": DIMENSION}
        return Mem0.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": {**store, "on_disk": False}},
                "embedder": {"provider": "langchain", "config": {"model": LocalVectors()}},
                "llm": {"provider": "langchain", "config": {"model": RuleModel(reply=self._reply, usage=self.usage)}},
                "history_db_path": str(self.folder / f"{name}.db"),
            }
        )

    def _reply(self, messages: Sequence[BaseMessage]) -> AIMessage:
        """Return the memories that the rule keeps of the new messages, as mem0's prompt wants them."""
        found = _EXISTING.search(str(messages[-1].content))
        if not found:
            raise ValueError("mem0's prompt has no section of existing memories and new messages")
        shown = [memory["text"] for memory in json.loads(found[1] or "[]")]
        text = found[2].removeprefix("user: ").strip()
        kept = [{"id": "0", "text": text, "attributed_to": "user"}] if self._rule.decide(text, shown).keeps else []
        return AIMessage(json.dumps({"memory": kept}))

    def load(self, memories: Sequence[Memory]) -> None:
        """Store the memories without inference."""
        self._loaded = list(memories)
        self._add(infer=False)

    def consolidate(self) -> None:
        """Add the memories with inference, the first time to an empty store."""
        if self._memory.vector_store.collection_name == "raw":
            self._memory.close()
            self._memory = self._open("inferred")
        self._add(infer=True)

    def _add(self, *, infer: bool) -> None:
        for memory in self._loaded:
            self._memory.add(memory.text, user_id=memory.user, metadata={"source": memory.id}, infer=infer)

    def active(self) -> list[ActiveMemory]:
        """Return all memories, each with the one that it was made from."""
        return [
            ActiveMemory(user, row["memory"], (row["metadata"]["source"],))
            for user in sorted({memory.user for memory in self._loaded})
            for row in self._memory.get_all(filters={"user_id": user}, top_k=MOST_MEMORIES)["results"]
        ]

    def search(self, user: str, query: str, k: int) -> list[str]:
        """Return what mem0 finds."""
        found = self._memory.search(query, filters={"user_id": user}, top_k=k)
        return [hit["memory"] for hit in found["results"]]


class Mem0Words(_Mem0):
    """mem0 with the rule of words."""

    model = "rule of words"

    def make_rule(self) -> Rule:
        """Return the rule of words."""
        return WordRule()


class Mem0Oracle(_Mem0):
    """mem0 with the rule that knows the truth."""

    model = "oracle"

    def make_rule(self) -> Rule:
        """Return the rule that knows the truth."""
        return OracleRule(self.truth)
