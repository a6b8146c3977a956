"""The page of a project's memory tests: list them with their last result, run, add and remove them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from consolidation_pipeline.api.pages.page_route import PageRoute, describe_error, render_error
from consolidation_pipeline.api.pages.page_session import AdminVisitor, ReaderVisitor, SubmittedForm
from consolidation_pipeline.api.pages.rendering import render
from consolidation_pipeline.core.memory_tests.memory_test import KINDS, MAX_NAME_CHARS
from consolidation_pipeline.core.memory_tests.tests_file import read_one_test
from consolidation_pipeline.errors import ConsolidationError
from consolidation_pipeline.service.memory_tests import registry
from consolidation_pipeline.service.memory_tests.evaluation import run_memory_tests, tell_absent

router = APIRouter(prefix="/projects/{project}/tests", route_class=PageRoute, include_in_schema=False)


@router.get("")
def show_tests(request: Request, project: str, visitor: ReaderVisitor) -> Response:
    """Show the tests of a project and their last results."""
    slug = visitor.find_project(project).slug
    stored = registry.list_memory_tests(visitor.engine, slug)
    return render(
        request,
        "memory_tests.html",
        project=slug,
        tests=[registry.describe_memory_test(one) for one in stored],
        absent=tell_absent(visitor.engine, slug, [one.test for one in stored]),
        kinds=KINDS,
        name_chars=MAX_NAME_CHARS,
    )


@router.post("/run")
def run(project: str, visitor: AdminVisitor, _form: SubmittedForm) -> Response:
    """Run the enabled tests, and show the results. The form holds the token of the session alone."""
    slug = visitor.find_project(project).slug
    run_memory_tests(visitor.engine, slug, settings=visitor.settings)
    return _redirect(slug)


@router.post("/add")
def add(request: Request, project: str, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Add a test that is written as in a file; on an error, show it and keep the text."""
    slug = visitor.find_project(project).slug
    text = form.get("test", "")
    try:
        registry.add_memory_tests(visitor.engine, slug, [read_one_test(text, form.get("name") or None)], source="page")
    except ConsolidationError as error:
        status, message = describe_error(error)
        return render_error(request, status, message, back=f"/projects/{slug}/tests", kept=text)
    return _redirect(slug)


@router.post("/remove")
def remove(project: str, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Remove a test."""
    slug = visitor.find_project(project).slug
    registry.remove_memory_test(visitor.engine, slug, form.get("name", ""))
    return _redirect(slug)


def _redirect(slug: str) -> Response:
    return RedirectResponse(f"/projects/{slug}/tests", 303)
