"""Helpers for tests of the pages: suggestions to review, and a visitor that logs in and sends forms."""

from __future__ import annotations

import re
from hashlib import sha256
from uuid import UUID

from httpx import Response
from starlette.testclient import TestClient

from consolidation_pipeline.store.review.suggestions import NewSuggestion
from consolidation_pipeline_tests.api.conftest import insert_suggestions
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

SHOP = "shop"


def add_pair_suggestions(pipeline: Pipeline, slug: str = SHOP, *, count: int = 10) -> list[UUID]:
    """Add suggestions to merge pairs of memories that differ in a number; return ids, the most similar first."""
    rows = [note(f"{n}-{side}", f"After {n + 3}{side} minutes. {LESSONS[n]}") for n in range(count) for side in (0, 5)]
    pipeline.add(rows, slug)
    query = "SELECT id, version, external_id FROM {s}.task_memories WHERE project_id = :of"
    ids = {row.external_id: (row.id, row.version) for row in pipeline.rows(query, of=pipeline.project(slug).id)}
    proposed = [
        NewSuggestion(
            cluster_key=f"{slug}-{n}",
            originals=[ids[f"{n}-0"], ids[f"{n}-5"]],
            fingerprint=sha256(f"{slug}-{n}".encode()).hexdigest(),
            content=f"After {n + 3}0 or {n + 3}5 minutes. {LESSONS[n]}",
            lessons_learned=None,
            keywords=["operations"],
            similarity=0.99 - n / 100,
            rationale="They say the same but for the time.",
            difference_kinds=["value: after #"],
        )
        for n in range(count)
    ]
    return insert_suggestions(pipeline, slug, proposed)


def add_suggestion(pipeline: Pipeline, slug: str, *texts: str) -> list[UUID]:
    """Add a suggestion to merge new memories with these texts to a project; return its id."""
    pipeline.add([note(f"{slug}-{at}", text) for at, text in enumerate(texts)], slug)
    query = "SELECT id, version FROM {s}.task_memories WHERE project_id = :of ORDER BY external_id"
    proposed = NewSuggestion(
        cluster_key=slug,
        originals=[(row.id, row.version) for row in pipeline.rows(query, of=pipeline.project(slug).id)],
        fingerprint=sha256(slug.encode()).hexdigest(),
        content=texts[0],
        lessons_learned=None,
        keywords=[],
        similarity=0.9,
        rationale=None,
    )
    return insert_suggestions(pipeline, slug, [proposed])


class PageVisitor:
    """Visitor of the pages without JavaScript: opens pages and sends their forms. It follows no redirects."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.client.follow_redirects = False

    def log_in(self, key: str, *, back: str = "") -> Response:
        """Send the form of the login page; ``back``: page to return to."""
        page = self.client.get("/login", params={"next": back} if back else {})
        return self.client.post("/login", data={"key": key, "next": back, "form_token": find_form_token(page.text)})

    def get(self, path: str) -> Response:
        """Request a page."""
        return self.client.get(path)

    def submit(self, path: str, *, on: str = "/projects", **fields: str) -> Response:
        """Send a form with the token found on the page ``on``."""
        return self.client.post(path, data={"form_token": find_form_token(self.get(on).text), **fields})


def find_form_token(page: str) -> str:
    """Return the token in the forms of a page."""
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    assert found, page
    return found[1]
