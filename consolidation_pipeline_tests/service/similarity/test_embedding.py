"""Embedding: every memory gets a vector once; unusable vectors name their memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from consolidation_pipeline.embed.embedder import check_vectors
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.service.similarity import embedding
from consolidation_pipeline.service.similarity.embedding import EmbeddingResult, embed_memories
from consolidation_pipeline_tests.service.corpus import corpus, note
from consolidation_pipeline_tests.service.fake_embedder import WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id


def embed(pipeline: Pipeline, model: WordEmbedder | None = None, slug: str = SLUG) -> EmbeddingResult:
    with pipeline.open(slug, embedder=model) as run:
        return embed_memories(run)


def unembedded(pipeline: Pipeline) -> list[str]:
    return [
        row[0] for row in pipeline.rows("SELECT external_id FROM {s}.task_memories WHERE embedding IS NULL ORDER BY 1")
    ]


def test_every_memory_is_embedded_by_local_model(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    done = embed(pipeline)
    assert (done.memories, done.computed, done.reused) == (len(corpus()), len(corpus()), 0)
    models = pipeline.rows("SELECT DISTINCT embedding_model, embedding_dim FROM {s}.task_memories")
    assert [tuple(row) for row in models] == [(LOCAL_MODEL, 256)]


def test_embedded_memory_is_not_embedded_again(pipeline: Pipeline) -> None:
    model = WordEmbedder()
    pipeline.add([note("a", "amber birch"), note("b", "cedar delta")])
    assert embed(pipeline, model).computed == 2
    assert embed(pipeline, model) == EmbeddingResult(memories=2, computed=0, reused=0)
    pipeline.add([note("c", "ember flint")])
    assert embed(pipeline, model) == EmbeddingResult(memories=3, computed=1, reused=0)
    assert sorted(model.seen) == ["amber birch", "cedar delta", "ember flint"]


def test_equal_content_is_embedded_once(pipeline: Pipeline) -> None:
    model = WordEmbedder()
    pipeline.add([note("a", "amber birch"), note("b", "amber birch"), note("c", "cedar delta")])
    embed(pipeline, model)
    pipeline.add([note("x", "amber birch"), note("y", "grove heron")], slug="other")
    assert embed(pipeline, model, "other") == EmbeddingResult(memories=2, computed=1, reused=1)
    assert sorted(model.seen) == ["amber birch", "cedar delta", "grove heron"]
    same = "SELECT count(DISTINCT embedding::text) FROM {s}.task_memories WHERE execution_summary = 'amber birch'"
    assert pipeline.value(same) == 1


def test_run_embeds_each_text_once(pipeline: Pipeline) -> None:
    model = WordEmbedder()
    pipeline.configure_new(t_merge=0.8, t_suggest=0.8, t_pattern=0.6)
    pipeline.add([note("a", "amber birch"), note("b", "Amber birch."), note("c", "amber birch cedar amber birch")])
    pipeline.add([note("d", "ember flint"), note("e", "ember flint")])
    merging = pipeline.run(embedder=model).merging
    pipeline.run(embedder=model)
    assert merging.created == 2
    assert len(model.seen) == len(set(model.seen))
    wrong = (
        "SELECT count(*) FROM {s}.consolidated_memories WHERE content = 'ember flint' AND embedding::text <> (SELECT "
    )
    wrong += "embedding::text FROM {s}.task_memories WHERE external_id = 'd')"
    assert pipeline.value(wrong) == 0


def test_other_model_embeds_everything_again(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "amber birch"), note("b", "cedar delta")])
    embed(pipeline)
    model = WordEmbedder(dimension=5)
    assert embed(pipeline, model) == EmbeddingResult(memories=2, computed=2, reused=0)
    assert sorted(model.seen) == ["amber birch", "cedar delta"]
    rows = pipeline.rows("SELECT DISTINCT embedding_model, embedding_dim FROM {s}.task_memories")
    assert [tuple(row) for row in rows] == [("test/words", 5)]
    assert pipeline.value("SELECT count(*) FROM {s}.compared_memories") == 0


def test_other_model_embeds_merged_memories(pipeline: Pipeline) -> None:
    merged = pipeline.consolidate(corpus()).merging.created
    pipeline.configure(t_merge=0.95, t_suggest=0.9, t_pattern=0.85)
    second = pipeline.run(embedder=WordEmbedder())
    assert merged
    assert second.graph.rebuilt
    for table in ("task_memories", "consolidated_memories"):
        models = pipeline.rows(
            f"SELECT DISTINCT embedding_model, embedding_dim FROM {{s}}.{table} WHERE embedding IS NOT NULL"
        )
        assert [tuple(row) for row in models] == [("test/words", 8)]


@pytest.mark.breaks_rules
def test_archived_memories_are_not_embedded(pipeline: Pipeline) -> None:
    model = WordEmbedder()
    pipeline.add([note("a", "amber birch"), note("b", "cedar delta")])
    pipeline.write("UPDATE {s}.task_memories SET archived_at = now() WHERE external_id = 'b'")
    assert embed(pipeline, model) == EmbeddingResult(memories=1, computed=1, reused=0)
    assert model.seen == ["amber birch"]


class RawEmbedder(WordEmbedder):
    """Embedder without checks: a zero vector for a text without words, NaN for "nan"."""

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        vectors = super().embed(texts)
        vectors[[at for at, text in enumerate(texts) if text == "nan"]] = np.nan
        return vectors


class StrictEmbedder(WordEmbedder):
    """Embedder that refuses zero vectors itself, as the built-in ones do."""

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return check_vectors(super().embed(texts), texts)


@pytest.mark.parametrize(("model", "text"), [(RawEmbedder, "..."), (RawEmbedder, "nan"), (StrictEmbedder, "...")])
def test_unusable_vector_names_memory(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, model: type[WordEmbedder], text: str
) -> None:
    monkeypatch.setattr(embedding, "BATCH", 2)
    names = sorted("abcde", key=lambda name: note_id(name))  # order of embedding
    texts = ("amber", "birch", "cedar", text, "delta")
    pipeline.add([note(name, content) for name, content in zip(names, texts, strict=True)])
    with pytest.raises(EmbeddingError, match=str(note_id(names[3]))):
        embed(pipeline, model())
    assert unembedded(pipeline) == sorted(names[2:])


def test_changed_model_dimension_is_refused(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "amber birch")])
    embed(pipeline, WordEmbedder(dimension=8))
    pipeline.add([note("b", "cedar delta")])
    with pytest.raises(EmbeddingError, match=f"{note_id('b')} a vector of 6 dimensions, the others have 8"):
        embed(pipeline, WordEmbedder(dimension=6))
    assert unembedded(pipeline) == ["b"]
