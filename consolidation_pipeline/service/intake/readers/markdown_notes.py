"""Which parts of a Markdown text are notes: one per heading with text under it, and one per item of a list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.service.intake.readers.markdown_outline import Listing, Outline, Section, outline
from consolidation_pipeline.service.intake.readers.note_attributes import split_title, take_attributes, type_of
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

_METADATA = "metadata"
# Headings that are a part of the note above them.
_PARTS = frozenset(
    "summary,details,context,background,problem,issue,symptom,symptoms,error,cause,root cause,why,analysis,solution,"
    "fix,suggested fix,resolution,action,suggested action,recommendation,correct approach,prevention,guardrail,impact,"
    "example,evidence,metadata,related,references,see also,outcome,result,takeaway,lesson,lesson learned,"
    "lessons learned,rationale,decision,consequences,alternatives,status".split(",")
)
_MARKER = re.compile(r"[ \t]*(?:[-+*]|\d{1,9}[.)])(?:[ \t]+|$)")
_ANCHOR = re.compile(r"[ \t]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)?\[[^\]]*\]\(#[^)]*\)\s*|\s*")
_BETWEEN = " > "


@dataclass(frozen=True)
class _Heading:
    """Where a note stands: the titles above it, the document's own left out, and what they say of all below."""

    path: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)

    def below(self, section: Section, *, named: bool = True) -> _Heading:
        title, fields = split_title(section.title)
        if kind := type_of(title):
            fields["memory_type"] = kind
        fields.pop(_METADATA, None)
        return _Heading((*self.path, title) if named and title else self.path, self.fields | fields)


def read_notes(text: str) -> Iterator[Row | BadRow]:
    """The notes of a Markdown text in their order; ``line`` is where a note's heading or item stands.

    A note with a byte that was not UTF-8 (a lone surrogate here), and what an unclosed comment hides, are bad rows.
    """
    found = outline(text.replace("\r\n", "\n").replace("\r", "\n"))
    reader = _Reader(found, _title_of(found.root))
    yield from reader.read(found.root, _Heading())
    if found.unclosed is not None:
        yield BadRow(found.unclosed + 1, "the comment <!-- is never closed, and hides all that follows")


def _title_of(root: Section) -> Section | None:
    """The heading that names the whole document: the only one of the highest level, with others below it."""
    return root.children[0] if len(root.children) == 1 and root.children[0].children else None


class _Reader:
    def __init__(self, found: Outline, title: Section | None) -> None:
        self._lines, self._code, self._title = found.lines, found.code, title

    def read(self, section: Section, above: _Heading) -> Iterator[Row | BadRow]:
        """The notes of a section and of those below it."""
        if section.level and self._is_record(section):
            yield from self._section_note(section, self._record_lines(section), above, record=section)
            return
        split = [listing for listing in section.listings if not (listing.ordered and listing.lead)]
        apart = {line for listing in split for span in (listing.lines, listing.lead) for line in span}
        yield from self._section_note(section, [line for line in section.own if line not in apart], above)
        inside = above.below(section, named=section is not self._title)
        for listing in split:
            yield from self._items(listing, inside)
        for child in section.children:
            yield from self.read(child, inside)

    def _is_record(self, section: Section) -> bool:
        """Whether all under a heading is one note: it has an id or attributes, or is divided into parts of a note."""
        said = split_title(section.title)[1]
        if _METADATA in said:
            return True
        parts = [child.title.lower().rstrip(":") in _PARTS for child in section.children]
        # An indented line speaks of the item that it stands in.
        flush = (number for number in section.own if self._lines[number][:1].strip())
        has_attributes = bool(take_attributes(self._marked(flush))[1])
        return (has_attributes and (any(parts) or not parts)) or (len(parts) > 1 and all(parts))

    def _record_lines(self, section: Section) -> list[int]:
        hidden = {n for child in section.children if _is_metadata(child) for n in (child.line, *child.whole)}
        return [line for line in section.whole if line not in hidden]

    def _section_note(
        self, section: Section, lines: list[int], above: _Heading, *, record: Section | None = None
    ) -> Iterator[Row | BadRow]:
        kept, fields = take_attributes(self._marked(lines))
        for child in record.children if record else ():
            if _is_metadata(child):
                rest, said = take_attributes(self._marked(child.whole), all_of_them=True)
                kept, fields = [*kept, *rest], _joined(said, fields)
        title, said = split_title(section.title)
        if kind := type_of(title):
            said["memory_type"] = kind
        if record and title and len(title.split()) == 1:
            # "correction", "best_practice": a kind of note, not a title.
            said["tags"], title = [title], ""
        if _body(kept):
            text = "\n\n".join(part for part in (title, _body(kept)) if part)
            yield _row(section.line + 1, text, above, _joined(said, fields))

    def _items(self, listing: Listing, inside: _Heading) -> Iterator[Row | BadRow]:
        lead = " ".join(self._lines[line].strip() for line in listing.lead).rstrip("*_ ").rstrip(":")
        heading = _Heading((*inside.path, lead.strip("*_ ")), inside.fields) if lead else inside
        for item in listing.items:
            if all(_ANCHOR.fullmatch(self._lines[line]) for line in item):
                continue
            kept, fields = take_attributes(self._item_lines(item))
            if _body(kept):
                yield _row(item.start + 1, _body(kept), heading, fields)

    def _item_lines(self, item: range) -> list[tuple[str, bool]]:
        (first, is_code), *more = self._marked(item)
        marker = _MARKER.match(first)
        width = marker.end() if marker else 0
        indent = re.compile(rf" {{0,{width}}}")
        return [(first[width:], is_code), *((indent.sub("", line, count=1), code) for line, code in more)]

    def _marked(self, numbers: Iterable[int]) -> list[tuple[str, bool]]:
        """The lines of these numbers, each with whether it is code."""
        return [(self._lines[number], number in self._code) for number in numbers]


def _is_metadata(section: Section) -> bool:
    return section.title.lower() == _METADATA


def _body(lines: list[tuple[str, bool]]) -> str:
    """The text of lines, without blank ones at both ends; what was taken out leaves no gap."""
    before = (" ", *(line for line, _ in lines))
    kept = (line for (line, code), last in zip(lines, before, strict=False) if code or line.strip() or last.strip())
    return "\n".join(kept).strip("\n").rstrip()


def _joined(weaker: dict[str, Any], stronger: dict[str, Any]) -> dict[str, Any]:
    """Both, ``stronger`` winning; tags and metadata of both."""
    joined = weaker | stronger
    if tags := list(dict.fromkeys([*weaker.get("tags", ()), *stronger.get("tags", ())])):
        joined["tags"] = tags
    if metadata := weaker.get(_METADATA, {}) | stronger.get(_METADATA, {}):
        joined[_METADATA] = metadata
    return joined


def _row(line: int, text: str, heading: _Heading, fields: dict[str, Any]) -> Row | BadRow:
    try:
        # Where it stands and what it says: edits elsewhere leave a note what it is, another wording is another note.
        id_ = content_hash(json.dumps([heading.path, text], ensure_ascii=False))
    except UnicodeEncodeError as error:
        byte = ord(error.object[error.start]) & 0xFF
        return BadRow(line, f"not valid UTF-8: byte 0x{byte:02x}; save the file as UTF-8")
    said = {"id": f"markdown:{id_}", "content": text}
    goal = {"goal": _BETWEEN.join(heading.path)} if heading.path else {}
    return Row(line, said | goal | _joined(heading.fields, fields))
