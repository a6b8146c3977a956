"""Cut of a long text at its end."""

import pytest

from consolidation_pipeline.core.text.truncation import truncate_at_word


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("one two three", "one two three"),
        ("one two three four", "one two three"),
        ("one " + "x" * 20, "one xxxxxxxxxxx"),
        ("部署 " + "先检查配置文件再重启服务。" * 2, "部署 先检查配置文件再重启服务"),
        (" " * 20 + "late", " " * 15),
    ],
)
def test_long_text_is_cut_at_blank_near_end(text: str, cut: str) -> None:
    assert truncate_at_word(text, 15) == cut
