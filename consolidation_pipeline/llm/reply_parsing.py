"""From what a model says to a checked value, or to a list of what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from consolidation_pipeline.llm.prompt import Message

T = TypeVar("T", bound=BaseModel)

_MOST_PROBLEMS = 10
_LONGEST_PROBLEM = 300
_LONGEST_ECHO = 8000  # characters of a refused reply that the model is shown again

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # as JSON writes it; an even number of backslashes before it is text
_OPENS_OBJECT = re.compile(r'\{\s*"')


@dataclass(frozen=True)
class ParsedReply(Generic[T]):
    """A reply as read: its JSON object and the value made of it, or what is wrong."""

    value: T | None = None
    content: dict[str, Any] | None = None
    problems: tuple[str, ...] = ()


def parse_reply(text: str, schema: type[T]) -> ParsedReply[T]:
    """The first JSON object in ``text`` that fits the schema, whatever stands around it: fences, prose.

    Without one, the problems of the largest object.
    """
    worst: tuple[int, ParsedReply[T]] = (0, ParsedReply(problems=(_without_json(text),)))
    for content, length in _iter_objects(text):
        reading = validate_reply(content, schema)
        if not reading.problems:
            return reading
        worst = max(worst, (length, reading), key=lambda pair: pair[0])
    return worst[1]


def validate_reply(content: Any, schema: type[T]) -> ParsedReply[T]:
    """JSON values as a value of the schema; refused too: what Postgres cannot store (NUL, half surrogates, NaN)."""
    try:
        written = json.dumps(content, ensure_ascii=False, allow_nan=False)
        written.encode()
        if _NUL.search(written):
            return ParsedReply(problems=("it holds the character NUL: leave it out",))
        return ParsedReply(schema.model_validate(content), content)
    except ValidationError as error:
        return ParsedReply(problems=tuple(_explain(e) for e in error.errors()[:_MOST_PROBLEMS]))
    except UnicodeEncodeError:
        return ParsedReply(problems=("it holds half a surrogate pair: write valid Unicode",))
    except ValueError:
        return ParsedReply(problems=("it holds a number that is not finite",))


def repair_messages(text: str, problems: Sequence[str]) -> list[Message]:
    """What is said after a refused reply: the reply itself, what is wrong with it, and what is wanted."""
    listed = "\n".join(f"- {problem[:_LONGEST_PROBLEM]}" for problem in problems[:_MOST_PROBLEMS])
    return [
        {"role": "assistant", "content": text[:_LONGEST_ECHO] or "(empty)"},
        {
            "role": "user",
            "content": f"This reply cannot be used:\n{listed}\nReply again, with one JSON object and nothing else.",
        },
    ]


def schema_rule(schema: type[BaseModel]) -> str:
    """What a model is told that takes no schema beside the prompt."""
    described = json.dumps(schema.model_json_schema())
    return f"Reply with one JSON object, and nothing else, that fits this JSON schema:\n{described}"


def _without_json(text: str) -> str:
    if not text.strip():
        return "the reply is empty"
    return "the reply has no complete JSON object"


def _iter_objects(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Every JSON object in a text that is not part of another one, with its length in characters."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at = text.find("{")
    while at >= 0:
        try:
            content, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if _OPENS_OBJECT.match(text, at):
                return  # cut short: an object inside it is not the reply
            end = at + 1
        else:
            yield content, end - at
        at = text.find("{", end)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _explain(error: Any) -> str:
    where = ".".join(map(str, error["loc"])) or "the object"
    return f"{where}: {error['msg']}"
