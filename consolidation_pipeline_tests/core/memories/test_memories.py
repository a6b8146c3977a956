"""Memories: valid types, text for embedding, normalized text and ids."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.memories.memories import (
    MEMORY_TYPES,
    NewMemory,
    check_memory_type,
    consolidated_id,
    content_hash,
    embedding_text,
    memory_id,
    normalize_text,
    normalized_hash,
)
from consolidation_pipeline.errors import InvalidMemoryError
from consolidation_pipeline_tests.hypothesis_examples import examples


def test_memory_type_outside_list_is_rejected() -> None:
    assert len(MEMORY_TYPES) == 10
    assert [check_memory_type(name) for name in MEMORY_TYPES] == list(MEMORY_TYPES)
    for wrong in ("Learning", "", "lesson", None, 3):
        with pytest.raises(InvalidMemoryError, match="codebase_knowledge, bugfix"):
            check_memory_type(wrong)


def test_new_memory_needs_content_and_known_type() -> None:
    with pytest.raises(InvalidMemoryError, match="execution_summary"):
        NewMemory(source="s", external_id="1", memory_type="learning", execution_summary=" \n")
    with pytest.raises(InvalidMemoryError, match="memory_type"):
        NewMemory(source="s", external_id="1", memory_type="lesson", execution_summary="x")


def test_embedding_text_joins_filled_fields_in_order() -> None:
    text = embedding_text(goal="Ship", execution_summary="Did it ", result=None, lessons_learned=" ", feedback="Good")
    assert text == "Ship\nDid it\nGood"


def test_content_hash_is_sha256_of_utf8() -> None:
    assert content_hash("é") == "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (" Use  JWT.\n", "use jwt"),
        ("USE jwt!!!", "use jwt"),
        ("Ｕｓｅ JWT…", "use jwt"),
        ("Straße", "strasse"),
        ("先缓存。", "先缓存"),
        ("Use JWT?", "use jwt?"),
        ("cd ..", "cd .."),
        ("...", "..."),
        ("v2.1.", "v2.1"),
    ],
)
def test_normalize_text_ignores_case_space_and_stop(text: str, normal: str) -> None:
    assert normalize_text(text) == normal
    assert normalized_hash(text) == content_hash(normal)


@settings(deadline=None, max_examples=examples(300))
@given(st.text())
def test_normalize_text_is_idempotent(text: str) -> None:
    assert normalize_text(normalize_text(text)) == normalize_text(text)
    assert bool(normalize_text(text)) == bool(text.strip())


def test_memory_ids_are_stable_and_unambiguous() -> None:
    assert memory_id("web", "notes", "1") == UUID("c101ac66-7cef-5607-88cd-e8d0ed6a32f8")
    assert len({memory_id("web", "notes", "1"), memory_id("webnotes", "", "1"), memory_id("web", "notes1", "")}) == 3


def test_consolidated_id_ignores_source_order() -> None:
    a, b = memory_id("web", "notes", "1"), memory_id("web", "notes", "2")
    derived = consolidated_id("web", "merged", [a, b], "1")
    assert derived == consolidated_id("web", "merged", [str(b), a, b], "1")
    others = [
        consolidated_id("app", "merged", [a, b], "1"),
        consolidated_id("web", "pattern", [a, b], "1"),
        consolidated_id("web", "merged", [a], "1"),
        consolidated_id("web", "merged", [a, b], "2"),
    ]
    assert len({derived, *others}) == 5
