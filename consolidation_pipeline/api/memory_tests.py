"""Routes of memory tests: list, add, run and remove them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from consolidation_pipeline.api.access import Admin, Caller, Reader
from consolidation_pipeline.api.models.base import ProjectPath, Text
from consolidation_pipeline.api.models.memory_tests import (
    AddMemoryTestRequest,
    MemoryTestItem,
    MemoryTestOutcome,
    MemoryTestsReply,
    RunMemoryTestsReply,
)
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.core.memory_tests.memory_test import build_test
from consolidation_pipeline.service.memory_tests import registry
from consolidation_pipeline.service.memory_tests.evaluation import run_memory_tests, tell_absent

router = APIRouter(prefix="/api/v1/projects/{project}/memory-tests", tags=["memory tests"])


@router.get("", summary="Memory tests", responses=declare_problems(404))
def read_memory_tests(project: ProjectPath, caller: Reader) -> MemoryTestsReply:
    """Return the memory tests of a project with their last results."""
    return _list(caller, caller.find_project(project).slug)


@router.post("", summary="Add a memory test", responses=declare_problems(400, 404))
def add_memory_test(project: ProjectPath, body: AddMemoryTestRequest, caller: Admin) -> MemoryTestsReply:
    """Add a memory test, and return all. No run commits anything that makes a passing test fail."""
    slug = caller.find_project(project).slug
    test = build_test(body.kind, body.to_value(), body.name)
    registry.add_memory_tests(caller.engine, slug, [test], source="http")
    return _list(caller, slug)


@router.post("/run", summary="Run memory tests", responses=declare_problems(404))
def run_tests(project: ProjectPath, caller: Admin) -> RunMemoryTestsReply:
    """Run the enabled memory tests of a project. Nothing of its memories is changed."""
    slug = caller.find_project(project).slug
    results = run_memory_tests(caller.engine, slug, settings=caller.settings)
    passed = sum(one.passed for one in results)
    outcomes = [MemoryTestOutcome.model_validate(one.to_json()) for one in results]
    return RunMemoryTestsReply(project=slug, passed=passed, failed=len(results) - passed, tests=outcomes)


@router.delete("", summary="Remove a memory test", responses=declare_problems(404))
def remove_memory_test(
    project: ProjectPath, caller: Admin, name: Annotated[Text, Query(description="Name of the test.")]
) -> MemoryTestsReply:
    """Remove a memory test, and return the others."""
    slug = caller.find_project(project).slug
    registry.remove_memory_test(caller.engine, slug, name)
    return _list(caller, slug)


def _list(caller: Caller, slug: str) -> MemoryTestsReply:
    stored = registry.list_memory_tests(caller.engine, slug)
    absent = tell_absent(caller.engine, slug, [one.test for one in stored])
    tests = [
        MemoryTestItem.model_validate({**registry.describe_memory_test(one), "absent": absent.get(one.test.name)})
        for one in stored
    ]
    return MemoryTestsReply(project=slug, tests=tests)
