"""The prompt that rewrites near-duplicates as one text, and checks that the text loses nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, Field

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
    longest = max_rewrite_chars(prompt.sources, max_chars=max_chars)
    lost = sorted(find_missing_literals(prompt.sources, text), key=lambda literal: (literal.kind, literal.value))
    return [
        *([f"it has {len(text)} characters: at most {longest} are allowed"] if len(text) > longest else []),
        *(f"the {literal.kind} {literal.text!r} is missing: keep it as it is written" for literal in lost),
        *(problem for number, source in enumerate(prompt.sources, 1) for problem in _compare(number, source, text)),
        *find_invented_literals(text, prompt.sources),
    ]


def _compare(number: int, source: str, text: str) -> Iterator[str]:
    yield from (
        f"memory {number} says {clause!r}, and this does not: keep it" for clause in find_lost_denials(source, text)
    )
    yield from (f"memory {number} says {clause!r}, and this the opposite" for clause in find_reversals(source, text))
    if compute_kept_share(source, text) < MIN_KEPT_SHARE:
        yield f"most of what memory {number} says is missing: keep all of it"
