"""Report of a job as a document: JSON or a page, signed if there is a key."""

from __future__ import annotations

import json
from uuid import UUID

from consolidation_pipeline.service.reports.job_report import build_report, format_json
from consolidation_pipeline.service.reports.report_page import format_page
from consolidation_pipeline.service.reports.signature import read_private_key, sign_report
from consolidation_pipeline.store.database.engine import Engine

# The page needs its own styles and nothing else.
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
CONTENT_TYPES = {"json": "application/json", "html": "text/html; charset=utf-8"}


def make_document(engine: Engine, job_id: UUID, format: str, *, private_key: str | None = None) -> str:
    """Return the report of a job. ``format``: json or html. ``private_key``: PEM or base64; None = not signed.

    Raises:
        NotFoundError: There is no such job.
        UsageError: The key is not a private Ed25519 key.
    """
    if private_key is not None:
        read_private_key(private_key)  # before the work
    report = json.loads(format_json(build_report(engine, job_id)))
    if private_key is not None:
        report = sign_report(report, private_key)
    return format_page(report) if format == "html" else format_json(report)
