"""Quality of groups and of search on labelled memories, for simple methods and for the whole pipeline.

    python benchmarks/quality.py DIR [SET ...]        default: every labelled set in DIR

Each line of ``DIR/SET.jsonl`` is a JSON object with ``content``, ``memory_type`` and the true group: ``label`` or
``dup_group`` (null = unknown). ``NAME_queries.jsonl`` has queries for the sets ``NAME_*.jsonl``: ``query``, and the
relevant memories in ``evidence_ids``. For the rows "consolidation", memories are imported, consolidated as assets on a
temporary server and read back.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from temporary_server import use_temporary_server

SEED = 7
CONTEXT_CHARS = 1_000
POOL_SIZES = (500, 1_000, 2_000, 4_000, 7_400)
SEARCHES: dict[str, dict[str, Any]] = {
    "words": {"min_similarity": 1.0},
    "rrf": {"fusion": "rrf"},
    "zscore": {"fusion": "zscore"},
    "zscore, raw and merged memories": {"fusion": "zscore", "levels": (0, 1)},
}
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Corpus:
    """A labelled set: its rows, and the true group of each (None = unknown)."""

    name: str
    rows: list[dict[str, Any]]
    truth: list[Hashable | None]

    @property
    def texts(self) -> list[str]:
        return [row["content"] for row in self.rows]


@dataclass(frozen=True)
class Outcome:
    """Result of the pipeline for a corpus: merge and pattern group of each row (-1 = alone), and its unit's text."""

    unit: Labels
    pattern: Labels
    texts: list[str]


def load_corpus(path: Path) -> Corpus:
    """Load the rows of a file with their true groups.

    The true group is ``dup_group`` if any row has one, else ``label``. Without both it is the exact text if most rows
    are repeats, else unknown.
    """
    from consolidation_pipeline.core.memories.memories import normalized_hash

    rows = [json.loads(line) for line in path.read_text().splitlines()]
    key = next((key for key in ("dup_group", "label") if any(row.get(key) for row in rows)), None)
    repeats = [normalized_hash(row["content"]) for row in rows]
    truth: list[Hashable | None] = [row.get(key) if key else None for row in rows]
    is_log = not key and len(set(repeats)) < len(rows) / 2
    return Corpus(path.stem, rows, list(repeats) if is_log else truth)


# --- scores --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """Pairwise precision, recall and F1 over pairs with known truth; NaN if there are none.

    ``wrong``: number of wrong pairs. Shares of the rows: ``grouped`` in groups, ``left`` units left after grouping,
    ``largest`` in the largest group.
    """

    precision: float
    recall: float
    f1: float
    wrong: int
    grouped: float
    left: float
    largest: float


def score(labels: Labels, truth: Sequence[Hashable | None]) -> Score:
    """Compare the groups (n,), -1 = alone, with the truth. Pairs are counted by group, so large groups are cheap."""
    groups = Counter(labels[labels >= 0].tolist())
    known = [(label, true) for label, true in zip(labels.tolist(), truth, strict=True) if true is not None]
    found = sum(map(_count_pairs, Counter(label for label, _ in known if label >= 0).values()))
    right = sum(map(_count_pairs, Counter(pair for pair in known if pair[0] >= 0).values()))
    wanted = sum(map(_count_pairs, Counter(true for _, true in known).values()))
    if not known:
        precision = recall = float("nan")
    else:
        precision, recall = right / found if found else 1.0, right / max(1, wanted)
    units = len(groups) + int((labels < 0).sum())
    return Score(
        precision,
        recall,
        2 * precision * recall / max(1e-12, precision + recall),
        found - right,
        sum(groups.values()) / len(labels),
        units / len(labels),
        max(groups.values(), default=0) / len(labels),
    )


def _count_pairs(count: int) -> int:
    return count * (count - 1) // 2


# --- methods -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EmbeddedCorpus:
    """A corpus with its vectors (n, d), plain and centered, and the group of exact repeats of each row (n,)."""

    corpus: Corpus
    plain: NDArray[np.float32]
    centered: NDArray[np.float32]
    repeat: Labels


def embed_corpus(corpus: Corpus) -> EmbeddedCorpus:
    """Embed a corpus with the local model."""
    from consolidation_pipeline.core.memories.memories import normalized_hash
    from consolidation_pipeline.core.vectors import center
    from consolidation_pipeline.embed import load_embedder

    x = np.asarray(load_embedder("local").embed(corpus.texts), dtype=np.float32)
    repeat = np.unique([normalized_hash(text) for text in corpus.texts], return_inverse=True)[1].reshape(-1)
    return EmbeddedCorpus(corpus, x, center(x, x.mean(axis=0, dtype=np.float64)), repeat.astype(np.int64))


def run_merge_methods(prepared: EmbeddedCorpus) -> dict[str, Labels]:
    """Return near-duplicate groups by simple methods, and by the rules of the product without its calibration."""
    from consolidation_pipeline.core.calibration.model_thresholds import WORDLLAMA
    from consolidation_pipeline.core.differences.pair_screen import find_mergeable
    from consolidation_pipeline.core.grouping.labels import renumber_labels
    from consolidation_pipeline.core.grouping.linkage import complete_linkage
    from consolidation_pipeline.core.similarity.similarity_join import similarity_join
    from consolidation_pipeline.embed.local import word_similarity

    n, texts, lowest = len(prepared.repeat), prepared.corpus.texts, WORDLLAMA.t_suggest
    close = similarity_join(prepared.centered, lowest)
    harmless = close.select(find_mergeable(texts, close.i, close.j, word_similarity))
    return {
        "exact repeats": renumber_labels(prepared.repeat, 2),
        "greedy leader, plain, 0.95": greedy_leader(prepared.plain, 0.95),
        "complete linkage, plain, 0.95": complete_linkage(n, similarity_join(prepared.plain, 0.95), 0.95),
        "complete linkage, centred, 0.82": complete_linkage(n, close.at_least(0.82), 0.82),
        "every difference explained": complete_linkage(n, harmless, lowest),
    }


def run_pattern_methods(prepared: EmbeddedCorpus) -> dict[str, Labels]:
    """Return topic groups by simple methods with the same threshold for all sets, and by the product's own rule.

    ``own`` is the rule of the product on all memories, each exact repeat for itself.
    """
    from consolidation_pipeline.core.calibration.threshold_estimates import measure_spread
    from consolidation_pipeline.core.calibration.topic_threshold import find_topic_threshold, limit_topic_size
    from consolidation_pipeline.core.grouping.average_linkage import unlimited
    from consolidation_pipeline.core.grouping.clustering import cluster_rows
    from consolidation_pipeline.core.similarity.similarity_join import similarity_join

    x, first = prepared.centered, np.unique(prepared.repeat, return_index=True)[1]
    order = np.random.default_rng(SEED).permutation(len(first))
    spread = measure_spread(x[first], order)
    own = find_topic_threshold(x[first], order, spread).threshold if spread else 0.45
    pairs, limits = similarity_join(x, 0.45), unlimited(len(x))._replace(most=limit_topic_size(len(first)))
    methods = {f"{method}, 0.60": (method, 0.60) for method in ("components", "average")}
    methods |= {"average, 0.45": ("average", 0.45), "hdbscan": ("hdbscan", 0.60)}
    simple = {
        name: cluster_rows(x, pairs, method=method, threshold=threshold, min_size=2)
        for name, (method, threshold) in methods.items()
    }
    options = {"threshold": own, "min_size": 2, "complete_from": max(own, 0.45), "limits": limits}
    return simple | {"average, own": cluster_rows(x, pairs, method="average", **options)}


def greedy_leader(x: NDArray[np.float32], threshold: float) -> Labels:
    """Group rows in one loop: each row joins the first leader that is similar enough, or becomes a leader."""
    from consolidation_pipeline.core.grouping.labels import renumber_labels

    leaders: list[int] = []
    of_row = np.empty(len(x), dtype=np.int64)
    for row in range(len(x)):
        near = np.flatnonzero(x[leaders] @ x[row] >= threshold) if leaders else np.empty(0, np.int64)
        if not near.size:
            leaders.append(row)
        of_row[row] = near[0] if near.size else len(leaders) - 1
    return renumber_labels(of_row, 2)


# --- the pipeline itself -------------------------------------------------------------------------------------------


def consolidate(name: str, rows: Iterable[dict[str, Any]], engine: Any) -> Outcome:
    """Import the rows as a new project, run it, and read back the groups of each row."""
    from consolidation_pipeline.launch import run_project

    project = build_slug(name)
    count = import_rows(project, rows, engine)
    outcome = run_project(project, triggered_by="benchmark")
    if outcome.status != "completed":
        raise SystemExit(f"{project}: run {outcome.status}: {outcome.error}")
    return _read_back(engine, project, count)


def embed_only(project: str, rows: Iterable[dict[str, Any]], engine: Any) -> None:
    """Import the rows as a new project and embed them, as the state before consolidation."""
    from consolidation_pipeline.service.runs.run_lifecycle import open_run
    from consolidation_pipeline.service.similarity.embedding import embed_memories
    from consolidation_pipeline.settings import Settings

    import_rows(project, rows, engine)
    with open_run(engine, project, settings=Settings(), planned=()) as run:
        embed_memories(run)


def build_slug(name: str) -> str:
    """Return the project slug of a corpus."""
    return name.replace("_", "-").lower()


def import_rows(project: str, rows: Iterable[dict[str, Any]], engine: Any) -> int:
    """Import the rows into a project with their position as id; return their number."""
    from consolidation_pipeline.service.intake.importer import import_memories

    listed = [
        {**row, "id": str(at), "memory_type": row.get("memory_type") or "learning"} for at, row in enumerate(rows)
    ]
    kept = ("id", "memory_type", "content", "created_at", "tags")
    file = Path(os.environ["CONSOLIDATION_DATA_DIR"]) / f"{project}.jsonl"
    file.write_text("".join(json.dumps({key: row[key] for key in kept if row.get(key)}) + "\n" for row in listed))
    imported = import_memories(engine, project, str(file), format="jsonl")
    if imported.bad:
        raise SystemExit(f"{project}: {len(imported.bad)} rows rejected")
    return len(listed)


def _read_back(engine: Any, project: str, count: int) -> Outcome:
    ids, texts, groups = _load_units(engine, project)
    if len(ids) != count:
        raise SystemExit(f"{project}: {len(ids)} rows read back of {count}")
    unit = np.unique(ids, return_inverse=True)[1].reshape(-1).astype(np.int64)
    keys = [key or f"alone {number}" for key, number in zip(groups, unit.tolist(), strict=True)]
    pattern = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return Outcome(_drop_singles(unit), _drop_singles(pattern), texts)


def _load_units(engine: Any, project: str) -> tuple[list[str], list[str], list[str | None]]:
    """Return id, text and pattern group (None = alone) of the unit of each row of the corpus, in its order."""
    from sqlalchemy import text

    query = """
        SELECT coalesce(c.id, m.id)::text, coalesce(c.content, m.execution_summary), g.cluster_key
        FROM consolidation.task_memories m JOIN consolidation.projects p ON p.id = m.project_id
        LEFT JOIN consolidation.consolidated_memories c ON c.id = m.consolidated_into_id
        LEFT JOIN consolidation.memory_clusters g ON g.tier = 'pattern' AND g.member_id = coalesce(c.id, m.id)
        WHERE p.slug = :project ORDER BY m.external_id::int
    """
    with engine.connect() as connection:
        rows = connection.execute(text(query), {"project": project}).all()
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def _drop_singles(of_row: Labels) -> Labels:
    """Return the labels with -1 for rows that are alone in their group."""
    return np.where(np.bincount(of_row)[of_row] > 1, of_row, -1)


# --- retrieval -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RetrievalScore:
    """Means over queries: share of relevant memories whose unit is among the first ten hits, and share seen."""

    recall: float
    seen: float


def retrieve(
    corpus: Corpus, queries: Sequence[dict[str, Any]], engine: Any, project: str, **options: Any
) -> RetrievalScore:
    """Search a project that holds the corpus. ``options``: further fields of ``SearchQuery``.

    A memory is seen if all its sentences are among the first ``CONTEXT_CHARS`` characters of the joined hits.
    """
    from consolidation_pipeline.service.search.hybrid_search import MAX_LIMIT, SearchQuery, search
    from consolidation_pipeline.settings import Settings

    ids, texts, _ = _load_units(engine, project)
    _, first, of_row = np.unique(ids, return_index=True, return_inverse=True)
    needed = _count_needed_chars(corpus.texts, [texts[row] for row in first.tolist()], of_row.reshape(-1))
    row_of = {row["id"]: at for at, row in enumerate(corpus.rows)}
    recalls, shares = [], []
    for query in queries:
        search_query = SearchQuery(query["query"], limit=MAX_LIMIT, **options)
        hits = search(engine, project, search_query, settings=Settings(), count_use=False).results
        places = {str(hit.id): place for place, hit in enumerate(hits)}
        starts = np.cumsum([0, *(len(hit.content) + 2 for hit in hits)]).tolist()
        relevant = [(places.get(ids[row], len(hits)), row) for row in (row_of[name] for name in query["evidence_ids"])]
        recalls.append(np.mean([place < 10 for place, _ in relevant]))
        shares.append(np.mean([p < len(hits) and starts[p] + needed[row] <= CONTEXT_CHARS for p, row in relevant]))
    return RetrievalScore(float(np.mean(recalls)), float(np.mean(shares)))


def _count_needed_chars(texts: Sequence[str], shown: Sequence[str], of_row: Labels) -> list[float]:
    """Return how many characters of its unit's text contain all sentences of each memory; inf if one is missing."""
    from consolidation_pipeline.core.memories.memories import normalize_text
    from consolidation_pipeline.core.text.sentence_splitter import split_sentences, unwrap

    ends: list[dict[str, int]] = []
    for text in shown:
        at, found = 0, {}
        joined = unwrap(text)
        for sentence in split_sentences(text):
            at = joined.index(sentence, at) + len(sentence)
            found.setdefault(normalize_text(sentence), at)
        ends.append(found)
    return [
        max((ends[number].get(normalize_text(s), float("inf")) for s in split_sentences(text)), default=0.0)
        for text, number in zip(texts, of_row.tolist(), strict=True)
    ]


# --- growth ----------------------------------------------------------------------------------------------------------


def measure_pools(corpora: Sequence[Corpus], engine: Any) -> list[tuple[int, Score, Score]]:
    """Return for growing pools of all sets: size, score of the pipeline's patterns, and of components at 0.60."""
    from consolidation_pipeline.core.grouping.linkage import connected_components
    from consolidation_pipeline.core.similarity.similarity_join import similarity_join

    pool = [(row, f"{corpus.name}/{true}" if true else None) for corpus in corpora for row, true in
            zip(corpus.rows, corpus.truth, strict=True)]  # fmt: skip
    random.Random(SEED).shuffle(pool)
    found = []
    for size in (size for size in POOL_SIZES if size <= len(pool)):
        rows, truth = [row for row, _ in pool[:size]], [true for _, true in pool[:size]]
        x = embed_corpus(Corpus("pool", rows, truth)).centered
        chained = connected_components(size, similarity_join(x, 0.60), 0.60)
        found.append((size, score(consolidate(f"pool-{size}", rows, engine).pattern, truth), score(chained, truth)))
    return found


# --- tables --------------------------------------------------------------------------------------------------------


def print_table(title: str, scores: Iterable[tuple[str, str, Score]]) -> None:
    """Print a row for each set and method, and the means of each method."""
    print(f"\n{title}\n")
    print("| set | method | precision | recall | F1 | wrong pairs | in groups | units left | largest group |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    by_method: dict[str, list[Score]] = defaultdict(list)
    for name, method, found in scores:
        by_method[method].append(found)
        _print_row(name, method, found)
    for method, all_found in by_method.items():
        columns = np.array([list(vars(found).values()) for found in all_found])
        _print_row("mean", method, Score(*np.nanmean(columns, axis=0)))


def _print_row(name: str, method: str, found: Score) -> None:
    print(
        f"| {name} | {method} | {found.precision:.3f} | {found.recall:.3f} | {found.f1:.3f} | {found.wrong:.0f} "
        f"| {found.grouped:.1%} | {found.left:.1%} | {found.largest:.1%} |"
    )


def main() -> None:
    """Measure each set given on the command line."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
        raise SystemExit(f"usage: python {sys.argv[0]} DIR [SET ...]: DIR is the folder with the labelled .jsonl files")
    folder, selected = Path(sys.argv[1]), sys.argv[2:]
    files = sorted(path for path in folder.glob("*.jsonl") if not path.stem.endswith("_queries"))
    corpora = [load_corpus(path) for path in files if not selected or path.stem in selected]
    use_temporary_server()
    os.environ.update(DAGSTER_HOME=str(Path(__file__).resolve().parent.parent))
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(Settings())
    prepared = {corpus.name: embed_corpus(corpus) for corpus in corpora}
    outcomes = {corpus.name: consolidate(corpus.name, corpus.rows, engine) for corpus in corpora}
    print_table(
        "Merging", _scores(prepared, run_merge_methods, {name: outcome.unit for name, outcome in outcomes.items()})
    )
    labelled = {name: ready for name, ready in prepared.items() if _has_topics(ready.corpus)}
    print_table("Patterns", _scores(labelled, run_pattern_methods, {name: outcomes[name].pattern for name in labelled}))
    _print_retrieval(folder, corpora, engine)
    _print_pools([ready.corpus for ready in labelled.values()], engine)


def _scores(
    prepared: dict[str, EmbeddedCorpus], methods: Callable[[EmbeddedCorpus], dict[str, Labels]], ours: dict[str, Labels]
) -> Iterable[tuple[str, str, Score]]:
    for name, ready in prepared.items():
        for method, labels in {**methods(ready), "consolidation": ours[name]}.items():
            yield name, method, score(labels, ready.corpus.truth)


def _has_topics(corpus: Corpus) -> bool:
    """Return True if the truth of most rows is known and is not just exact repetition."""
    known = [true for true in corpus.truth if true is not None]
    return len(known) > len(corpus.rows) / 2 and any(row.get("label") or row.get("dup_group") for row in corpus.rows)


def _print_retrieval(folder: Path, corpora: Sequence[Corpus], engine: Any) -> None:
    for path in sorted(folder.glob("*_queries.jsonl")):
        queries = [json.loads(line) for line in path.read_text().splitlines()]
        relevant = {name for query in queries for name in query["evidence_ids"]}
        for corpus in (corpus for corpus in corpora if relevant & {row.get("id") for row in corpus.rows}):
            before = f"{build_slug(corpus.name)}-before"
            embed_only(before, corpus.rows, engine)
            print(f"\n{len(queries)} queries to {corpus.name}; seen: within {CONTEXT_CHARS:,} characters")
            print("\n| search | recall@10 before | after | seen before | after |\n|---|---:|---:|---:|---:|")
            for name, options in SEARCHES.items():
                was, now = (
                    retrieve(corpus, queries, engine, slug, **options) for slug in (before, build_slug(corpus.name))
                )
                print(f"| {name} | {was.recall:.3f} | {now.recall:.3f} | {was.seen:.3f} | {now.seen:.3f} |")


def _print_pools(corpora: Sequence[Corpus], engine: Any) -> None:
    print("\n| memories in one pool | precision | largest group | components at 0.60: precision | largest group |")
    print("|---:|---:|---:|---:|---:|")
    for size, ours, chained in measure_pools(corpora, engine):
        shown = (f"{found.precision:.3f} | {found.largest:.1%}" for found in (ours, chained))
        print(f"| {size:,} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
