"""LangMem: its store manager for each memory, with rules in the place of its language model."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from benchmarks.consolidation_bench.dataset import Dataset, Memory
from benchmarks.consolidation_bench.systems.rule_model import OracleRule, Rule, RuleModel, WordRule
from benchmarks.consolidation_bench.systems.system import ActiveMemory, System
from benchmarks.consolidation_bench.vectors import DIMENSION, embed

RAW, MANAGED = "raw", "managed"
MOST_MEMORIES = 1_000_000
_EXISTING = re.compile(r'<instance id=(\S+) schema_type="\w+">\n(.*?)\n</instance>', re.DOTALL)
_SESSION = re.compile(r"<session_\S+>\n(.*?)\n</session_", re.DOTALL)
_HEADING = re.compile(r"^=+ .* =+$", re.MULTILINE)


class _LangMem(System):
    """Store of LangGraph. Loaded memories are put into it; consolidation gives each to LangMem's manager."""

    def __init__(self, folder: Path, truth: Dataset) -> None:
        super().__init__(folder, truth)
        from langmem import create_memory_store_manager

        self._rule = self.make_rule()
        self._loaded: list[Memory] = []
        self._namespace = RAW
        index: Any = {"dims": DIMENSION, "embed": lambda texts: embed(texts).tolist(), "fields": ["content.content"]}
        self._store = InMemoryStore(index=index)
        self._manager = create_memory_store_manager(
            RuleModel(reply=self._reply, usage=self.usage),
            namespace=(MANAGED, "{langgraph_user_id}"),
            store=self._store,
            enable_deletes=True,
        )

    def make_rule(self) -> Rule:
        """Return the rule of the model."""
        raise NotImplementedError

    def _reply(self, messages: Sequence[BaseMessage]) -> AIMessage:
        """Return the calls of LangMem's tools by which the rule keeps and removes memories."""
        prompt = "\n".join(str(message.content) for message in messages)
        session = _SESSION.search(prompt)
        if not session:
            raise ValueError("LangMem's prompt has no session")
        text = _HEADING.sub("", session[1]).strip()
        shown = {ast.literal_eval(value)["content"]: id_ for id_, value in _EXISTING.findall(prompt)}
        decision = self._rule.decide(text, list(shown))
        calls = [("RemoveDoc", {"json_doc_id": shown[other]}) for other in decision.removes]
        calls += [("Memory", {"content": text})] if decision.keeps else []
        return AIMessage("", tool_calls=[{"name": name, "args": args, "id": str(uuid4())} for name, args in calls])

    def load(self, memories: Sequence[Memory]) -> None:
        """Put the memories into the store as they are."""
        self._loaded = list(memories)
        for memory in memories:
            value = {"kind": "Memory", "content": {"content": memory.text}}
            self._store.put((RAW, memory.user), memory.id, value)

    def consolidate(self) -> None:
        """Give each memory to the manager, as a message of its user."""
        self._namespace = MANAGED
        for memory in self._loaded:
            config: Any = {"configurable": {"langgraph_user_id": memory.user}}
            self._manager.invoke({"messages": [HumanMessage(memory.text)]}, config=config)

    def active(self) -> list[ActiveMemory]:
        """Return all memories. LangMem knows no sources: each stands for a loaded one with the same text."""
        ids = defaultdict(list)
        for memory in reversed(self._loaded):
            ids[memory.user, memory.text].append(memory.id)
        found = []
        for user in sorted({memory.user for memory in self._loaded}):
            for text in self._find(user, None, MOST_MEMORIES):
                named = ids[user, text]
                found.append(ActiveMemory(user, text, (named.pop(),) if named else ()))
        return found

    def search(self, user: str, query: str, k: int) -> list[str]:
        """Return what the store finds."""
        return self._find(user, query, k)

    def _find(self, user: str, query: str | None, limit: int) -> list[str]:
        items = self._store.search((self._namespace, user), query=query, limit=limit)
        return [item.value["content"]["content"] for item in items]


class LangMemWords(_LangMem):
    """LangMem with the rule of words."""

    model = "rule of words"

    def make_rule(self) -> Rule:
        """Return the rule of words."""
        return WordRule()


class LangMemOracle(_LangMem):
    """LangMem with the rule that knows the truth."""

    model = "oracle"

    def make_rule(self) -> Rule:
        """Return the rule that knows the truth."""
        return OracleRule(self.truth)
