"""Readers of JSON Lines, CSV and git: rows, reported bad rows, and robustness against any content."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.csv_rows import read_csv
from consolidation_pipeline.service.intake.readers.formats import default_source, guess_format, read_rows
from consolidation_pipeline.service.intake.readers.git_log import (
    guess_commit_type,
    parse_scopes,
    read_git,
    split_trailers,
    strip_addresses,
)
from consolidation_pipeline.service.intake.readers.jsonl import read_jsonl
from consolidation_pipeline.service.intake.readers.line_reader import MAX_LINE_BYTES
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row
from consolidation_pipeline_tests.hypothesis_examples import examples

WriteFile = Callable[[str, bytes], Path]
Git = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    def write_file(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write_file


def fields_of(rows: Iterator[Row | BadRow]) -> list[dict[str, object]]:
    found = list(rows)
    assert not [row for row in found if isinstance(row, BadRow)]
    return [row.fields for row in found if isinstance(row, Row)]


def only_bad(rows: Iterator[Row | BadRow]) -> BadRow:
    (row,) = rows
    assert isinstance(row, BadRow)
    return row


# JSON Lines


def test_jsonl_yields_objects_with_line_numbers(write: WriteFile) -> None:
    path = write("notes.jsonl", b'{"content": "one", "tags": ["a"]}\n\n  \r\n{"content": "two", "metadata": null}\r\n')
    assert list(read_jsonl(path)) == [
        Row(1, {"content": "one", "tags": ["a"]}),
        Row(4, {"content": "two", "metadata": None}),
    ]


def test_jsonl_reads_unterminated_line_and_empty_file(write: WriteFile) -> None:
    assert list(read_jsonl(write("one.jsonl", b'{"content": "one"}'))) == [Row(1, {"content": "one"})]
    assert list(read_jsonl(write("none.jsonl", b""))) == []


def test_jsonl_ignores_byte_order_mark(write: WriteFile) -> None:
    assert fields_of(read_jsonl(write("bom.jsonl", b'\xef\xbb\xbf{"content": "one"}\n'))) == [{"content": "one"}]


def test_jsonl_keeps_unicode_line_separators(write: WriteFile) -> None:
    text = "a\u2028b\u0085c\x0bd"
    path = write("unicode.jsonl", json.dumps({"content": text}, ensure_ascii=False).encode())
    assert fields_of(read_jsonl(path)) == [{"content": text}]


def test_jsonl_unpacks_gzip(write: WriteFile) -> None:
    assert fields_of(read_jsonl(write("notes.jsonl.gz", b'{"content": "one"}\n'))) == [{"content": "one"}]


def test_jsonl_reads_standard_input_and_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b'{"content": "one"}\n'))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert fields_of(read_jsonl("-")) == [{"content": "one"}]
    assert not stdin.buffer.closed


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"content": "one"', "not valid JSON: Expecting ',' delimiter at character 18"),
        (b'{"content": "one"} {"content": "two"}', "not valid JSON: Extra data at character 20"),
        (b'["content"]', "an object is needed, not a list"),
        (b'"content"', "an object is needed, not a text"),
        (b"true", "an object is needed, not true or false"),
        (b"7", "an object is needed, not a number"),
        (b"null", "an object is needed, not null"),
        (b'{"content": "caf\xe9"}', "not valid UTF-8: byte 0xe9 at byte 17"),
        (b'{"importance": NaN}', "NaN is not a JSON number"),
        (b'{"importance": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"importance": ' + b"9" * 5000 + b"}", "a number of 5000 digits is too large"),
        (b'{"id": "1", "id": "2"}', "the key 'id' occurs twice"),
        (b'{"metadata": {"x": 1, "x": 1}}', "the key 'x' occurs twice"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_jsonl_reports_bad_line_and_continues(write: WriteFile, line: bytes, reason: str) -> None:
    path = write("notes.jsonl", b'{"content": "before"}\n' + line + b'\n{"content": "behind"}\n')
    assert list(read_jsonl(path)) == [Row(1, {"content": "before"}), BadRow(2, reason), Row(3, {"content": "behind"})]


def test_jsonl_reports_oversized_line_and_continues(write: WriteFile) -> None:
    prefix, suffix = b'{"content": "', b'"}\n'
    longest = prefix + b"x" * (MAX_LINE_BYTES - len(prefix) - len(suffix)) + suffix
    path = write("long.jsonl", longest + longest.replace(b'"}', b'xx"}') + b'{"content": "behind"}\n')
    first, second, third = read_jsonl(path)
    assert isinstance(first, Row)
    assert second == BadRow(2, "longer than 20 MB")
    assert third == Row(3, {"content": "behind"})


def test_gzip_bomb_ends_in_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"content": "one"}\n' + b" " * 40_000_000))
    first, last = read_jsonl(path)
    assert first == Row(1, {"content": "one"})
    assert isinstance(last, BadRow)
    assert "unpacks to more than 100 times its size" in last.reason


def test_truncated_gzip_ends_in_bad_row(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b'{"content": "%d"}\n' % n for n in range(50_000)))
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    *rows, last = read_jsonl(path)
    assert rows
    assert all(isinstance(row, Row) for row in rows)
    assert isinstance(last, BadRow)
    assert last.line == len(rows) + 1
    assert "gzip data is damaged" in last.reason


def test_uncompressed_gz_file_is_one_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl.gz"
    path.write_bytes(b'{"content": "one"}\n')
    assert "Not a gzipped file" in only_bad(read_jsonl(path)).reason


def test_files_are_streamed_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        file.writelines(b'{"content": "%d %s"}\n' % (n, b"x" * 1000) for n in range(20_000))
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_jsonl(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak < 2_000_000


def test_file_is_closed_when_reading_stops_early(write: WriteFile) -> None:
    path = write("notes.jsonl", b'{"content": "one"}\n' * 3)
    rows = read_jsonl(path)
    next(rows)
    assert str(path) in [opened.path for opened in psutil.Process().open_files()]
    rows.close()  # type: ignore[attr-defined]
    assert str(path) not in [opened.path for opened in psutil.Process().open_files()]


@pytest.mark.parametrize("reader", [read_jsonl, read_csv])
def test_missing_file_or_folder_is_usage_error(tmp_path: Path, reader: Callable[..., Iterator[object]]) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*missing\.x: No such file"):
        list(reader(tmp_path / "missing.x"))
    with pytest.raises(UsageError, match="Is a directory"):
        list(reader(tmp_path))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=examples(60))
@given(rows=st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=5), escaped=st.booleans())
def test_jsonl_yields_written_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]], escaped: bool
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "rows.jsonl"
    path.write_bytes(b"".join(json.dumps(row, ensure_ascii=escaped).encode() + b"\n" for row in rows))
    assert list(read_jsonl(path)) == [Row(line, row) for line, row in enumerate(rows, start=1)]


@settings(deadline=None, max_examples=examples(100))
@given(content=st.binary(max_size=200) | st.text('{}[]":,\n\\ux1e9d', max_size=60).map(str.encode))
def test_jsonl_reader_accepts_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "bytes.jsonl"
    path.write_bytes(content + b'\n{"content": "last"}')
    rows = list(read_jsonl(path))
    assert rows[-1] == Row(content.count(b"\n") + 2, {"content": "last"})
    assert all(one.line < two.line for one, two in itertools.pairwise(rows))


# CSV


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_detects_delimiter_from_header(write: WriteFile, delimiter: str) -> None:
    lines = [["id", "content", "tags"], ["1", '"first, second; third\t"', "a"]]
    path = write("notes.csv", "\n".join(delimiter.join(line) for line in lines).encode())
    assert list(read_csv(path)) == [Row(2, {"id": "1", "content": "first, second; third\t", "tags": "a"})]


def test_csv_record_has_line_of_its_start(write: WriteFile) -> None:
    path = write("notes.csv", b'id,content\r\n1,"one\r\ntwo\r\n"\r\n\r\n2,three\r\n')
    assert list(read_csv(path)) == [
        Row(2, {"id": "1", "content": "one\r\ntwo\r\n"}),
        Row(6, {"id": "2", "content": "three"}),
    ]


def test_csv_dotted_columns_become_metadata(write: WriteFile) -> None:
    path = write("notes.csv", b"content,goal,metadata.team,metadata.a.b\none,,core,\ntwo, ,,7\nthree,x,,\n")
    assert fields_of(read_csv(path)) == [
        {"content": "one", "metadata": {"team": "core"}},
        {"content": "two", "metadata": {"a.b": "7"}},
        {"content": "three", "goal": "x"},
    ]


def test_csv_accepts_byte_order_mark_and_padded_names(write: WriteFile) -> None:
    path = write("notes.csv.gz", b"\xef\xbb\xbf, execution_summary ,id\n0,one,1\n")
    assert fields_of(read_csv(path)) == [{"execution_summary": "one", "id": "1"}]


def test_csv_skips_empty_records(write: WriteFile) -> None:
    assert list(read_csv(write("notes.csv", b"\ncontent,id\n\n,\n ,\none,1\n"))) == [
        Row(6, {"content": "one", "id": "1"})
    ]


def test_csv_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"content\none\n")))
    assert fields_of(read_csv("-")) == [{"content": "one"}]


def test_tsv_of_one_column_keeps_commas(write: WriteFile) -> None:
    assert fields_of(read_csv(write("notes.tsv", b"content\none, two; three\n"))) == [{"content": "one, two; three"}]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"1,one,two", "3 cells where the header has 2; are quotes missing?"),
        (b"1", "1 cells where the header has 2; are quotes missing?"),
        (b'1,"one" two', "not valid CSV: ',' expected after '\"'"),
        (b"1,caf\xe9", "not valid UTF-8: byte 0xe9; save the file as UTF-8"),
        (b"1," + b"x," * (MAX_LINE_BYTES // 2), "not valid CSV: a line is longer than 20 MB"),
    ],
)
def test_csv_reports_bad_record_and_continues(write: WriteFile, record: bytes, reason: str) -> None:
    path = write("notes.csv", b"id,content\n0,before\n" + record + b"\n2,behind\n")
    assert list(read_csv(path)) == [
        Row(2, {"id": "0", "content": "before"}),
        BadRow(3, reason),
        Row(4, {"id": "2", "content": "behind"}),
    ]


def test_csv_reports_unclosed_quote_at_its_line(write: WriteFile) -> None:
    path = write("notes.csv", b'id,content\n1,one\n2,"two\n3,three\n')
    assert list(read_csv(path))[1] == BadRow(3, "not valid CSV: unexpected end of data")


def test_csv_accepts_cell_of_one_million_characters(write: WriteFile) -> None:
    text = "x" * 1_000_000
    assert fields_of(read_csv(write("notes.csv", f"content\n{text}\n".encode()))) == [{"content": text}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,text\n1,one\n", "needs a column content or execution_summary; found: 'id', 'text'"),
        (b"", "found: none, the file is empty"),
        (b"\n\n", "found: none, the file is empty"),
        (b"content,id,id\n", "names 'id' twice"),
        (b"content,metadata,metadata.x\n", r"both metadata and metadata\.\* columns"),
        (b'content,"id\n', "header row is not valid CSV: unexpected end of data"),
        (b"content," + b"x" * MAX_LINE_BYTES, "a line is longer than 20 MB"),
    ],
)
def test_csv_refuses_invalid_header(write: WriteFile, content: bytes, message: str) -> None:
    path = write("notes.csv", content)
    with pytest.raises(UsageError, match=message) as refused:
        list(read_csv(path))
    assert str(path) in str(refused.value)


cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(deadline=None, max_examples=examples(100))
@given(records=st.lists(st.tuples(cells, cells), max_size=6), delimiter=st.sampled_from(",;\t"))
def test_csv_yields_written_records(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str]], delimiter: str
) -> None:
    text, expected = io.StringIO(newline=""), []
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(["content", "goal"])
    for record in records:
        start = text.getvalue().count("\n") + 1
        writer.writerow(record)
        filled = {name: cell for name, cell in zip(("content", "goal"), record, strict=True) if cell.strip()}
        expected += [Row(start, dict(filled))] if filled else []
    path = tmp_path_factory.mktemp("csv") / "records.csv"
    path.write_bytes(text.getvalue().encode())
    assert list(read_csv(path)) == expected


@settings(deadline=None, max_examples=examples(100))
@given(content=st.binary(max_size=200) | st.text('a",\r\n', max_size=60).map(str.encode))
def test_csv_reader_accepts_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("csv") / "bytes.csv"
    path.write_bytes(b"content,goal\n" + content)
    rows = list(read_csv(path))
    assert all(one.line < two.line for one, two in itertools.pairwise(rows))
    assert all(2 <= row.line <= content.count(b"\n") + 2 for row in rows)


# git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name, value in {"NAME": "Ada Lovelace", "EMAIL": "ada@example.org"}.items():
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2024-05-06T07:08:09+02:00")

    def run(*arguments: str, stdin: bytes | None = None) -> None:
        subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True, input=stdin)

    repository.mkdir()
    run("init", "-q", "-b", "main")
    return run


@pytest.fixture
def commit(git: Git, repository: Path) -> Callable[..., None]:
    def commit_files(message: str | bytes, *files: str) -> None:
        for name in files:
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            with (repository / name).open("a") as file:
                file.write(f"{message!r}\n")
        git("add", "-A")
        text = message.encode() if isinstance(message, str) else message
        git("commit", "-q", "--allow-empty", "--allow-empty-message", "--cleanup=verbatim", "-F", "-", stdin=text)

    return commit_files


Commit = Callable[..., None]


def shas_of(repository: Path) -> list[str]:
    log = ["git", "-C", str(repository), "log", "--reverse", "--no-merges", "--format=%H"]
    return subprocess.run(log, check=True, capture_output=True, text=True).stdout.split()


def running_gits() -> int:
    return sum(child.name() == "git" for child in psutil.Process().children())


def contents_of(repository: Path) -> list[object]:
    return [fields["content"] for fields in fields_of(read_git(repository))]


def test_git_yields_commits_oldest_first(commit: Commit, repository: Path) -> None:
    commit("feat(api, cli)!: add paging\n\nPages hold 50 rows.\n\nMore on request.\n", "src/a.py", "b ü.txt")
    commit("Second\n", "src/a.py")
    first, second = read_git(repository)
    sha = shas_of(repository)[0]
    assert first == Row(
        1,
        {
            "id": sha,
            "content": "feat(api, cli)!: add paging\n\nPages hold 50 rows.\n\nMore on request.",
            "memory_type": "feature",
            "tags": ["api", "cli"],
            "files": ["b ü.txt", "src/a.py"],
            "success": True,
            "user_id": "Ada Lovelace",
            "session_id": None,
            "created_at": "2024-05-06T07:08:09+02:00",
            "metadata": {"commit": sha},
        },
    )
    assert isinstance(second, Row)
    assert (second.line, second.fields["content"], second.fields["files"]) == (2, "Second", ["src/a.py"])


def test_git_trailers_become_metadata(commit: Commit, repository: Path) -> None:
    commit("Fix it\n\nWhy.\n\nChange-Id: I123\nSigned-off-by: Ada Lovelace <ada@example.org>\n")
    (fields,) = fields_of(read_git(repository))
    assert fields["content"] == "Fix it\n\nWhy."
    assert fields["metadata"] == {
        "commit": fields["id"],
        "trailers": {"Change-Id": ["I123"], "Signed-off-by": ["Ada Lovelace"]},
    }
    assert "example.org" not in json.dumps(fields)


def test_git_handles_unusual_messages_and_file_names(commit: Commit, repository: Path) -> None:
    commit("", "a")
    commit("No files\n")
    commit("a \x1e\x1f and\n\n\n\nmany lines\r\nand carriage returns", "line\nfeed", "\nleading", 'quo"te')
    rows = fields_of(read_git(repository))
    assert [row["content"] for row in rows] == ["", "No files", "a \x1e\x1f and\n\nmany lines\nand carriage returns"]
    assert [row["files"] for row in rows] == [["a"], [], ["\nleading", "line\nfeed", 'quo"te']]
    assert [row["id"] for row in rows] == shas_of(repository)


def test_git_decodes_declared_commit_encoding(commit: Commit, git: Git, repository: Path) -> None:
    git("config", "i18n.commitEncoding", "ISO-8859-1")
    commit(b"caf\xe9")
    assert contents_of(repository) == ["café"]


def test_git_lists_both_names_of_renamed_file(commit: Commit, git: Git, repository: Path) -> None:
    commit("One", "old")
    git("mv", "old", "new")
    commit("Two")
    assert [row["files"] for row in fields_of(read_git(repository))] == [["old"], ["new", "old"]]


def test_git_skips_merge_commits(commit: Commit, git: Git, repository: Path) -> None:
    commit("Base", "a")
    git("switch", "-q", "-c", "side")
    commit("Side", "b")
    git("switch", "-q", "main")
    commit("Main", "c")
    git("merge", "-q", "--no-edit", "side")
    assert sorted(map(str, contents_of(repository))) == ["Base", "Main", "Side"]


def test_git_reads_shallow_clone_without_its_base_tree(
    commit: Commit, git: Git, repository: Path, tmp_path: Path
) -> None:
    for name in ("one", "two", "three"):
        commit(name, name)
    git("clone", "-q", "--depth", "2", repository.as_uri(), str(tmp_path / "shallow"))
    rows = fields_of(read_git(tmp_path / "shallow"))
    assert [(row["content"], row["files"]) for row in rows] == [("two", []), ("three", ["three"])]


def test_git_reads_bare_repository_and_subfolder(commit: Commit, git: Git, repository: Path) -> None:
    commit("One", "src/a")
    git("clone", "-q", "--bare", ".", str(repository / "bare.git"))
    assert contents_of(repository / "bare.git") == ["One"]
    assert contents_of(repository / "src") == ["One"]
    assert guess_format(repository / "bare.git") == guess_format(repository) == "git"


def test_git_ignores_configuration_and_hook_variables(
    commit: Commit, git: Git, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit("One", "src/a", "b")
    for setting in ("log.showSignature=true", "log.showRoot=false", "diff.relative=true", "color.ui=always"):
        git("config", *setting.split("="))
    git("config", "log.decorate", "full")
    user_config = tmp_path / "gitconfig"
    user_config.write_text(
        "[log]\n\tdate = relative\n[i18n]\n\tlogOutputEncoding = latin1\n[diff]\n\tnoprefix = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(user_config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_PAGER", "false")
    (row,) = fields_of(read_git(repository / "src"))
    assert (row["content"], row["files"]) == ("One", ["b", "src/a"])


def test_git_reads_repository_of_another_owner(
    commit: Commit, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit("One")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refused = subprocess.run(["git", "-C", str(repository), "log"], check=False, capture_output=True, text=True)
    assert "dubious ownership" in refused.stderr
    assert contents_of(repository) == ["One"]


def test_git_process_ends_when_reading_stops_early(commit: Commit, repository: Path) -> None:
    for number in range(4):
        commit(f"Number {number}\n\n" + "long body\n" * 40_000)
    rows = read_git(repository)
    next(rows)
    assert running_gits() == 1
    rows.close()  # type: ignore[attr-defined]
    assert running_gits() == 0


def test_git_keeps_commits_before_damaged_history(commit: Commit, repository: Path) -> None:
    for number in range(3):
        commit(f"Number {number}", "a")
    tree = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "HEAD^{tree}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    *rows, last = read_git(repository)
    assert [row.line for row in rows if isinstance(row, Row)][:2] == [1, 2]
    assert isinstance(last, BadRow)
    assert last.line == len(rows) + 1
    assert tree in last.reason


@pytest.mark.usefixtures("git")
def test_git_explains_unusable_path(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"history of .*empty: not a git repository"):
        list(read_git(tmp_path / "empty"))
    with pytest.raises(UsageError, match="does not have any commits yet"):
        list(read_git(repository))
    with pytest.raises(UsageError, match=r"missing.*No such file or directory"):
        list(read_git(tmp_path / "missing"))


def test_missing_git_is_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git is not installed"):
        list(read_git(tmp_path))


def test_rows_of_every_format_are_valid_memories(commit: Commit, write: WriteFile, repository: Path) -> None:
    commit("fix(api): one\n\nSigned-off-by: Ada <ada@example.org>\n", "a.py")
    table = b'content,tags,success,metadata.x,created_at\none,"a, b",yes,1,2024-05-06\n'
    lines = b'{"content": "one", "tags": ["a", "b"], "success": true}\n'
    (from_git,) = fields_of(read_git(repository))
    (from_csv,) = fields_of(read_csv(write("one.csv", table)))
    (from_jsonl,) = fields_of(read_jsonl(write("one.jsonl", lines)))
    memory = parse_memory(from_git, source="git")
    assert (memory.external_id, memory.memory_type, memory.files) == (from_git["id"], "bugfix", ("a.py",))
    assert memory.metadata == from_git["metadata"]
    for fields in (from_csv, from_jsonl):
        memory = parse_memory(fields, source="one")
        assert (memory.execution_summary, memory.tags, memory.success) == ("one", ("a", "b"), True)


# Commit messages


@pytest.mark.parametrize(
    ("subject", "memory_type"),
    [
        ("fix(api): add a retry", "bugfix"),
        ("Fixed the login", "bugfix"),
        ("Hotfix for the login", "bugfix"),
        ("Work around bug 12 of the driver", "bugfix"),
        ("feat!: paging", "feature"),
        ("Implement paging", "feature"),
        ("Add a test for the bug", "feature"),
        ("Introduces a cache", "feature"),
        ("refactor: split the module", "refactor"),
        ("Clean up imports", "refactor"),
        ("Rename a to b to fix a clash", "refactor"),
        ("Simplified the parser", "refactor"),
        ('Revert "Add paging"', "warning"),
        ("Deprecate the old call", "warning"),
        ("Warn about slow queries", "warning"),
        ("docs: how to add a table", "codebase_knowledge"),
        ("Explain the cache", "codebase_knowledge"),
        ("Decide on one format", "decision"),
        ("Choose the faster parser", "decision"),
        ("Switch to HTTP 2", "decision"),
        ("Use tabs instead of spaces", "decision"),
        ("Use tabs", "change"),
        ("Switch the lights off", "change"),
        ("chore: add a lock file", "change"),
        ("test(api): fix flaky test", "change"),
        ("Bump prefix and address to a fixture", "change"),
        ("Allow fixed-size arrays", "change"),
        ("", "change"),
    ],
)
def test_commit_subject_determines_memory_type(subject: str, memory_type: str) -> None:
    assert guess_commit_type(subject) == memory_type
    assert memory_type in MEMORY_TYPES


@pytest.mark.parametrize(
    ("subject", "scopes"),
    [
        ("fix(api): x", ["api"]),
        ("feat(api, cli)!: x", ["api", "cli"]),
        ("fix: x", []),
        ("fix( ): x", []),
        ("Call print(x) last", []),
    ],
)
def test_conventional_commit_scopes_are_parsed(subject: str, scopes: list[str]) -> None:
    assert parse_scopes(subject) == scopes


def test_trailers_are_split_from_commit_body() -> None:
    body = (
        "* one\n\nco-authored-by: B <b@example.org>\n\n* two\n\nNote: keep this.\nBREAKING CHANGE: and this.\n"
        "  Signed-off-by: quoted\nContent-Type: text/html\n\nSigned-off-by: A <a@example.org>\nSigned-off-by: c@x.org\n"
    )
    text, trailers = split_trailers(body)
    assert text == (
        "* one\n\n* two\n\nNote: keep this.\nBREAKING CHANGE: and this.\n"
        "  Signed-off-by: quoted\nContent-Type: text/html"
    )
    assert trailers == {"co-authored-by": ["B"], "Signed-off-by": ["A", "c"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ada Lovelace <ada@example.org>", "Ada Lovelace"),
        ("ada@example.org", "ada"),
        ("@ada", "@ada"),
        ("https://example.org/trunk@12 7f", "https://example.org/trunk@12 7f"),
        ("Ada <ada@x.org>, Bob <bob@x.org>", "Ada Bob"),
    ],
)
def test_email_addresses_are_stripped(text: str, expected: str) -> None:
    assert strip_addresses(text) == expected


# Formats


@pytest.mark.parametrize(
    ("name", "format"),
    [
        *[("a.jsonl", "jsonl"), ("a.NDJSON", "jsonl"), ("a.json", "jsonl"), ("a.jsonl.gz", "jsonl"), ("-", "jsonl")],
        *[("a.csv", "csv"), ("a.tsv", "csv"), ("a.b.csv.gz", "csv")],
    ],
)
def test_file_extension_determines_format(name: str, format: str) -> None:
    assert guess_format(name) == format


@pytest.mark.parametrize("name", ["notes.txt", "notes", "notes.gz", "folder", "folder.csv"])
def test_path_without_known_format_is_refused(tmp_path: Path, name: str) -> None:
    if name.startswith("folder"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=rf"{name}; name one of: jsonl .*csv .*git"):
        guess_format(tmp_path / name)


def test_read_rows_uses_reader_of_format(commit: Commit, write: WriteFile, repository: Path) -> None:
    commit("One")
    assert fields_of(read_rows(write("a.txt", b'{"content": "one"}'), "jsonl")) == [{"content": "one"}]
    assert fields_of(read_rows(str(write("b.txt", b"content\none")), "csv")) == [{"content": "one"}]
    assert fields_of(read_rows(repository, "git"))[0]["content"] == "One"


def test_read_rows_refuses_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown format 'xml'; known formats: jsonl .*csv .*git"):
        read_rows(tmp_path, "xml")


@pytest.mark.parametrize(
    ("path", "format", "source"),
    [
        ("/data/notes.jsonl.gz", "jsonl", "notes.jsonl.gz"),
        (Path("x/notes.csv"), "csv", "notes.csv"),
        ("-", "jsonl", "stdin"),
        ("/src/project", "git", "git"),
    ],
)
def test_default_source_is_file_name(path: str | Path, format: str, source: str) -> None:
    assert default_source(path, format) == source
