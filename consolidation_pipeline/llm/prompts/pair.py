"""The prompt that judges pairs of texts: do both say the same?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from consolidation_pipeline.llm.prompt import Prompt

# Raise it with every change of the wording or the reply class: answers to older versions are not used.
VERSION = 1

_SYSTEM = (
    "You compare memories of software agents, pair by pair. The two memories of a pair are the same only if whoever "
    "acts by one of them does exactly what the other says. A wrong 'same' destroys knowledge; an 'unsure' costs one "
    "question to a person."
)
_TASK = """There are {pairs} pairs. Pair 1 is memories 1 and 2, pair 2 is memories 3 and 4, and so on. Judge each alone.
- pair: its number.
- first_claim: what its first memory claims, in at most 25 words: who does what, to what, when, where, on which
  condition, how much, how surely.
- second_claim: the same of its second memory.
- difference: the largest difference between these claims that you can find.
- kind: what differs. wording: nothing but the words; detail: one adds a detail that neither limits nor changes the
  claim of the other; else the part of the claim that differs.
- answer: same, if the claims are the same or one only adds such a detail; different, if one does not stand for the
  other; unsure, if you cannot tell."""
# Kinds of difference with which "same" is believed.
_HARMLESS = ("wording", "detail")
_TOKENS_PER_PAIR, _FRAME_TOKENS, _MAX_TOKENS = 190, 200, 4000

Answer = Literal["same", "different", "unsure"]


class PairAnswer(BaseModel):
    """The claims of both memories of a pair, how they differ, and the answer."""

    pair: int = Field(description="Number of the pair.")
    first_claim: str = Field(description="What the first memory claims.")
    second_claim: str = Field(description="What the second memory claims.")
    difference: str = Field(description="The largest difference between the claims.")
    kind: Literal[
        "wording", "detail", "actor", "action", "object", "order", "cause", "time", "place", "condition", "amount",
        "certainty", "negation", "other",
    ] = Field(description="What differs.")  # fmt: skip
    answer: Answer


class PairReply(BaseModel):
    """An answer to each pair."""

    answers: list[PairAnswer]


def pair_prompt(pairs: Sequence[tuple[str, str]]) -> Prompt:
    """Return the prompt that judges these pairs of texts."""
    tokens = min(_MAX_TOKENS, _FRAME_TOKENS + _TOKENS_PER_PAIR * len(pairs))
    sources = tuple(text for pair in pairs for text in pair)
    return Prompt("pair", VERSION, _SYSTEM, _TASK.format(pairs=len(pairs)), sources, max_tokens=tokens)


def find_problems(prompt: Prompt, reply: PairReply) -> list[str]:
    """Return the problems of a reply: pairs without one answer each, and answers without claims or difference."""
    count = len(prompt.sources) // 2
    answered = Counter(one.pair for one in reply.answers)
    blank = [one.pair for one in reply.answers if not all(map(str.strip, _list_texts(one)))]
    return [
        *(f"pair {number} has {answered[number]} answers: give it one" for number in range(1, count + 1)
          if answered[number] != 1),
        *(f"there is no pair {number}: the pairs are 1 to {count}" for number in answered if not 1 <= number <= count),
        *(f"pair {number} lacks a claim or the difference: write them" for number in blank),
    ]  # fmt: skip


def read_answers(reply: PairReply) -> list[Answer]:
    """Return the answers in the order of the pairs. A "same" beside a difference in the claim counts as unsure."""
    ordered = sorted(reply.answers, key=lambda one: one.pair)
    return ["unsure" if one.answer == "same" and one.kind not in _HARMLESS else one.answer for one in ordered]


def _list_texts(one: PairAnswer) -> tuple[str, ...]:
    return one.first_claim, one.second_claim, one.difference
