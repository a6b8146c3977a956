"""OpenAPI and ``docs/api.md`` tell of every route, and what they tell is so.

``CONSOLIDATION_WRITE_DOCS=1`` writes the document in place of comparing it.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.api.conftest import Served
from consolidation_pipeline_tests.api.examples import EXAMPLES, Answered, answer_all, to_document

PAGE = PROJECT_ROOT / "docs" / "api.md"


def _operations(served: Served) -> dict[str, dict[str, Any]]:
    paths = served.app.openapi()["paths"]
    return {f"{method.upper()} {path}": one for path, methods in paths.items() for method, one in methods.items()}


@pytest.fixture(scope="module")
def answers(served: Served) -> list[Answered]:
    """Every example's answer."""
    told = answer_all(served)
    if os.environ.get("CONSOLIDATION_WRITE_DOCS"):
        PAGE.write_text(to_document(told))
    return told


def test_every_route_has_one_docs_example(served: Served) -> None:
    shown = {f"{one.method} {route}" for one in EXAMPLES for route in (one.route, one.also) if route}
    assert shown == set(_operations(served))


def test_every_docs_example_succeeds(answers: list[Answered]) -> None:
    assert [(one.path, one.status, one.reply) for one in answers if one.status >= 300] == []


def test_api_page_matches_routes_and_reply_fields(served: Served, answers: list[Answered]) -> None:
    page = PAGE.read_text()
    listed = re.findall(r"^(?:### .*: |The same: )`(\w+ /\S*)`$", page, flags=re.MULTILINE)
    assert sorted(listed) == sorted(_operations(served))
    for answer in answers:
        section = page.partition(f"`{answer.example.method} {answer.example.route}`\n")[2].partition("\n### ")[0]
        assert f"\n{answer.status}:\n" in section
        if answer.media_type == "application/json":
            told = json.loads(re.findall(r"```json\n(.*?)\n```", section, flags=re.DOTALL)[-1])
            assert told.keys() == json.loads(answer.reply).keys(), answer.example.title


def test_openapi_describes_every_operation(served: Served) -> None:
    schema = served.app.openapi()
    operations = _operations(served)
    ids = [one["operationId"] for one in operations.values()]
    assert len(set(ids)) == len(ids)
    for name, one in operations.items():
        assert one["summary"], name
        assert one["description"], name
        assert one["tags"], name
        assert all(answer.get("content") for answer in one["responses"].values()), name
        if "/api/v1/" in name:
            assert one["security"] == [{"bearer": []}, {"header": []}], name
            assert {"401", "403", "413", "422", "429", "500", "503"} <= set(one["responses"]), name
    assert set(schema["components"]["securitySchemes"]) == {"bearer", "header"}


def test_openapi_declares_errors_as_problems(served: Served) -> None:
    for name, one in _operations(served).items():
        for status, answer in one["responses"].items():
            if status >= "400":
                (media,) = answer["content"].items()
                assert media == ("application/problem+json", {"schema": {"$ref": "#/components/schemas/Problem"}}), name
