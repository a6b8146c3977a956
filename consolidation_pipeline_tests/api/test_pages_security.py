"""No page shows anything to whom it must not, and no form does anything that its visitor did not mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.api.pages.page_route import SECURITY_HEADERS
from consolidation_pipeline.api.pages.page_session import SESSION_COOKIE
from consolidation_pipeline.service.admin.api_keys import create_key, revoke_key
from consolidation_pipeline_tests.api.conftest import FOREIGN, Served
from consolidation_pipeline_tests.api.review_client import SHOP, Person, ask, token_of
from consolidation_pipeline_tests.api.routes import Route, walk_pages
from consolidation_pipeline_tests.service.pipeline_runner import SLUG
from consolidation_pipeline_tests.service.table_dumps import checksums

# To be seen by everybody: how else would one log in.
OPEN = {"/", "/login", "/logout", "/static/{name}"}


@dataclass(frozen=True)
class Pages:
    """The application, its pages, and a suggestion in the project ``shop``."""

    served: Served
    routes: list[Route]
    suggestion: UUID

    def person(self, role: str | None = "admin", project: str | None = None) -> Person:
        """Somebody who has logged in; ``role`` None: nobody."""
        person = Person(self.served.client(None))
        if role is not None:
            assert person.log_in(self.served.key(role, project)).status_code == 303
        return person

    def path(self, route: Route) -> str:
        """The route's address, of something that there is."""
        target = self.suggestion if route.path.startswith("/review") else self.served.job_id
        id_ = self.served.memory if "/memories/" in route.path else str(target)
        return route.path.format_map({"project": SLUG, "id": id_, "name": "pages.css"})

    def state(self) -> list[tuple[str, int, int]]:
        """All tables but that of the keys, whose use is noted."""
        return [counted for counted in checksums(self.served.pipeline) if counted[0] != "api_keys"]


@pytest.fixture(scope="module")
def pages(served: Served) -> Pages:
    routes = walk_pages(served.app)
    assert len(routes) > 15
    return Pages(served, routes, ask(served.pipeline, count=2)[0])


def test_page_forms_need_admin_and_pages_need_role(pages: Pages) -> None:
    assert {route.path for route in pages.routes if route.role is None} == OPEN
    for route in pages.routes:
        if route.path not in OPEN and route.method == "POST":
            assert route.role == "admin", str(route)


def test_visitor_without_login_is_redirected_to_login(pages: Pages) -> None:
    person = pages.person(None)
    for route in pages.routes:
        if route.role is not None and route.method == "GET":
            answer = person.see(pages.path(route))
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/login"), str(route)
    assert person.log_in(pages.served.key("reader"), back="/projects/notes?page=2").headers["location"] == (
        "/projects/notes?page=2"
    )


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_login_refuses_redirect_to_other_site(pages: Pages, back: str) -> None:
    assert pages.person(None).log_in(pages.served.key("reader"), back=back).headers["location"] == "/review"


def test_form_without_session_token_returns_403(pages: Pages) -> None:
    person, before = pages.person(), pages.state()
    other = token_of(pages.person().see("/projects").text)
    for route in pages.routes:
        if route.method == "POST":
            for data in ({}, {"form_token": "x"}, {"form_token": other}, {"form_token": "é"}):
                answer = person.client.post(pages.path(route), data={"key": pages.served.key("admin"), **data})
                assert answer.status_code == 403, str(route)
                assert "another site" in answer.text
    assert pages.state() == before
    assert person.see("/projects").status_code == 200


def test_readers_and_agents_see_pages_without_deciding(pages: Pages) -> None:
    before = pages.state()
    for role in ("reader", "agent"):
        person = pages.person(role)
        for route in pages.routes:
            if route.role is None:
                continue
            path = pages.path(route)
            answer = person.see(path) if route.method == "GET" else person.send(path)
            assert answer.status_code == (200 if route.role == "reader" else 403), (str(route), role, answer.text)
        assert "Approve" not in person.see("/review").text
    assert pages.state() == before


def test_project_key_sees_no_pages_of_other_projects(pages: Pages) -> None:
    person, before = pages.person("admin", FOREIGN), pages.state()
    for route in pages.routes:
        if route.role is not None and "{" in route.path:
            path = pages.path(route)
            answer = person.see(path) if route.method == "GET" else person.send(path)
            assert answer.status_code in (403, 404), str(route)
            assert "migrations" not in answer.text
    assert SLUG not in person.see("/projects").text
    assert "No suggestions to review" in person.see("/review").text
    assert 'role="status"' not in person.see(f"/review?done={pages.suggestion}").text
    assert person.see(f"/projects/{FOREIGN}/memories/{pages.served.memory}").status_code == 404
    assert person.see(f"/projects/{FOREIGN}/changes?job={pages.served.job_id}").status_code == 404
    assert pages.state() == before


def test_session_cookie_is_strict_and_holds_no_key(pages: Pages) -> None:
    for scheme in ("http", "https"):
        client = TestClient(pages.served.app, base_url=f"{scheme}://localhost")
        cookie = Person(client).log_in(pages.served.key("admin")).headers["set-cookie"]
        assert cookie.startswith(f"{SESSION_COOKIE}=")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert ("Secure" in cookie) == (scheme == "https")
        assert pages.served.key("admin") not in cookie


def test_revoked_key_and_logout_end_session(pages: Pages) -> None:
    key, secret = create_key(pages.served.pipeline.engine, role="reader", name="leaving")
    person = Person(pages.served.client(None))
    person.log_in(secret)
    assert "leaving" in person.see("/projects").text
    revoke_key(pages.served.pipeline.engine, key.id)
    assert person.see("/projects").status_code == 303
    again = person.log_in(secret)
    assert again.status_code == 401
    assert "not valid, or it was revoked" in again.text
    leaver = pages.person("reader")
    assert leaver.send("/logout").headers["location"] == "/login"
    assert leaver.see("/projects").status_code == 303


def test_pages_send_security_headers_and_no_inline(pages: Pages) -> None:
    person = pages.person()
    paths = [pages.path(route) for route in pages.routes if route.method == "GET"]
    for path in (*paths, "/projects/nowhere", "/review?at=x", f"/review/{uuid4()}", "/static/pages.js"):
        answer = person.see(path)
        for name in SECURITY_HEADERS.keys() - {"Cache-Control"}:
            assert answer.headers[name] == SECURITY_HEADERS[name], (path, name)
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert not re.search(r"<script(?! src=\"/static/)|<style|\sstyle=|\son\w+=|javascript:", answer.text), path


def test_pages_escape_memory_text(pages: Pages) -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)> {{ 7 * 7 }}"
    pages.served.pipeline.add([{"id": "hostile", "content": hostile, "tags": ["<b>bold</b>"]}], SHOP)
    person = pages.person()
    id_ = pages.served.pipeline.value("SELECT id FROM {s}.task_memories WHERE external_id = 'hostile'")
    for path in (f"/projects/{SHOP}/knowledge?kind=raw", f"/projects/{SHOP}/memories/{id_}"):
        page = person.see(path).text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "{{ 7 * 7 }}" in page
        assert not re.search(r"<script>|<img src=x|<b>bold", page)


def test_pages_without_auth_refuse_foreign_host_names(pages: Pages) -> None:
    off = pages.served.pipeline.settings.model_copy(update={"api_auth": "off"})
    app = create_app(pages.served.pipeline.engine, off)
    here = Person(TestClient(app, base_url="http://127.0.0.1:8642"))
    assert here.see("/login").headers["location"] == "/review"
    assert here.see("/projects").status_code == 200
    assert here.client.post(f"/review/{pages.suggestion}/reject", data={}).status_code == 403
    assert here.send(f"/review/{pages.suggestion}/reject", on="/review").status_code == 303
    assert here.send(f"/review/{pages.suggestion}/undo", on=f"/review/{pages.suggestion}").status_code == 303
    rebound = Person(TestClient(app, base_url="http://evil.example"))
    assert rebound.see("/projects").status_code == 403
    assert rebound.see("/login").status_code == 403


def test_invalid_page_parameters_return_html_422(pages: Pages) -> None:
    person = pages.person()
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
        answer = person.see(path)
        assert answer.status_code == 422, path
        assert answer.headers["content-type"].startswith("text/html")
    for path in (
        f"/projects/{SLUG}/knowledge?type=&confidence=&since=&until=9999-12-31",
        "/review?at=2000000000&similarity=",
    ):
        assert person.see(path).status_code == 200, path
