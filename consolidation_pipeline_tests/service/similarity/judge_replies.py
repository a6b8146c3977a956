"""Replies of pair judges, and pairs of notes that one can judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from consolidation_pipeline.core.calibration.decision_errors import load_product_pairs
from consolidation_pipeline_tests.openai_server import Behaviour, Request, reply_with_json
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.model_replies import shown_memories

MODEL = "openai/gpt-4o-mini"
OPTIONS: dict[str, Any] = {
    "pair_judge": "llm", "llm_model": MODEL, "t_merge": 0.6, "t_suggest": 0.6, "summarize": False, "archive": False,
}  # fmt: skip

SAME = (
    (
        "Clear the template cache after changing a mail layout.",
        "Whenever a mail layout is edited, empty the template cache afterwards.",
    ),
    (
        "Ask the warehouse team before deleting a product code.",
        "Check with the warehouse people first when you want to remove a product code.",
    ),
    (
        "Search results are stale until the index job has finished.",
        "Until the index job is done, the search page shows outdated results.",
    ),
)
DIFFERENT = (
    (
        "Invoices are printed by the billing worker on the second floor.",
        "Invoices are archived by the billing worker on the second floor.",
    ),
    (
        "The retry queue drains slowly while the payment gateway is busy.",
        "The retry queue fills slowly while the payment gateway is busy.",
    ),
    (
        "Keep the feature flag until the mobile team has shipped.",
        "Keep the feature flag until the browser team has shipped.",
    ),
)
# The rules find that these contradict each other.
CONTRADICTING = (
    "The upload gateway closes idle connections after 30 seconds.",
    "The upload gateway closes idle connections after 60 seconds.",
)
Pair = tuple[str, str]


def pair_notes() -> list[dict[str, Any]]:
    """Return notes with the texts of all pairs, named ``same-0-0``, ``same-0-1``, .., ``value-0-0``, ``value-0-1``."""
    kinds = {"same": SAME, "different": DIFFERENT, "value": (CONTRADICTING,)}
    return [
        note(f"{kind}-{number}-{side}", text)
        for kind, pairs in kinds.items()
        for number, pair in enumerate(pairs)
        for side, text in enumerate(pair)
    ]


def shown_pairs(request: Request) -> list[Pair]:
    """Return the pairs in a prompt, in the order asked."""
    memories = shown_memories(request)
    return [(memories[number], memories[number + 1]) for number in range(1, len(memories), 2)]


def judge_with(answer: Callable[[Pair], str]) -> Behaviour:
    """Return a behaviour that gives this answer to each pair of a prompt."""

    def reply(request: Request) -> dict[str, Any]:
        return {"answers": [_answer(at, pair, answer(pair)) for at, pair in enumerate(shown_pairs(request), 1)]}

    return reply_with_json(reply)


def _answer(number: int, pair: Pair, answer: str) -> dict[str, Any]:
    kind = "wording" if answer == "same" else "other"
    claims = {"first_claim": pair[0][:60], "second_claim": pair[1][:60]}
    return {"pair": number, **claims, "difference": "the words", "kind": kind, "answer": answer}


def oracle(same: Iterable[Pair] = SAME) -> Behaviour:
    """Return a behaviour that answers from labels: of these pairs, and of those that come with the product."""
    labelled = {frozenset(pair) for pair in same}
    labelled |= {frozenset((pair.a, pair.b)) for pair in load_product_pairs() if pair.same}
    return judge_with(lambda pair: "same" if frozenset(pair) in labelled else "different")
