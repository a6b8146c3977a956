"""``consolidation plan``: a preview of what a run would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.output import JsonFlag, fact_table, make_console, print_json, shorten, show_progress
from consolidation_pipeline.core.text.counted_nouns import counted

if TYPE_CHECKING:
    from consolidation_pipeline.service.plan.plan_document import (
        MergeGroup,
        Plan,
        PlannedKnowledge,
        Question,
        RefusedByTest,
        RefusedMerge,
    )

_TEXT_WIDTH = 110
_KINDS = {"pattern": "patterns", "principle": "principles", "playbook": "playbook"}
_ACTIONS = {"create": "new", "update": "changed", "retire": "retired"}


def plan(
    project: Project,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file, for `run --plan`.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Maximum groups of each kind; --json and --out have all.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Show what a run would do now, group by group. Changes nothing.

    Remove groups from the file of --out, and `run --plan FILE` applies the others and nothing else.
    """
    from consolidation_pipeline.service.plan.planner import make_plan
    from consolidation_pipeline.service.runs.plan_file import save_plan

    engine, settings = open_store()
    with show_progress(f"planning {project}", as_json=as_json):
        made = make_plan(engine, project, settings=settings)
    if out is not None:
        save_plan(made, out)
    if as_json:
        print_json({**made.model_dump(mode="json"), "totals": made.count_totals()})
        return
    for line in _plan_lines(made, limit):
        make_console().print(line, soft_wrap=True)
    make_console().print(fact_table(f"{project}: what a run would do", _summary(made, out)))


def _summary(plan: Plan, out: Path | None) -> dict[str, object]:
    costs = plan.costs
    held_back = f"; too many to archive without a plan: run --plan {out or 'FILE'}" if plan.held_back else ""
    later = plan.describe_upcoming_archives()
    price = "unknown" if costs.cost_usd is None else f"${costs.cost_usd:.4f}"
    cost = f"{price}, {costs.embedding_tokens + costs.completion_tokens} tokens"
    if costs.completion_calls:
        cost = f"at most {cost}, {costs.completion_calls} calls for pairs, supersessions, merges, patterns and "
        cost += "suggestions; more for refused replies, principles, summaries and profiles"
    calibration = plan.calibration and f"recomputed ({plan.calibration})"
    if plan.calibration == "paid":
        calibration = "due; the model is paid, so this plan uses its profile"
    totals = plan.count_totals()
    return {
        "memories": plan.memories,
        "merges": f"{counted(totals['merge_groups'], 'group')}, {counted(totals['memories_merged'], 'memory')}",
        "not merged": _describe_refused(plan),
        "refused by tests": counted(len(plan.refused_by_tests), "change") if plan.refused_by_tests else None,
        "left to a person": _describe_review(totals),
        "archived": f"{counted(totals['memories_archived'], 'memory')}{f' now; {later}' if later else ''}{held_back}",
        "kept apart": _describe_walls(plan),
        "dissolved": f"{len(plan.dissolved)} made of several scopes" if plan.dissolved else None,
        "on one topic": counted(plan.pattern_groups, "group"),
        **{name: _count_actions(plan, kind) for kind, name in _KINDS.items()},
        "calibration": calibration,
        "pair judge": _describe_judge(plan),
        "cost": cost,
        "to be embedded first": costs.memories_to_embed or None,
        "apply": f"consolidation run {plan.project}" + (f" --plan {out}" if out else ""),
    }


def _describe_walls(plan: Plan) -> str | None:
    walls = plan.walls
    if walls is None or walls.scopes < 2:
        return None
    sampled = f" among {walls.compared:,} texts" if walls.similar_pairs else ""
    return (
        f"{counted(walls.scopes, 'scope')} ({walls.scope}); {walls.repeats:,} exact repeats and "
        f"{walls.similar_pairs:,} similar pairs{sampled} are not merged, as they are of different scopes"
    )


def _describe_judge(plan: Plan) -> str | None:
    judge = plan.pair_judge
    if judge is None:
        return None
    effect = "they merge" if judge.allowed else f"which do not merge but are asked about first ({judge.reason})"
    return f"{judge.name}: confirmed {judge.confirmed} pairs, {effect}; a run asks it about {judge.waiting} pairs"


def _count_actions(plan: Plan, kind: str) -> str:
    items = [item for item in plan.knowledge if item.kind == kind]
    counts = {word: sum(item.action == action for item in items) for action, word in _ACTIONS.items()}
    counts["wait for a person"] = sum(item.needs_review for item in items)
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none"


def _plan_lines(plan: Plan, limit: int) -> Iterator[str]:
    for merge in plan.merges[:limit]:
        yield from _merge_lines(merge)
    for refused in plan.merges_refused_by_recall[:limit]:
        yield from _refused_lines(refused)
    for unwanted in plan.refused_by_tests[:limit]:
        yield from _unwanted_lines(unwanted)
    for question in plan.questions[:limit]:
        yield from _question_lines(question)
    ordered = sorted(plan.knowledge, key=lambda item: -(item.confidence or 0.0))
    by_kind = [[item for item in ordered if item.kind == kind] for kind in _KINDS]
    for items in by_kind:
        for item in items[:limit]:
            yield from _knowledge_lines(item)
    for dissolved in plan.dissolved[:limit]:
        scopes = counted(dissolved.scopes, "scope")
        yield f"dissolve: {dissolved.kind} of {scopes}: {shorten(dissolved.text, _TEXT_WIDTH)}"
    for archive in plan.archives[:limit]:
        yield f"archive: {archive.reason} ({archive.policy}): {shorten(archive.text, _TEXT_WIDTH)}"
    counts = [
        len(plan.merges),
        len(plan.merges_refused_by_recall),
        len(plan.refused_by_tests),
        len(plan.questions),
        *map(len, by_kind),
    ]
    counts += [len(plan.dissolved), len(plan.archives)]
    more = sum(max(0, count - limit) for count in counts)
    if more:
        yield f"... and {more} more; --limit {max(counts)} shows all"
        yield ""


def _merge_lines(merge: MergeGroup) -> Iterator[str]:
    from consolidation_pipeline.service.plan.merge_words import describe_additions

    verb = "merge" if merge.action == "create" else "merge into the existing memory"
    added = describe_additions([source.text for source in merge.sources])
    reason = merge.reason.replace(" say the same", f", {added}") if added else merge.reason
    yield f"{verb}: {reason}, lowest similarity {merge.lowest_similarity:.2f} ({merge.id})"
    for source in merge.sources:
        yield f"  - {shorten(source.text, _TEXT_WIDTH)}"
    yield f"  = {shorten(merge.text, 2 * _TEXT_WIDTH)}"
    yield ""


def _refused_lines(refused: RefusedMerge) -> Iterator[str]:
    query = "a query of a reader" if refused.query is None else "the first of these texts"
    yield (
        f"not merged: search for {query} would find the merged memory at place {refused.place_after}, not "
        f"{refused.place_before}"
    )
    for _, text in sorted(refused.texts.items(), key=lambda item: item[0] != refused.query):
        yield f"  - {shorten(text, _TEXT_WIDTH)}"
    yield f"  below: {shorten(refused.above_text or str(refused.above), _TEXT_WIDTH)}"
    yield ""


def _unwanted_lines(refused: RefusedByTest) -> Iterator[str]:
    for name, reason in refused.tests.items():
        yield f"refused ({refused.phase}): test {name!r} would fail: {reason}"
    for text in refused.texts.values():
        yield f"  - {shorten(text, _TEXT_WIDTH)}"
    yield ""


def _describe_refused(plan: Plan) -> str | None:
    count = len(plan.merges_refused_by_recall)
    return f"{counted(count, 'group')} that search would find lower (recall_gate)" if count else None


def _describe_review(totals: Mapping[str, int]) -> str:
    """Return how many groups a person decides on, and how many of them are proposed, were, or wait."""
    parts = {"proposed": "proposed", "beyond_limit": "beyond review_limit", "asked_before": "asked before"}
    counts = ((totals.get(f"groups_{name}", 0), words) for name, words in parts.items())
    return ", ".join(
        [
            counted(totals["suggest_groups"], "group"),
            *(f"{count} {words}" for count, words in counts if count),
        ]
    )


def _question_lines(question: Question) -> Iterator[str]:
    reasons = [
        f"{'; '.join(asked['differences'])} (similarity {asked['similarity']:.2f})" for asked in question.asked_pairs
    ]
    if len(question.texts) == 2:
        yield f"left to a person: {'; '.join(reasons)}"
        for text in question.texts.values():
            yield f"  - {shorten(text, _TEXT_WIDTH)}"
    else:
        yield f"left to a person: {counted(len(question.texts), 'memory')} that may say the same"
        for at, text in enumerate(question.texts.values(), start=1):
            yield f"  {at}. {shorten(text, _TEXT_WIDTH)}"
        number = {str(id_): at for at, id_ in enumerate(question.texts, start=1)}
        for asked, reason in zip(question.asked_pairs, reasons, strict=True):
            yield f"  {number[asked['a']]} and {number[asked['b']]}: {reason}"
    yield ""


def _knowledge_lines(item: PlannedKnowledge) -> Iterator[str]:
    # The reason of a playbook entry has the confidence of its source.
    confidence = "" if item.confidence is None or item.kind == "playbook" else f", confidence {item.confidence:.2f}"
    waits = ", waits for a person" if item.needs_review else ""
    yield f"{item.kind}, {_ACTIONS[item.action]}: {item.reason}{confidence}{waits} ({item.id})"
    if item.action != "retire":
        yield f"  = {shorten(item.text or 'written by the model in the run, which pays for it', 2 * _TEXT_WIDTH)}"
    yield ""
