"""Evidence that a search finds and a context tells within a budget of tokens, before and after a run.

    python benchmarks/context.py DIR [SET ...] [--data FOLDER] [--every N]
    python benchmarks/context.py --near-misses [FILE] [--data FOLDER]

The queries of ``DIR/SET.jsonl`` are in ``DIR/queries/SET.jsonl``, or in ``DIR/NAME_queries.jsonl`` for the sets
``NAME_*``: ``query``, and the memories that answer it in ``evidence_ids``. Each set is imported twice, as a project
that is only embedded and as one that is consolidated with the default options. ``--data``: keep both in a folder, so
that the next measurement needs no import. ``--every``: ask only every Nth query.

A memory is *told* if each of its sentences is told. It is *said* if each of them is, or one that proves to say all of
it. It is *named* if its id is, or that of a memory made from it or of one with the same text.

``--near-misses``: the pairs of ``FILE`` (default: ``benchmarks/pairs/development.jsonl``) in which one thing that
matters differs are imported into one project. For each text, its fact is asked for, in its own words and in those of
its paraphrases. *Told*: the text is told. *Warned*: where the pair proves to contradict, both are told as such.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from quality import Corpus, build_slug, embed_only, import_rows, load_corpus
from temporary_server import use_temporary_server

BUDGETS = (500, 1_000, 2_000)
MEASURES = ("told", "said", "named")
NEAR_MISSES = Path(__file__).parent / "pairs" / "development.jsonl"
# Sentences of a memory as written, by their normal form.
Sentences = dict[str, str]


@dataclass(frozen=True)
class Told:
    """Sentences, and raw memories by their own or their heirs' ids, that a reader was given."""

    sentences: Sentences
    named: frozenset[str]

    def says(self, sentences: Sentences) -> bool:
        """Return True if each sentence is told, or one that says all of it."""
        missing = [one for key, one in sentences.items() if key not in self.sentences]
        return all(any(covers(told, one) for told in self.sentences.values()) for one in missing)


@cache
def covers(told: str, sentence: str) -> bool:
    """Return True if one sentence proves to say all that another one does."""
    from consolidation_pipeline.core.differences.explanation import explain
    from consolidation_pipeline.embed.local import word_similarity

    found = explain(sentence, told, word_similarity)
    return found.may_merge and not any(one.a for one in found.differences)


class Store:
    """Project that holds a corpus, with the lineage of its memories."""

    def __init__(self, engine: Any, slug: str) -> None:
        from sqlalchemy import text

        from consolidation_pipeline.settings import Settings

        self.engine, self.slug, self.settings = engine, slug, Settings()
        with engine.connect() as connection:
            raw = connection.execute(text(_RAW_IDS), {"slug": slug}).all()
            made = connection.execute(text(_SOURCE_IDS), {"slug": slug}).all()
        repeats: dict[frozenset[str], set[str]] = {}
        for row in raw:
            repeats.setdefault(frozenset(split_normal([row.execution_summary])), set()).add(row.external_id)
        rows = {row.id: frozenset(repeats[frozenset(split_normal([row.execution_summary]))]) for row in raw}
        # Positions in the corpus of the raw memories behind each memory.
        self.origins = {str(id_): found for id_, found in rows.items()}
        self.origins |= {
            str(row.id): frozenset[str]().union(*(rows[id_] for id_ in row.source_memory_ids)) for row in made
        }

    def search(self, query: str, **options: Any) -> list[Any]:
        """Return the hits of a search, best first, as many as a search returns at most."""
        from consolidation_pipeline.service.search.hybrid_search import MAX_LIMIT, SearchQuery, search

        asked = SearchQuery(query, **{"limit": MAX_LIMIT, **options})
        return search(self.engine, self.slug, asked, settings=self.settings, count_use=False).results

    def build_context(self, query: str, budget: int) -> Any:
        """Return the context of a query as a task."""
        from consolidation_pipeline.service.search.context import build_context

        how: dict[str, Any] = {"settings": self.settings, "token_budget": budget, "count_use": False}
        return build_context(self.engine, self.slug, query, **how)

    def tell_hits(self, hits: Sequence[Any], budget: int) -> Told:
        """Return what the first hits say within a budget: their bare texts, without ids, the last one cut."""
        from consolidation_pipeline.core.text.sentence_splitter import split_sentences
        from consolidation_pipeline.core.text.token_estimate import BYTES_PER_TOKEN

        said, named, spent, room = Sentences(), set[str](), 0, budget * BYTES_PER_TOKEN
        for hit in hits:
            sentences = split_sentences(hit.content)
            ends = accumulate((len(one.encode()) + 1 for one in sentences), initial=spent)
            said |= split_normal(one for one, end in zip(sentences, list(ends)[1:], strict=True) if end <= room)
            spent += len(hit.content.encode()) + 1
            if spent > room:
                break
            named |= self.origins[str(hit.id)]
        return Told(said, frozenset(named))

    def tell_context(self, context: Any) -> Told:
        """Return what a context says: its memories, entries and contradictions, and the ids in its text."""
        from consolidation_pipeline.service.search.context import to_document

        texts = [one.content for one in (*context.memories, *context.playbook_entries)]
        texts += [side.content for one in context.contradictions for side in one.sides]
        document = to_document(context)
        named = (origins for id_, origins in self.origins.items() if id_.replace("-", "")[: _digits()] in document)
        return Told(split_normal(texts), frozenset().union(*named))


def _digits() -> int:
    from consolidation_pipeline.core.knowledge.playbook_markdown import ID_DIGITS

    return ID_DIGITS


_RAW_IDS = """
    SELECT m.id, m.external_id, m.execution_summary FROM consolidation.task_memories m
    JOIN consolidation.projects p ON p.id = m.project_id WHERE p.slug = :slug
"""
_SOURCE_IDS = """
    SELECT m.id, m.source_memory_ids FROM consolidation.consolidated_memories m
    JOIN consolidation.projects p ON p.id = m.project_id WHERE p.slug = :slug
"""


def normal_form(sentence: str) -> str:
    """Return a sentence without case, spacing and bullet."""
    from consolidation_pipeline.core.search.novelty import Sentence

    return Sentence(sentence).normal_form


def split_normal(texts: Iterable[str]) -> Sentences:
    """Return the sentences of texts by their normal form."""
    from consolidation_pipeline.core.text.sentence_splitter import split_sentences

    return {normal_form(sentence): sentence for text in texts for sentence in split_sentences(text)}


@dataclass(frozen=True)
class QuerySet:
    """Queries to a corpus, with the positions of the memories that answer each."""

    corpus: Corpus
    queries: list[str]
    evidence: list[list[int]]


def load_query_sets(folder: Path, names: Sequence[str], every: int) -> list[QuerySet]:
    """Load the sets that have queries: all of a folder, or those named."""
    found = []
    for path in sorted([*folder.glob("queries/*.jsonl"), *folder.glob("*_queries.jsonl")]):
        queries = [json.loads(line) for line in path.read_text().splitlines()][::every]
        wanted = {id_ for query in queries for id_ in query["evidence_ids"]}
        stem = path.stem.removesuffix("_queries")
        for file in sorted(folder.glob(f"{stem}*.jsonl")):
            if file.stem.endswith("_queries") or (names and file.stem not in names):
                continue
            corpus = load_corpus(file)
            positions = {row["id"]: at for at, row in enumerate(corpus.rows)}
            if not wanted & positions.keys():
                continue
            evidence = [[positions[id_] for id_ in query["evidence_ids"] if id_ in positions] for query in queries]
            found.append(QuerySet(corpus, [query["query"] for query in queries], evidence))
    return found


def share_told(told: Told, evidence: Sequence[int], sentences: Sequence[Sentences]) -> dict[str, float]:
    """Return the shares of the evidence that are told, said and named."""
    found = [
        (sentences[row].keys() <= told.sentences.keys(), told.says(sentences[row]), str(row) in told.named)
        for row in evidence
    ]
    return dict(zip(MEASURES, np.mean(found, axis=0).tolist(), strict=True))


def measure(queries: QuerySet, store: Store) -> dict[str, float]:
    """Return the means over the queries: recall@10 of the search, and the shares of ``MEASURES`` by budget."""
    sentences = [split_normal([text]) for text in queries.corpus.texts]
    columns: dict[str, list[float]] = {}
    for query, evidence in zip(queries.queries, queries.evidence, strict=True):
        hits = store.search(query)
        units = frozenset[str]().union(*(store.origins[str(hit.id)] for hit in hits[:10] if hit.level < 2))
        columns.setdefault("recall", []).append(float(np.mean([str(row) in units for row in evidence])))
        for budget in BUDGETS:
            answers = {
                "search": store.tell_hits(hits, budget),
                "context": store.tell_context(store.build_context(query, budget)),
            }
            for name, told in answers.items():
                for how, share in share_told(told, evidence, sentences).items():
                    columns.setdefault(f"{name} {budget} {how}", []).append(share)
    return {name: float(np.mean(shares)) for name, shares in columns.items()}


def print_tables(found: dict[str, tuple[dict[str, float], dict[str, float]]]) -> None:
    """Print a table of the search and one of the budgets, before and after consolidation."""
    print("\n| set | recall@10 before | after |\n|---|---:|---:|")
    for name, (before, after) in found.items():
        print(f"| {name} | {before['recall']:.3f} | {after['recall']:.3f} |")
    for how in MEASURES:
        print(f"\n| set | tokens | search before | context before | search after | context after | {how} |")
        print("|---|---:|---:|---:|---:|---:|---|")
        for name, measured in found.items():
            for budget in BUDGETS:
                shares = [one[f"{kind} {budget} {how}"] for one in measured for kind in ("search", "context")]
                cells = " | ".join(f"{share:.3f}" for share in shares)
                print(f"| {name} | {budget:,} | {cells} | {_judge(*shares)} |")


def _judge(search_before: float, before: float, search_after: float, after: float) -> str:
    """Return what is wrong with a row of the table: a context below search, or less after than before."""
    wrong = ["below search before"] if before < search_before else []
    wrong += ["below search after"] if after < search_after else []
    wrong += ["lost"] if min(after - before, search_after - search_before) < -0.01 else []
    return ", ".join(wrong)


def prepare(corpus: Corpus, engine: Any) -> tuple[Store, Store]:
    """Return the project of a set before and after consolidation; import and run what is missing."""
    from consolidation_pipeline.launch import run_project
    from consolidation_pipeline.store.projects import list_projects

    after = build_slug(corpus.name)
    before = f"{after}-before"
    with engine.connect() as connection:
        known = {project.slug for project in list_projects(connection)}
    if before not in known:
        embed_only(before, corpus.rows, engine)
    if after not in known:
        import_rows(after, corpus.rows, engine)
        outcome = run_project(after, triggered_by="benchmark")
        if outcome.status != "completed":
            raise SystemExit(f"{after}: run {outcome.status}: {outcome.error}")
    return Store(engine, before), Store(engine, after)


# --- near-misses -----------------------------------------------------------------------------------------------------


def measure_near_misses(file: Path, engine: Any) -> None:
    """Print how many facts are told and how many contradictions are warned of, before and after consolidation."""
    from consolidation_pipeline.core.differences.explanation import explain

    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    pairs = [row for row in rows if row["part"].startswith("near")]
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair["a"], pair["b"])))
    corpus = Corpus(
        "near_misses", [{"content": text, "memory_type": "learning"} for text in texts], [None] * len(texts)
    )
    questions: dict[str, list[str]] = {text: [text] for text in texts}
    for row in rows:
        if row["part"] == "para" and row["a"] in questions:
            questions[row["a"]].append(row["b"])
    proven = {frozenset((pair["a"], pair["b"])) for pair in pairs if pair["part"] == "near"
              and explain(pair["a"], pair["b"]).verdict == "contradicts"}  # fmt: skip
    print("\n| near-misses | questions | told | contradictions | warned |\n|---|---:|---:|---:|---:|")
    for name, store in zip(("before", "after"), prepare(corpus, engine), strict=True):
        told, warned = [], []
        for text, asked in questions.items():
            others = [next(iter(pair - {text})) for pair in proven if text in pair]
            for question in asked:
                context = store.build_context(question, max(BUDGETS))
                said = store.tell_context(context).sentences
                told.append(split_normal([text]).keys() <= said.keys())
                sides = [split_normal(side.content for side in one.sides) for one in context.contradictions]
                warned += [any(all(one.keys() & split_normal([side]) for side in (text, other)) for one in sides)
                           for other in others]  # fmt: skip
        print(f"| {name} | {len(told)} | {sum(told)} | {len(warned)} | {sum(warned)} |")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--near-misses", type=Path, nargs="?", const=NEAR_MISSES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    sets = load_query_sets(given.folder, given.sets, given.every) if given.folder else []
    if not sets and not given.near_misses:
        raise SystemExit(f"{given.folder} has no queries to {given.sets or 'any set'}; see --help")
    use_temporary_server(given.data)
    os.environ.update(DAGSTER_HOME=str(Path(__file__).resolve().parent.parent))
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(Settings())
    found = {}
    for queries in sets:
        before, after = prepare(queries.corpus, engine)
        found[queries.corpus.name] = measure(queries, before), measure(queries, after)
    if found:
        print_tables(found)
    if given.near_misses:
        measure_near_misses(given.near_misses, engine)


if __name__ == "__main__":
    main()
