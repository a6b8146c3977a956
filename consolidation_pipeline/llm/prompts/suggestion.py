"""The prompt that proposes one memory in place of several that may say the same; a person decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from consolidation_pipeline.core.knowledge.merge_proposals import trim_words
from consolidation_pipeline.core.knowledge.rewrite_checks import (
    MIN_KEPT_SHARE,
    compute_kept_share,
    find_lost_denials,
    find_reversals,
    max_rewrite_chars,
)
from consolidation_pipeline.core.text.text_merge import find_missing_literals
from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.reply_checks import find_invented_literals

# Raise it with every change of the wording or the reply class: cached replies of older versions are not used.
VERSION = 2

_SYSTEM = (
    "You read memories of software agents that may say the same, and propose the one memory that could stand in their "
    "place. A person compares it with them and decides."
)
_TASK = """Propose one memory in place of these.
- content: all that they say, each thing once, in fewer words than they take together.
- lessons_learned: what to do or to avoid next time; empty where they teach nothing.
- Both together have at most {longest} characters.
- keywords: up to {keywords} words or names that stand in them.
- Where they disagree, in a number, a version, a name or a not, say what each says: the person decides, not you.
- Keep every number, unit, version, date, path, URL, name in code and quotation as it is written there.
- Keep every not, never, without and unless, and what it belongs to.
- Add nothing: no number, name, version or path of your own, and no reason that none of them gives.
{language}"""
_LESSONS = "\n\nLessons learned: "
_MAX_KEYWORDS, _MAX_KEYWORD_CHARS = 10, 60
# Tokens of a reply: a token has two characters at worst in most scripts; some models write at most 4,000 tokens.
_CHARS_PER_TOKEN, _FRAME_TOKENS, _MAX_TOKENS = 2, 400, 4000


class SuggestionReply(BaseModel):
    """The memory that could stand in place of several."""

    content: str = Field(description="What they say.")
    lessons_learned: str = Field(description="What to do or to avoid next time; empty where they teach nothing.")
    keywords: list[str] = Field(description="Words or names that stand in them.")


@dataclass(frozen=True)
class OriginalMemory:
    """One memory as the model sees it. ``language``: its text search configuration."""

    content: str
    lessons: str | None
    language: str

    @property
    def text(self) -> str:
        """Content and lessons in one text."""
        return self.content + (_LESSONS + self.lessons if self.lessons else "")


@dataclass(frozen=True)
class SuggestionText:
    """The proposed texts and keywords."""

    content: str
    lessons_learned: str | None
    keywords: tuple[str, ...]


def suggestion_prompt(originals: Sequence[OriginalMemory], *, max_chars: int) -> Prompt:
    """Return the prompt for the originals of one group.

    Args:
        originals: The memories.
        max_chars: Longest merged text, in characters.
    """
    texts = tuple(original.text for original in originals)
    longest = max_rewrite_chars(texts, max_chars=max_chars)
    language = language_rule([original.language for original in originals])
    task = _TASK.format(longest=longest, keywords=_MAX_KEYWORDS, language=language)
    tokens = min(_MAX_TOKENS, _FRAME_TOKENS + longest // _CHARS_PER_TOKEN)
    return Prompt("suggestion", VERSION, _SYSTEM, task, texts, max_tokens=tokens)


def find_losses(prompt: Prompt, reply: SuggestionReply, *, max_chars: int) -> list[str]:
    """Return the problems of a reply: no text, too long, a fact lost, reversed or invented.

    What one memory says and another one denies may be told in both ways.
    """
    if not reply.content.strip():
        return ["it says nothing: write the content"]
    text = f"{reply.content}\n{reply.lessons_learned}".strip()
    longest = max_rewrite_chars(prompt.sources, max_chars=max_chars)
    lost = sorted(find_missing_literals(prompt.sources, text), key=lambda literal: (literal.kind, literal.value))
    return [
        *([f"it has {len(text)} characters: at most {longest} are allowed"] if len(text) > longest else []),
        *(f"the {literal.kind} {literal.text!r} is missing: keep it as it is written" for literal in lost),
        *(problem for number in range(len(prompt.sources)) for problem in _compare(prompt.sources, number, text)),
        *find_invented_literals("\n".join((text, *reply.keywords)), prompt.sources),
    ]


def _compare(sources: Sequence[str], number: int, text: str) -> Iterator[str]:
    source, name = sources[number], f"memory {number + 1}"
    others = [other for at, other in enumerate(sources) if at != number]
    denied = {word for other in others for word in find_reversals(source, other)}
    yield from (f"{name} says {clause!r}, and this does not: keep it" for clause in find_lost_denials(source, text))
    yield from (
        f"{name} says {word!r}, and this the opposite" for word in find_reversals(source, text) if word not in denied
    )
    if compute_kept_share(source, text) < MIN_KEPT_SHARE:
        yield f"most of what {name} says is missing: keep all of it"


def read_reply(reply: SuggestionReply) -> SuggestionText:
    """Return the texts of a reply without outer blanks, and its keywords, few, short and each once."""
    words = (trim_words(word, _MAX_KEYWORD_CHARS) for word in reply.keywords)
    return SuggestionText(
        reply.content.strip(),
        reply.lessons_learned.strip() or None,
        tuple(dict.fromkeys(filter(None, words)))[:_MAX_KEYWORDS],
    )
