"""Sentence splitting, lossless union of texts, and its length cap."""

import re
import textwrap

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.literals.literal_scanner import Literal
from consolidation_pipeline.core.literals.literals import literals
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentence_splitter import split_sentences, unwrap
from consolidation_pipeline.core.text.text_coverage import Statement
from consolidation_pipeline.core.text.text_merge import MergedText, find_missing_literals, merge_capped, merge_texts
from consolidation_pipeline_tests.hypothesis_examples import examples

VOCABULARY = """
    Use use JWT jwt OAuth. cache retry. Never not fails! camelCase camelcase snake_case v2.1 v2, 2.10.x. 9.4.39 30 s.
    60 seconds 30s 1,000 5% src/a.py src/a.py. /etc/hosts C:\\tmp\\x e.g. i.e. No. "quoted text" "Open. Close." "half
    “typographic” `code()` `a. B` ` --flag -v https://example.com/a?b=1. 2024-03-05 March 5 file.ext. Done? … 1. 2) a.
    (see below). 。下一句 E1234 hadoop-tools #12 ... 3.5 GB. twelve retries Why?! x.The $5 'single' don't forget - ```x
    whether or not 5 m. 2 min. Then
    """
WORDS = VOCABULARY.split()
BLOCK = "```python\nif x_1 == 2:\n\n    run('v3')\n```"
SEPARATORS = (" ", " ", " ", " ", "\n", "\n\n", "  ")

sources = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(SEPARATORS)), min_size=1, max_size=25).map(
    lambda pairs: "".join(word + separator for word, separator in pairs)
)
blocks = st.tuples(sources, st.sampled_from((BLOCK, "```\nleft open v7", "~~~\nx = 5\n~~~\nafter it."))).map("\n".join)
texts = st.lists(st.one_of(sources, blocks), min_size=1, max_size=5)
# The same words in lower case: sentence ends are recognized by capitals, so they differ.
recased = st.tuples(texts, st.sampled_from((str.lower, str.title))).map(
    lambda drawn: [*drawn[0], *map(drawn[1], drawn[0])]
)


def normalize(text: str) -> str:
    return normalize_text(text.strip().removesuffix("\n```"))


def normalize_sentences(text: str) -> set[str]:
    return set(map(normalize, split_sentences(text)))


def split_consistently(texts: list[str]) -> bool:
    """Return True if equal texts, and equal parts of texts, are always split into the same sentences."""
    whole = {normalize(text): normalize_sentences(text) for text in texts}
    return all(normalize_sentences(text) == whole[normalize(text)] for text in texts) and all(
        whole.get(sentence, {sentence}) == {sentence} for text in texts for sentence in normalize_sentences(text)
    )


def test_merge_keeps_each_distinct_sentence_once() -> None:
    assert merge_texts(["Use JWT", "use jwt", "Use OAuth"]) == "Use JWT\n\nUse OAuth"


@pytest.mark.parametrize("text", ["Use JWT", "  Use JWT. \n", f"{BLOCK}\n", "a\n\n\nb", "Same. Same."])
def test_merge_of_one_text_is_verbatim(text: str) -> None:
    assert merge_texts([text]) == text
    assert merge_texts([" ", text, text if BLOCK in text else text.upper(), "", text]) == text


def test_merge_of_nothing_is_empty() -> None:
    assert merge_texts([]) == ""
    assert merge_texts(["", " \n"]) == ""


def test_merge_keeps_new_sentences_together() -> None:
    merged = merge_texts(["Cache it.", "Cache it. Retry twice. Then give up.\nLog it.", "Log it! Tell me."])
    assert merged == "Cache it.\n\nRetry twice. Then give up.\nLog it.\n\nTell me."


def test_merge_starts_with_first_text_verbatim() -> None:
    first = "# Title\n\n  - a\n  - a\n\nEnd"
    assert merge_texts([first + "\n\n", "More"]) == first + "\n\nMore"


def test_sentence_with_own_literal_is_kept() -> None:
    assert merge_texts(["use camelcase", "Use camelCase", "use CamelCase"]) == "Use camelCase"
    assert merge_texts(["pass -v", "pass -V", "Pass -v"]) == "pass -v\n\npass -V"


def test_contained_text_is_not_repeated() -> None:
    first = "Money is stored in column. Decimal appears only at the edge."
    second = "money is stored in column. decimal appears only at the edge"
    assert merge_texts([first, second]) == first
    assert merge_texts([second, first]) == second
    assert merge_texts(["Log it.", first, "Stop.", second]) == f"Log it.\n\n{first}\n\nStop."
    assert merge_texts([first, f"{second}\nRound late."]) == f"{first}\n\nRound late."


def test_text_covered_by_sentences_is_not_repeated() -> None:
    texts = ["Open it.", "Close it.", "Open it. Close it.", "open it. close it"]
    assert merge_texts(texts) == "Open it. Close it."
    assert merge_texts([*texts, "Stop."]) == "Open it.\n\nClose it.\n\nStop."


def test_whole_text_with_own_literal_is_kept() -> None:
    first, second = "Use camelcase. Then stop.", "use camelCase. then stop"
    assert merge_texts([first, second]) == second
    assert merge_texts([first, second], keep_first=True) == f"{first}\n\n{second}"
    assert merge_texts([second, first]) == second


def test_cap_counts_repeated_text_once() -> None:
    texts = ["Open the file. Close the file.", "open the file. close the file", "Log."]
    assert merge_capped(texts, max_chars=36) == MergedText("Open the file. Close the file.\n\nLog.", ())


@pytest.mark.parametrize(
    ("poor", "plain"),
    [
        ("THE DEPLOY RUNS AT NOON", "The deploy runs at noon."),
        ("the deploy runs at noon", "The deploy runs at noon."),
        ("- THE DEPLOY RUNS AT NOON!\n- Ask Ann.", "- The deploy runs at noon.\n- Ask Ann."),
        ("THE DEPLOY RUNS AT NOON", "the deploy runs at noon"),
    ],
)
def test_capitals_give_way_to_plain_wording(poor: str, plain: str) -> None:
    assert merge_texts([poor, plain]) == merge_texts([plain, poor]) == plain
    assert merge_texts([poor, plain], keep_first=True) == poor


def test_capitals_stay_if_nothing_says_the_same() -> None:
    assert merge_texts(["THE DEPLOY RUNS AT NOON.", "The build runs at night."]).startswith("THE DEPLOY RUNS AT NOON.")
    assert merge_texts(["USE UTC", "use utc"]) == "USE UTC"


def test_question_and_statement_are_distinct() -> None:
    assert merge_texts(["Works with v2?", "Works with v2."]) == "Works with v2?\n\nWorks with v2."


def test_merge_closes_open_code_block() -> None:
    merged = merge_texts(["Run:\n```sh\nmake", "Then stop."])
    assert merged == "Run:\n```sh\nmake\n```\n\nThen stop."
    assert merge_texts([merged, "Run:\n```sh\nmake", "Then stop."]) == merged


@settings(deadline=None, max_examples=examples(300))
@example(
    ["Use Use Use Use Use Use\nUse ", "Use Use Use Use Use Use Use \n```python\nif x_1 == 2:\n\n    run('v3')\n```"]
)
@example(["v2,\n1. ", "Use "])
@example(["OAuth. Use ", "1. 1. Use "])
@example(["Use\nUse Use Use \n```\nx_1 == 2\n```", "Use Use Use Use \n```\nleft open v7"])
@given(texts | recased)
def test_merge_contains_every_source(given_texts: list[str]) -> None:
    merged = merge_texts(given_texts)
    kept = [Statement(part) for part in split_sentences(merged)]
    # A line break may be all that keeps the words of a paragraph from being one sentence.
    whole = [Statement(unwrap(paragraph).strip()) for paragraph in re.split(r"\n(?:\n|(?=```))", merged)]

    def is_kept(sentence: Statement) -> bool:
        return any(one.covers(sentence) for one in kept) or any(one.equals(sentence) for one in whole)

    def is_covered(text: str) -> bool:
        return all(is_kept(Statement(part)) for part in split_sentences(text))

    covered = {normalize(text) for text in given_texts if is_covered(text)}
    assert {normalize(text) for text in given_texts if text.strip()} <= covered


@settings(deadline=None, max_examples=examples(300))
@given(texts | recased)
def test_merge_keeps_every_literal(given_texts: list[str]) -> None:
    merged = merge_texts(given_texts)
    assert frozenset().union(*(literals(unwrap(text)) for text in given_texts)) <= literals(unwrap(merged))
    assert find_missing_literals(given_texts, merged) == frozenset()


@settings(deadline=None, max_examples=examples(300))
@example(
    [
        *("Use below). Use Use", "Use below). Use Use \n```python\nif x_1 == 2:\n\n    run('v3')\n```"),
        *("use below). use use", "use below). use use \n```python\nif x_1 == 2:\n\n    run('v3')\n```"),
    ]
)
# "oauth. x.the" covers the first text, which covers "x.The", but does not cover "x.The" itself.
@example(["OAuth. x.The ", "x.The \n```\nrun('v3')\n```", "oauth. x.the ", "x.the \n```\nrun('v3')\n```"])
@given(texts | recased)
def test_merge_is_idempotent(given_texts: list[str]) -> None:
    merged = merge_texts(given_texts)
    assert merge_texts([merged, *given_texts]) == merged


@settings(deadline=None, max_examples=examples(200))
@given(texts, st.data())
def test_merge_order_changes_order_only(given_texts: list[str], data: st.DataObject) -> None:
    assume(split_consistently(given_texts))
    first, *others = given_texts
    shuffled = data.draw(st.permutations(others))
    assert normalize_sentences(merge_texts([first, *shuffled])) == normalize_sentences(merge_texts(given_texts))


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(st.text(max_size=120), max_size=4))
def test_merge_of_any_text_is_lossless(given_texts: list[str]) -> None:
    merged = merge_texts(given_texts)
    assert find_missing_literals(given_texts, merged) == frozenset()
    assert merge_texts([merged, *given_texts]) == merged


def test_cap_keeps_whole_sentences_and_lists_rest() -> None:
    texts = ["Alpha one. Beta two.", "Gamma three is long. Delta four.", "Eps."]
    dropped = ("Gamma three is long.", "Delta four.")
    assert merge_capped(texts, max_chars=27) == MergedText("Alpha one. Beta two.\n\nEps.", dropped)


def test_cap_cuts_first_text_between_sentences() -> None:
    merged = merge_capped(["Alpha one. Beta two.\nGamma."], max_chars=22)
    assert merged == MergedText("Alpha one. Beta two.", ("Gamma.",))


def test_cap_keeps_long_first_sentence_whole() -> None:
    merged = merge_capped(["Alpha beta gamma. Delta.", "E."], max_chars=5)
    assert merged == MergedText("Alpha beta gamma.", ("Delta.", "E."))


def test_unreached_cap_changes_nothing() -> None:
    assert merge_capped([" Use JWT ", "Use OAuth"], max_chars=100) == MergedText(" Use JWT\n\nUse OAuth", ())
    assert merge_capped([], max_chars=10) == MergedText("", ())


def sort_signs(text: str) -> list[str]:
    """Return the signs but for white space, and for fences, as a cut may close a code block."""
    return sorted("".join(text.replace("```", "").replace("~~~", "").split()))


@settings(deadline=None, max_examples=examples(200))
@given(texts | recased, st.integers(0, 200))
def test_capped_and_dropped_text_form_whole_merge(given_texts: list[str], max_chars: int) -> None:
    capped = merge_capped(given_texts, max_chars=max_chars)
    first = split_sentences(merge_texts(given_texts))[:1]
    assert len(capped.content) <= max(max_chars, *(len(sentence) for sentence in first), 0)
    parts = " ".join([capped.content, *capped.dropped])
    assert sort_signs(parts) == sort_signs(merge_texts(given_texts))


def test_missing_literals_lists_lost_literals() -> None:
    sources = ["Timeout is 30 s in src/a.py.", "Do not use `sorted`."]
    assert find_missing_literals(sources, "Never use sorted; src/a.py waits 30 seconds.") == frozenset()
    lost = {Literal("number", "30 s"), Literal("path", "src/a.py"), Literal("negation", "not")}
    assert find_missing_literals(sources, "Use sorted; a.py waits.") == lost


LOCK = "The nightly job waits for the lock of the queue."
LONG_LOCK = "The nightly job waits for the lock of the queue for 30 s."
CACHE = "The cache is cleared by the worker after each deploy."
RETRY = "Retry the request when the server answers with an error."


@pytest.mark.parametrize(
    ("texts", "merged"),
    [
        ([LOCK, f"Note to self: {LOCK}"], LOCK),
        ([LOCK, LONG_LOCK], LONG_LOCK),
        ([LONG_LOCK, LOCK], LONG_LOCK),
        ([f"{LOCK} {CACHE}", f"{CACHE} {LONG_LOCK}"], f"{CACHE} {LONG_LOCK}"),
        ([f"{LOCK} {CACHE}", f"{LONG_LOCK} {RETRY}"], f"{LONG_LOCK} {CACHE}\n\n{RETRY}"),
        ([f"- {LOCK}\n- {CACHE}", f"1. {LONG_LOCK}\n2. {RETRY}"], f"- {LONG_LOCK}\n- {CACHE}\n\n2. {RETRY}"),
        ([CACHE, "After each deploy, the worker clears the cache."], CACHE),
        (["The job waits 5 minutes for it.", "The job waits 300 s for it."], "The job waits 5 minutes for it."),
        ([f"{LOCK} {CACHE}", f"{LONG_LOCK[:-1]}\n\n{RETRY}"], f"{LONG_LOCK[:-1]}\n\n{CACHE}\n\n{RETRY}"),
        (
            ["Der Dienst las die Datei.", "Der Dienst las die Datei beim Start."],
            "Der Dienst las die Datei beim Start.",
        ),
    ],
)
def test_merge_is_one_wording_plus_details(texts: list[str], merged: str) -> None:
    assert merge_texts(texts) == merged


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The job waits for the lock.", "The job does not wait for the lock."),
        ("The job waits before the lock is taken.", "The job waits after the lock is taken."),
        ("The worker calls the server.", "The server calls the worker."),
        ("The job waits for the lock.", "Does the job wait for the lock?"),
        ("The job waits for the old lock.", "The job waits for the new lock."),
        ("The job waits for 30 s.", "The job waits for 60 s."),
        ("The job waits for the lock unless it is empty.", "The job waits for the lock."),
        (f"Run:\n{BLOCK}", f"Run:\n{BLOCK.replace('v3', 'V3')}"),
    ],
)
def test_sentences_that_differ_are_kept(first: str, second: str) -> None:
    assert set(split_sentences(merge_texts([first, second]))) == {*split_sentences(first), *split_sentences(second)}


def test_forty_wordings_become_one() -> None:
    openings = ("", "Note: ", "Note to self: ", "Remember: ")
    clauses = (
        "the nightly job waits for the lock of the queue",
        "the nightly job waits for the queue's lock",
        "for the lock of the queue, the nightly job waits",
        "the nightly job is waiting for the lock of the queue",
        "it is for the lock of the queue that the nightly job waits",
    )
    ends = (".", "!")
    texts = [
        f"{opening}{clause[0].upper()}{clause[1:]}{end}" for opening in openings for clause in clauses for end in ends
    ]
    assert len(texts) == 40
    merged = merge_texts(texts)
    assert merged in texts
    assert len(merged) <= max(map(len, texts))


def test_first_text_stays_if_asked_for() -> None:
    assert merge_texts([f"{LOCK} {CACHE}", f"{LONG_LOCK} {RETRY}"], keep_first=True) == (
        f"{LOCK} {CACHE}\n\n{LONG_LOCK} {RETRY}"
    )
    assert merge_texts([LOCK, LONG_LOCK], keep_first=True) == f"{LOCK}\n\n{LONG_LOCK}"
    assert merge_texts([LONG_LOCK, LOCK], keep_first=True) == LONG_LOCK


def test_hard_wrapped_text_covers_the_same_text() -> None:
    plain = f"{CACHE} {RETRY} {LONG_LOCK}"
    wrapped = textwrap.fill(plain, 60)
    assert merge_texts([plain, wrapped]) == plain
    assert merge_texts([wrapped, plain]) == wrapped
    assert merge_texts([wrapped, "Stop."]) == f"{wrapped}\n\nStop."
    assert merge_texts([f"{wrapped}\n\nStop.", f"{wrapped}\n\nGo on."]) == f"{wrapped}\n\nStop.\n\nGo on."


STATEMENTS = (
    LOCK,
    LONG_LOCK,
    "The job waits.",
    "The nightly job never waits for the lock of the queue.",
    "For the lock of the queue, the nightly job waits.",
    "- The nightly job waits for the lock of the old queue.",
    "The nightly job waits for the lock of the queue in `pool.py`.",
    CACHE,
    "After each deploy, the worker clears the cache of 2 GB.",
    "The worker clears the cache on Monday.",
    "The worker does not clear the cache",
    "is the cache cleared by the worker?",
    "1. Clear the cache with `make clear` after v2.1.",
    "der Dienst liest die Datei beim Start.",
    "Der Dienst liest die Datei nicht.",
    BLOCK,
)
statement_texts = st.lists(
    st.lists(st.tuples(st.sampled_from(STATEMENTS), st.sampled_from((" ", "\n", "\n\n"))), min_size=1, max_size=5).map(
        lambda pairs: "".join(text + ("\n" if text is BLOCK else gap) for text, gap in pairs).replace(
            f" {BLOCK}", f"\n{BLOCK}"
        )
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=examples(300))
@given(statement_texts, st.booleans(), st.data())
def test_merge_of_statements_ignores_source_order(
    given_texts: list[str], keep_first: bool, data: st.DataObject
) -> None:
    merged = merge_texts(given_texts, keep_first=keep_first)
    assert find_missing_literals(given_texts, merged) == frozenset()
    first, *others = given_texts
    assert merge_texts([first, *data.draw(st.permutations(others))], keep_first=keep_first) == merged
    if keep_first:
        assert merged.startswith(first.strip())
    known = {
        sentence.removeprefix("- ").removeprefix("1. ") for text in given_texts for sentence in split_sentences(text)
    }
    assert {sentence.removeprefix("- ").removeprefix("1. ") for sentence in split_sentences(merged)} <= known


@pytest.mark.parametrize(
    "texts",
    [
        ["The bus leaves at 7:10.", "The bus departs at 7:10."],
        ["The user bought a second monitor.", "The user purchased a second monitor."],
        ["コミットの説明文は英語で書く決まりだ。", "コミットの説明文は英語で書くルールだ。"],
    ],
)
def test_sentence_with_a_synonym_is_told_once(texts: list[str]) -> None:
    assert merge_texts(texts) == texts[0]
