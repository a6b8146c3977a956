"""The parser of imported rows: accepted fields and formats, and rejected values."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.memories.memories import NewMemory
from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.errors import InvalidMemoryError
from consolidation_pipeline_tests.hypothesis_examples import examples

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "content execution_summary id external_id memory_type goal tags files success importance user_id created_at"
    " learned_at last_accessed_at metadata meta embedding embedding_model reused_count pinned language source"
    " tool_usage other"
)


def parse_row(**row: object) -> NewMemory:
    return parse_memory({"content": "Use JWT", **row}, source="notes")


def test_parser_reads_every_field() -> None:
    memory = parse_memory(
        {
            "id": 7,
            "execution_summary": "Did it",
            "memory_type": "decision",
            "goal": "Ship",
            "result": "Shipped",
            "feedback": "Good",
            "lessons_learned": "Test first",
            "tags": [" a", "b", "a", ""],
            "files": ["src/a.py"],
            "success": True,
            "importance": 3,
            "user_id": 12,
            "agent_id": "bot",
            "session_id": "s",
            "task_id": "t",
            "created_at": "2024-03-05T10:00:00+02:00",
            "last_accessed_at": 1_700_000_000,
            "metadata": {"k": [1, None]},
            "tool_usage": {"grep": 3},
            "error_patterns": ["E1"],
            "language": "German",
            "reused_count": 4,
            "pinned": True,
            "embedding": [0, 0.5],
            "embedding_model": "local",
            "source": "git",
        },
        source="notes",
    )
    assert memory == NewMemory(
        source="git",
        external_id="7",
        memory_type="decision",
        execution_summary="Did it",
        goal="Ship",
        result="Shipped",
        feedback="Good",
        lessons_learned="Test first",
        tags=("a", "b"),
        files=("src/a.py",),
        success=True,
        importance=3.0,
        user_id="12",
        agent_id="bot",
        session_id="s",
        task_id="t",
        learned_at=datetime(2024, 3, 5, 8, tzinfo=UTC),
        metadata={"k": [1, None]},
        tool_usage={"grep": 3},
        error_patterns=["E1"],
        language="german",
        reused_count=4,
        last_accessed_at=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        pinned=True,
        embedding=(0.0, 0.5),
        embedding_model="local",
    )


def test_parser_treats_null_and_empty_as_missing() -> None:
    names = [name for name in KEYS.split() if name not in ("content", "other")]
    bare = parse_row(id="1")
    assert parse_memory({**dict.fromkeys(names), "content": "Use JWT", "id": "1"}, source="notes") == bare
    assert parse_memory({**dict.fromkeys(names, ""), "content": "Use JWT", "id": "1"}, source="notes") == bare
    assert (bare.memory_type, bare.importance, bare.pinned, bare.metadata) == ("learning", 0.5, False, {})


def test_parser_applies_default_type_and_source() -> None:
    memory = parse_memory({"content": "x", "memory_type": None}, source="git", default_type="change")
    assert (memory.source, memory.memory_type) == ("git", "change")
    with pytest.raises(InvalidMemoryError, match="lesson"):
        parse_memory({"content": "x"}, source="git", default_type="lesson")


def test_parser_reads_csv_text_like_json() -> None:
    memory = parse_row(
        tags="a, b,,a",
        files='["x,y.py", "z.py"]',
        success="No",
        pinned="1",
        importance="0.7",
        reused_count="3",
        metadata='{"k": 1}',
        embedding="[0.5, 1]",
        embedding_model="m",
        created_at="2024-03-05",
        last_accessed_at="1700000000",
    )
    assert (memory.tags, memory.files) == (("a", "b"), ("x,y.py", "z.py"))
    assert (memory.success, memory.pinned, memory.importance, memory.reused_count) == (False, True, 0.7, 3)
    assert (memory.metadata, memory.embedding) == ({"k": 1}, (0.5, 1.0))
    assert memory.learned_at == datetime(2024, 3, 5, tzinfo=UTC)
    assert memory.last_accessed_at == datetime.fromtimestamp(1_700_000_000, UTC)


def test_external_id_wins_over_id() -> None:
    memory = parse_row(id="row-1", external_id="lesson-1")
    assert (memory.external_id, memory.metadata) == ("lesson-1", {"id": "row-1"})


def test_row_without_id_is_identified_by_content() -> None:
    first = parse_row(goal="a", tags=["x"])
    assert first.external_id.startswith("sha256:")
    assert parse_memory({"tags": ["x"], "goal": "a", "content": "Use JWT", "result": ""}, source="notes") == first
    assert parse_row(goal="b", tags=["x"]).external_id != first.external_id


def test_unknown_keys_are_kept_in_metadata() -> None:
    memory = parse_memory(
        {
            "content": "short",
            "execution_summary": "long",
            "created_at": "2024-01-01",
            "learned_at": "2024-01-02",
            "metadata": {"label": 1, "a": 2},
            "meta": {"a": 3},
            "label": None,
            "embedding_model": "m",
        },
        source="notes",
    )
    assert memory.execution_summary == "long"
    assert memory.metadata == {
        "label": 1,
        "a": 2,
        "a_": 3,
        "content": "short",
        "created_at": "2024-01-01",
        "label_": None,
        "embedding_model": "m",
    }
    assert memory.embedding_model is None


@pytest.mark.parametrize(
    ("given_time", "instant"),
    [
        ("2024-03-05T10:00:00Z", datetime(2024, 3, 5, 10, tzinfo=UTC)),
        ("2024-03-05 10:00:00", datetime(2024, 3, 5, 10, tzinfo=UTC)),
        ("2024-03-05T10:00:00.5-05:00", datetime(2024, 3, 5, 15, 0, 0, 500_000, tzinfo=UTC)),
        ("20240305", datetime(2024, 3, 5, tzinfo=UTC)),
        (1_700_000_000_000, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (1_700_000_000.5, datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (datetime(2024, 3, 5, 10), datetime(2024, 3, 5, 10, tzinfo=UTC)),
        (datetime(2024, 3, 5, 10, tzinfo=timezone(timedelta(hours=1))), datetime(2024, 3, 5, 9, tzinfo=UTC)),
    ],
)
def test_parser_reads_times_as_utc(given_time: object, instant: datetime) -> None:
    assert parse_row(learned_at=given_time).learned_at == instant
    assert parse_row(created_at=given_time).learned_at == instant


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"content": " \n"}, "content is ' .n': expected a text that is not blank"),
        ({"content": None}, "content is None"),
        ({"content": 12}, "content is 12: expected text"),
        ({"content": "a" * 100_001}, "at most 100,000 characters, not 100,001"),
        ({"content": "a\x00b"}, "content is .* without NUL"),
        ({"goal": "a\x00b"}, "goal is .* without NUL"),
        ({"other": {"x": ["\x00"]}}, "other.x is .* without NUL"),
        ({"metadata": '{"x": "\\u0000"}'}, "metadata.x is .* without NUL"),
        ({"tags": '["\\u0000"]'}, "tags is .* without NUL"),
        ({"a\x00": 1}, "a key of the row is .* without NUL"),
        ({"content": "\ud800"}, "content is .* without lone surrogates"),
        ({"metadata": {"\ud800": 1}}, "a key of metadata is .* without lone surrogates"),
        ({"memory_type": "lesson"}, "memory_type is 'lesson': expected one of error_fix, discovery"),
        ({"memory_type": 3}, "memory_type is 3"),
        ({"goal": ["x"]}, r"goal is \['x'\]: expected text"),
        ({"importance": -0.1}, "importance is -0.1: expected a number >= 0"),
        ({"importance": math.nan}, "importance is nan: expected a finite number"),
        ({"importance": "high"}, "importance is 'high': expected a number >= 0"),
        ({"importance": True}, "importance is True: expected a number >= 0"),
        ({"reused_count": 1.5}, "reused_count is 1.5: expected a whole number from 0 to 2,147,483,647"),
        ({"reused_count": 2**31}, "reused_count is 2147483648: expected a whole number"),
        ({"tags": ["a", 1]}, "tags is .*: expected a list of texts"),
        ({"tags": 5}, "tags is 5: expected a list of texts"),
        ({"files": {"a": 1}}, "files is .*: expected a list of texts"),
        ({"tags": [str(n) for n in range(1001)]}, "at most 1,000 texts, not 1,001"),
        ({"tags": ["x" * 513]}, "texts of at most 512 characters"),
        (
            {"metadata": {"x": "y" * 100_000}},
            "metadata is .*: expected at most 100,000 characters as JSON, not 100,009",
        ),
        ({"other": ["y" * 60_000, "z" * 60_000]}, "metadata is .*: expected at most 100,000 characters as JSON"),
        ({"tool_usage": ["y" * 100_000]}, "tool_usage is .*: expected at most 100,000 characters as JSON"),
        ({"success": "maybe"}, "success is 'maybe': expected true, false"),
        ({"pinned": 2}, "pinned is 2: expected true, false"),
        ({"pinned": 1.0}, "pinned is 1.0: expected true, false"),
        ({"created_at": "yesterday"}, "created_at is 'yesterday': expected an ISO 8601 time"),
        ({"learned_at": "2024"}, "learned_at is '2024': expected an ISO 8601 time"),
        ({"learned_at": True}, "learned_at is True: expected an ISO 8601 time"),
        ({"last_accessed_at": 1e300}, "last_accessed_at is 1e.300: expected an ISO 8601 time"),
        ({"learned_at": "0001-01-01T00:00:00+14:00"}, "learned_at is .*: expected an ISO 8601 time"),
        ({"user_id": 1.5}, "user_id is 1.5: expected text or a whole number"),
        ({"id": True}, "id is True: expected text or a whole number"),
        ({"external_id": "x" * 513}, "external_id is .*: expected at most 512 characters, not 513"),
        ({"metadata": [1]}, r"metadata is \[1\]: expected a JSON object"),
        ({"meta": "text"}, "meta is 'text': expected a JSON object"),
        ({"other": {1, 2}}, "other is .*: expected a JSON value"),
        ({"other": math.inf}, "other is inf: expected a finite number"),
        ({"language": "klingon"}, "language is 'klingon': expected a code such as de or pt-BR, or one of arabic"),
        ({"embedding": [0.1]}, "embedding_model is None: expected the name of the model"),
        ({"embedding": [[0.1]], "embedding_model": "m"}, "embedding is .*: expected a flat list of numbers"),
        ({"embedding": [True], "embedding_model": "m"}, "embedding is .*: expected a flat list of numbers"),
        ({"embedding": "0.1", "embedding_model": "m"}, "embedding is '0.1': expected a flat list of numbers"),
        ({"embedding": [], "embedding_model": "m"}, "embedding is .*: expected 1 to 16,000 numbers, not 0"),
        ({"embedding": [0, 0.0], "embedding_model": "m"}, "embedding is .*: expected at least one number other than"),
        ({"embedding": [math.nan], "embedding_model": "m"}, "embedding is .*: expected finite float32 numbers"),
        ({"embedding": [1e300], "embedding_model": "m"}, "embedding is .*: expected finite float32 numbers"),
    ],
)
def test_parser_rejects_invalid_value_naming_key(row: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidMemoryError, match=message):
        parse_row(**row)


def test_parser_rejects_deep_nesting() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidMemoryError, match="nested less deeply"):
        parse_row(other=deep)
    while deep:  # freed level by level: freeing it at once would recurse too deeply
        deep = deep.pop()  # type: ignore[assignment]


def test_parser_errors_shorten_long_values() -> None:
    with pytest.raises(InvalidMemoryError) as caught:
        parse_row(goal=["x" * 1_000])
    assert len(str(caught.value)) < 150


@settings(deadline=None, max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(KEYS.split()), json_values))
def test_parser_output_of_any_json_row_is_storable(row: dict[str, object]) -> None:
    try:
        memory = parse_memory(row, source="notes")
    except InvalidMemoryError:
        return
    metadata = json.dumps(memory.metadata, allow_nan=False, ensure_ascii=False)
    stored = metadata + memory.execution_summary + memory.external_id
    assert stored.encode()
    assert "\\u0000" not in stored
    assert "\x00" not in stored
    assert parse_memory(row, source="notes") == memory


CODES = (
    ({"language": "de"}, "german"),
    ({"language": "pt-BR"}, "portuguese"),
    ({"language": "zh_Hans_CN"}, "simple"),
)


def test_parser_finds_language_of_row_without_one() -> None:
    assert parse_row().language == "english"
    find = {"x": "german"}.__getitem__
    for row, language in (({}, "german"), ({"language": ""}, "german"), ({"language": " Dutch"}, "dutch"), *CODES):
        assert parse_memory({"content": "x", **row}, source="s", find_language=find).language == language
