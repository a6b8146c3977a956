"""Parses replies: the JSON object in a model's text, validated by a schema, or a list of problems."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from consolidation_pipeline.llm.prompt import Message

T = TypeVar("T", bound=BaseModel)

_MAX_PROBLEMS = 10
_MAX_PROBLEM_CHARS = 300
_MAX_ECHO_CHARS = 8000  # of a refused reply that is sent back to the model

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # as JSON writes it; an even number of backslashes before it is text
_OPENS_OBJECT = re.compile(r'\{\s*"')


@dataclass(frozen=True)
class ParsedReply(Generic[T]):
    """A parsed reply: its JSON object (``content``) and the value made of it, or its problems."""

    value: T | None = None
    content: dict[str, Any] | None = None
    problems: tuple[str, ...] = ()


def parse_reply(text: str, schema: type[T]) -> ParsedReply[T]:
    """Return the first JSON object in ``text``, also in code fences or prose, that fits the schema.

    If none fits, return the problems of the largest object.
    """
    problem = "the reply has no complete JSON object" if text.strip() else "the reply is empty"
    largest: tuple[int, ParsedReply[T]] = (0, ParsedReply(problems=(problem,)))
    for content, length in _iter_objects(text):
        parsed = validate_reply(content, schema)
        if not parsed.problems:
            return parsed
        largest = max(largest, (length, parsed), key=lambda pair: pair[0])
    return largest[1]


def validate_reply(content: Any, schema: type[T]) -> ParsedReply[T]:
    """Validate JSON values by the schema. Also refused: what Postgres cannot store (NUL, half surrogates, NaN)."""
    try:
        written = json.dumps(content, ensure_ascii=False, allow_nan=False)
        written.encode()
        if _NUL.search(written):
            return ParsedReply(problems=("it holds the character NUL: leave it out",))
        return ParsedReply(schema.model_validate(content), content)
    except ValidationError as error:
        return ParsedReply(problems=tuple(_explain(e) for e in error.errors()[:_MAX_PROBLEMS]))
    except UnicodeEncodeError:
        return ParsedReply(problems=("it holds half a surrogate pair: write valid Unicode",))
    except ValueError:
        return ParsedReply(problems=("it holds a number that is not finite",))


def repair_messages(text: str, problems: Sequence[str]) -> list[Message]:
    """Return the messages that follow a refused reply: the reply, its problems, and the request to repair it."""
    listed = "\n".join(f"- {problem[:_MAX_PROBLEM_CHARS]}" for problem in problems[:_MAX_PROBLEMS])
    return [
        {"role": "assistant", "content": text[:_MAX_ECHO_CHARS] or "(empty)"},
        {
            "role": "user",
            "content": f"This reply cannot be used:\n{listed}\nReply again, with one JSON object and nothing else.",
        },
    ]


def schema_rule(schema: type[BaseModel]) -> str:
    """Return the instruction that states the schema, for models that take no response schema."""
    described = json.dumps(schema.model_json_schema())
    return f"Reply with one JSON object, and nothing else, that fits this JSON schema:\n{described}"


def _iter_objects(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each outermost JSON object of a text, with its length in characters."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at = text.find("{")
    while at >= 0:
        try:
            content, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if _OPENS_OBJECT.match(text, at):
                return  # truncated: an object inside it is not the reply
            end = at + 1
        else:
            yield content, end - at
        at = text.find("{", end)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _explain(error: Any) -> str:
    where = ".".join(map(str, error["loc"])) or "the object"
    return f"{where}: {error['msg']}"
