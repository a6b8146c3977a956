"""Routes and page of memory tests."""

from __future__ import annotations

import pytest

from consolidation_pipeline_tests.api.conftest import API, ApiContext
from consolidation_pipeline_tests.api.review_client import PageVisitor
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

PAGE = f"/projects/{SLUG}/tests"
PATH = f"{API}/projects/{SLUG}/memory-tests"


@pytest.fixture(autouse=True)
def without_tests(api: ApiContext) -> None:
    """Begin without memory tests."""
    api.pipeline.write("DELETE FROM {s}.memory_tests")


def test_wrong_test_is_a_bad_request(api: ApiContext) -> None:
    client = api.client("admin")
    reply = client.post(PATH, json={"kind": "must_merge", "a": "one"})
    assert reply.status_code == 400
    assert "must_merge needs a text, not None" in reply.json()["message"]
    assert client.delete(PATH, params={"name": "none"}).status_code == 404
    assert api.client("reader").post(PATH, json={"kind": "must_remember", "text": "a"}).status_code == 403


def test_page_adds_runs_and_removes_tests(api: ApiContext) -> None:
    visitor = PageVisitor(api.client(None))
    visitor.log_in(api.key("admin", None))
    assert "No memory tests yet" in visitor.get(PAGE).text
    visitor.submit(f"{PAGE}/add", on=PAGE, test="must_remember: The <moon> is made of cheese.", name="moon")
    assert "not run yet" in visitor.get(PAGE).text
    visitor.submit(f"{PAGE}/run", on=PAGE)
    page = visitor.get(PAGE).text
    assert '<span class="tag failed">failed</span>' in page
    assert "The &lt;moon&gt; is made of cheese." in page
    visitor.submit(f"{PAGE}/remove", on=PAGE, name="moon")
    assert "No memory tests yet" in visitor.get(PAGE).text


def test_page_keeps_text_of_wrong_test(api: ApiContext) -> None:
    visitor = PageVisitor(api.client(None))
    visitor.log_in(api.key("admin", None))
    refused = visitor.submit(f"{PAGE}/add", on=PAGE, test="must_recall: moon")
    assert refused.status_code == 400
    assert "must_recall: moon</textarea>" in refused.text
    assert f'href="{PAGE}" autofocus>Back<' in refused.text


def test_page_shows_query_before_what_it_finds(api: ApiContext) -> None:
    visitor = PageVisitor(api.client(None))
    visitor.log_in(api.key("admin", None))
    visitor.submit(f"{PAGE}/add", on=PAGE, test="must_find: {query: the moon, says: It is made of cheese., within: 3}")
    assert "must find: query: the moon · says: It is made of cheese. · within: 3" in visitor.get(PAGE).text


def test_page_tells_that_a_test_checks_nothing(api: ApiContext) -> None:
    visitor = PageVisitor(api.client(None))
    visitor.log_in(api.key("admin", None))
    visitor.submit(f"{PAGE}/add", on=PAGE, test=f'must_not_merge: ["gone", {api.memory}]')
    visitor.submit(f"{PAGE}/run", on=PAGE)
    page = visitor.get(PAGE).text
    assert '<span class="tag passed">passed</span>' in page
    assert "No raw memory has the text or id of a: the test checks nothing." in page
