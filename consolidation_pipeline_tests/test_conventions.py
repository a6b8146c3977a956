"""Conventions of the code that no linter checks: docstrings, file references, names of tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from consolidation_pipeline.settings import PROJECT_ROOT

PACKAGE = PROJECT_ROOT / "consolidation_pipeline"
TESTS = PROJECT_ROOT / "consolidation_pipeline_tests"
# Folders in which a reference such as ``store/projects.py`` may be found.
ROOTS = (PROJECT_ROOT, PACKAGE, TESTS)
QUESTION = re.compile(r"(What|Which|Whether|How|Who|Why|Where|When|That|Those)\b")
QUOTED_QUESTION = re.compile(rf"[\"']\s*{QUESTION.pattern}")
TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
# Only paths that begin with a folder of this project: examples in docstrings name files of other projects.
FOLDERS = "api|benchmarks|cli|consolidation_pipeline|defs|deploy|docs|embed|examples|llm|mcp|service|store"
FILE_REFERENCE = re.compile(rf"(?<![\w./-])((?:{FOLDERS})/(?:[a-z_0-9]+/)*[a-z_0-9-]+\.(?:py|md|toml|yaml))\b")
CORE_REFERENCE = re.compile(r"(?<![\w./-])(core/[a-z_]+/[a-z_0-9]+\.py)\b")
LONGEST_TEST_NAME = 60


def python_files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.rglob("*.py"))


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                yield getattr(node, "lineno", 1), docstring.lstrip()


def test_no_docstring_opens_with_a_question_word() -> None:
    found = [
        f"{path.relative_to(PROJECT_ROOT)}:{line}: {docstring.splitlines()[0]}"
        for path in python_files(PACKAGE, TESTS)
        if QUOTED_QUESTION.search(text := path.read_text())  # To parse all files takes seconds.
        for line, docstring in docstrings(text)
        if QUESTION.match(docstring)
    ]
    assert not found, "\n".join(found)


def test_every_cited_file_exists() -> None:
    missing = [
        f"{path.relative_to(PROJECT_ROOT)}:{number}: {cited}"
        for path in python_files(PACKAGE)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for cited in (*FILE_REFERENCE.findall(line), *CORE_REFERENCE.findall(line))
        if not any((root / cited).exists() for root in ROOTS)
    ]
    assert not missing, "\n".join(missing)


def test_names_of_tests_are_short() -> None:
    long = [
        f"{path.relative_to(PROJECT_ROOT)}: {name}"
        for path in python_files(TESTS)
        for name in TEST_NAME.findall(path.read_text())
        if len(name) > LONGEST_TEST_NAME
    ]
    assert not long, "\n".join(long)
