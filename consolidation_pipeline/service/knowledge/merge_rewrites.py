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
    return price_prompts(run, _build_prompts(run, wanted), MergeReply)


def _build_prompts(run: ProjectRun, groups: Sequence[DuplicateTexts]) -> list[Prompt]:
    max_chars = run.options.merge_max_chars
    return [merge_prompt(group.texts, group.languages, max_chars=max_chars) for group in groups]


@dataclass
class Rewriter:
    """Asks the model of a run for rewrites. Without a reply the merged memory is the lossless union of its texts.

    ``failures``: why groups got no reply, or none in the form that was asked for. ``stop``: why the model is not asked
    again, None if it is. ``unanswered``: number of groups without a reply for either reason.
    """

    run: ProjectRun
    failures: list[str] = field(default_factory=list)
    stop: LLMError | BudgetExhaustedError | None = None
    unanswered: int = 0

    def rewrite(self, groups: Sequence[DuplicateTexts]) -> list[Rewrite | None]:
        """Return the rewrite of each group; None if there was no reply."""
        if self.stop is not None or not groups:
            self.unanswered += len(groups)
            return [None] * len(groups)
        check = partial(find_losses, max_chars=self.run.options.merge_max_chars)
        answers = self._gateway.ask_many(_build_prompts(self.run, groups), MergeReply, check=check)
        return [self._read_answer(answer) for answer in answers]

    def record_failing(self) -> None:
        """Record on the run what the model did not answer."""
        self.run.record_failing("merged_memories", self.unanswered, self.failures, self.stop)

    @cached_property
    def _gateway(self) -> Gateway:
        return open_gateway(self.run)

    def _read_answer(self, answer: Answer[MergeReply] | LLMError | BudgetExhaustedError) -> Rewrite | None:
        if isinstance(answer, Answer):
            return Rewrite(answer.value.content.strip())
        if isinstance(answer, InvalidReplyError) and answer.is_readable:
            return Rewrite(None)
        self.unanswered += 1
        if isinstance(answer, STOP_ERRORS):
            self.stop = self.stop or answer
        else:
            self.failures.append(str(answer))
        return None
