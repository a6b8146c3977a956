"""Imports: idempotent and resumable; good rows are stored, bad rows reported."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from consolidation_pipeline.embed.local import LOCAL_MODEL, LocalEmbedder
from consolidation_pipeline.errors import (
    EmbeddingError,
    InvalidMemoryError,
    InvalidOptionError,
    NotFoundError,
    UsageError,
)
from consolidation_pipeline.options import LANGUAGES
from consolidation_pipeline.service.intake import importer
from consolidation_pipeline.service.intake.importer import ImportResult, ensure_project, import_memories
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row
from consolidation_pipeline.service.similarity.embedding import EmbeddingResult, embed_memories
from consolidation_pipeline_tests.service.corpus import corpus, note, write_jsonl
from consolidation_pipeline_tests.service.crash_helpers import import_and_die, kill
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.table_dumps import count_rows, dump_tables
from consolidation_pipeline_tests.store.sample_rows import record_statements


def count_memories(pipeline: Pipeline) -> int:
    return int(pipeline.value("SELECT count(*) FROM {s}.task_memories"))


def test_importing_file_twice_changes_nothing(pipeline: Pipeline) -> None:
    first = pipeline.add(corpus())
    before = dump_tables(pipeline)
    second = pipeline.add(corpus())
    assert (first.added, first.unchanged, first.bad) == (len(corpus()), 0, [])
    assert (second.added, second.unchanged, second.bad) == (0, len(corpus()), [])
    assert dump_tables(pipeline) == before


def test_repeated_row_is_imported_once(pipeline: Pipeline) -> None:
    done = pipeline.add([note("a", "Same row."), note("b", "Other row."), note("a", "Same row.")])
    assert (done.added, done.unchanged, done.bad) == (2, 1, [])


def test_bad_rows_are_rejected_by_line(pipeline: Pipeline) -> None:
    path = pipeline.folder / "mixed.jsonl"
    lines = [
        note("a", "Good."),
        "{broken",
        note("b", " "),
        note("c", "Good too.", memory_type="opinion"),
        note("d", "Ok."),
    ]
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    rejects = pipeline.folder / "rejects"
    done = import_memories(pipeline.engine, SLUG, str(path), format="jsonl", rejects_dir=rejects)
    assert done.added == count_memories(pipeline) == 2
    assert [row.line for row in done.bad] == [2, 3, 4]
    assert "not valid JSON" in done.bad[0].reason
    assert "opinion" in done.bad[2].reason
    assert done.rejects is not None
    kept_apart = [json.loads(line) for line in done.rejects.read_text().splitlines()]
    assert kept_apart == [{"line": row.line, "reason": row.reason, "row": row.fields} for row in done.bad]
    assert kept_apart[2]["row"]["memory_type"] == "opinion"


def test_clean_import_removes_earlier_rejects(pipeline: Pipeline) -> None:
    path, rejects = pipeline.folder / "notes.jsonl", pipeline.folder / "rejects"
    path.write_text("{broken\n")
    import_memories(pipeline.engine, SLUG, str(path), format="jsonl", rejects_dir=rejects)
    write_jsonl(path, [note("a", "Repaired.")])
    done = import_memories(pipeline.engine, SLUG, str(path), format="jsonl", rejects_dir=rejects)
    assert done.rejects is None
    assert list(rejects.iterdir()) == []


def test_changed_content_under_imported_id_is_refused(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "First wording."), note("b", "Untouched.")])
    done = pipeline.add([note("b", "Untouched."), note("a", "Second wording."), note("c", "New.")])
    assert (done.added, done.unchanged) == (1, 1)
    assert [row.line for row in done.bad] == [2]
    assert pipeline.value("SELECT execution_summary FROM {s}.task_memories WHERE external_id = 'a'") == "First wording."


def test_unreadable_source_creates_no_project(pipeline: Pipeline) -> None:
    for path, format in (("missing.jsonl", "jsonl"), ("missing.csv", "csv"), ("no-repository", "git"), ("x", "xml")):
        with pytest.raises(UsageError):
            import_memories(pipeline.engine, SLUG, str(pipeline.folder / path), format=format)
    headless = pipeline.folder / "headless.csv"
    headless.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="content"):
        import_memories(pipeline.engine, SLUG, str(headless), format="csv")
    with pytest.raises(NotFoundError):
        pipeline.project()


def test_invalid_option_creates_no_project(pipeline: Pipeline) -> None:
    for config in ({"t_merge": 5}, {"no_option": 1}):
        with pytest.raises(InvalidOptionError):
            ensure_project(pipeline.engine, "new", config)
    assert pipeline.rows("SELECT 1 FROM {s}.projects") == []
    assert ensure_project(pipeline.engine, "new", {"t_merge": 0.9}).config == {"t_merge": 0.9}


def test_empty_source_creates_empty_project(pipeline: Pipeline) -> None:
    done = pipeline.add([])
    assert (done.added, done.bad, count_memories(pipeline)) == (0, [], 0)
    assert pipeline.project().slug == SLUG


def test_unknown_default_type_is_refused_first(pipeline: Pipeline) -> None:
    path = write_jsonl(pipeline.folder / "n.jsonl", [note("a", "x")])
    with pytest.raises(InvalidMemoryError, match="opinion"):
        import_memories(pipeline.engine, SLUG, str(path), format="jsonl", default_type="opinion")
    assert count_rows(pipeline)["projects"] == 0


def test_failed_import_resumes_after_last_batch(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = corpus()

    def breaking(path: str, format: str) -> Iterator[Row | BadRow]:
        del path, format
        for line, row in enumerate(rows, start=1):
            if line == 35:
                raise OSError("the disk went away")
            yield Row(line, dict(row))

    monkeypatch.setattr(importer, "BATCH_ROWS", 10)
    with monkeypatch.context() as broken:
        broken.setattr(importer, "read_rows", breaking)
        with pytest.raises(OSError, match="disk"):
            pipeline.add(rows)
    assert count_memories(pipeline) == 30
    done = pipeline.add(rows)
    assert (done.added, done.unchanged) == (len(rows) - 30, 30)


def test_killed_import_resumes_after_last_batch(pipeline: Pipeline) -> None:
    path = write_jsonl(pipeline.folder / "n.jsonl", corpus())
    kill(pipeline, import_and_die, str(path), 30)
    assert count_memories(pipeline) == 30
    done = pipeline.add(corpus())
    assert (done.added, done.unchanged) == (len(corpus()) - 30, 30)


@pytest.mark.slow
def test_import_takes_few_statements_per_batch(pipeline: Pipeline) -> None:
    batches = 3
    path = pipeline.folder / "many.jsonl"
    with path.open("w") as file:
        for number in range(batches * importer.BATCH_ROWS):
            file.write(
                json.dumps({"id": number, "content": f"Lesson {number}", "tags": ["a"], "files": ["a.py"]}) + "\n"
            )
    added: list[int] = []
    with record_statements(pipeline.engine) as statements:
        done = import_memories(
            pipeline.engine, SLUG, str(path), format="jsonl", progress=lambda done: added.append(done.added)
        )
    assert done.added == batches * importer.BATCH_ROWS
    assert added == [importer.BATCH_ROWS * (at + 1) for at in range(batches)]
    assert len(statements) <= 6 * batches + 10


def test_csv_rows_are_imported(pipeline: Pipeline) -> None:
    path = pipeline.folder / "notes.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "content", "tags", "importance", "memory_type", "metadata.team"])
        writer.writerow(["1", "Two lines,\none memory", "a, b", "0.9", "decision", "core"])
        writer.writerow(["2", "Bad importance", "", "high", "", ""])
        writer.writerow(["3", "Plain", "", "", "", ""])
    done = import_memories(pipeline.engine, SLUG, str(path), format="csv", default_type="warning")
    assert (done.added, [row.line for row in done.bad], done.source) == (2, [4], "notes.csv")
    rows = pipeline.rows(
        "SELECT execution_summary, tags, importance, memory_type, metadata FROM {s}.task_memories ORDER BY external_id"
    )
    assert tuple(rows[0]) == ("Two lines,\none memory", ["a", "b"], 0.9, "decision", {"team": "core"})
    assert tuple(rows[1]) == ("Plain", [], 0.5, "warning", {})
    assert import_memories(pipeline.engine, SLUG, str(path), format="csv").unchanged == 2


def test_row_language_overrides_project_language(pipeline: Pipeline) -> None:
    pipeline.configure_new(language="dutch")
    path = pipeline.folder / "rows.csv"
    path.write_text("id,content,language\na,Die Rechnung.,German\nb,De rekening.,\nc,nuqneH.,klingon\n")
    done = import_memories(pipeline.engine, SLUG, str(path), format="csv")
    assert [(row.line, row.reason.partition(": ")[0]) for row in done.bad] == [(4, "language is 'klingon'")]
    pipeline.add([note("d", "La facture.", language="french")])
    rows = pipeline.rows("SELECT external_id, language::text FROM {s}.task_memories ORDER BY 1")
    assert rows == [("a", "german"), ("b", "dutch"), ("d", "french")]


def test_every_language_exists_in_postgres(pipeline: Pipeline) -> None:
    assert set(LANGUAGES) <= {row.cfgname for row in pipeline.rows("SELECT cfgname FROM pg_ts_config")}


def test_second_git_import_adds_only_new_commits(pipeline: Pipeline, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    _git(tmp_path, "init", "-q", str(repository))
    for name in ("one", "two"):
        _commit(repository, name)
    first = import_memories(pipeline.engine, SLUG, str(repository), format="git")
    _commit(repository, "three")
    second = import_memories(pipeline.engine, SLUG, str(repository), format="git")
    assert (first.added, second.added, second.unchanged) == (2, 1, 2)
    assert pipeline.value("SELECT count(*) FROM {s}.memory_files") == 3
    assert pipeline.value("SELECT min(memory_type) FROM {s}.task_memories") == "bugfix"


def _commit(repository: Path, name: str) -> None:
    (repository / f"{name}.py").write_text(name)
    _git(repository, "add", ".")
    _git(repository, "commit", "-q", "-m", f"fix: repair {name}")


def _git(folder: Path, *arguments: str) -> None:
    named = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *named, *arguments], cwd=folder, check=True)


def test_imported_vectors_are_normalized(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "With its vector.", embedding=[3.0, 0.0, 4.0], embedding_model="own/model")])
    vector = np.array(json.loads(pipeline.value("SELECT embedding::text FROM {s}.task_memories")))
    np.testing.assert_allclose(vector, [0.6, 0.0, 0.8], rtol=1e-6)


def test_vector_of_wrong_dimension_is_rejected_by_line(pipeline: Pipeline) -> None:
    def given(name: str, length: int, model: str = "own/model") -> dict[str, object]:
        return note(name, f"Memory {name}.", embedding=[1.0] * length, embedding_model=model)

    done = pipeline.add([given("a", 3), given("b", 4), given("c", 3), given("d", 3, LOCAL_MODEL)])
    assert (done.added, [row.line for row in done.bad]) == (2, [2, 4])
    assert "4 numbers: expected 3" in done.bad[0].reason
    assert "expected 256" in done.bad[1].reason
    later = pipeline.add([given("e", 5)])
    assert (later.added, [row.line for row in later.bad]) == (0, [1])


def add_with_vectors(pipeline: Pipeline, *rows: dict[str, object]) -> ImportResult:
    path = write_jsonl(pipeline.folder / "vectors.jsonl", rows)
    return import_memories(pipeline.engine, SLUG, str(path), format="jsonl", settings=pipeline.settings)


def load_models(pipeline: Pipeline) -> dict[str, tuple[str | None, int | None]]:
    query = "SELECT external_id, embedding_model, embedding_dim FROM {s}.task_memories"
    return {row.external_id: (row.embedding_model, row.embedding_dim) for row in pipeline.rows(query)}


def test_memories_are_stored_with_vectors_of_free_model(pipeline: Pipeline) -> None:
    texts = {"a": "Ferries leave at nine.", "b": "Quotes expire.", "c": "Ferries leave at nine."}
    own = note("own", "Its own vector.", embedding=[1.0, 0.0], embedding_model="own/model")
    done = add_with_vectors(pipeline, *(note(name, text) for name, text in texts.items()), note("a", texts["a"]), own)
    assert (done.added, done.unchanged) == (4, 1)
    assert load_models(pipeline) == dict.fromkeys(texts, (LOCAL_MODEL, 256)) | {"own": ("own/model", 2)}
    query = "SELECT external_id, embedding::text AS vector FROM {s}.task_memories"
    stored = {row.external_id: np.array(json.loads(row.vector), np.float32) for row in pipeline.rows(query)}
    for name, text in texts.items():
        np.testing.assert_array_equal(stored[name], LocalEmbedder().embed([text])[0])
    with pipeline.open() as run:
        assert embed_memories(run) == EmbeddingResult(memories=4, computed=1, reused=0)


def test_vectors_wait_for_run_if_model_is_paid(pipeline: Pipeline) -> None:
    pipeline.configure_new(embedding_model="openai/text-embedding-3-small")
    add_with_vectors(pipeline, note("a", "Quotes expire."))
    assert load_models(pipeline) == {"a": (None, None)}


def test_text_without_vector_is_imported(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise EmbeddingError("text 0 has no tokens")

    monkeypatch.setattr(LocalEmbedder, "embed", refuse)
    assert add_with_vectors(pipeline, note("a", "Quotes expire.")).added == 1
    assert load_models(pipeline) == {"a": (None, None)}
