"""Match of search hits: how well each answers the query in itself, and the threshold on it."""

from __future__ import annotations

import pytest

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.search.test_hybrid_search import (
    CAR,
    INVOICE,
    TEXTS,
    TIMEOUT,
    add,
    contents,
    find,
)

QUERY = "How are invoices rounded?"


def test_match_tells_answers_from_the_rest(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    found = find(pipeline, QUERY, min_similarity=0.0)
    matches = {hit.content: hit.match for hit in found.results}
    assert matches[INVOICE] >= 0.5
    assert all(match < 0.2 for content, match in matches.items() if content != INVOICE)
    assert find(pipeline, INVOICE).results[0].match == pytest.approx(1.0)


def test_match_of_a_memory_does_not_depend_on_other_hits(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    alone = find(pipeline, QUERY, limit=1).results[0]
    add(pipeline, {f"more{at}": f"The lighthouse keeper paints wall {at}." for at in range(5)})
    (among,) = (hit for hit in find(pipeline, QUERY, min_similarity=0.0).results if hit.id == alone.id)
    assert among.match == alone.match
    assert find(pipeline, QUERY, limit=1, fusion="rrf").results[0].match == alone.match


def test_min_match_leaves_out_lower_hits(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    query = "Are the invoices of the gateway rounded per line?"
    everything, some = find(pipeline, query), find(pipeline, query, min_match=0.3)
    assert (contents(everything), everything.total_found) == ([INVOICE, TIMEOUT], 2)
    assert (some.results, some.total_found) == (everything.results[:1], 1)
    assert find(pipeline, "lighthouse gateway", min_match=0.7).results == []
    assert find(pipeline, query, limit=1, min_match=1.0).results == []


@pytest.mark.parametrize("min_match", [-0.1, 1.1, float("nan")])
def test_min_match_beyond_its_range_is_refused(pipeline: Pipeline, min_match: float) -> None:
    add(pipeline, TEXTS)
    with pytest.raises(UsageError, match=r"min_match is .*; it must be from 0 to 1"):
        find(pipeline, QUERY, min_match=min_match)


def test_hit_found_by_words_is_compared_by_its_vector_too(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    both = find(pipeline, QUERY).results[0]
    by_words = find(pipeline, QUERY, min_similarity=1.0).results[0]
    assert (by_words.content, by_words.similarity) == (INVOICE, None)
    assert by_words.match == both.match


def test_match_without_vectors_rests_on_words(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    pipeline.write("UPDATE {s}.task_memories SET embedding = NULL, embedding_model = NULL, embedding_dim = NULL")
    assert find(pipeline, "invoices rounded").results[0].match == pytest.approx(1.0)
    assert 0 < find(pipeline, "invoices lighthouse").results[0].match < 0.6


def test_match_without_words_rests_on_meaning(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    hits = find(pipeline, "automobile engine ignition").results
    assert (hits[0].content, 0 < hits[0].match < 0.5) == (CAR, True)
