"""Scopes as callers type them: which key is meant, and what is refused."""

from __future__ import annotations

import pytest

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.admin.api_keys import create_key
from consolidation_pipeline.service.search.typed_scopes import is_named, resolve_scope
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline

# User and agent of each memory.
OWNERS = (("ada", ""), ("bob", "clerk"), ("bob", "cook"), ("team/eve", ""), ("team", "eve"), ("adam", ""), ("50%_", ""))


@pytest.fixture
def walled(pipeline: Pipeline) -> Pipeline:
    pipeline.configure_new(scope="user_id,agent_id,session_id")
    pipeline.add(
        [
            {"id": f"{user} {agent}", "content": f"The lamp of {user} {agent}.", "user_id": user, "agent_id": agent}
            for user, agent in OWNERS
        ]
    )
    return pipeline


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("ada", "ada//"),
        ("ada/", "ada//"),
        ("ada//", "ada//"),
        ("bob/clerk", "bob/clerk/"),
        ("50%_", "50%_//"),
        ("team~1eve", "team~1eve//"),
        ("team", "team/eve/"),
        ("nobody", "nobody//"),
        ("ad", "ad//"),
        ("%", "%//"),
        ("ada\0", "ada//"),
        ("", ""),
    ],
)
def test_scope_is_the_one_that_begins_so(walled: Pipeline, typed: str, key: str) -> None:
    assert resolve_scope(walled.engine, SLUG, typed) == key


def test_scope_of_several_is_refused_with_a_list(walled: Pipeline) -> None:
    with pytest.raises(UsageError, match=r"scope 'bob' may be any of 2 .*: give one of 'bob/clerk/', 'bob/cook/'"):
        resolve_scope(walled.engine, SLUG, "bob")
    with pytest.raises(UsageError, match="'team/eve/', 'team~1eve//'"):  # the agent of a team, or a user with a slash
        resolve_scope(walled.engine, SLUG, "team/eve")


def test_key_of_a_scope_is_made_for_the_whole_key(walled: Pipeline) -> None:
    for typed, key in (("ada", "ada//"), ("nobody", "nobody//")):
        made, _ = create_key(walled.engine, role="agent", project=SLUG, scope=typed)
        assert made.scope == key
    with pytest.raises(UsageError, match="may be any of 2"):
        create_key(walled.engine, role="agent", project=SLUG, scope="bob")


def test_key_of_a_scope_is_named_by_its_values_alone(walled: Pipeline) -> None:
    with walled.engine.connect() as connection:
        project = get_project(connection, SLUG)
    assert [
        typed for typed in ("bob", "bob/clerk", "bob/cook", "b", "ada", "") if is_named("bob/clerk/", project, typed)
    ] == [
        "bob",
        "bob/clerk",
    ]
