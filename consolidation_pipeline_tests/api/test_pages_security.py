"""Security of the pages: roles, projects, sessions, form tokens, headers and escaping."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from httpx import Response
from starlette.testclient import TestClient

from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.api.pages.page_route import SECURITY_HEADERS
from consolidation_pipeline.api.pages.page_session import SESSION_COOKIE
from consolidation_pipeline.service.admin.api_keys import create_key, revoke_key
from consolidation_pipeline.store.sources.sources import create_source
from consolidation_pipeline_tests.api.conftest import FOREIGN, ApiContext
from consolidation_pipeline_tests.api.review_client import SHOP, PageVisitor, add_pair_suggestions, find_form_token
from consolidation_pipeline_tests.api.routes import Route, list_page_routes
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

# Pages that need no login.
PUBLIC_PAGES = {"/", "/login", "/logout", "/static/{name}"}


@dataclass(frozen=True)
class Pages:
    """The application, the routes of its pages, a suggestion in the project ``shop`` and a connected store."""

    api: ApiContext
    routes: list[Route]
    suggestion: UUID
    source: UUID

    def visitor(self, role: str | None = "admin", project: str | None = None) -> PageVisitor:
        """Return a visitor logged in with a role; ``role`` None: not logged in."""
        visitor = PageVisitor(self.api.client(None))
        if role is not None:
            assert visitor.log_in(self.api.key(role, project)).status_code == 303
        return visitor

    def open(self, visitor: PageVisitor, route: Route) -> Response:
        """Request a page or send its form."""
        path = self.path(route)
        return visitor.get(path) if route.method == "GET" else visitor.submit(path)

    def path(self, route: Route) -> str:
        """Return the route's path with ids of existing rows."""
        parts = {"review": self.suggestion, "memories": self.api.memory, "sources": self.source}
        id_ = next((id_ for part, id_ in parts.items() if f"/{part}/" in route.path), self.api.job_id)
        return route.path.format_map({"project": SLUG, "id": id_, "name": "pages.css"})


@pytest.fixture(scope="module")
def pages(api: ApiContext) -> Pages:
    routes = list_page_routes(api.app)
    assert len(routes) > 15
    with api.pipeline.engine.begin() as connection:
        config = {"kind": "mem0", "url_env": "NOTES_DATABASE_URL"}
        source = create_source(connection, api.pipeline.project().id, "notes-mem0", config=config, mode="review")
    return Pages(api, routes, add_pair_suggestions(api.pipeline, count=2)[0], source.id)


def test_page_forms_need_admin_and_pages_need_role(pages: Pages) -> None:
    assert {route.path for route in pages.routes if route.role is None} == PUBLIC_PAGES
    for route in pages.routes:
        if route.path not in PUBLIC_PAGES and route.method == "POST":
            assert route.role == "admin", str(route)


def test_visitor_without_login_is_redirected_to_login(pages: Pages) -> None:
    visitor = pages.visitor(None)
    for route in pages.routes:
        if route.role is not None and route.method == "GET":
            answer = visitor.get(pages.path(route))
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/login"), str(route)
    back = "/projects/notes?page=2"
    assert visitor.log_in(pages.api.key("reader"), back=back).headers["location"] == back


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_login_refuses_redirect_to_other_site(pages: Pages, back: str) -> None:
    assert pages.visitor(None).log_in(pages.api.key("reader"), back=back).headers["location"] == "/review"


def test_form_without_session_token_returns_403(pages: Pages) -> None:
    visitor, before = pages.visitor(), pages.api.table_checksums()
    other = find_form_token(pages.visitor().get("/projects").text)
    for route in pages.routes:
        if route.method == "POST":
            for data in ({}, {"form_token": "x"}, {"form_token": other}, {"form_token": "é"}):
                answer = visitor.client.post(pages.path(route), data={"key": pages.api.key("admin"), **data})
                assert answer.status_code == 403, str(route)
                assert "another site" in answer.text
    assert pages.api.table_checksums() == before
    assert visitor.get("/projects").status_code == 200


def test_readers_and_agents_see_pages_without_deciding(pages: Pages) -> None:
    before = pages.api.table_checksums()
    for role in ("reader", "agent"):
        visitor = pages.visitor(role)
        for route in pages.routes:
            if route.role is None:
                continue
            answer = pages.open(visitor, route)
            assert answer.status_code == (200 if route.role == "reader" else 403), (str(route), role, answer.text)
        assert "Approve" not in visitor.get("/review").text
    assert pages.api.table_checksums() == before


def test_project_key_sees_no_pages_of_other_projects(pages: Pages) -> None:
    visitor, before = pages.visitor("admin", FOREIGN), pages.api.table_checksums()
    for route in pages.routes:
        if route.role is not None and "{" in route.path:
            answer = pages.open(visitor, route)
            assert answer.status_code in (403, 404), str(route)
            assert "migrations" not in answer.text
    assert SLUG not in visitor.get("/projects").text
    assert "No suggestions to review" in visitor.get("/review").text
    assert 'role="status"' not in visitor.get(f"/review?done={pages.suggestion}").text
    assert visitor.get(f"/projects/{FOREIGN}/memories/{pages.api.memory}").status_code == 404
    assert visitor.get(f"/projects/{FOREIGN}/changes?job={pages.api.job_id}").status_code == 404
    assert pages.api.table_checksums() == before


def test_session_cookie_is_strict_and_holds_no_key(pages: Pages) -> None:
    for scheme in ("http", "https"):
        client = TestClient(pages.api.app, base_url=f"{scheme}://localhost")
        cookie = PageVisitor(client).log_in(pages.api.key("admin")).headers["set-cookie"]
        assert cookie.startswith(f"{SESSION_COOKIE}=")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert ("Secure" in cookie) == (scheme == "https")
        assert pages.api.key("admin") not in cookie


def test_revoked_key_and_logout_end_session(pages: Pages) -> None:
    key, secret = create_key(pages.api.pipeline.engine, role="reader", name="leaving")
    visitor = PageVisitor(pages.api.client(None))
    visitor.log_in(secret)
    assert "leaving" in visitor.get("/projects").text
    revoke_key(pages.api.pipeline.engine, key.id)
    assert visitor.get("/projects").status_code == 303
    again = visitor.log_in(secret)
    assert again.status_code == 401
    assert "not valid, or it was revoked" in again.text
    leaver = pages.visitor("reader")
    assert leaver.submit("/logout").headers["location"] == "/login"
    assert leaver.get("/projects").status_code == 303


def test_pages_send_security_headers_and_no_inline(pages: Pages) -> None:
    visitor = pages.visitor()
    paths = [pages.path(route) for route in pages.routes if route.method == "GET"]
    for path in (*paths, "/projects/nowhere", "/review?at=x", f"/review/{uuid4()}", "/static/pages.js"):
        answer = visitor.get(path)
        for name in SECURITY_HEADERS.keys() - {"Cache-Control"}:
            assert answer.headers[name] == SECURITY_HEADERS[name], (path, name)
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert not re.search(r"<script(?! src=\"/static/)|<style|\sstyle=|\son\w+=|javascript:", answer.text), path


def test_pages_escape_memory_text(pages: Pages) -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)> {{ 7 * 7 }}"
    pages.api.pipeline.add([{"id": "hostile", "content": hostile, "tags": ["<b>bold</b>"]}], SHOP)
    visitor = pages.visitor()
    id_ = pages.api.pipeline.value("SELECT id FROM {s}.task_memories WHERE external_id = 'hostile'")
    for path in (f"/projects/{SHOP}/knowledge?kind=raw", f"/projects/{SHOP}/memories/{id_}"):
        page = visitor.get(path).text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "{{ 7 * 7 }}" in page
        assert not re.search(r"<script>|<img src=x|<b>bold", page)


def test_pages_without_auth_refuse_foreign_host_names(pages: Pages) -> None:
    off = pages.api.pipeline.settings.model_copy(update={"api_auth": "off"})
    app = create_app(pages.api.pipeline.engine, off)
    here = PageVisitor(TestClient(app, base_url="http://127.0.0.1:8642"))
    assert here.get("/login").headers["location"] == "/review"
    assert here.get("/projects").status_code == 200
    assert here.client.post(f"/review/{pages.suggestion}/reject", data={}).status_code == 403
    assert here.submit(f"/review/{pages.suggestion}/reject", on="/review").status_code == 303
    assert here.submit(f"/review/{pages.suggestion}/undo", on=f"/review/{pages.suggestion}").status_code == 303
    rebound = PageVisitor(TestClient(app, base_url="http://evil.example"))
    assert rebound.get("/projects").status_code == 403
    assert rebound.get("/login").status_code == 403


def test_invalid_page_parameters_return_html_422(pages: Pages) -> None:
    visitor = pages.visitor()
    for path in (
        "/review?at=-1",
        "/review?similarity=2",
        "/review?type=nonsense",
        "/review?status=nonsense",
        "/review/x",
        f"/projects/{SLUG}/knowledge?kind=nonsense",
        f"/projects/{SLUG}/knowledge?since=yesterday",
        f"/projects/{SLUG}/knowledge?page=0",
        f"/projects/{SLUG}/changes?operation=nonsense",
    ):
        answer = visitor.get(path)
        assert answer.status_code == 422, path
        assert answer.headers["content-type"].startswith("text/html")
    for path in (
        f"/projects/{SLUG}/knowledge?type=&confidence=&since=&until=9999-12-31",
        "/review?at=2000000000&similarity=",
    ):
        assert visitor.get(path).status_code == 200, path


def test_key_of_a_scope_opens_no_page(pages: Pages) -> None:
    _, secret = create_key(pages.api.pipeline.engine, role="reader", project=SLUG, scope="ada")
    visitor = PageVisitor(pages.api.client(None))
    assert visitor.log_in(secret).status_code == 303
    for route in pages.routes:
        if route.path not in PUBLIC_PAGES and route.method == "GET":
            assert visitor.get(pages.path(route)).status_code == 403, str(route)
