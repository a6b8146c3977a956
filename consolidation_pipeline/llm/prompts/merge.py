"""The prompt that rewrites near-duplicates as one text, and checks that the text loses nothing."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from consolidation_pipeline.core.knowledge.rewrite_checks import max_rewrite_chars
from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.reply_checks import find_invented_literals, find_text_losses

# Raise it with every change of the wording or the reply class: cached replies of older versions are not used.
VERSION = 1

_SYSTEM = "You read memories of software agents that say nearly the same, and write the one that stands in their place."
_TASK = """Write one text that says everything that these memories say, each thing once.
- Keep every number, unit, version, date, path, URL, name in code and quotation as it is written there.
- Keep every not, never, without and unless, and what it belongs to.
- Add nothing: no number, name, version or path of your own, no reason, no advice and no heading.
- At most {longest} characters; shorter where nothing is lost.
{language}"""
# Tokens of a reply: a token has two characters at worst in most scripts; some models write at most 4,000 tokens.
_CHARS_PER_TOKEN, _FRAME_TOKENS, _MAX_TOKENS = 2, 300, 4000


class MergeReply(BaseModel):
    """The text in place of several."""

    content: str = Field(description="The memory.")


def merge_prompt(texts: Sequence[str], languages: Sequence[str], *, max_chars: int) -> Prompt:
    """Return the prompt for one merge group.

    Args:
        texts: Texts of the memories.
        languages: Their text search configurations.
        max_chars: Longest merged text, in characters.
    """
    longest = max_rewrite_chars(texts, max_chars=max_chars)
    task = _TASK.format(longest=longest, language=language_rule(languages))
    tokens = min(_MAX_TOKENS, _FRAME_TOKENS + longest // _CHARS_PER_TOKEN)
    return Prompt("merge", VERSION, _SYSTEM, task, tuple(texts), max_tokens=tokens)


def find_losses(prompt: Prompt, reply: MergeReply, *, max_chars: int) -> list[str]:
    """Return the problems of a reply: too long, a fact of a source lost or reversed, a fact that no source has."""
    text = reply.content.strip()
    if not text:
        return ["it says nothing: write the text"]
    return [
        *find_text_losses(text, prompt.sources, longest=max_rewrite_chars(prompt.sources, max_chars=max_chars)),
        *find_invented_literals(text, prompt.sources),
    ]
