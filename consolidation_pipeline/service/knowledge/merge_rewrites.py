"""Rewrites of merged texts by a language model: one call per group, refused if the reply loses a fact of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.errors import BudgetExhaustedError, InvalidReplyError, LLMError
from consolidation_pipeline.llm.gateway import Answer, Gateway
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.prompts.merge import MergeReply, find_losses, merge_prompt
from consolidation_pipeline.service.knowledge.llm_gateway import STOP_ERRORS, open_gateway, price_prompts
from consolidation_pipeline.service.runs.project_run import ProjectRun

# Characters of all texts of a group: about 4,000 tokens. Longer groups are not rewritten, as a cut would lose facts.
MAX_REWRITE_CHARS = 16_000


@dataclass(frozen=True)
class DuplicateTexts:
    """The distinct texts of one merge group, and the text search configurations of its sources."""

    texts: tuple[str, ...]
    languages: tuple[str, ...]

    @property
    def is_rewritable(self) -> bool:
        """True if there are at least two texts, and not too many characters for one prompt."""
        return len(self.texts) > 1 and sum(map(len, self.texts)) <= MAX_REWRITE_CHARS


@dataclass(frozen=True)
class Rewrite:
    """The model's text for a group; None if it was refused because it loses a fact."""

    content: str | None


def is_rewriting(run: ProjectRun) -> bool:
    """Return True if the run rewrites merged texts. A run that applies a plan writes the texts that the plan shows."""
    return run.options.merge_style == "rewrite" and run.options.llm_model is not None and run.plan is None


def price_rewrites(run: ProjectRun, groups: Sequence[DuplicateTexts]) -> list[Bill]:
    """Return the highest possible bill of each rewrite of ``groups`` that has no cached reply."""
    wanted = [group for group in groups if group.is_rewritable] if is_rewriting(run) else []
    with run.engine.connect() as connection:
        return price_prompts(connection, run, _build_prompts(run, wanted), MergeReply)


def _build_prompts(run: ProjectRun, groups: Sequence[DuplicateTexts]) -> list[Prompt]:
    max_chars = run.options.merge_max_chars
    return [merge_prompt(group.texts, group.languages, max_chars=max_chars) for group in groups]


@dataclass
class Rewriter:
    """Asks the model of a run for rewrites. Without a reply the merged memory is the lossless union of its texts.

    ``failed``: number of groups without a reply. ``stopped``: why the model is not asked again, None if it is.
    """

    run: ProjectRun
    failed: int = 0
    stopped: str | None = field(default=None, init=False)

    def rewrite(self, groups: Sequence[DuplicateTexts]) -> list[Rewrite | None]:
        """Return the rewrite of each group; None if there was no reply."""
        if self.stopped is not None or not groups:
            return [None] * len(groups)
        check = partial(find_losses, max_chars=self.run.options.merge_max_chars)
        answers = self._gateway.ask_many(_build_prompts(self.run, groups), MergeReply, check=check)
        return [self._read_answer(answer) for answer in answers]

    @cached_property
    def _gateway(self) -> Gateway:
        return open_gateway(self.run)

    def _read_answer(self, answer: Answer[MergeReply] | LLMError | BudgetExhaustedError) -> Rewrite | None:
        if isinstance(answer, Answer):
            return Rewrite(answer.value.content.strip())
        if isinstance(answer, InvalidReplyError):
            return Rewrite(None)
        if isinstance(answer, STOP_ERRORS):
            self.stopped = self.stopped or self.run.record_stop("merged_memories", answer)
        else:
            self.failed += 1
        self.run.unfinished = True
        return None
