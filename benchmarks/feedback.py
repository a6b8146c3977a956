"""Effect of feedback on search: agents report what they used, and one agent always reports its own memories.

    python benchmarks/feedback.py [DIR [SET ...]] [--rounds N]

Without a folder, an artificial store: 40 topics with 12 memories each, of which 3 are useful and no text tells which. A
query of a topic finds all of them. Agents ask 2 of 4 queries of each topic; the others measure what they did not ask.
With a folder, its sets with queries as in ``benchmarks/context.py``; agents ask every other one.

A round is a day. On it each of 8 agents asks 12 queries and reports each useful memory among the first ten with a
chance of 70 %, each other one with 5 %. Every agent has its own key and wrote as many memories as the others. The
adversary wrote memories that are useful for no query, and reports all of them for each of its queries. All goes through
the database: searches, votes and the days that they count for.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from context import QuerySet, load_query_sets
from temporary_server import use_temporary_server

AGENTS, QUERIES_PER_ROUND, SHOWN, FIRST = 8, 12, 10, 5
REPORTS_USEFUL, REPORTS_OTHER = 0.7, 0.05
TOPICS, MEMORIES_PER_TOPIC, USEFUL_PER_TOPIC, QUERIES_PER_TOPIC, TOPIC_WORDS = 40, 12, 3, 4, 12
MEASURED_ROUNDS = (0, 1, 3, 10, 30)
SEED = 20
ADVERSARY = f"key:{AGENTS}"


@dataclass(frozen=True)
class Query:
    """A query and the positions of the memories that are useful for it; only if ``asked`` do agents ask it."""

    text: str
    useful: frozenset[int]
    asked: bool


@dataclass(frozen=True)
class World:
    """The texts of a store, and queries."""

    name: str
    texts: list[str]
    queries: list[Query]


def draw_world(source: random.Random) -> World:
    """Return the artificial store."""
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(source.choices(syllables, k=3)) for _ in range(TOPICS * TOPIC_WORDS + 200)]
    common = words[TOPICS * TOPIC_WORDS :]
    texts: list[str] = []
    queries: list[Query] = []
    for topic in range(TOPICS):
        own = words[topic * TOPIC_WORDS : (topic + 1) * TOPIC_WORDS]
        first = len(texts)
        texts += [" ".join(source.sample(own, 6) + source.sample(common, 6)) + "." for _ in range(MEMORIES_PER_TOPIC)]
        useful = frozenset(source.sample(range(first, len(texts)), USEFUL_PER_TOPIC))
        queries += [
            Query(" ".join(source.sample(own, 5)), useful, asked=at % 2 == 0) for at in range(QUERIES_PER_TOPIC)
        ]
    return World("artificial", texts, queries)


def convert_set(queries: QuerySet) -> World:
    """Return a set with queries as a world; agents ask every other query."""
    pairs = enumerate(zip(queries.queries, queries.evidence, strict=True))
    asked = [Query(text, frozenset(evidence), asked=at % 2 == 0) for at, (text, evidence) in pairs if evidence]
    return World(queries.corpus.name, queries.corpus.texts, asked)


class Store:
    """A world in the database, with the agents that wrote its memories."""

    def __init__(self, engine: Any, world: World, source: random.Random) -> None:
        from consolidation_pipeline.embed import load_embedder
        from consolidation_pipeline.service.intake.agent_memories import add_memories
        from consolidation_pipeline.service.intake.importer import ensure_project
        from consolidation_pipeline.settings import Settings

        self.engine, self.world, self.slug, self.settings = engine, world, world.name.replace("_", "-"), Settings()
        self.project_id = ensure_project(engine, self.slug, {"scope": "project"}).id
        self.embedder = load_embedder("local")
        # The last writer is the adversary. What it wrote is of no use.
        useless = set(range(len(world.texts))).difference(*(query.useful for query in world.queries))
        share = len(world.texts) // (AGENTS + 1)
        self.own = frozenset(source.sample(sorted(useless), min(share, len(useless))))
        writers = [ADVERSARY if at in self.own else f"key:{source.randrange(AGENTS)}" for at in range(len(world.texts))]
        ids: list[Any] = []
        for start in range(0, len(writers), 500):
            rows = [
                {"id": str(at), "content": world.texts[at], "writer": writers[at]}
                for at in range(start, min(start + 500, len(writers)))
            ]
            added = add_memories(
                engine, self.slug, rows, source="benchmark", changed_by="benchmark", settings=self.settings
            )
            ids += added.ids
        self.ids = ids
        self.places = {id_: at for at, id_ in enumerate(ids)}

    def search(self, query: Query) -> list[int]:
        """Return the positions of the first memories that a search shows."""
        from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search

        asked = SearchQuery(query.text, limit=SHOWN)
        found = search(self.engine, self.slug, asked, settings=self.settings, count_use=False)
        return [self.places[hit.id] for hit in found.results]

    def vote(self, places: Sequence[int], voter: str, day: Any, query: str = "") -> None:
        """Report memories as used by a voter on a day, as ``report_used`` does for today."""
        from consolidation_pipeline.core.memories.memories import content_hash
        from consolidation_pipeline.store.memories.votes import add_uses_as_votes, save_vote_query

        hashed = content_hash(query) if query else ""
        with self.engine.begin() as connection:
            if query:
                (vector,) = self.embedder.embed([query])
                model = self.embedder.name
                save_vote_query(connection, self.project_id, hashed, model=model, vector=vector, day=day)
            ids = [self.ids[at] for at in places]
            add_uses_as_votes(connection, ids, voter=voter, day=day, query_hash=hashed)

    def clear_votes(self) -> None:
        """Remove all votes."""
        with self.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM consolidation.memory_votes")

    def measure(self, *, asked: bool) -> tuple[float, float, float]:
        """Return recall among the first five, mean reciprocal rank, and the adversary's memories among the five."""
        recall, reciprocal, exposed, queries = 0.0, 0.0, 0.0, [q for q in self.world.queries if q.asked is asked]
        for query in queries:
            shown = self.search(query)
            recall += len(query.useful.intersection(shown[:FIRST])) / min(len(query.useful), FIRST)
            reciprocal += next((1 / rank for rank, at in enumerate(shown, 1) if at in query.useful), 0.0)
            exposed += len(self.own.intersection(shown[:FIRST]))
        return recall / len(queries), reciprocal / len(queries), exposed / len(queries)


def simulate(store: Store, rounds: int, *, honest: bool, adversary: bool) -> None:
    """Let the agents ask and report for some days up to today, and print what searches find on the way."""
    source = random.Random(SEED)
    store.clear_votes()
    asked = [query for query in store.world.queries if query.asked]
    today = datetime.now(UTC).date()
    for done in range(rounds + 1):
        if done in MEASURED_ROUNDS or done == rounds:
            for kind in (True, False):
                recall, reciprocal, exposed = store.measure(asked=kind)
                what = "asked" if kind else "not asked"
                print(f"| {done} | {what} | {recall:.3f} | {reciprocal:.3f} | {exposed:.2f} |", flush=True)
        if done == rounds:
            break
        day = today - timedelta(days=rounds - 1 - done)
        for agent in range(AGENTS if honest else 0):
            for query in source.choices(asked, k=QUERIES_PER_ROUND):
                chances = {at: REPORTS_USEFUL if at in query.useful else REPORTS_OTHER for at in store.search(query)}
                used = [at for at, chance in chances.items() if source.random() < chance]
                store.vote(used, f"key:{agent}", day, query.text)
        if adversary:
            for query in source.choices(asked, k=QUERIES_PER_ROUND):
                store.vote(sorted(store.own), ADVERSARY, day, query.text)


def main() -> None:
    """Simulate feedback on the given sets, or on the artificial store."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    use_temporary_server()
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(Settings())
    source = random.Random(SEED)
    sets = load_query_sets(arguments.folder, arguments.sets, 1) if arguments.folder else []
    worlds = [convert_set(queries) for queries in sets] or [draw_world(source)]
    for world in worlds:
        store = Store(engine, world, source)
        for honest, adversary in ((True, False), (True, True), (False, True)):
            told = [name for name, is_on in (("agents", honest), ("adversary", adversary)) if is_on]
            print(f"\n{world.name}, {len(world.texts)} memories, votes of {' and '.join(told)}\n")
            print("| round | queries | recall@5 | MRR | adversary's memories in 5 |\n|---:|---|---:|---:|---:|")
            simulate(store, arguments.rounds, honest=honest, adversary=adversary)


if __name__ == "__main__":
    main()
