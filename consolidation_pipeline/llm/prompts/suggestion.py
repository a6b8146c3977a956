"""The prompt that proposes one memory in place of several that may say the same; a person decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from consolidation_pipeline.core.knowledge.merge_proposals import longest_length, trim_words
from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.reply_checks import find_invented_literals

# Raise it with every change of the wording or the reply class: cached replies of older versions are not used.
VERSION = 1

_SYSTEM = (
    "You read memories of software agents that may say the same, and propose the one memory that could stand in their "
    "place. A person compares it with them and decides."
)
_TASK = """Propose one memory in place of these.
- content: what they say, each thing once, in fewer words than they take together; at most {content} characters.
- lessons_learned: what to do or to avoid next time; at most {lessons} characters, empty where they teach nothing.
- keywords: up to {keywords} words or names that stand in them.
- Where they disagree, in a number, a version, a name or a not, say what each says: the person decides, not you.
- Keep every number, unit, version, date, path, URL, name in code and quotation as it is written there.
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
    """The proposed texts, no longer than those of the longest original."""

    content: str
    lessons_learned: str | None
    keywords: tuple[str, ...]


def suggestion_prompt(originals: Sequence[OriginalMemory]) -> Prompt:
    """Return the prompt for the originals of one group."""
    content, lessons = _limits(originals)
    language = language_rule([original.language for original in originals])
    task = _TASK.format(content=content, lessons=lessons, keywords=_MAX_KEYWORDS, language=language)
    tokens = min(_MAX_TOKENS, _FRAME_TOKENS + (content + lessons) // _CHARS_PER_TOKEN)
    texts = tuple(original.text for original in originals)
    return Prompt("suggestion", VERSION, _SYSTEM, task, texts, max_tokens=tokens)


def find_inventions(prompt: Prompt, reply: SuggestionReply) -> list[str]:
    """Return the problems of a reply: no text, invented literals. Its length is trimmed later."""
    if not reply.content.strip():
        return ["it says nothing: write the content"]
    return find_invented_literals("\n".join((reply.content, reply.lessons_learned, *reply.keywords)), prompt.sources)


def trim_reply(reply: SuggestionReply, originals: Sequence[OriginalMemory]) -> SuggestionText:
    """Return the reply with content and lessons cut at a word boundary to the longest original, never to nothing."""
    content, lessons = _limits(originals)
    words = (trim_words(word, _MAX_KEYWORD_CHARS) for word in reply.keywords)
    return SuggestionText(
        trim_words(reply.content, content),
        trim_words(reply.lessons_learned, lessons) or None,
        tuple(dict.fromkeys(filter(None, words)))[:_MAX_KEYWORDS],
    )


def _limits(originals: Sequence[OriginalMemory]) -> tuple[int, int]:
    """Return the most characters of content and lessons; without lessons of the originals, content limits both."""
    content = max(longest_length(original.content for original in originals), 1)
    return content, longest_length(original.lessons for original in originals) or content
