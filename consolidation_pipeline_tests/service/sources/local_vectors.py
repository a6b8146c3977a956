"""Vectors of the local model in any length, and a server that gives them as OpenAI does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline_tests.openai_server import Behaviour, Reply, Request, json_response, pack_vectors


def repeat_vectors(texts: Sequence[str], dimension: int) -> Vectors:
    """Return vectors of the local model, repeated up to ``dimension`` numbers: cosines stay nearly what they are."""
    vectors = load_embedder("local").embed(list(texts))
    return normalize(np.tile(vectors, -(-dimension // vectors.shape[1]))[:, :dimension])


def reply_with_local_vectors(dimension: int) -> Behaviour:
    """Return a behaviour for ``/v1/embeddings`` with the vectors of ``repeat_vectors``."""

    def reply(request: Request) -> Reply:
        given = request.body["input"]
        vectors = repeat_vectors([given] if isinstance(given, str) else given, dimension)
        rows = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(vectors.tolist())]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return json_response({"object": "list", "data": pack_vectors(rows, request), "model": "local", "usage": usage})

    return reply
