"""mem0 in five minutes: fill a collection with the real library, connect, write, search as before, undo everything.

Run by ``make demo-mem0``. Everything happens in an embedded Postgres of its own, which is removed at the end. Vectors
come from the local model; no language model is asked.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

FACTS = {
    "alice": (
        "The deploy of the billing service must run its migrations before the containers restart",
        "Alice prefers window seats on long flights and aisle seats on short ones",
        "The nightly backup of the orders database takes about forty minutes",
    ),
    "bob": (
        "Use port 8443 for the staging gateway, as 443 belongs to the load balancer",
        "The nightly backup of the orders database takes about forty minutes",
    ),
}
QUERY = "how long does the backup of the orders take"


def main() -> None:
    """Run the demo."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="demo-mem0-") as folder:
        os.chmod(folder, 0o755)  # The server of a root user runs as another one.
        os.environ |= {
            "CONSOLIDATION_DATA_DIR": str(Path(folder, "data")),
            "MEM0_DIR": folder,
            "MEM0_TELEMETRY": "False",
            "OPENAI_API_KEY": "unused",
        }
        os.environ.pop("CONSOLIDATION_DATABASE_URL", None)
        _run(Path(folder))


def _run(folder: Path) -> None:
    import psycopg

    from consolidation_pipeline.cli.app import run_command
    from consolidation_pipeline.store.database.embedded_server import server_url

    url = server_url(folder / "data", "agents")
    os.environ["MEM0_DATABASE_URL"] = url
    memory = _open_mem0(url, folder)
    print("== 1. An agent has written memories with mem0, the same facts in other words")
    for user, facts in FACTS.items():
        for fact in facts:
            for text in (fact, f"{fact}.", f"Note: {fact[0].lower()}{fact[1:]}."):
                memory.add(text, user_id=user, infer=False)
    with psycopg.connect(url, autocommit=True) as store:
        before = _checksum(store)
        _search(memory)
        print(
            "\n== 2. consolidation connect mem0 --url-env MEM0_DATABASE_URL --table mem0 --project shop --mode review"
        )
        connect = ["connect", "mem0", "--url-env", "MEM0_DATABASE_URL", "--table", "mem0", "--project", "shop"]
        _check(run_command([*connect, "--mode", "review", "--embedding-model", "local", "--yes"]))
        print("\n== 3. consolidation run shop; consolidation source diff shop-mem0")
        _check(run_command(["run", "shop"]))
        _check(run_command(["source", "diff", "shop-mem0"]))
        print("\n== 4. consolidation source write shop-mem0 --all")
        _check(run_command(["source", "write", "shop-mem0", "--all"]))
        _search(memory)
        print("\n== 5. consolidation source disconnect shop-mem0 --restore")
        _check(run_command(["source", "disconnect", "shop-mem0", "--restore"]))
        equal = _checksum(store) == before
        print(f"checksum of the collection {'equals' if equal else 'DIFFERS FROM'} the one at the start: {before}")
    memory.vector_store.connection_pool.close()
    _check(int(not equal))


def _open_mem0(url: str, folder: Path) -> Any:
    from langchain_core.embeddings import Embeddings
    from mem0 import Memory

    from consolidation_pipeline.embed import load_embedder

    class LocalVectors(Embeddings):
        """Vectors of the model inside of the package."""

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[float(value) for value in vector] for vector in load_embedder("local").embed(texts)]

        def embed_query(self, text: str) -> list[float]:
            return self.embed_documents([text])[0]

    store = {"connection_string": url, "collection_name": "mem0", "embedding_model_dims": 256, "hnsw": True}
    return Memory.from_config(
        {
            "vector_store": {"provider": "pgvector", "config": store},
            "embedder": {"provider": "langchain", "config": {"model": LocalVectors()}},
            "history_db_path": str(folder / "history.db"),
        }
    )


def _search(memory: Any) -> None:
    print(f'mem0 search of alice for "{QUERY}":')
    for hit in memory.search(QUERY, filters={"user_id": "alice"}, top_k=3)["results"]:
        print(f"  {hit['score']:.2f}  {hit['memory']}")


def _checksum(store: Any) -> str:
    row = store.execute("SELECT md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM mem0 t").fetchone()
    return str(row[0])


def _check(code: int) -> None:
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    main()
