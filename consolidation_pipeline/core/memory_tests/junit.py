"""Results of tests as JUnit XML, which continuous integration shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

# Characters that XML 1.0 does not allow.
_ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def format_junit(project: str, results: Sequence[tuple[str, str, str | None]]) -> str:
    """Return JUnit XML of results: kind and name of each test, and why it failed, None = it passed."""
    failures = sum(failure is not None for *_, failure in results)
    counts = {"tests": str(len(results)), "failures": str(failures), "errors": "0", "skipped": "0"}
    root = Element("testsuites", counts)
    suite = SubElement(root, "testsuite", {"name": f"memory tests of {project}", **counts})
    for kind, name, failure in results:
        case = SubElement(suite, "testcase", {"classname": f"{project}.{kind}", "name": _ILLEGAL.sub("?", name)})
        if failure is not None:
            SubElement(case, "failure", {"message": _ILLEGAL.sub("?", failure), "type": kind})
    indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'
