"""The playbook as Markdown: order of chapters and entries, and escaping of entry texts."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from consolidation_pipeline.core.knowledge.playbook import CATEGORIES
from consolidation_pipeline.core.knowledge.playbook_markdown import Instruction, playbook_document
from consolidation_pipeline_tests.hypothesis_examples import examples

MARKDOWN_LINES = (
    "# Heading",
    "###### Deep",
    "- item",
    "+ item",
    "* item",
    "-",
    "12. item",
    "3) item",
    "> quote",
    "```",
    "~~~sh",
    "<div>",
    "<!-- comment",
    "</li>",
    "===",
    "---",
    "- - -",
    "***",
    "_ _ _",
    "| a | b |",
    "|---|---|",
    ":--|--:",
    "[id]: https://example.org",
    "    code",
    "\tcode",
    "",
    "Plain text.",
    "1.5 s is enough.",
    "`make test` runs them.",
    "*Never* do this.",
    "_This_ neither",
    "a | b",
    "--|--",
)


def make_instruction(number: int, content: str = "Do it.", **fields: object) -> Instruction:
    values: dict[str, object] = {"category": "general", "priority": 50, "evidence": 3, "writers": 2, **fields}
    return Instruction(UUID(int=number << 64), content, **values)  # type: ignore[arg-type]


def parse(text: str) -> list[Token]:
    """Return Markdown tokens, with tables as in GitHub-flavored Markdown."""
    return MarkdownIt("commonmark").enable("table").parse(text)


def test_playbook_document_orders_chapters_and_entries() -> None:
    entries = [make_instruction(n, f"Do {n}.", category=name) for n, name in enumerate(reversed(CATEGORIES))]
    entries += [
        make_instruction(20, "First.", category="testing", priority=90),
        make_instruction(21, "Odd.", category="cooking"),
    ]
    text = playbook_document("shop", entries)
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    known = [name.capitalize() for name in CATEGORIES]
    assert headings == [*known[:-1], "Cooking", "General"]
    assert text.startswith("# Playbook of shop\n")
    assert text.index("First.") < text.index("Do 3.")
    assert text.endswith(")\n")


def test_playbook_document_shows_evidence_and_id() -> None:
    id_ = UUID("0f3c9a2e-1b2c-4d5e-8f90-a1b2c3d4e5f6")
    text = playbook_document("shop", [Instruction(id_, "Retry.\n\n Wait  first.", "general", 95, 4, 1)])
    assert "- Retry.\n  Wait first.\n  (4 memories of 1 writer, 0f3c9a2e1b2c)\n" in text
    seen = "Said alike in 2 of 4 memories, 3 May 2026."
    text = playbook_document("shop", [Instruction(id_, "Retry.", "general", 95, 4, 1, seen)])
    assert "  (4 memories of 1 writer, 0f3c9a2e1b2c; said alike in 2 of 4 memories, 3 May 2026)\n" in text


@pytest.mark.parametrize("line", MARKDOWN_LINES)
def test_markdown_lines_stay_plain_text(line: str) -> None:
    assert_flat_document([f"{line}\nafter", f"before\n{line}", line or "x"])


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(
        st.lists(st.sampled_from(MARKDOWN_LINES) | st.text(max_size=8), min_size=1, max_size=5), min_size=1, max_size=4
    )
)
def test_entry_never_breaks_out_of_list_item(contents: list[list[str]]) -> None:
    assert_flat_document(["\n".join(lines) for lines in contents])


def assert_flat_document(contents: list[str]) -> None:
    """Assert one heading, one chapter and one flat list with a one-paragraph item for each entry."""
    tokens = parse(playbook_document("shop", [make_instruction(n, text) for n, text in enumerate(contents, 1)]))
    blocks = [token.type for token in tokens if token.nesting != -1 and token.type != "inline"]
    items = ["list_item_open", "paragraph_open"] * len(contents)
    assert blocks == ["heading_open", "paragraph_open", "heading_open", "bullet_list_open", *items]
