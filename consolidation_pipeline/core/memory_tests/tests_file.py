"""Files of memory tests: YAML, read strictly, with the line of every error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from consolidation_pipeline.core.memory_tests.memory_test import KINDS, MAX_TESTS, MemoryTest, build_test, to_value
from consolidation_pipeline.errors import UsageError


@dataclass(frozen=True)
class MemoryTestFile:
    """Content of a file. ``project``: the slug that it is for, None = it does not say."""

    project: str | None
    tests: tuple[MemoryTest, ...]


def read_test_file(text: str, path: str) -> MemoryTestFile:
    """Return the tests of a YAML text; ``path`` is named in errors.

    Raises:
        UsageError: It is no YAML, or something in it is not known or does not fit. The message names file and line.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        raise UsageError(f"{path}, line {line}: it is no YAML: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(node, yaml.MappingNode):
        raise _error(path, node, "a file of memory tests begins with `tests:` and a list under it")
    project, tests = None, None
    for key, value in node.value:
        if key.value == "project":
            project = _construct(value)
            if not isinstance(project, str):
                raise _error(path, value, f"project needs the name of a project, not {project!r}")
        elif key.value == "tests":
            tests = value
        else:
            raise _error(path, key, f"{key.value!r} is not known here; a file has `project` and `tests`")
    if not isinstance(tests, yaml.SequenceNode):
        raise _error(path, tests or node, "`tests` with a list of tests is missing")
    if len(tests.value) > MAX_TESTS:
        raise _error(path, tests, f"{len(tests.value)} tests; {MAX_TESTS} are allowed")
    return MemoryTestFile(project, _read_tests(tests, path))


def read_one_test(text: str, name: str | None = None) -> MemoryTest:
    """Return the test that is written as in a file: ``kind: value``. ``name``: instead of one in the text.

    Raises:
        UsageError: It is no YAML, or no test.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UsageError(f"{text!r} is no YAML: {getattr(error, 'problem', None) or error}") from None
    test = _read_test(node)
    return test if name is None else build_test(test.kind, to_value(test), name)


def format_test_file(project: str, tests: Iterable[MemoryTest]) -> str:
    """Return the YAML of tests, which ``read_test_file`` reads back."""
    listed = [{"name": test.name, test.kind: to_value(test)} for test in tests]
    content = {"project": project, "tests": listed}
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=10_000))


def _read_tests(node: Any, path: str) -> tuple[MemoryTest, ...]:
    found: dict[str, MemoryTest] = {}
    for one in node.value:
        try:
            test = _read_test(one)
        except UsageError as error:
            raise _error(path, one, str(error)) from None
        if test.name in found:
            raise _error(path, one, f"two tests have the name {test.name!r}; give one of them another `name`")
        found[test.name] = test
    return tuple(found.values())


def _read_test(node: Any) -> MemoryTest:
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"a test is `kind: value` with a kind of {', '.join(KINDS)}")
    keys = [key.value for key, _ in node.value]
    given = _construct(node)
    name = given.pop("name", None)
    if len(given) != 1 or len(keys) != len(set(map(str, keys))):
        raise UsageError(f"a test has one kind, and a `name` if you like; this one has {', '.join(map(str, keys))}")
    if name is not None and not isinstance(name, str):
        raise UsageError(f"name needs a text, not {name!r}")
    ((kind, value),) = given.items()
    return build_test(str(kind), value, name)


def _construct(node: Any) -> Any:
    """Return a node as plain data."""
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise UsageError(f"it cannot be read: {getattr(error, 'problem', None) or error}") from None
    finally:
        loader.dispose()


def _error(path: str, node: Any, message: str) -> UsageError:
    line = 1 if node is None else node.start_mark.line + 1
    return UsageError(f"{path}, line {line}: {message}")
