"""Language of memories that name none."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.differences.language_detection import detect_configuration
from consolidation_pipeline.service.intake.importer import choose_language
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

TEXTS = {
    "The pool is closed after each export.": "english",
    "Die Rechnungen wurden wegen der Häuser doppelt verschickt.": "german",
    "Los pagos se guardan en la tabla de facturas.": "spanish",
    "Les factures sont envoyées deux fois par jour.": "french",
    "使用Redis缓存会话，三十分钟后过期。": "simple",
    "連接池が空になると、エラーE1042が発生する。": "simple",
    "машина не заводится": "simple",
    "ERR_7731 upload/idle": "english",
    "42": "english",
}


@pytest.mark.parametrize(("body", "language"), TEXTS.items())
def test_language_is_that_of_the_text(body: str, language: str) -> None:
    assert detect_configuration(body) == language
    assert choose_language({"language": "german"})(body) == "german"


def test_memories_get_the_language_of_their_text(pipeline: Pipeline) -> None:
    pipeline.add([{"id": body, "content": body} for body in TEXTS])
    pipeline.add([{"id": "named", "content": next(iter(TEXTS)), "language": "de"}])
    found = dict(pipeline.rows("SELECT external_id, language::text FROM {s}.task_memories"))
    assert found == {**TEXTS, "named": "german"}


def test_language_of_a_project_holds_for_all(pipeline: Pipeline) -> None:
    pipeline.configure_new(language="spanish")
    pipeline.add([{"id": body, "content": body} for body in TEXTS])
    assert pipeline.rows("SELECT DISTINCT language::text FROM {s}.task_memories") == [("spanish",)]
