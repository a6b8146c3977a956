"""``consolidation report``: the report of a job, signed, and its verification."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.error_report import FAILED
from consolidation_pipeline.cli.output import JsonFlag, print_json, print_note
from consolidation_pipeline.errors import UsageError

_VERIFY = "verify"


def report(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB|verify",
            help="Id of a job or its first 8 digits, a project for its newest, or the word verify.",
        ),
    ],
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="With verify: the report to check.")] = None,
    format_: Annotated[
        Literal["json", "html"] | None, typer.Option("--format", help="Format. Default: of the name of --out, or json.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write. Default: standard output.", dir_okay=False)] = None,
    sign_key_env: Annotated[
        str | None,
        typer.Option(metavar="VAR", help="Sign with the Ed25519 key in this environment variable: PEM or base64."),
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="With verify: file with the public key that is expected to have signed.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Report what a job changed, why, what it cost and which checks hold; or verify such a report.

    `report verify FILE` exits with 1 if the report is not signed, or is not as it was signed.
    """
    if job == _VERIFY:
        if file is None or format_ or out or sign_key_env:
            raise UsageError("`report verify FILE` takes a file, --public-key and --json")
        _verify(file, public_key, as_json=as_json)
        return
    if file is not None or public_key is not None:
        raise UsageError("a file and --public-key belong to `report verify FILE`; --out names the file to write")
    _write(job, format_, out, sign_key_env, as_json=as_json)


def _write(job: str, format_: str | None, out: Path | None, sign_key_env: str | None, *, as_json: bool) -> None:
    from consolidation_pipeline.service.jobs.job_status import find_job
    from consolidation_pipeline.service.reports.documents import make_document

    key = None if sign_key_env is None else os.environ.get(sign_key_env)
    if sign_key_env is not None and not key:
        raise UsageError(f"the environment variable {sign_key_env} is not set: it holds the key that signs")
    chosen = format_ or ("html" if out is not None and out.suffix in (".html", ".htm") else "json")
    engine, _ = open_store()
    job_id, project = find_job(engine, job)
    if job == project.slug and not as_json:
        print_note(
            f"newest job of {job}: {job_id}; `consolidation history {job}` lists them, --out FILE.html is to read"
        )
    text = make_document(engine, job_id, chosen, private_key=key)
    if out is None:
        print(text, end="")
        return
    try:
        out.write_bytes(text.encode("utf-8"))
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}") from None
    if as_json:
        print_json({"job_id": job_id, "file": str(out), "format": chosen, "signed": key is not None})
    else:
        print(f"wrote {out}" + ("" if key else ", not signed"))


def _verify(file: Path, public_key: Path | None, *, as_json: bool) -> None:
    from consolidation_pipeline.service.reports.report_page import verify_file

    try:
        expected = None if public_key is None else public_key.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{public_key} cannot be read: {error}") from None
    found = verify_file(file, expected)
    if as_json:
        print_json({"valid": found.problem is None, "problem": found.problem, "key": found.key})
    elif found.problem is not None:
        print(f"{file}: {found.problem}")
    else:
        known = "" if public_key else "; --public-key FILE checks whose it is"
        print(f"{file}: as it was signed with key {found.key}{known}")
    raise typer.Exit(0 if found.problem is None else FAILED)
