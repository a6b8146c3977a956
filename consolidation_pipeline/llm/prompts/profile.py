"""The prompt that derives from summaries how a project, or the person behind it, works."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from consolidation_pipeline.core.knowledge.source_support import IsNear
from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.prompts.summary import find_text_problems
from consolidation_pipeline.llm.reply_checks import find_invented_literals, find_other_language, find_unsupported

# Raise it with every change of the wording or the reply class: cached replies of older versions are not used.
VERSION = 2
MAX_CHARS = 6000  # a profile is read as a whole before work starts

_SYSTEM = (
    "You read summaries of what software agents noted in one project; each is given as a memory. You find out how "
    "people work there, so that the next agent works as they would want it to."
)
_TASK = """Describe how this project, or the person it belongs to, works.
- profile: a coherent description in the third person that can guide future work; running text, not a list.
- communication_preferences: tone, detail, format, language.
- technical_preferences: languages, tools, frameworks, conventions.
- work_patterns: how problems are approached, checked and finished; what is avoided.
- context: role, goals, constraints, the project itself.
One sentence for each point; leave a list empty where the summaries say nothing. Keep what lasts, and what several
summaries bear out. They are given oldest first: where a later one contradicts an earlier one, the later one holds.
A last memory under headings is none: it has counts over all notes. They show what is done often.
Say nothing that they do not say: no number, name, version or path of your own, and no not where they have none.
{language}"""


class ProfileReply(BaseModel):
    """A profile, as a model wrote it."""

    profile: str = Field(description="A coherent description.")
    communication_preferences: list[str] = Field(description="One sentence each; empty where nothing is said.")
    technical_preferences: list[str] = Field(description="One sentence each; empty where nothing is said.")
    work_patterns: list[str] = Field(description="One sentence each; empty where nothing is said.")
    context: list[str] = Field(description="One sentence each; empty where nothing is said.")

    def parts(self) -> dict[str, list[str]]:
        """Return the lists by name, without blank entries."""
        named = self.model_dump(exclude={"profile"})
        return {name: [text.strip() for text in texts if text.strip()] for name, texts in named.items()}


def profile_prompt(texts: Sequence[str], languages: Sequence[str], counts: str) -> Prompt:
    """Return the prompt for a user's summaries, oldest first.

    ``languages``: their text search configurations. ``counts``: what was counted over the memories behind them.
    """
    sources = (*texts, counts) if counts else tuple(texts)
    return Prompt("profile", VERSION, _SYSTEM, _TASK.format(language=language_rule(languages)), sources)


def find_problems(prompt: Prompt, reply: ProfileReply, *, is_near: IsNear | None = None) -> list[str]:
    """Return the problems of a reply: no text, one that is too long, inventions, another language.

    ``is_near``: as of ``SourceWords``.
    """
    summaries, counts = prompt.sources[:-1], prompt.sources[-1:]
    listed = "\n".join(text for texts in reply.parts().values() for text in texts)
    return [
        *find_text_problems(prompt, "profile", reply.profile, max_chars=MAX_CHARS),
        *find_invented_literals(listed, prompt.sources),
        # The counts, which are last, are in English.
        *find_other_language(reply.profile, summaries),
        *find_unsupported(f"{reply.profile}\n{listed}", summaries, others=counts, is_near=is_near),
    ]
