"""What is a literal, and which pairs of texts must never become one without a person."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.literals import Conflict, Literal, conflicts, literals, stands_in

MUST_CONFLICT = [
    # numbers and units
    ("timeout 30 s", "timeout 60 s", "number"),
    ("Set the timeout to 30 seconds", "Set the timeout to 30 ms", "number"),
    ("Update to Centos 8", "Update to Centos 7", "number"),
    ("Keep at most 1,000 rows", "Keep at most 10,000 rows", "number"),
    ("Use 50% of the memory", "Use 80 percent of the memory", "number"),
    ("Limit uploads to 5 MB", "Limit uploads to 5 GB", "number"),
    ("The mask is 0x1F", "The mask is 0x2F", "number"),
    ("Fails on the 2nd attempt", "Fails on the 3rd attempt", "number"),
    ("Retry three times", "Retry five times", "number"),
    ("Use a 30-second lease", "Use a 90-second lease", "number"),
    ("The threshold is 0.85", "The threshold is 0.9", "number"),
    ("The server answers HTTP 404", "The server answers HTTP 500", "number"),
    ("The batch takes 10k rows", "The batch takes 100k rows", "number"),
    ("Offset is -5", "Offset is 5", "number"),
    ("Costs $5 per run", "Costs $15 per run", "number"),
    ("Hash with sha256", "Hash with sha512", "number"),
    ("Listen on port 8080", "Listen on port 9090", "number"),
    # versions
    ("Update to Jetty 9.4.39", "Update to Jetty 9.4.44", "version"),
    ("Fix the build of branch-2.10.x", "Fix the build of branch-3.2", "version"),
    ("Works on Python 3.11", "Works on Python 3.12", "version"),
    ("Move to v2 of the API", "Move to v3 of the API", "version"),
    ("Released as 1.0.0-rc1", "Released as 1.0.0-rc2", "version"),
    ("Pin numpy==1.26", "Pin numpy==2.1", "version"),
    ("Broken since release 2.7.3", "Broken since release 2.7.4", "version"),
    ("Support CentOS 8", "Support CentOS 7.9", "version"),
    ("Build on python 3.10", "Build on python 3.1", "version"),
    # dates
    ("Removed on 2024-03-05", "Removed on 2024-03-06", "date"),
    ("Support ends March 5, 2024", "Support ends April 5, 2024", "date"),
    ("The job runs at 02:00", "The job runs at 14:00", "date"),
    # paths, URLs
    ("Edit /etc/hosts first", "Edit /etc/fstab first", "path"),
    ("The bug is in src/a.py", "The bug is in src/b.py", "path"),
    (r"Logs are in C:\temp\a.log", r"Logs are in C:\temp\b.log", "path"),
    ("Call /api/users to list", "Call /api/orders to list", "path"),
    ("See https://example.com/a for details", "See https://example.com/b for details", "url"),
    # identifiers, codes, quotations
    ("remove Preconditions from hadoop-tools", "remove Preconditions from hadoop-yarn-project", "identifier"),
    ("Call parse_row before the insert", "Call parse_table before the insert", "identifier"),
    ("Set maxRetries in the client", "Set maxWorkers in the client", "identifier"),
    ("Set MAX_RETRIES in the environment", "Set MAX_WORKERS in the environment", "identifier"),
    ("Run it with --dry-run", "Run it with --force", "identifier"),
    ("Use os.path.join for names", "Use posixpath.split for names", "identifier"),
    ("Wrap it in `lock`", "Wrap it in `retry`", "identifier"),
    ("Fix HADOOP-17612", "Fix HADOOP-18001", "identifier"),
    ("The compiler reports E1234", "The compiler reports E4321", "error_code"),
    ("Fails with ERR_TIMEOUT", "Fails with ERR_REFUSED", "identifier"),
    ('It prints "file not found"', 'It prints "access denied"', "quoted"),
    ("It prints “file missing”", "It prints “disk full”", "quoted"),
    # polarity
    ("works with v2", "does not work with v2", "polarity"),
    ("enable caching for the API", "disable caching for the API", "polarity"),
    ("Add the index to the table", "Remove the index from the table", "polarity"),
    ("Always commit the lock file", "Never commit the lock file", "polarity"),
    ("The build works on Windows", "The build fails on Windows", "polarity"),
    ("Increase the pool size", "Decrease the pool size", "polarity"),
    ("Allow anonymous access", "Deny anonymous access", "polarity"),
    ("Run migrations before the deploy", "Run migrations after the deploy", "polarity"),
    ("The API supports batching", "The API no longer supports batching", "polarity"),
    ("Start it with the cache", "Start it without the cache", "polarity"),
    ("Use the cache. Don't use the proxy.", "Don't use the cache. Use the proxy.", "polarity"),
    ("Turn caching on", "Turn caching off", "polarity"),
    ("Parsing handles empty lists", "Parsing can’t handle empty lists", "polarity"),
    ("Log the error and stop the worker", "Don't log the error and stop the worker", "polarity"),
    ("The token is valid", "The token is invalid", "polarity"),
    ("It handles non-empty lists", "It handles empty lists", "polarity"),
    ("Open the file in binary mode", "Close the file in binary mode", "polarity"),
    ("It works", "It does not work", "polarity"),
]

MUST_NOT_CONFLICT = [
    # the same number in another spelling
    ("Wait 30 s", "Wait 30 seconds"),
    ("Wait 30s", "Wait for 30 sec"),
    ("It takes 24 hours", "It takes 1 day"),
    ("The pause is 1500 ms", "The pause is 1.5 seconds"),
    ("Keep 1,000 rows", "Keep 1000 rows"),
    ("Use 50% of it", "Use 50 percent of it"),
    ("Limit is 5MB", "Limit is 5 MB"),
    ("Retry three times", "Retry 3 times"),
    ("Batch of 10k rows", "Batch of 10,000 rows"),
    ("Use OAuth 2.0", "Use OAuth 2"),
    ("The 3rd attempt fails", "Attempt 3 fails"),
    ("A 30-second timeout", "A timeout of 30 seconds"),
    ("Hash with SHA-256", "Hash with sha256"),
    ("One of them is slow, use 2 workers", "A worker is slow, use 2 workers"),
    # versions and dates
    ("Move to v2", "Move to version 2"),
    ("Needs python3.11", "Needs Python 3.11"),
    ("Needs jetty 9.4", "Needs Jetty 9.4"),
    ("Broken since 1.0.0-rc1", "Broken since 1.0.0rc1"),
    ("Due 5 March 2024", "Due 2024-03-05"),
    ("Due March 5, 2024", "Due 05.03.2024"),
    ("Due March 5th", "Due 5 March 2024"),
    # the same name in other dress
    ("The bug is in a.py", "The bug is in src/a.py"),
    ("Call `parse_row` first", "Call parse_row() first"),
    ("Use `sorted` here", "Use sorted here, not `sort`"),
    ("See https://example.com/a/", "See https://example.com/a."),
    ('The "data gap" hurts in foo_bar', "The data gap hurts"),
    (r"Edit src\store\rows.py", "Edit src/store/rows.py"),
    ("Fix the `hadoop-tools` build", "Fix the hadoop-tools build"),
    # more detail on one side is no contradiction
    ("Set the timeout", "Set the timeout to 30 s"),
    ("Use a lock", "Use a lock from src/locks.py (v2)"),
    ("Close the file", "Close the file after use. It does not close itself."),
    ("It returns early", "It returns early with code 3. The caller never sees it."),
    # everyday words that look like names or numbers
    ("A well-known, read-only file", "A long-lived, append-only file"),
    ("Set the add/remove rules", "Set the enable/disable rules"),
    ("1. Open\n2. Close", "3) Open\n4) Close"),
    ("You may 5 times retry", "You may retry five times"),
    # polarity in other words
    ("Don't forget to close the file", "Close the file"),
    ("Don't forget to close the file", "Always close the file"),
    ("Never forget to close the file", "Make sure to close the file"),
    ("It is not only fast but also safe", "It is fast and safe"),
    ("Never commit secrets", "Do not commit secrets"),
    ("Avoid committing secrets", "Don't commit secrets"),
    ("The parser fails to handle empty lists", "The parser does not handle empty lists"),
    ("The build fails on Windows", "The build does not work on Windows"),
    ("The token is invalid", "The token is not valid"),
    ("It never fails on retry", "It always works on retry"),
    ("Batching is unsupported there", "Batching is not supported there"),
    ("Use no more than two threads", "Use at most 2 threads"),
    ("It counts words instead of letters", "It counts words, not letters"),
    ("The index cannot be used", "The index can't be used"),
    ("The index isn’t used", "The index is not used"),
    ("Check whether it works or not", "Check whether it works"),
    ("Close the file and delete it", "Delete the file after closing it"),
    ("Increasing the timeout reduces errors", "Reduce errors by increasing the timeout"),
    ("The lookup doesn't find rows and doesn't log", "The lookup does not find rows, does not log"),
    ("Use the cache", "use the CACHE!"),
]


@pytest.mark.parametrize(("a", "b", "kind"), MUST_CONFLICT)
def test_near_misses_conflict(a: str, b: str, kind: str) -> None:
    assert kind in {conflict.kind for conflict in conflicts(a, b)}


@pytest.mark.parametrize(("a", "b"), MUST_NOT_CONFLICT)
def test_paraphrases_and_subsets_do_not_conflict(a: str, b: str) -> None:
    assert [str(conflict) for conflict in conflicts(a, b)] == []


PAIRS = [(a, b) for a, b, _ in MUST_CONFLICT] + MUST_NOT_CONFLICT


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_conflicts_are_the_same_from_both_sides(a: str, b: str) -> None:
    mirrored = {Conflict(conflict.kind, conflict.b, conflict.a) for conflict in conflicts(b, a)}
    assert set(conflicts(a, b)) == mirrored


@pytest.mark.parametrize("text", sorted({text for pair in PAIRS for text in pair}))
def test_no_text_conflicts_with_itself(text: str) -> None:
    assert conflicts(text, text) == ()


def test_conflicts_read_as_a_reason() -> None:
    assert [str(conflict) for conflict in conflicts("timeout 30 s", "timeout 60 seconds")] == ["number: 30 s / 60 s"]
    assert [str(conflict) for conflict in conflicts("It works with v2.", "It doesn't work with v2.")] == [
        "polarity: It works with v2 / It doesn't work with v2"
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a plain sentence", set()),
        ("wait 30 seconds, 500 ms, 2h", {("number", "30 s"), ("number", "0.5 s"), ("number", "2 h")}),
        ("0x1f 1e-3 1_000 .5", {("number", "0x1f"), ("number", "0.001"), ("number", "1000"), ("number", "0.5")}),
        ("4xx and 2FA", {("number", "4xx"), ("number", "2fa")}),
        ("see https://a.org/v2/30?x=1#y.", {("url", "https://a.org/v2/30?x=1#y")}),
        ("v2, Version 2.1 and 9.4.39", {("version", "2"), ("version", "2.1"), ("version", "9.4.39")}),
        ("jdk1.8.0_292 and 3.3.0-SNAPSHOT", {("version", "1.8.0_292"), ("version", "3.3.0snapshot")}),
        ("2024-03-05T14:30:00Z", {("date", "2024-03-05"), ("date", "14:30:00")}),
        ("on 3/5/2024 at 9:30 pm", {("date", "3/5/2024"), ("date", "09:30pm")}),
        ("in /etc/x, ~/y.txt and ./z/", {("path", "/etc/x"), ("path", "~/y.txt"), ("path", "z")}),
        ("app.py:30", {("path", "app.py"), ("number", "30")}),
        ("30s/60s", {("number", "30 s"), ("number", "60 s")}),
        (
            "snake_case, camelCase, a.b_c and CONST_X",
            {("identifier", x) for x in "snake_case camelcase a.b_c const_x".split()},
        ),
        ("`x = 5`", {("identifier", "x = 5"), ("number", "5")}),
        ("mail a.b@c.org", {("identifier", "a.b@c.org")}),
        ("commit 3f2a9bc and CVE-2021-44228", {("identifier", "3f2a9bc"), ("identifier", "cve-2021-44228")}),
        ('it says "wait 30 s"', {("quoted", "wait 30 s"), ("number", "30 s")}),
        ('use "30 s" or "foo_bar"', {("number", "30 s"), ("identifier", "foo_bar")}),
        ("do not, e.g. today", {("negation", "not")}),
        ("1. first\n2) second", set()),
        ("well-known and end-to-end", set()),
        ("three retries, one of them", {("number", "3")}),
        ("50 µs", {("number", "0.00005 s")}),
    ],
)
def test_literals_are_found_once_and_normalised(text: str, found: set[tuple[str, str]]) -> None:
    assert {(literal.kind, literal.value) for literal in literals(text)} == found


def test_literals_are_equal_by_kind_and_value() -> None:
    (spaced,) = literals("30 s")
    (spelled,) = literals("after 30 seconds")
    assert (spaced.text, spaced.start) == ("30 s", 0)
    assert (spelled.text, spelled.start) == ("30 seconds", 6)
    assert frozenset((spaced, spelled)) == {Literal("number", "30 s")}


def test_a_literal_stands_in_a_text_that_marks_it_up_differently() -> None:
    assert stands_in(Literal("path", "a.py"), "see src/A.py.")
    assert stands_in(Literal("identifier", "sorted"), "use sorted here")
    assert not stands_in(Literal("path", "/users"), "call /users/all")
    assert not stands_in(Literal("identifier", "hadoop-yarn"), "the hadoop-yarn-project")
    assert not stands_in(Literal("number", "3"), "in 30 s")


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=200))
def test_any_text_is_read_and_offsets_point_at_it(text: str) -> None:
    assert all(text[literal.start :].startswith(literal.text) for literal in literals(text))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(PAIRS), st.sampled_from(PAIRS))
def test_literals_of_lines_are_those_of_the_text(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert literals(f"{first[0]}\n{second[1]}") == literals(first[0]) | literals(second[1])


@pytest.mark.parametrize("unit", ["a-", "a.", "a+", "a@", "0x", "A. ", "...", '" a', "not ", "1. ", "x=1\n", "a://"])
def test_long_rows_are_read_in_linear_time(unit: str) -> None:
    # Quadratic readers would run into the suite's time limit here.
    text = unit * (100_000 // len(unit))
    assert conflicts(text, text) == ()
