"""The prompt that proposes one memory in place of several that may say the same; a person decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from consolidation_pipeline.core.knowledge.merge_proposals import trim_words
from consolidation_pipeline.core.knowledge.rewrite_checks import max_rewrite_chars
from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.reply_checks import find_invented_literals, find_text_losses

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
    """Return the problems of a reply: no text, too long, a fact lost, reversed or invented."""
    if not reply.content.strip():
        return ["it says nothing: write the content"]
    text = f"{reply.content}\n{reply.lessons_learned}".strip()
    return [
        *find_text_losses(text, prompt.sources, longest=max_rewrite_chars(prompt.sources, max_chars=max_chars)),
        *find_invented_literals("\n".join((text, *reply.keywords)), prompt.sources),
    ]


def read_reply(reply: SuggestionReply) -> SuggestionText:
    """Return the texts of a reply without outer blanks, and its keywords, few, short and each once."""
    words = (trim_words(word, _MAX_KEYWORD_CHARS) for word in reply.keywords)
    return SuggestionText(
        reply.content.strip(),
        reply.lessons_learned.strip() or None,
        tuple(dict.fromkeys(filter(None, words)))[:_MAX_KEYWORDS],
    )
