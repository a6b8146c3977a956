"""Literals of a text and their normalized values."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.literals.literals import literals
from consolidation_pipeline_tests.core.differences.near_misses import PAIRS
from consolidation_pipeline_tests.hypothesis_examples import examples


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a plain sentence", set()),
        ("wait 30 seconds, 500 ms, 2h", {("number", "30 s"), ("number", "0.5 s"), ("number", "2 h")}),
        ("0x1f 1e-3 1_000 .5", {("number", "31"), ("number", "0.001"), ("number", "1000"), ("number", "0.5")}),
        ("4xx and 2FA", {("number", "4xx"), ("number", "2fa")}),
        ("see https://a.org/v2/30?x=1#y.", {("url", "https://a.org/v2/30?x=1#y")}),
        ("v2, Version 2.1 and 9.4.39", {("version", "2"), ("version", "2.1"), ("version", "9.4.39")}),
        ("jdk1.8.0_292 and 3.3.0-SNAPSHOT", {("version", "1.8.0_292"), ("version", "3.3.0snapshot")}),
        ("2024-03-05T14:30:00Z", {("date", "2024-03-05"), ("date", "14:30:00")}),
        ("on 3/5/2024 at 9:30 pm", {("date", "3/5/2024"), ("date", "21:30")}),
        ("from 5pm or 17:00 to 11 p.m.", {("date", "17:00"), ("date", "23:00")}),
        ("12 am to 12:15 PM", {("date", "00:00"), ("date", "12:15")}),
        ("50 per cent", {("number", "50 %")}),
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
        ("5 m, 5-m and 5m", {("number", "5 metre"), ("number", "5 min")}),
        ("60 km/h, 60 kilometres an hour", {("number", "60 km/h")}),
        ("5 mg/kg, 40 W/m2", {("number", "5 mg/kg"), ("number", "40 watt/metre²")}),
        ("2 hours a day, 3 times per minute", {("number", "2 h"), ("number", "3 x")}),
        ("5 kg/person and 10 km/h/x", {("number", "5 kg"), ("number", "10 km")}),
    ],
)
def test_literals_are_found_and_normalized(text: str, found: set[tuple[str, str]]) -> None:
    assert {(literal.kind, literal.value) for literal in literals(text)} == found


@settings(deadline=None, max_examples=examples(300))
@given(st.text(max_size=200))
def test_literal_offsets_point_into_any_text(text: str) -> None:
    assert all(text[literal.start :].startswith(literal.text) for literal in literals(text))


@settings(deadline=None, max_examples=examples(200))
@given(st.sampled_from(PAIRS), st.sampled_from(PAIRS))
def test_literals_of_lines_form_literals_of_text(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert literals(f"{first[0]}\n{second[1]}") == literals(first[0]) | literals(second[1])
