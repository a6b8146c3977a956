"""The prompt that asks which sentences of older memories no longer hold because of a newer one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain

from pydantic import BaseModel, Field

from consolidation_pipeline.core.knowledge.supersession import find_claim
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.reply_checks import find_invented_quotes

# Raise it with every change of the wording or the reply class: answers to older versions are not used.
VERSION = 1

_SYSTEM = (
    "You look for outdated sentences in the memories of software agents. A sentence of an older memory is outdated "
    "only if whoever acts by it today would be wrong because of what a newer memory says about the very same thing. "
    "A wrong answer hides what still holds; a person checks each of your answers."
)
_TASK = """There are {count} cases. Judge each alone.
{cases}
- case: its number.
- claims: what its newer memory says is so, in at most 30 words.
- outdated: an entry for each sentence of its older memories that no longer holds because of the newer one, also if
  that one tells the new state in other words and does not speak of a change; an empty list if all still hold.
  - memory: number of the older memory.
  - was: its outdated sentence, word for word.
  - now: the sentence of the newer memory that shows it, word for word.
  - thing: the one thing that both are about, in at most 12 words.
Not outdated is what holds beside the newer memory: of another environment, service, version, customer, person, place or
case; where one adds something or tells an exception; where one is a plan, a question, a request, an opinion, a single
event, or a measurement at another time."""
_FRAME_TOKENS, _TOKENS_PER_OLDER, _MAX_TOKENS = 200, 160, 4000


@dataclass(frozen=True)
class Case:
    """A memory and older ones of which it may make a sentence outdated.

    ``days``: on which the newer memory and each of the older ones was learned.
    """

    newer: str
    older: tuple[str, ...]
    days: tuple[date, ...]


class OutdatedSentence(BaseModel):
    """A sentence of an older memory that no longer holds."""

    memory: int = Field(description="Number of the older memory.")
    was: str = Field(description="Its outdated sentence, word for word.")
    now: str = Field(description="The sentence of the newer memory that shows it, word for word.")
    thing: str = Field(description="What both are about.")


class CaseAnswer(BaseModel):
    """Answer to a case: what its newer memory says, and the sentences that are outdated by it."""

    case: int = Field(description="Number of the case.")
    claims: str = Field(description="What its newer memory says is so.")
    outdated: list[OutdatedSentence]


class SupersessionReply(BaseModel):
    """An answer to each case."""

    answers: list[CaseAnswer]


def supersession_prompt(cases: Sequence[Case]) -> Prompt:
    """Return the prompt that judges these cases."""
    lines = [
        f"Case {number}: memory {first} of {case.days[0]} is the newer one; older are "
        + ", ".join(f"memory {first + at} of {day}" for at, day in enumerate(case.days[1:], 1))
        + "."
        for number, (first, case) in enumerate(_number(cases), 1)
    ]
    sources = tuple(chain.from_iterable((case.newer, *case.older) for case in cases))
    tokens = min(_MAX_TOKENS, _FRAME_TOKENS + _TOKENS_PER_OLDER * (len(sources) - len(cases)))
    task = _TASK.format(count=len(cases), cases="\n".join(lines))
    return Prompt("supersession", VERSION, _SYSTEM, task, sources, max_tokens=tokens)


def find_problems(cases: Sequence[Case], reply: SupersessionReply) -> list[str]:
    """Return the problems of a reply: cases without one answer each, memories of other cases, and invented quotes."""
    answered = Counter(one.case for one in reply.answers)
    firsts = dict(enumerate((first for first, _ in _number(cases)), 1))
    problems = [
        f"case {number} has {answered[number]} answers: give it one" for number in firsts if answered[number] != 1
    ]
    problems += [
        f"there is no case {number}: they are 1 to {len(cases)}" for number in answered if number not in firsts
    ]
    for answer in reply.answers:
        if answer.case in firsts:
            problems += _check_answer(cases[answer.case - 1], firsts[answer.case], answer)
    return problems


def _check_answer(case: Case, first: int, answer: CaseAnswer) -> Iterator[str]:
    texts = {first + at: text for at, text in enumerate((case.newer, *case.older))}
    for one in answer.outdated:
        if not first < one.memory < first + len(texts):
            yield f"memory {one.memory} is no older one of case {answer.case}"
            continue
        quotes = [(one.memory, one.was), (first, one.now)]
        yield from find_invented_quotes(quotes, texts)
        for number, quote in quotes:
            if not find_invented_quotes([(number, quote)], texts) and find_claim(texts[number], quote) is None:
                yield f"a quote of memory {number} in case {answer.case} is no single sentence of it: quote one"


def read_outdated(cases: Sequence[Case], reply: SupersessionReply) -> list[dict[int, tuple[str, str]]]:
    """Return for each case the outdated sentence, and the newer one that shows it, by the place of the older memory.

    Of several outdated sentences of one memory the first counts.
    """
    found: list[dict[int, tuple[str, str]]] = [{} for _ in cases]
    firsts = [first for first, _ in _number(cases)]
    for answer in reply.answers:
        case, first = cases[answer.case - 1], firsts[answer.case - 1]
        for one in answer.outdated:
            at = one.memory - first - 1
            was, now = find_claim(case.older[at], one.was), find_claim(case.newer, one.now)
            if was is not None and now is not None:
                found[answer.case - 1].setdefault(at, (was, now))
    return found


def _number(cases: Sequence[Case]) -> Iterator[tuple[int, Case]]:
    """Yield the cases, each with the number of its newer memory."""
    first = 1
    for case in cases:
        yield first, case
        first += 1 + len(case.older)
