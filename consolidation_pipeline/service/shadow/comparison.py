"""Comparison of a shadow with what a run with the project's own options would do on the same snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from consolidation_pipeline.service.knowledge.merge_rewrites import DuplicateTexts
from consolidation_pipeline.service.memory_tests.evaluation import run_memory_tests
from consolidation_pipeline.service.plan.plan_document import MergeGroup, Plan
from consolidation_pipeline.service.plan.planner import make_plan
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search
from consolidation_pipeline.service.shadow.report import (
    ComparedKnowledge,
    ComparedMerge,
    Difference,
    Labelled,
    Retrieval,
    RewordedMerge,
    TestResults,
)
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.shadow import contents

# Memories whose own words are searched for, before and after.
QUERIES = 50
_QUERY_CHARS = 200
WITHIN = 5

# Raw memories -> id and text of the merged memory; None: a language model has to write it first.
Groups = Mapping[frozenset[str], tuple[str, str | None]]


def describe_baseline(shadow: Engine, project: Project, settings: Settings) -> dict[str, Any]:
    """Return as JSON values what a run with the project's own options would leave, and what search finds now.

    To be called before the shadow is run. ``merges`` and ``knowledge`` list what would be active.
    """
    plan = make_plan(shadow, project.slug, settings=settings)
    dissolved = {one.id for one in plan.dissolved}
    with shadow.connect() as connection:
        merged: dict[UUID, tuple[list[str], str | None]] = {
            row.id: (list(map(str, row.source_memory_ids)), row.content)
            for row in contents.list_merged(connection, project.id)
        }
        knowledge = {(row.kind, row.id): row.content for row in contents.list_knowledge(connection, project.id)}
        archived = contents.list_archived(connection, project.id)
    for merge in plan.merges:
        dissolved |= set(merge.supersedes)
        merged[merge.id] = ([str(source.id) for source in merge.sources], _predict_text(plan, merge))
    if not plan.held_back:
        leaving = {archive.id for archive in plan.archives}
        archived |= {UUID(id_) for id_ in _list_behind(merged, leaving)}
        dissolved |= leaving
    for item in plan.knowledge:
        knowledge.pop((item.kind, item.id), None)
        if item.action != "retire":
            knowledge[item.kind, item.id] = item.text
    return {
        "merges": [[str(id_), *rest] for id_, rest in merged.items() if id_ not in dissolved],
        "knowledge": [[kind, str(id_), content] for (kind, id_), content in knowledge.items() if id_ not in dissolved],
        "archived": sorted(map(str, archived)),
        "found": find_sample(shadow, project, settings),
        "tests": _run_tests(shadow, project, settings),
        "refused": _count_tests(one.tests for one in plan.refused_by_tests),
        "usd": plan.costs.cost_usd,
    }


def _predict_text(plan: Plan, merge: MergeGroup) -> str | None:
    """Return the text of a merged memory; None if a language model rewrites it, which a plan does not ask."""
    texts = dict.fromkeys(source.text for source in merge.sources)
    is_rewritten = plan.options["merge_style"] == "rewrite" and plan.options["llm_model"] is not None
    is_verbatim = merge.text in texts
    if is_rewritten and not is_verbatim and DuplicateTexts(tuple(texts), ()).is_rewritable:
        return None
    return merge.text


def _run_tests(shadow: Engine, project: Project, settings: Settings) -> dict[str, str | None]:
    """Run the project's memory tests; return name -> why it fails, None if it passes."""
    results = run_memory_tests(shadow, project.slug, settings=settings, store=False)
    return {one.test.name: None if one.passed else one.reason for one in results}


def _count_tests(refused: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Return the number of refused changes by the tests that they break."""
    return dict(sorted(Counter(name for tests in refused for name in tests).items()))


def compare_tests(
    shadow: Engine,
    project: Project,
    settings: Settings,
    baseline: Mapping[str, Any],
    refused: Iterable[Mapping[str, str]],
) -> TestResults:
    """Return how the memory tests end before and after the run of the shadow.

    Args:
        refused: Tests that each change of the run would have broken, by name.
    """
    before: Mapping[str, str | None] = baseline["tests"]
    after = _run_tests(shadow, project, settings)
    return TestResults(
        tests=len(before),
        passed_before=sum(reason is None for reason in before.values()),
        passed_after=sum(reason is None for reason in after.values()),
        broken={name: reason for name, reason in after.items() if reason is not None and before[name] is None},
        repaired=[name for name, reason in after.items() if reason is None and before[name] is not None],
        refused_here=baseline["refused"],
        refused_there=_count_tests(refused),
    )


def _list_behind(merged: Mapping[UUID, tuple[Sequence[str], str | None]], ids: Iterable[UUID]) -> list[str]:
    """Return the raw memories among ``ids`` and behind the merged memories among them."""
    return [raw for id_ in ids for raw in (merged[id_][0] if id_ in merged else [str(id_)])]


def compare(connection: Connection, project: Project, baseline: Mapping[str, Any]) -> Difference:
    """Return how the shadow, after its run, differs from the baseline."""
    here = {frozenset(sources): (id_, text) for id_, sources, text in baseline["merges"]}
    there = _read_groups(connection, project)
    known = {(kind, text): (kind, id_, text) for kind, id_, text in baseline["knowledge"]}
    rows = contents.list_knowledge(connection, project.id)
    made = {(row.kind, row.content): (row.kind, str(row.id), row.content) for row in rows}
    archived_here = set(map(UUID, baseline["archived"]))
    archived_there = contents.list_archived(connection, project.id)
    return Difference(
        merges_same=len(here.keys() & there.keys()),
        merges_only_here=_describe_merges(connection, here, here.keys() - there.keys()),
        merges_only_there=_describe_merges(connection, there, there.keys() - here.keys()),
        merges_reworded=_list_reworded(connection, here, there),
        knowledge_same=len(known.keys() & made.keys()),
        knowledge_only_here=_describe_knowledge(known[key] for key in known.keys() - made.keys()),
        knowledge_only_there=_describe_knowledge(made[key] for key in made.keys() - known.keys()),
        archived_only_here=_load_texts(connection, archived_here - archived_there),
        archived_only_there=_load_texts(connection, archived_there - archived_here),
    )


def _read_groups(connection: Connection, project: Project) -> dict[frozenset[str], tuple[str, str | None]]:
    rows = contents.list_merged(connection, project.id)
    return {frozenset(map(str, row.source_memory_ids)): (str(row.id), row.content) for row in rows}


def _load_texts(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, str]:
    return dict(sorted(load_texts(connection, sorted(ids)).items()))


def _describe_merges(connection: Connection, groups: Groups, chosen: Iterable[frozenset[str]]) -> list[ComparedMerge]:
    ordered = sorted(chosen, key=lambda members: (-len(members), sorted(members)))
    texts = _load_texts(connection, {UUID(id_) for members in ordered for id_ in members})
    return [
        ComparedMerge(
            id=UUID(groups[members][0]),
            texts={UUID(id_): texts[UUID(id_)] for id_ in sorted(members) if UUID(id_) in texts},
            text=groups[members][1],
        )
        for members in ordered
    ]


def _list_reworded(connection: Connection, here: Groups, there: Groups) -> list[RewordedMerge]:
    """Return the groups that both sides merge with other texts, as far as both texts are known."""
    texts = {
        members: (text_here, text_there)
        for members in here.keys() & there.keys()
        if (text_here := here[members][1]) is not None
        and (text_there := there[members][1]) is not None
        and text_here != text_there
    }
    by_id = {there[members][0]: pair for members, pair in texts.items()}
    return [
        RewordedMerge(
            id=merge.id, texts=merge.texts, text_here=by_id[str(merge.id)][0], text_there=by_id[str(merge.id)][1]
        )
        for merge in _describe_merges(connection, there, texts)
    ]


def _describe_knowledge(rows: Iterable[tuple[str, str, str | None]]) -> list[ComparedKnowledge]:
    ordered = sorted(rows, key=lambda row: (row[0], row[2] or "", row[1]))
    return [ComparedKnowledge(kind=kind, id=UUID(id_), text=text) for kind, id_, text in ordered]


def judge_labelled(connection: Connection, project: Project, baseline: Mapping[str, Any]) -> Labelled:
    """Return what becomes of the pairs that people labelled."""
    pairs = contents.list_labelled(connection, project.id)
    sides = []
    for groups in ([set(sources) for _, sources, _ in baseline["merges"]], _read_groups(connection, project)):
        group_of = {id_: number for number, members in enumerate(groups) for id_ in members}
        together = [group_of.get(str(pair.a), pair.a) == group_of.get(str(pair.b), pair.b) for pair in pairs]
        wrong = sum(merged and not pair.same for merged, pair in zip(together, pairs, strict=True))
        sides.append((wrong, sum(pair.same and not merged for merged, pair in zip(together, pairs, strict=True))))
    (wrong_here, missed_here), (wrong_there, missed_there) = sides
    return Labelled(
        pairs=len(pairs),
        wrong_merges_here=wrong_here,
        wrong_merges_there=wrong_there,
        missed_here=missed_here,
        missed_there=missed_there,
    )


def find_sample(shadow: Engine, project: Project, settings: Settings) -> dict[str, bool]:
    """Search for a sample of memories by their own words; return memory id -> whether it is among the first hits."""
    with shadow.connect() as connection:
        sample = contents.list_sample(connection, project.id, limit=QUERIES, length=_QUERY_CHARS)
    return _find_all(shadow, project, settings, sample)


def _find_all(shadow: Engine, project: Project, settings: Settings, queries: Mapping[UUID, str]) -> dict[str, bool]:
    with shadow.connect() as connection:
        places = contents.list_places(connection, list(queries))
    found = {}
    for id_, query in queries.items():
        found_now = search(shadow, project.slug, SearchQuery(query, limit=WITHIN), settings=settings, count_use=False)
        found[str(id_)] = places[id_] in {hit.id for hit in found_now.results}
    return found


def compare_retrieval(shadow: Engine, project: Project, settings: Settings, baseline: Mapping[str, Any]) -> Retrieval:
    """Return how the search for the same memories ends before and after the run of the shadow."""
    before: Mapping[str, bool] = baseline["found"]
    with shadow.connect() as connection:
        queries = contents.load_queries(connection, list(map(UUID, before)), length=_QUERY_CHARS)
        archived = set(map(str, contents.list_archived(connection, project.id)))
    after = _find_all(shadow, project, settings, queries)
    lost = {id_ for id_, was_found in before.items() if was_found and not after[id_]}
    return Retrieval(
        queries=len(before),
        within=WITHIN,
        found_before=sum(before.values()),
        found_after=sum(after.values()),
        archived=len(lost & archived),
        lost={UUID(id_): queries[UUID(id_)] for id_ in sorted(lost - archived)},
    )
