"""Route of search: levels in both spellings, and the threshold on the match."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline_tests.api.conftest import API
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

QUERY = {"project": SLUG, "query": "when do the migrations run, when does the search client time out?"}


def search(client: TestClient, **more: Any) -> list[dict[str, Any]]:
    answer = client.post(f"{API}/search", json=QUERY | more)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def test_min_match_leaves_out_lower_results(admin: TestClient) -> None:
    everything = search(admin)
    best = max(one["match"] for one in everything)
    some = search(admin, min_match=best)
    assert 0 < len(some) < len(everything)
    assert [one["id"] for one in some] == [one["id"] for one in everything if one["match"] == best]


@pytest.mark.parametrize("levels", [[1], ["1"], [1, "1"]])
def test_levels_are_numbers_or_texts(admin: TestClient, levels: list[Any]) -> None:
    assert {one["level"] for one in search(admin, levels=levels)} == {1}


@pytest.mark.parametrize(
    "body", [{"levels": [4]}, {"levels": ["one"]}, {"levels": [[1]]}, {"min_match": 1.5}, {"min_match": "high"}]
)
def test_invalid_level_or_match_is_refused(admin: TestClient, body: dict[str, Any]) -> None:
    answer = admin.post(f"{API}/search", json=QUERY | body)
    assert (answer.status_code, answer.json()["error"]) == (422, "validation_error")
    assert next(iter(body)) in answer.json()["message"]
