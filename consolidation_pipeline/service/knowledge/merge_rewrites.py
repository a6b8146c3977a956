"""Merged texts in a model's words: one call per group, and nothing of a source may be lost by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.errors import BudgetExhaustedError, InvalidReplyError, LLMError, ModelUnavailableError
from consolidation_pipeline.llm.gateway import Answer, Gateway
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.prompts.merge import MergeReply, find_losses, merge_prompt
from consolidation_pipeline.service.knowledge.llm_gateway import open_gateway, price_prompts
from consolidation_pipeline.service.runs.project_run import ProjectRun

# Characters of all texts of a group, about 4,000 tokens. To cut them would lose something, so more are not asked about.
MAX_REWRITE_CHARS = 16_000


@dataclass(frozen=True)
class DuplicateTexts:
    """The distinct texts of one merge group, and their text search configurations."""

    texts: tuple[str, ...]
    languages: tuple[str, ...]

    @property
    def can_be_asked_about(self) -> bool:
        """Whether there is something to say in one text, and it is not too much."""
        return len(self.texts) > 1 and sum(map(len, self.texts)) <= MAX_REWRITE_CHARS


@dataclass(frozen=True)
class Rewrite:
    """What a model made of a group: ``content``, or None: ``refused``, for it would have lost something."""

    content: str | None
    refused: bool


def is_rewriting(run: ProjectRun) -> bool:
    """Whether the run has merged texts rewritten; one that carries out a plan writes the texts that the plan shows."""
    return run.options.merge_style == "rewrite" and run.options.llm_model is not None and run.plan is None


def price_rewrites(run: ProjectRun, groups: Sequence[DuplicateTexts]) -> list[Bill]:
    """The most that each call would be billed that rewriting these groups takes."""
    asked = [group for group in groups if group.can_be_asked_about] if is_rewriting(run) else []
    with run.engine.connect() as connection:
        return price_prompts(connection, run, _prompts(run, asked), MergeReply)


def _prompts(run: ProjectRun, groups: Sequence[DuplicateTexts]) -> list[Prompt]:
    max_chars = run.options.merge_max_chars
    return [merge_prompt(group.texts, group.languages, max_chars=max_chars) for group in groups]


@dataclass
class Rewriter:
    """Asks the model of one run, and never keeps it from merging: where no reply comes, the lossless union stands.

    ``failed``: groups whose question got no reply; ``stopped``: why no more are asked about.
    """

    run: ProjectRun
    failed: int = 0
    stopped: str | None = field(default=None, init=False)

    def rewrite(self, groups: Sequence[DuplicateTexts]) -> list[Rewrite | None]:
        """What the model made of each group, in their order; None where it gave no reply."""
        if self.stopped is not None or not groups:
            return [None] * len(groups)
        check = partial(find_losses, max_chars=self.run.options.merge_max_chars)
        answers = self._gateway.ask_many(_prompts(self.run, groups), MergeReply, check=check)
        return [self._read(answer) for answer in answers]

    @cached_property
    def _gateway(self) -> Gateway:
        return open_gateway(self.run)

    def _read(self, answer: Answer[MergeReply] | LLMError | BudgetExhaustedError) -> Rewrite | None:
        if isinstance(answer, Answer):
            return Rewrite(answer.value.content.strip(), refused=False)
        if isinstance(answer, InvalidReplyError):
            return Rewrite(None, refused=True)
        if isinstance(answer, BudgetExhaustedError | ModelUnavailableError):
            self.stopped = self.stopped or self.run.note_stop("merged_memories", answer)
        else:
            self.failed += 1
        self.run.unfinished = True
        return None
