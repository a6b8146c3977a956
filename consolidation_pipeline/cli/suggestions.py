"""``consolidation suggestions``: list, show, approve, reject."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from consolidation_pipeline.cli.cli_context import get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, make_console, print_json, print_note, shorten
from consolidation_pipeline.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.service.review.suggestion_decisions import BulkResult, SuggestionDecision
    from consolidation_pipeline.service.review.suggestions import Suggestion
    from consolidation_pipeline.store.database.engine import Engine

app = typer.Typer(no_args_is_help=True, help="List, show, approve and reject proposed merges.")

Ids = Annotated[list[UUID] | None, typer.Argument(metavar="[ID]...", help="Ids shown by `suggestions list`.")]
Project = Annotated[str | None, typer.Option(help="Decide on all suggestions of this project that match the rule.")]
MinSimilarity = Annotated[float | None, typer.Option(min=0, max=1, help="Rule: minimum similarity.")]
Type = Annotated[str | None, typer.Option(help="Rule: of this memory type.")]
MaxCount = Annotated[int | None, typer.Option(min=1, help="Rule: maximum number, the most similar first.")]
Note = Annotated[str | None, typer.Option(help="Reason, stored in the ledger.")]

_TEXT_WIDTH = 110


@app.command(name="list")
def list_(
    project: Annotated[str | None, typer.Argument(metavar="[PROJECT]", help="The project; default: all.")] = None,
    status: Annotated[str, typer.Option(help="pending, validated, rejected, superseded or expired.")] = "pending",
    type: Annotated[str | None, typer.Option(help="Only this memory type.")] = None,
    min_similarity: Annotated[float | None, typer.Option(min=0, max=1, help="Minimum similarity.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of suggestions.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the merges that wait for a decision, the most similar first."""
    from consolidation_pipeline.service.review.suggestions import find_projects_without_model, list_suggestions

    engine, settings = open_store()
    found = list_suggestions(engine, project, status=status, type=type, min_similarity=min_similarity, limit=limit)
    if as_json:
        print_json({"total": found.total, "suggestions": found.suggestions})
        return
    out = make_console()
    where = project or "all projects"
    out.print(f"{where}: {found.total} {status}" if found.total else f"{where}: no suggestion is {status}")
    for suggestion in found.suggestions:
        out.print("\n".join(_summary_lines(suggestion)), soft_wrap=True)
    if found.suggestions and status == "pending":
        print_note("consolidation suggestions show ID | approve ID... | reject ID...")
    if not found.total and status == "pending" and (without := find_projects_without_model(engine, project, settings)):
        named = ", ".join(without[:5]) + (" .." if len(without) > 5 else "")
        print_note(
            f"suggestions need a model, and none is set for {named}: "
            f"consolidation projects configure {without[0]} llm_model=openai/gpt-4o-mini"
        )


@app.command()
def show(id: Annotated[UUID, typer.Argument(metavar="ID", help="The suggestion.")], as_json: JsonFlag = False) -> None:
    """Show a proposed merge: the originals in full, their differences, and the proposed text."""
    from consolidation_pipeline.service.review.suggestions import get_suggestion

    engine, _ = open_store()
    found = get_suggestion(engine, id)
    if as_json:
        print_json(vars(found))
        return
    make_console().print("\n".join(_detail_lines(found)), soft_wrap=True)


@app.command()
def approve(
    ids: Ids = None,
    *,
    project: Project = None,
    min_similarity: MinSimilarity = None,
    type: Type = None,
    limit: MaxCount = None,
    content: Annotated[str | None, typer.Option(help="Text to use in place of the proposed content.")] = None,
    lessons: Annotated[str | None, typer.Option(help="Text to use in place of the proposed lessons.")] = None,
    note: Note = None,
    as_json: JsonFlag = False,
) -> int:
    """Merge the originals of suggestions, by ids or by rule, each in its own transaction.

    `approve --project shop --min-similarity 0.93 --type warning` approves all that match the rule.
    """
    from consolidation_pipeline.service.review.suggestion_decisions import approve_suggestion

    if (content is not None or lessons is not None) and len(ids or ()) != 1:
        raise UsageError("--content and --lessons are for one suggestion: give its id")
    rule = _check_selection(ids, _Rule(project, min_similarity, type, limit))
    engine, settings = open_store()
    decide = partial(approve_suggestion, content=content, lessons_learned=lessons, note=note, settings=settings)
    return _decide(engine, ids, rule, decide, as_json=as_json)


@app.command()
def reject(
    ids: Ids = None,
    *,
    project: Project = None,
    min_similarity: MinSimilarity = None,
    type: Type = None,
    limit: MaxCount = None,
    note: Note = None,
    as_json: JsonFlag = False,
) -> int:
    """Reject suggestions, by ids or by rule. They are not proposed again unless their group changes."""
    from consolidation_pipeline.service.review.suggestion_decisions import reject_suggestion

    rule = _check_selection(ids, _Rule(project, min_similarity, type, limit))
    engine, _ = open_store()
    return _decide(engine, ids, rule, partial(reject_suggestion, note=note), as_json=as_json)


@dataclass(frozen=True)
class _Rule:
    """Selects suggestions in place of ids."""

    project: str | None
    min_similarity: float | None
    type: str | None
    limit: int | None

    @property
    def has_conditions(self) -> bool:
        """True if it has more than a project: a forgotten condition must not decide on all suggestions."""
        return (self.min_similarity, self.type, self.limit) != (None, None, None)


def _check_selection(ids: list[UUID] | None, rule: _Rule) -> _Rule:
    """Return the rule. Raise UsageError unless either ids or a rule with conditions are given."""
    if bool(ids) == (rule.project is not None) or (ids and rule.has_conditions):
        raise UsageError("give the ids of suggestions, or --project with a rule, and not both")
    if rule.project is not None and not rule.has_conditions:
        raise UsageError("--project needs a rule: --min-similarity, --type or --limit")
    return rule


def _decide(
    engine: Engine, ids: list[UUID] | None, rule: _Rule, decide: Callable[..., SuggestionDecision], *, as_json: bool
) -> int:
    from consolidation_pipeline.service.review.suggestion_decisions import decide_each, list_pending

    if rule.project is not None:
        ids = list_pending(engine, rule.project, min_similarity=rule.min_similarity, type=rule.type, limit=rule.limit)
    done = decide_each(engine, ids or [], partial(decide, decided_by=get_actor()))
    if as_json:
        refused = [{"id": id_, "message": why} for id_, why in done.refused]
        print_json({"decided": [vars(one) for one in done.decided], "refused": refused})
    else:
        print("\n".join(_result_lines(done)))
    return ConflictError.exit_code if done.refused else 0


def _result_lines(done: BulkResult) -> Iterator[str]:
    if not done.decided and not done.refused:
        yield "no pending suggestion matches the rule"
    for one in done.decided:
        merged = f", merged as {one.memory_id}" if one.memory_id else ""
        decision = "approved" if one.status == "validated" else one.status
        yield f"suggestion {one.suggestion_id} {decision}{merged}; undo: consolidation rollback {one.group_id}"
    yield from (f"not decided: {why}" for _, why in done.refused)


def _summary_lines(suggestion: Suggestion) -> Iterator[str]:
    similarity = "" if suggestion.similarity is None else f", similarity {suggestion.similarity:.2f}"
    yield f"\n{suggestion.id} ({suggestion.memory_type}{similarity})"
    yield from (f"  - {shorten(original.content, _TEXT_WIDTH)}" for original in suggestion.originals)
    yield from (f"  differ in {line}" for line in _difference_lines(suggestion))
    yield f"  = {shorten(suggestion.content, 2 * _TEXT_WIDTH)}"


def _detail_lines(suggestion: Suggestion) -> Iterator[str]:
    similarity = "" if suggestion.similarity is None else f", similarity {suggestion.similarity:.2f}"
    yield f"{suggestion.id} of {suggestion.project}: {suggestion.status} ({suggestion.memory_type}{similarity})"
    yield str(suggestion.rationale)
    for original in suggestion.originals:
        changed = "" if original.is_current else ", changed since"
        yield f"\n- {original.id} ({original.kind}, {original.learned_at:%Y-%m-%d}{changed})"
        yield from (f"  {line}" for line in original.content.splitlines())
    yield ""
    yield from (f"differ in {line}" for line in _difference_lines(suggestion))
    yield "\n= proposed"
    yield from (f"  {line}" for line in suggestion.content.splitlines())
    yield from (f"  {line}" for line in (suggestion.lessons_learned or "").splitlines())
    if suggestion.keywords:
        yield f"  keywords: {', '.join(suggestion.keywords)}"
    if suggestion.left_out:
        yield f"  leaves out: {', '.join(suggestion.left_out)}"
    if suggestion.reviewed_by:
        review_note = f": {suggestion.review_note}" if suggestion.review_note else ""
        yield f"\n{suggestion.status} by {suggestion.reviewed_by}{review_note}"
    if suggestion.group_id:
        yield f"undo: consolidation rollback {suggestion.group_id}"


def _difference_lines(suggestion: Suggestion) -> list[str]:
    """Return a line for each difference between originals, the same one only once."""
    lines = (
        f"{one.kind}: {', '.join(item.text for item in one.a)} / {', '.join(item.text for item in one.b)}"
        for one in suggestion.differences
    )
    return list(dict.fromkeys(lines))
