"""The page on which pairs are labelled: one pair with three answers, roles, and undo."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest

from consolidation_pipeline.service.review.pair_labels import LabelCounts, count_labels, list_pairs_to_label
from consolidation_pipeline_tests.api.conftest import FOREIGN, ApiContext
from consolidation_pipeline_tests.api.review_client import PageVisitor
from consolidation_pipeline_tests.service.corpus import corpus
from consolidation_pipeline_tests.service.pipeline_runner import GRAPH

SHOP = "shop"
PAGE = f"/projects/{SHOP}/label"


@pytest.fixture
def visitor(api: ApiContext) -> PageVisitor:
    """Visitor logged in as admin; the memories of the project ``shop`` were compared, and none is labelled."""
    api.pipeline.write("DELETE FROM {s}.labelled_pairs")
    if api.pipeline.add(corpus(), SHOP).added:
        api.pipeline.run_phases(GRAPH, SHOP)
    return log_in(api, "admin")


def log_in(api: ApiContext, role: str, project: str | None = None) -> PageVisitor:
    visitor = PageVisitor(api.client(None))
    visitor.log_in(api.key(role, project))
    return visitor


def read_pair(page: str) -> dict[str, str]:
    """Return the fields of the pair in the form of a page."""
    form = page.partition(f'action="{PAGE}"')[2]
    return dict(re.findall(r'name="([ab])" value="([^"]+)"', form)[:2])


def counts(api: ApiContext) -> LabelCounts:
    return count_labels(api.pipeline.engine, SHOP)


def test_label_page_shows_most_informative_pair(api: ApiContext, visitor: PageVisitor) -> None:
    (pair,) = list_pairs_to_label(api.pipeline.engine, SHOP, 1, settings=api.pipeline.settings)
    page = visitor.get(PAGE).text
    assert "May these two memories become one?" in page
    assert read_pair(page) == {"a": str(pair.a), "b": str(pair.b)}
    assert "<mark>" in page
    for answer, key in (("same", "s"), ("different", "d"), ("skip", "k")):
        assert f'name="answer" value="{answer}" data-key="{key}"' in page


def test_label_page_marks_contradictions(visitor: PageVisitor) -> None:
    pages = []
    for _ in range(8):
        pages.append(visitor.get(PAGE).text)
        visitor.submit(PAGE, on=PAGE, answer="skip", **read_pair(pages[-1]))
    assert any('<mark class="conflict">30' in page for page in pages)
    assert any("different values" in page for page in pages)


def test_answers_are_stored_and_next_pair_is_shown(api: ApiContext, visitor: PageVisitor) -> None:
    seen = []
    for answer in ("same", "different", "skip"):
        pair = read_pair(visitor.get(PAGE).text)
        seen.append(tuple(pair.values()))
        done = visitor.submit(PAGE, on=PAGE, answer=answer, **pair)
        assert (done.status_code, done.headers["location"]) == (303, f"{PAGE}?a={pair['a']}&b={pair['b']}")
        assert f"<strong>Saved:</strong> {answer}." in visitor.get(done.headers["location"]).text
    assert len(set(seen)) == 3
    assert counts(api) == LabelCounts(1, 1, 1)
    assert "1 same, 1 different, 1 skipped" in visitor.get(PAGE).text
    names = api.pipeline.rows("SELECT DISTINCT labelled_by FROM {s}.labelled_pairs")
    assert [row[0] for row in names] == ["web:admin of all projects"]


def test_label_is_undone(api: ApiContext, visitor: PageVisitor) -> None:
    pair = read_pair(visitor.get(PAGE).text)
    visitor.submit(PAGE, on=PAGE, answer="same", **pair)
    assert visitor.submit(f"{PAGE}/undo", on=PAGE, **pair).headers["location"] == PAGE
    assert counts(api).total == 0
    assert read_pair(visitor.get(PAGE).text) == pair
    assert visitor.submit(f"{PAGE}/undo", on=PAGE, **pair).status_code == 409


def test_second_answer_changes_nothing(api: ApiContext, visitor: PageVisitor) -> None:
    pair = read_pair(visitor.get(PAGE).text)
    visitor.submit(PAGE, on=PAGE, answer="same", **pair)
    late = visitor.submit(PAGE, on=PAGE, answer="different", **pair)
    assert late.status_code == 409
    assert "Somebody else has labelled this pair meanwhile" in late.text
    assert f'href="{PAGE}"' in late.text
    assert counts(api) == LabelCounts(1, 0, 0)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"answer": "maybe"}, 400),
        ({"answer": "same", "a": "x"}, 400),
        ({"answer": "same", "a": str(uuid4())}, 404),
    ],
)
def test_wrong_label_form_is_refused(
    api: ApiContext, visitor: PageVisitor, fields: dict[str, str], status: int
) -> None:
    pair = read_pair(visitor.get(PAGE).text)
    assert visitor.submit(PAGE, on=PAGE, **{**pair, **fields}).status_code == status
    assert visitor.client.post(PAGE, data={**pair, "answer": "same"}).status_code == 403
    assert counts(api).total == 0


def test_reader_sees_pair_and_cannot_label(api: ApiContext, visitor: PageVisitor) -> None:
    pair = read_pair(visitor.get(PAGE).text)
    reader = log_in(api, "reader")
    page = reader.get(PAGE).text
    assert "a label needs an admin key" in page
    assert 'name="answer"' not in page
    assert reader.submit(PAGE, answer="same", **pair).status_code == 403
    assert log_in(api, "admin", FOREIGN).get(PAGE).status_code == 403
    assert counts(api).total == 0


def test_label_page_without_pairs_says_so(visitor: PageVisitor) -> None:
    assert "No pair is left to label" in visitor.get(f"/projects/{FOREIGN}/label").text
    assert visitor.get("/projects/nowhere/label").status_code == 404


def test_review_page_links_to_labels(visitor: PageVisitor) -> None:
    assert f'href="{PAGE}"' in visitor.get(f"/review?project={SHOP}").text
    assert f'href="/review?project={SHOP}"' in visitor.get(PAGE).text
