"""Files of memory tests: strict, with the line of every error; what a text says; JUnit XML."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from consolidation_pipeline.core.memory_tests.junit import format_junit
from consolidation_pipeline.core.memory_tests.memory_test import KINDS, build_test
from consolidation_pipeline.core.memory_tests.statements import says
from consolidation_pipeline.core.memory_tests.tests_file import format_test_file, read_one_test, read_test_file
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.store.database.schema import MEMORY_TEST_KINDS

WHOLE = """\
project: shop
tests:
  - name: port
    must_find: {query: which port, says: "Redis listens on port 6379.", within: 3}
  - must_not_merge: ["Refunds are retried 3 times.", "Payouts are retried 5 times."]
  - must_merge: [6137909a-7d4e-5632-aea2-fdc4afa0186e, "Payouts are retried 5 times."]
  - must_remember: "Deploys stop on Friday: no exceptions."
  - must_not_say: The moon is made of cheese.
  - playbook_has: Run the migrations first.
"""


def test_file_with_all_kinds_is_read_back() -> None:
    found = read_test_file(WHOLE, "tests.yaml")
    assert found.project == "shop"
    assert [test.kind for test in found.tests] == [
        "must_find",
        "must_not_merge",
        "must_merge",
        "must_remember",
        "must_not_say",
        "playbook_has",
    ]
    assert found.tests[0].name == "port"
    assert found.tests[3].name == "must_remember: Deploys stop on Friday: no exceptions."
    assert read_test_file(format_test_file("shop", found.tests), "copy").tests == found.tests


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: a file of memory tests begins with `tests:`"),
        ("tests: [", "line 1: it is no YAML"),
        ("project: 5\ntests: []", "line 1: project needs the name of a project, not 5"),
        ("test: []", "line 1: 'test' is not known here"),
        ("tests:\n- must_remember: a\n- must_remembr: b", "line 3: 'must_remembr' is no kind of memory test"),
        ("tests:\n- must_remember: 5", "line 2: must_remember needs a text, not 5"),
        ("tests:\n- must_find: {query: a}", "line 2: must_find needs .* query or says is missing"),
        ("tests:\n- must_find: {query: a, says: b, limit: 3}", "line 2: .*'limit' is not known"),
        ("tests:\n- must_find: {query: a, says: b, within: 0}", "within is 0; it must be a whole number from 1 to 50"),
        ("tests:\n- must_merge: [a]", "line 2: must_merge needs two texts or ids"),
        ("tests:\n- must_not_merge: [Stop it, stop it.]", "needs two different memories"),
        ("tests:\n- must_remember: a\n  must_not_say: b", "line 2: a test has one kind"),
        ("tests:\n- must_remember: a\n- must_remember: a", "line 3: two tests have the name"),
        ("tests:\n- name: ' '\n  must_remember: a", "the name of must_remember is blank"),
    ],
)
def test_wrong_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"tests.yaml, .*{message}"):
        read_test_file(text, "tests.yaml")


def test_kinds_are_those_of_the_table() -> None:
    assert tuple(KINDS) == MEMORY_TEST_KINDS


def test_one_test_is_written_as_in_a_file() -> None:
    assert read_one_test("must_remember: a b", "name") == build_test("must_remember", "a b", "name")
    with pytest.raises(UsageError, match="is no YAML"):
        read_one_test("must_remember: [")


@pytest.mark.parametrize(
    ("text", "is_said"),
    [
        ("redis listens on port 6379", True),
        ("The cache is small. The checkout service's Redis listens on port 6379.", True),
        ("Redis listens on port 6380.", False),
        ("Redis no longer listens on port 6379.", False),
        ("Redis listens.", False),
        ("Redis is fast. The API listens on port 6379.", False),
    ],
)
def test_text_says_a_claim_in_one_sentence(text: str, is_said: bool) -> None:
    assert says(text, "Redis listens on port 6379.") is is_said


def test_junit_lists_results() -> None:
    root = fromstring(format_junit("shop", [("must_remember", "a <b>\x00", None), ("must_find", "c", "not found")]))
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    cases = root.findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["a <b>?", "c"]
    assert [case.find("failure") is not None for case in cases] == [False, True]
