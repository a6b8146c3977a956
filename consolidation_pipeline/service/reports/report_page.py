"""A report as one HTML page without scripts or other files, and the report that such a page holds.

The page is made of the report alone, and holds it as JSON. So a page is verified by making it again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any

from consolidation_pipeline.core.jobs.run_words import name_changes
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.reports.job_report import FORMAT, format_json
from consolidation_pipeline.service.reports.signature import Verification, digest_content, verify_report

# Groups of one kind that the page shows; the JSON in it has all.
_SHOWN_GROUPS = 200
_BEGIN, _END = '<pre id="report">', "</pre>"


def format_page(report: Mapping[str, Any]) -> str:
    """Return a report, signed or not, as an HTML page. ``report`` holds only values of JSON."""
    changes: dict[str, list[Any]] = defaultdict(list)
    for group in report["groups"]:
        table = group["rows"][0]["table"] if group["rows"] else ""
        changes[name_changes(group["operation"], group["rule"], table)].append(group)
    checks = report["checks"]
    page = _load_template().render(
        report=report,
        changes={name: (groups[:_SHOWN_GROUPS], len(groups)) for name, groups in changes.items()},
        failed={name: check for name, check in checks.items() if not check["holds"]},
        verified=verify_report(report),
        digest=digest_content(report),
    )
    return f"{page.rstrip()}\n{_BEGIN}{escape(format_json(report))}{_END}\n</details>\n</main>\n</body>\n</html>\n"


@cache
def _load_template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report_page.html")


def read_report_file(path: Path) -> tuple[dict[str, Any], str]:
    """Return the report in a JSON or HTML file, and the text of the file.

    Raises:
        UsageError: The file cannot be read, or holds no report.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no report: it is not UTF-8") from None
    content = text
    if text.lstrip().startswith("<"):
        _, found, rest = text.partition(_BEGIN)
        if not found:
            raise UsageError(f"{path} is no report: it is a page without one")
        content = unescape(rest.partition(_END)[0])
    try:
        report = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no report: it is not JSON") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise UsageError(f"{path} is no report of the format {FORMAT}")
    return report, text


def verify_file(path: Path, public_key: str | None = None) -> Verification:
    """Return if the report in a file, and the page around it, are as they were signed.

    Errors are those of ``read_report_file`` and ``verify_report``.
    """
    report, text = read_report_file(path)
    found = verify_report(report, public_key)
    if found.problem is None and text not in (format_json(report), _format_safely(report)):
        problem = (
            "the report in the file is as it was signed, but the file around it was changed, or another version made it"
        )
        return Verification(problem, found.key)
    return found


def _format_safely(report: Mapping[str, Any]) -> str | None:
    """Return the page of a report; None if the report has not the parts of one."""
    from jinja2 import UndefinedError

    try:
        return format_page(report)
    except (KeyError, TypeError, AttributeError, UndefinedError):
        return None
