"""Valid replies of a model, built from the memories in the prompt."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from consolidation_pipeline_tests.openai_server import Reply, Request, reply_with_embeddings, reply_with_json

MEMORY_BLOCK = re.compile(r"\[(\w+) memory (\d+) begins\]\n(.*?)\n\[\1 memory \2 ends\]", re.DOTALL)


def shown_memories(request: Request) -> dict[int, str]:
    """Return the memories in a prompt, by their number."""
    return {int(number): text for _, number, text in MEMORY_BLOCK.findall(request.body["messages"][1]["content"])}


def pattern_reply(confidence: float) -> Callable[[Request], dict[str, Any]]:
    """Return an answer with valid replies: the first memory is the pattern, and each memory is quoted as evidence."""

    def answer(request: Request) -> dict[str, Any]:
        memories = shown_memories(request)
        kind = "principle" if "principle behind them" in request.body["messages"][0]["content"] else "pattern"
        return {
            kind: memories[1],
            "pattern_type": "workflow",
            "confidence": confidence,
            "summary": memories[1],
            "best_practices": [memories[1]],
            "gotchas": [],
            "evidence": [{"unit": number, "quote": text[:30]} for number, text in memories.items()],
        }

    return answer


def rewrite_reply(request: Request) -> dict[str, str]:
    """Return a valid rewrite: the longest memory, which contains the others."""
    return {"content": max(shown_memories(request).values(), key=len)}


def suggestion_reply(request: Request) -> dict[str, Any]:
    """Return a valid suggestion: the texts of all memories."""
    return {"content": " ".join(shown_memories(request).values()), "lessons_learned": "", "keywords": ["gateway"]}


def summary_reply(request: Request) -> dict[str, Any]:
    """Return a valid summary or profile: the first memory of the prompt."""
    first = shown_memories(request)[1]
    if "how people work there" in request.body["messages"][0]["content"]:
        parts = ("communication_preferences", "technical_preferences", "work_patterns", "context")
        return {"profile": first, **{part: [first] for part in parts}}
    return {"summary": first}


def reply_by_schema(request: Request) -> dict[str, Any]:
    """Return a valid reply to any prompt of a run."""
    schema = request.body["response_format"]["json_schema"]["name"]
    if schema == "MergeReply":
        return rewrite_reply(request)
    if schema == "SuggestionReply":
        return suggestion_reply(request)
    return pattern_reply(0.9)(request) if schema in ("PatternReply", "PrincipleReply") else summary_reply(request)


def reply_to_any(request: Request) -> Reply | None:
    """Reply validly to any prompt, and embed any text."""
    if request.path.endswith("embeddings"):
        return reply_with_embeddings(dimension=16)(request)
    return reply_with_json(reply_by_schema)(request)
