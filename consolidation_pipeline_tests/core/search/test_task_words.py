"""Words of a task: which texts are about it, in scripts with and without blanks."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.search.task_words import is_on_task


@pytest.mark.parametrize(
    ("task", "text", "is_about"),
    [
        ("write a haiku about cats", "Write a changelog entry.", False),
        ("why did ERR_7731 come up again", "The gateway answers ERR_7731 when it is idle.", True),
        ("round the invoices", "Invoices are rounded per line, not per total.", True),
        ("make the order table scroll faster", "The lock on the order table.", False),
        ("cambiar la fecha de la reserva de la sala", "La clave de la caja es la de la semana.", False),
        ("cambiar la fecha de la reserva de la sala", "La sala pide la fecha de la reserva.", True),
        ("写一个删除过期会话的脚本", "会话在三十分钟后过期。", True),
        ("写一个删除过期会话的脚本", "用户不喜欢香菜，一个都不要。", False),
        ("画像を縮小してから送信する", "送信する前に画像は縮小される。", True),
        ("画像を縮小してから送信する", "会議は月曜日に変更されたので注意してから参加する。", False),
        ("重置Redis", "Redis密码在保险库里。", True),
    ],
)
def test_one_shared_word_is_not_on_task(task: str, text: str, is_about: bool) -> None:
    assert is_on_task(task, text) is is_about
