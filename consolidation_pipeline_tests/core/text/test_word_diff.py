"""Where texts differ, word by word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.core.text import word_diff
from consolidation_pipeline.core.text.word_diff import Piece, compare_texts, mark_new


def differing(pieces: tuple[Piece, ...]) -> list[str]:
    return [piece.text for piece in pieces if piece.differs]


def test_only_the_words_that_the_other_lacks_are_marked() -> None:
    one, other = compare_texts(["The client waits 30 seconds.", "The client waits for 60 seconds."])
    assert differing(one) == ["30"]
    assert differing(other) == ["for 60"]


def test_letter_case_and_the_kind_of_white_space_count_for_nothing() -> None:
    assert [differing(pieces) for pieces in compare_texts(["Use  JWT", "use\njwt"])] == [[], []]


def test_a_path_and_a_version_are_one_word_each() -> None:
    one, other = compare_texts(["see src/a.py of v2.1", "see src/b.py of v2.2"])
    assert differing(one) == ["src/a.py", "v2.1"]
    assert differing(other) == ["src/b.py", "v2.2"]


def test_a_word_of_the_first_of_three_texts_differs_when_one_of_the_others_lacks_it() -> None:
    first, second, third = compare_texts(["use it daily", "use it", "use it weekly"])
    assert [differing(pieces) for pieces in (first, second, third)] == [["daily"], [], ["weekly"]]


def test_a_literal_in_conflict_is_marked_whole_and_a_clause_only_where_it_differs() -> None:
    texts = ["It cannot be undone in 30 s", "It can be undone in 30 s"]
    one, other = compare_texts(texts, conflicts=[[(23, 27)], []], clauses=[[(0, 19)], [(0, 16)]])
    assert [piece.text for piece in one if piece.conflicts] == ["cannot", "30 s"]
    assert [piece.text for piece in other if piece.conflicts] == ["can"]


def test_a_clause_that_does_not_differ_in_any_word_is_marked_whole() -> None:
    one, _ = compare_texts(["never do it", "never do it"], clauses=[[(0, 8)], []])
    assert [piece.text for piece in one if piece.conflicts] == ["never do"]


def test_words_that_stand_in_no_source_are_new() -> None:
    assert differing(mark_new("Use JWT and OAuth 2 here.", ["use JWT", "use OAuth here"])) == ["and", "2"]


def test_long_texts_are_compared_as_sets_of_words() -> None:
    words = " ".join(f"w{n}" for n in range(word_diff.MAX_TOKENS))
    one, other = compare_texts([f"{words} left", f"right {words}"])
    assert (differing(one), differing(other)) == (["left"], ["right"])


@given(st.lists(st.text(max_size=40), min_size=1, max_size=3), st.integers(-5, 50), st.integers(-5, 50))
def test_pieces_give_the_text_back_whatever_is_marked(texts: list[str], start: int, end: int) -> None:
    spans = [[(start, end)]] * len(texts)
    assert ["".join(piece.text for piece in pieces) for pieces in compare_texts(texts, spans, spans)] == texts
    assert "".join(piece.text for piece in mark_new(texts[0], texts[1:])) == texts[0]
