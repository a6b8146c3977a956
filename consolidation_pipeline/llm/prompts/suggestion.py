"""The prompt that proposes one memory in place of some that may say the same, for a person to decide on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from consolidation_pipeline.core.knowledge.merge_proposals import longest_length, trim_words
from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.reply_checks import find_invented_literals

# Raise it with every change of the words below: replies to the old ones are not used any more.
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
_KEYWORDS, _LONGEST_KEYWORD = 10, 60
# Tokens of a reply: two characters make one at worst in most scripts, and some models write no more than these.
_CHARS_PER_TOKEN, _FRAME, _MOST_TOKENS = 2, 400, 4000


class SuggestionReply(BaseModel):
    """The memory that could stand in place of several."""

    content: str = Field(description="What they say.")
    lessons_learned: str = Field(description="What to do or to avoid next time; empty where they teach nothing.")
    keywords: list[str] = Field(description="Words or names that stand in them.")


@dataclass(frozen=True)
class OriginalMemory:
    """One memory as a model is shown it; ``language``: its text search configuration."""

    content: str
    lessons: str | None
    language: str

    @property
    def text(self) -> str:
        """Both in one."""
        return self.content + (_LESSONS + self.lessons if self.lessons else "")


@dataclass(frozen=True)
class SuggestionText:
    """A reply as it is proposed: no longer than the longest original has it."""

    content: str
    lessons_learned: str | None
    keywords: tuple[str, ...]


def suggestion_prompt(originals: Sequence[OriginalMemory]) -> Prompt:
    """What is asked about the originals of one group."""
    content, lessons = _limits(originals)
    language = language_rule([original.language for original in originals])
    task = _TASK.format(content=content, lessons=lessons, keywords=_KEYWORDS, language=language)
    tokens = min(_MOST_TOKENS, _FRAME + (content + lessons) // _CHARS_PER_TOKEN)
    texts = tuple(original.text for original in originals)
    return Prompt("suggestion", VERSION, _SYSTEM, task, texts, max_tokens=tokens)


def find_inventions(prompt: Prompt, reply: SuggestionReply) -> list[str]:
    """What is wrong: nothing said, or something in it that stands in none of the memories. Length is trimmed later."""
    if not reply.content.strip():
        return ["it says nothing: write the content"]
    return find_invented_literals("\n".join((reply.content, reply.lessons_learned, *reply.keywords)), prompt.sources)


def trim_reply(reply: SuggestionReply, originals: Sequence[OriginalMemory]) -> SuggestionText:
    """The reply, content and lessons cut at a word boundary to the longest of the originals, never to nothing."""
    content, lessons = _limits(originals)
    words = (trim_words(word, _LONGEST_KEYWORD) for word in reply.keywords)
    return SuggestionText(
        trim_words(reply.content, content),
        trim_words(reply.lessons_learned, lessons) or None,
        tuple(dict.fromkeys(filter(None, words)))[:_KEYWORDS],
    )


def _limits(originals: Sequence[OriginalMemory]) -> tuple[int, int]:
    """Most characters of content and of lessons; where no original has lessons of its own, they are in its content."""
    content = max(longest_length(original.content for original in originals), 1)
    return content, longest_length(original.lessons for original in originals) or content
