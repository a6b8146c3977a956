"""Words of texts without blanks: pairs of Chinese, Japanese and Korean characters, ideographs, and what is between."""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.hypothesis_examples import examples

# Bounds of Han, of Hiragana, Katakana and Hangul, and what is none of them.
HAN = "\u3005\u3400\u4dbf\u4e00\u9fff\uf900\ufaff\U00020000\U000323af"
INSIDE = f"{HAN}\u3041\u3096\u309d\u309f\u30a1\u30fa\u30fc\u30ff\uac00\ud7a3"
OUTSIDE = "aZ9 _-.,，。、「」・！\n'\\é"


def split(connection: Connection, body: str) -> list[str]:
    query = text("SELECT consolidation.split_scripts(:body)")
    return str(connection.execute(query, {"body": body}).scalar_one()).split()


def pair_up(body: str) -> Counter[str]:
    """Return the words of a text. An ideograph that stands alone is one as a run and as an ideograph."""
    words = Counter(sign for sign in body if sign in HAN)
    for is_inside, found in groupby(body, INSIDE.__contains__):
        run = "".join(found)
        if not is_inside:
            words.update(run.split())
        else:
            words.update(run[at : at + 2] for at in range(max(1, len(run) - 1)))
    return words


@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(INSIDE + OUTSIDE, max_size=30))
def test_runs_of_signs_become_their_pairs(engine: Engine, body: str) -> None:
    with engine.connect() as connection:
        assert Counter(split(connection, body)) == pair_up(body)


@pytest.mark.parametrize("body", ["", "Close the pool.  Then\nstop.", "Häuser, naïve", "машина"])
def test_other_scripts_stay_as_they_are(engine: Engine, body: str) -> None:
    with engine.connect() as connection:
        found = connection.execute(text("SELECT consolidation.split_scripts(:body)"), {"body": body}).scalar_one()
    assert found == body


def test_longest_text_fits(engine: Engine) -> None:
    source = random.Random(1)
    signs = "".join(chr(source.randrange(0x4E00, 0xA000)) for _ in range(200_000))
    count = "SELECT length(to_tsvector('simple', consolidation.split_scripts(:body)))"
    with engine.connect() as connection:
        assert connection.execute(text(count), {"body": signs}).scalar_one() > 50_000
