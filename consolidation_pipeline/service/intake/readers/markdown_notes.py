"""Notes of a Markdown text: one per heading with text under it, and one per item of a list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.service.intake.readers.markdown_outline import ListBlock, Outline, Section, parse_outline
from consolidation_pipeline.service.intake.readers.note_attributes import extract_attributes, parse_title
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

_METADATA = "metadata"
# Headings that name a part of the note above them, not a note.
_NOTE_PARTS = frozenset(
    "summary,details,context,background,problem,issue,symptom,symptoms,error,cause,root cause,why,analysis,solution,"
    "fix,suggested fix,resolution,action,suggested action,recommendation,correct approach,prevention,guardrail,impact,"
    "example,evidence,metadata,related,references,see also,outcome,result,takeaway,lesson,lesson learned,"
    "lessons learned,rationale,decision,consequences,alternatives,status".split(",")
)
_MARKER = re.compile(r"[ \t]*(?:[-+*]|\d{1,9}[.)])(?:[ \t]+|$)")
_ANCHOR = re.compile(r"[ \t]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)?\[[^\]]*\]\(#[^)]*\)\s*|\s*")
_TITLE_SEPARATOR = " > "


@dataclass(frozen=True)
class _Heading:
    """Headings above a note, without the document's title. ``fields``: what they set for all notes below them."""

    path: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)

    def below(self, section: Section, *, named: bool = True) -> _Heading:
        title, fields = parse_title(section.title)
        fields.pop(_METADATA, None)
        return _Heading((*self.path, title) if named and title else self.path, self.fields | fields)


def parse_notes(text: str) -> Iterator[Row | BadRow]:
    """Yield the notes of a Markdown text in order; ``line`` is that of the note's heading or item.

    A note with a byte that was not UTF-8 (a lone surrogate here) is a BadRow, and so is an unclosed comment.
    """
    outline = parse_outline(text.replace("\r\n", "\n").replace("\r", "\n"))
    yield from _NoteParser(outline).parse(outline.root, _Heading())
    if outline.unclosed is not None:
        yield BadRow(outline.unclosed + 1, "the comment <!-- is never closed, and hides all that follows")


class _NoteParser:
    def __init__(self, outline: Outline) -> None:
        self._lines, self._code = outline.lines, outline.code
        # The only heading of the highest level is the document's title, if it has others below it.
        top = outline.root.children
        self._title = top[0] if len(top) == 1 and top[0].children else None

    def parse(self, section: Section, above: _Heading) -> Iterator[Row | BadRow]:
        """Yield the notes of a section and of the sections below it."""
        if section.level and self._is_record(section):
            hidden = {n for child in section.children if _is_metadata(child) for n in (child.line, *child.whole)}
            lines = [line for line in section.whole if line not in hidden]
            yield from self._section_note(section, lines, above, is_record=True)
            return
        # Numbered steps after a lead are one note with it; the items of other lists are notes.
        split = [listing for listing in section.listings if not (listing.ordered and listing.lead)]
        in_items = {line for listing in split for span in (listing.lines, listing.lead) for line in span}
        yield from self._section_note(section, [line for line in section.own if line not in in_items], above)
        inside = above.below(section, named=section is not self._title)
        for listing in split:
            yield from self._items(listing, inside)
        for child in section.children:
            yield from self.parse(child, inside)

    def _is_record(self, section: Section) -> bool:
        """Return True if a section is one note: it has an id or attributes, or is divided into parts of a note."""
        title_fields = parse_title(section.title)[1]
        if _METADATA in title_fields:
            return True
        parts = [child.title.lower().rstrip(":") in _NOTE_PARTS for child in section.children]
        # An indented line belongs to a list item.
        unindented = (number for number in section.own if self._lines[number][:1].strip())
        has_attributes = bool(extract_attributes(self._marked(unindented))[1])
        return (has_attributes and (any(parts) or not parts)) or (len(parts) > 1 and all(parts))

    def _section_note(
        self, section: Section, lines: list[int], above: _Heading, *, is_record: bool = False
    ) -> Iterator[Row | BadRow]:
        """Yield the note that these lines of a section hold, if any."""
        kept, fields = extract_attributes(self._marked(lines))
        for child in section.children if is_record else ():
            if _is_metadata(child):
                rest, listed = extract_attributes(self._marked(child.whole), keep_unknown=True)
                kept, fields = [*kept, *rest], merge_fields(listed, fields)
        title, title_fields = parse_title(section.title)
        if is_record and len(title.split()) == 1:
            # "correction", "best_practice": a category, not a title.
            title_fields["tags"], title = [title], ""
        if body := _body(kept):
            text = f"{title}\n\n{body}" if title else body
            yield _row(section.line + 1, text, above, merge_fields(title_fields, fields))

    def _items(self, listing: ListBlock, inside: _Heading) -> Iterator[Row | BadRow]:
        lead = " ".join(self._lines[line].strip() for line in listing.lead).rstrip("*_ ").rstrip(":")
        heading = _Heading((*inside.path, lead.strip("*_ ")), inside.fields) if lead else inside
        for item in listing.items:
            if all(_ANCHOR.fullmatch(self._lines[line]) for line in item):
                continue
            kept, fields = extract_attributes(self._item_lines(item))
            if body := _body(kept):
                yield _row(item.start + 1, body, heading, fields)

    def _item_lines(self, item: range) -> list[tuple[str, bool]]:
        (first, is_code), *more = self._marked(item)
        marker = _MARKER.match(first)
        width = marker.end() if marker else 0
        indent = re.compile(rf" {{0,{width}}}")
        return [(first[width:], is_code), *((indent.sub("", line, count=1), code) for line, code in more)]

    def _marked(self, numbers: Iterable[int]) -> list[tuple[str, bool]]:
        """Return the lines of these numbers, each with True if it is code."""
        return [(self._lines[number], number in self._code) for number in numbers]


def _is_metadata(section: Section) -> bool:
    return section.title.lower() == _METADATA


def _body(lines: list[tuple[str, bool]]) -> str:
    """Return the text of the lines without blank lines at both ends; removed lines leave no gap."""
    before = (" ", *(line for line, _ in lines))
    kept = (line for (line, code), last in zip(lines, before, strict=False) if code or line.strip() or last.strip())
    return "\n".join(kept).strip("\n").rstrip()


def merge_fields(weaker: dict[str, Any], stronger: dict[str, Any]) -> dict[str, Any]:
    """Merge fields: ``stronger`` wins; tags and metadata are joined."""
    joined = weaker | stronger
    if tags := list(dict.fromkeys([*weaker.get("tags", ()), *stronger.get("tags", ())])):
        joined["tags"] = tags
    if metadata := weaker.get(_METADATA, {}) | stronger.get(_METADATA, {}):
        joined[_METADATA] = metadata
    return joined


def _row(line: int, text: str, heading: _Heading, fields: dict[str, Any]) -> Row | BadRow:
    try:
        # Edits elsewhere in the file keep the id. Other headings or another text are another note.
        id_ = content_hash(json.dumps([heading.path, text], ensure_ascii=False))
    except UnicodeEncodeError as error:
        byte = ord(error.object[error.start]) & 0xFF
        return BadRow(line, f"not valid UTF-8: byte 0x{byte:02x}; save the file as UTF-8")
    own = {"id": f"markdown:{id_}", "content": text}
    goal = {"goal": _TITLE_SEPARATOR.join(heading.path)} if heading.path else {}
    return Row(line, own | goal | merge_fields(heading.fields, fields))
