"""``consolidation suggestions``: list, show, approve, reject, keep as variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Reason, get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, make_console, print_json, print_note, shorten
from consolidation_pipeline.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from uuid import UUID

    from consolidation_pipeline.service.review.suggestion_bulk import BulkResult
    from consolidation_pipeline.service.review.suggestions import ListedDifference, Passage, QueueState, Suggestion

app = typer.Typer(no_args_is_help=True, help="List, show, approve and reject proposed merges, or keep variants.")

Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Ids shown by `suggestions list`, or their first digits.")
]
Project = Annotated[str | None, typer.Option(help="Decide on all suggestions of this project that match the rule.")]
MinSimilarity = Annotated[float | None, typer.Option(min=0, max=1, help="Rule: minimum similarity.")]
Type = Annotated[str | None, typer.Option(help="Rule: of this memory type.")]
Differ = Annotated[
    str | None,
    typer.Option(
        "--differ-only-in",
        metavar="KIND",
        help="Rule: all differences are of this kind, such as value or 'value: build #', as `list` shows them. Groups "
        "that wait beyond review_limit are decided too.",
    ),
]
MaxCount = Annotated[int | None, typer.Option(min=1, help="Rule: maximum number, those worth most first.")]

_TEXT_WIDTH = 110
# Differences of one suggestion in the list.
_LISTED_DIFFERENCES = 3


@app.command(name="list")
def list_(
    project: Annotated[str | None, typer.Argument(metavar="[PROJECT]", help="The project; default: all.")] = None,
    status: Annotated[str, typer.Option(help="pending, validated, rejected, kept, superseded or expired.")] = "pending",
    type: Annotated[str | None, typer.Option(help="Only this memory type.")] = None,
    min_similarity: Annotated[float | None, typer.Option(min=0, max=1, help="Minimum similarity.")] = None,
    differ_only_in: Annotated[
        str | None, typer.Option(metavar="KIND", help="All differences are of this kind, such as value.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of suggestions.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the merges that wait for a decision, those first where a decision is worth most."""
    from consolidation_pipeline.service.review.suggestions import describe_queue, list_suggestions

    engine, settings = open_store()
    found = list_suggestions(
        engine,
        project,
        status=status,
        type=type,
        min_similarity=min_similarity,
        differ_only_in=differ_only_in,
        limit=limit,
    )
    queue = describe_queue(engine, project, settings=settings)
    if as_json:
        print_json(
            {
                "total": found.total,
                "beyond_limit": queue.beyond_limit,
                "kinds": queue.kinds,
                "suggestions": found.suggestions,
            }
        )
        return
    out = make_console()
    where = project or "all projects"
    out.print(f"{where}: {found.total} {status}" if found.total else f"{where}: no suggestion is {status}")
    for suggestion in found.suggestions:
        out.print("\n".join(_summary_lines(suggestion)), soft_wrap=True)
    if status == "pending":
        out.print("\n".join(_queue_lines(queue, project)), soft_wrap=True)
    if found.suggestions and status == "pending":
        print_note("consolidation suggestions show ID | approve ID... | reject ID... | keep ID...")


def _queue_lines(queue: QueueState, project: str | None) -> Iterator[str]:
    """Yield what else waits: groups beyond the limit, and kinds of differences to decide on together."""
    for slug, count in queue.beyond_limit.items():
        limit = queue.limits[slug]
        then = f"at most {limit} are proposed at a time (review_limit), each decision makes room for the next"
        if limit == 0:
            then = "review_limit=0 proposes none"
        elif queue.pending < limit:
            then = f"the next run proposes them, at most {limit} at a time (review_limit)"
        yield f"{slug}: {'1 more group waits' if count == 1 else f'{count:,} more groups wait'}; {then}"
    for kind, count in queue.kinds.items():
        if count > 1:
            chosen = f"--project {project or 'PROJECT'} --differ-only-in '{kind}'"
            yield f"{count} differ only in {kind}: approve, reject or keep {chosen}"


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of a suggestion, or its first 8 digits.")],
    as_json: JsonFlag = False,
) -> None:
    """Show a proposed merge: the originals in full, their differences, and the proposed text."""
    from consolidation_pipeline.service.jobs.short_ids import SUGGESTIONS, find_row_id
    from consolidation_pipeline.service.review.suggestions import get_suggestion

    engine, _ = open_store()
    found = get_suggestion(engine, find_row_id(engine, SUGGESTIONS, id))
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
    differ_only_in: Differ = None,
    limit: MaxCount = None,
    content: Annotated[str | None, typer.Option(help="Text to use in place of the proposed content.")] = None,
    lessons: Annotated[str | None, typer.Option(help="Text to use in place of the proposed lessons.")] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Accept a text without some of the originals' numbers or names.")
    ] = False,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            "--leave-out",
            metavar="ID",
            help="Original that stays as it is: its number or id as `show` tells it. Repeat it for several.",
        ),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="Hash of the text that you read, as `show` tells it. Refused if it changed."),
    ] = None,
    note: Reason = None,
    as_json: JsonFlag = False,
) -> int:
    """Merge the originals of suggestions, by ids or by rule, each in its own transaction.

    `approve --project shop --min-similarity 0.93 --type warning` approves all that match the rule, but those that
    contradict each other. `approve ID --leave-out 3` merges the others of its originals.
    """
    if ((content, lessons, expect) != (None, None, None) or leave_out) and len(ids or ()) != 1:
        raise UsageError("--content, --lessons, --leave-out and --expect are for one suggestion: give its id")
    rule = _read_rule(ids, project, min_similarity, type, differ_only_in, limit)
    how: dict[str, Any] = {"content": content, "lessons_learned": lessons, "accept_loss": accept_loss}
    how |= {"note": note, "expected": expect}
    if leave_out and ids:
        how["leave_out"] = _find_originals(ids[0], leave_out)
    return _decide(ids, rule, "approve", how, as_json=as_json)


@app.command()
def reject(
    ids: Ids = None,
    *,
    project: Project = None,
    min_similarity: MinSimilarity = None,
    type: Type = None,
    differ_only_in: Differ = None,
    limit: MaxCount = None,
    note: Reason = None,
    as_json: JsonFlag = False,
) -> int:
    """Reject suggestions, by ids or by rule. Of three originals or more, the next run proposes parts."""
    rule = _read_rule(ids, project, min_similarity, type, differ_only_in, limit)
    return _decide(ids, rule, "reject", {"note": note}, as_json=as_json)


@app.command()
def keep(
    ids: Ids = None,
    *,
    project: Project = None,
    min_similarity: MinSimilarity = None,
    type: Type = None,
    differ_only_in: Differ = None,
    limit: MaxCount = None,
    note: Reason = None,
    as_json: JsonFlag = False,
) -> int:
    """Keep the originals as variants, by ids or by rule: all stay, no two are merged or asked about again."""
    rule = _read_rule(ids, project, min_similarity, type, differ_only_in, limit)
    return _decide(ids, rule, "keep", {"note": note}, as_json=as_json)


def _find_originals(id_: str, references: list[str]) -> list[UUID]:
    """Return the ids of originals of a suggestion that are given by number, id or its first digits."""
    from consolidation_pipeline.core.id_prefixes import choose_id, find_bounds
    from consolidation_pipeline.service.jobs.short_ids import SUGGESTIONS, find_row_id
    from consolidation_pipeline.service.review.suggestions import get_suggestion

    engine, _ = open_store()
    found = get_suggestion(engine, find_row_id(engine, SUGGESTIONS, id_))
    known = [original.id for original in found.originals]
    chosen = []
    for reference in references:
        if reference.isdecimal() and 1 <= int(reference) <= len(known):
            chosen.append(known[int(reference) - 1])
            continue
        first, last = find_bounds(reference, f"is no original: give a number from 1 to {len(known)}, an id, or")
        missing = f"suggestion {found.id} has no original {reference}; `consolidation suggestions show` lists them"
        chosen.append(choose_id(reference, [one for one in known if first <= one <= last], missing))
    return chosen


def _read_rule(
    ids: list[str] | None,
    project: str | None,
    min_similarity: float | None,
    type: str | None,
    differ_only_in: str | None,
    limit: int | None,
) -> dict[str, Any] | None:
    """Return the conditions of a rule; None if ids are given. Raise UsageError unless it is one of both."""
    conditions = {"min_similarity": min_similarity, "type": type, "differ_only_in": differ_only_in, "limit": limit}
    has_conditions = any(value is not None for value in conditions.values())
    if bool(ids) == (project is not None) or (ids and has_conditions):
        raise UsageError("give the ids of suggestions, or --project with a rule, and not both")
    if project is not None and not has_conditions:
        raise UsageError("--project needs a rule: --min-similarity, --type, --differ-only-in or --limit")
    return None if project is None else {"project": project, **conditions}


def _decide(
    ids: list[str] | None, rule: dict[str, Any] | None, decision: str, how: dict[str, Any], *, as_json: bool
) -> int:
    from consolidation_pipeline.service.jobs.short_ids import SUGGESTIONS, find_row_id
    from consolidation_pipeline.service.review.suggestion_bulk import Rule, decide_each, decide_matching

    engine, settings = open_store()
    how = {**how, "settings": settings, "decided_by": get_actor()}
    if rule is not None:
        done = decide_matching(engine, Rule(**rule), decision, **how)
    else:
        done = decide_each(engine, [find_row_id(engine, SUGGESTIONS, id_) for id_ in ids or ()], decision, **how)
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
        decision = {"validated": "approved", "kept": "kept as variants"}.get(one.status, one.status)
        yield f"suggestion {one.suggestion_id} {decision}{merged}; undo: consolidation rollback {one.group_id}"
    yield from (f"not decided: {why}" for _, why in done.refused)


def _summary_lines(suggestion: Suggestion) -> Iterator[str]:
    similarity = "" if suggestion.similarity is None else f", similarity {suggestion.similarity:.2f}"
    yield f"\n{suggestion.id} ({suggestion.memory_type}{similarity}, text {suggestion.text_hash})"
    for number, original in enumerate(suggestion.originals, start=1):
        yield f"  {number}. {original.learned_at:%Y-%m-%d} {shorten(original.content, _TEXT_WIDTH)}"
    lines = _difference_lines(suggestion)
    yield from (f"  {shorten(line, _TEXT_WIDTH)}" for line in lines[:_LISTED_DIFFERENCES])
    if not lines:
        yield f"  {shorten(str(suggestion.rationale), _TEXT_WIDTH)}"
    if len(lines) > _LISTED_DIFFERENCES:
        kinds = ", ".join(suggestion.difference_kinds)
        yield f"  and {len(lines) - _LISTED_DIFFERENCES} more differences; kinds: {kinds}"
    yield f"  = {shorten(suggestion.content, 2 * _TEXT_WIDTH)}"


def _detail_lines(suggestion: Suggestion) -> Iterator[str]:
    similarity = "" if suggestion.similarity is None else f", similarity {suggestion.similarity:.2f}"
    yield f"{suggestion.id} of {suggestion.project}: {suggestion.status} ({suggestion.memory_type}{similarity})"
    yield str(suggestion.rationale)
    for number, original in enumerate(suggestion.originals, start=1):
        changed = "" if original.is_current else ", changed since"
        yield f"\n{number}. {original.id} ({original.kind}, {original.learned_at:%Y-%m-%d}{changed})"
        yield from (f"  {line}" for line in original.content.splitlines())
    yield ""
    yield from _difference_lines(suggestion)
    yield f"\n= proposed (text {suggestion.text_hash})"
    yield from (f"  {line}" for line in suggestion.content.splitlines())
    yield from (f"  {line}" for line in (suggestion.lessons_learned or "").splitlines())
    if suggestion.keywords:
        yield f"  keywords: {', '.join(suggestion.keywords)}"
    if suggestion.method != "llm":
        why = "" if suggestion.method == "heuristic" else ", as the model's text lost something"
        yield f"  made of the originals' sentences{why}"
    if suggestion.left_out:
        yield f"  leaves out: {', '.join(suggestion.left_out)}"
    if suggestion.reviewed_by:
        review_note = f": {suggestion.review_note}" if suggestion.review_note else ""
        yield f"\n{suggestion.status} by {suggestion.reviewed_by}{review_note}"
    if suggestion.group_id:
        yield f"undo: consolidation rollback {suggestion.group_id}"


def _difference_lines(suggestion: Suggestion) -> list[str]:
    """Return a line for each difference between originals; of more than two with the numbers of those that differ."""
    return [_describe(one, is_numbered=len(suggestion.originals) > 2) for one in suggestion.list_differences()]


def _describe(one: ListedDifference, *, is_numbered: bool) -> str:
    """Return a difference in words: the kind by which a rule names it, and what each side says, if anything."""
    from consolidation_pipeline.core.knowledge.difference_words import DIFFERENCE_LABELS

    sides = []
    for passages, numbers in ((one.a, one.numbers_a), (one.b, one.numbers_b)):
        said = _join_passages(passages)
        sides.append(f"{said} ({', '.join(map(str, numbers))})" if said and is_numbered else said)
    verb = "contradict" if one.contradicts else "differ"
    if not one.differs:
        return f"{verb} in {one.kind}: {DIFFERENCE_LABELS.get(one.kind, one.kind)}"
    if all(sides):
        return f"{verb} in {one.kind}: {' / '.join(sides)}"
    return f"{verb} in {one.kind}: only one says {next(filter(None, sides))}"


def _join_passages(passages: Sequence[Passage]) -> str:
    """Return passages in one line; a comma tells that others are between two of them."""
    line, end = "", 0
    for passage in passages:
        gap = "" if not line else " " if passage.start == end + 1 else ", "
        line, end = f"{line}{gap}{passage.text}", passage.start + len(passage.text)
    return line
