"""Word-by-word comparison of texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.core.text import word_diff
from consolidation_pipeline.core.text.word_diff import Piece, compare_texts, mark_new


def list_different(pieces: tuple[Piece, ...]) -> list[str]:
    return [piece.text for piece in pieces if piece.differs]


def test_word_diff_marks_words_missing_in_other() -> None:
    one, other = compare_texts(["The client waits 30 seconds.", "The client waits for 60 seconds."])
    assert list_different(one) == ["30"]
    assert list_different(other) == ["for 60"]


def test_word_diff_ignores_case_and_whitespace() -> None:
    assert [list_different(pieces) for pieces in compare_texts(["Use  JWT", "use\njwt"])] == [[], []]


def test_word_diff_keeps_paths_and_versions_whole() -> None:
    one, other = compare_texts(["see src/a.py of v2.1", "see src/b.py of v2.2"])
    assert list_different(one) == ["src/a.py", "v2.1"]
    assert list_different(other) == ["src/b.py", "v2.2"]


def test_word_diff_compares_first_text_with_all() -> None:
    first, second, third = compare_texts(["use it daily", "use it", "use it weekly"])
    assert [list_different(pieces) for pieces in (first, second, third)] == [["daily"], [], ["weekly"]]


def test_word_diff_marks_conflicting_literal_whole() -> None:
    texts = ["It cannot be undone in 30 s", "It can be undone in 30 s"]
    one, other = compare_texts(texts, conflicts=[[(3, 9), (23, 27)], [(3, 6)]])
    assert [piece.text for piece in one if piece.conflicts] == ["cannot", "30 s"]
    assert [piece.text for piece in other if piece.conflicts] == ["can"]


def test_mark_new_marks_words_of_no_source() -> None:
    assert list_different(mark_new("Use JWT and OAuth 2 here.", ["use JWT", "use OAuth here"])) == ["and", "2"]


def test_word_diff_compares_long_texts_as_sets() -> None:
    words = " ".join(f"w{n}" for n in range(word_diff.MAX_TOKENS))
    one, other = compare_texts([f"{words} left", f"right {words}"])
    assert (list_different(one), list_different(other)) == (["left"], ["right"])


@given(st.lists(st.text(max_size=40), min_size=1, max_size=3), st.integers(-5, 50), st.integers(-5, 50))
def test_word_diff_pieces_restore_text(texts: list[str], start: int, end: int) -> None:
    spans = [[(start, end)]] * len(texts)
    assert ["".join(piece.text for piece in pieces) for pieces in compare_texts(texts, spans)] == texts
    assert "".join(piece.text for piece in mark_new(texts[0], texts[1:])) == texts[0]
