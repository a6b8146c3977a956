"""Scope keys: the fields that they are made of, and their form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.scopes import complete_scope, list_prefixes, make_scope_key, normalize_scope, parse_scope

VALUES = st.text("a/~0 1", max_size=4)


@pytest.mark.parametrize(
    ("option", "fields"),
    [
        ("project", ()),
        ("user_id", ("user_id",)),
        ("metadata.team-1, agent_id,user_id", ("user_id", "agent_id", "metadata.team-1")),
        ("session_id,session_id", ("session_id",)),
    ],
)
def test_scope_option_has_one_order(option: str, fields: tuple[str, ...]) -> None:
    assert parse_scope(option) == fields
    assert normalize_scope(option) == (",".join(fields) or "project")


@pytest.mark.parametrize("option", ["", "user", "user_id,project", "metadata.", "metadata.a b", "metadata.a'b", "id,"])
def test_scope_option_refuses_other_fields(option: str) -> None:
    with pytest.raises(ValueError, match=r"expected project \(no walls\), or any of user_id, agent_id"):
        parse_scope(option)


def test_scope_key_of_one_field_is_its_value() -> None:
    assert make_scope_key({"user_id": "a/b~c", "agent_id": "x"}, "user_id") == "a/b~c"
    assert make_scope_key({"agent_id": "x"}, "user_id") == ""
    assert make_scope_key({"user_id": "ada", "metadata.team": "red"}, "metadata.team,user_id") == "ada/red"
    assert make_scope_key({"user_id": "ada"}, "project") == make_scope_key({}, "user_id,agent_id") == ""


@given(st.tuples(VALUES, VALUES), st.tuples(VALUES, VALUES))
def test_scope_keys_of_several_fields_differ(one: tuple[str, str], other: tuple[str, str]) -> None:
    keys = [
        make_scope_key(dict(zip(("user_id", "agent_id"), values, strict=True)), "user_id,agent_id")
        for values in (one, other)
    ]
    assert (keys[0] == keys[1]) == (one == other)


@pytest.mark.parametrize(
    ("typed", "option", "prefixes", "whole"),
    [
        ("ada", "user_id,agent_id,session_id", ("ada/",), "ada//"),
        ("ada/bot", "user_id,agent_id,session_id", ("ada/bot/", "ada~1bot/"), "ada/bot/"),
        ("ada//", "user_id,agent_id,session_id", (), "ada//"),
        ("", "user_id,agent_id", (), ""),
        ("a/b", "user_id", (), "a/b"),
        ("ada", "project", (), "ada"),
    ],
)
def test_first_values_name_longer_keys(typed: str, option: str, prefixes: tuple[str, ...], whole: str) -> None:
    assert list_prefixes(typed, option) == prefixes
    assert complete_scope(typed, option) == whole


@given(st.tuples(VALUES, VALUES))
def test_a_user_id_begins_its_key(values: tuple[str, str]) -> None:
    key = make_scope_key(dict(zip(("user_id", "agent_id"), values, strict=True)), "user_id,agent_id")
    prefixes = list_prefixes(values[0], "user_id,agent_id")
    assert key.startswith(prefixes) or not prefixes
