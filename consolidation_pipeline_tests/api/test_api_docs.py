"""OpenAPI schema and ``docs/api.md``: complete and in agreement with the routes.

``CONSOLIDATION_WRITE_DOCS=1`` writes the page before it is compared.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from consolidation_pipeline.api.aliases import ALIASES
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.api.conftest import ApiContext
from consolidation_pipeline_tests.api.examples import EXAMPLES, INTRODUCTION, ExampleReply, send_examples, to_document

API_PAGE = PROJECT_ROOT / "docs" / "api.md"


def list_operations(api: ApiContext) -> dict[str, dict[str, Any]]:
    paths = api.app.openapi()["paths"]
    return {f"{method.upper()} {path}": one for path, methods in paths.items() for method, one in methods.items()}


@pytest.fixture(scope="module")
def replies(api: ApiContext) -> list[ExampleReply]:
    """Replies to all examples."""
    shown = send_examples(api)
    if os.environ.get("CONSOLIDATION_WRITE_DOCS"):
        API_PAGE.write_text(to_document(shown))
    return shown


def test_every_route_has_one_docs_example(api: ApiContext) -> None:
    shown = {f"{one.method} {one.route}" for one in EXAMPLES}
    assert shown == set(list_operations(api))


@pytest.mark.slow
def test_every_docs_example_succeeds(replies: list[ExampleReply]) -> None:
    assert [(one.path, one.status, one.reply) for one in replies if one.status >= 300] == []


def test_api_page_matches_routes_and_reply_fields(api: ApiContext, replies: list[ExampleReply]) -> None:
    page = API_PAGE.read_text()
    listed = re.findall(r"^### .*: `(\w+ /\S*)`$", page, flags=re.MULTILINE)
    assert sorted(listed) == sorted(list_operations(api))
    for answer in replies:
        section = page.partition(f"`{answer.example.method} {answer.example.route}`\n")[2].partition("\n### ")[0]
        assert f"\n{answer.status}:\n" in section
        if answer.media_type == "application/json":
            example = json.loads(re.findall(r"```json\n(.*?)\n```", section, flags=re.DOTALL)[-1])
            assert example.keys() == json.loads(answer.reply).keys(), answer.example.title


def test_api_page_is_not_edited_by_hand() -> None:
    assert API_PAGE.read_text().startswith(INTRODUCTION)


def test_api_page_lists_older_names() -> None:
    page = API_PAGE.read_text()
    for old, path in ALIASES.items():
        assert f"| `{old}` | `{old.split()[0]} {path}` |\n" in page


def test_openapi_describes_every_operation(api: ApiContext) -> None:
    schema = api.app.openapi()
    operations = list_operations(api)
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


def test_openapi_schema_suits_client_generators(api: ApiContext) -> None:
    """Generators refuse an enum of several types or another default, an array without items, two models of one name."""
    schema = api.app.openapi()
    for where, part in list_schema_parts(schema):
        if "enum" in part:
            assert len({type(value) for value in part["enum"]}) == 1, where
            assert len(set(part["enum"])) == len(part["enum"]), where
            assert part.get("default", part["enum"][0]) in part["enum"], where
        if part.get("type") == "array":
            assert part.get("items"), where
        assert not isinstance(part.get("type"), list), where
    models = [re.sub(r"\W", "", name).lower() for name in schema["components"]["schemas"]]
    assert len(set(models)) == len(models)
    for name, one in list_operations(api).items():
        declared = {parameter["name"] for parameter in one.get("parameters", ()) if parameter["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", name)), name
        assert re.fullmatch(r"[a-z][a-z_]*", one["operationId"]), name


def list_schema_parts(value: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of a document with its path, but no examples."""
    if isinstance(value, dict):
        yield where, value
        for key, one in value.items():
            if key not in ("example", "examples", "default"):
                yield from list_schema_parts(one, f"{where}/{key}")
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from list_schema_parts(one, f"{where}/{at}")


def test_openapi_declares_errors_as_problems(api: ApiContext) -> None:
    for name, one in list_operations(api).items():
        for status, answer in one["responses"].items():
            if status >= "400":
                (media,) = answer["content"].items()
                assert media == ("application/problem+json", {"schema": {"$ref": "#/components/schemas/Problem"}}), name
