"""``consolidation erase``: remove memories for good, with a certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from consolidation_pipeline.cli.cli_context import Reason, find_ids, get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, format_value, print_json, print_note
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import UsageError


def erase(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of raw memories, or their first 8 digits.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="All memories of this user of the project.")] = None,
    project: Annotated[str | None, typer.Option(help="Project; may be left out with ids.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be erased.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Erase: it cannot be undone.")] = False,
    certificate: Annotated[
        Path | None, typer.Option(help="File for the certificate. Default: standard output.", dir_okay=False)
    ] = None,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove memories for good: everywhere, the ledger included, with everything that was ever made of them.

    The next run derives knowledge again from what stays. The certificate says what was removed, without content, and
    what a search for it found afterwards. Exit code 1: something was found.
    """
    from consolidation_pipeline.service.admin.erase import erase_memories, format_certificate, preview_erasure

    engine, _ = open_store()
    chosen = find_ids(engine, ids or ())
    if dry_run or not yes:
        found = preview_erasure(engine, chosen, project=project, user_id=user)
        memories = counted(len(found.memories), "memory")
        words = f"{found.project}: would erase {memories} for good; rows: {format_value(dict(found.rows))}"
        if survivors := {effect: count for effect, count in found.survivors.items() if count}:
            words += f"; of others: {format_value(survivors)}"
        if not dry_run:
            raise UsageError(f"{words}; confirm with --yes")
        if as_json:
            print_json(vars(found))
        else:
            print(words)
            _tell_left(found.left_in_sources, "would stay")
        return
    with _reserve(certificate):
        done = erase_memories(engine, chosen, project=project, user_id=user, reason=reason, changed_by=get_actor())
    content = format_certificate(done)
    if certificate is None:
        print(content)
    else:
        try:
            certificate.write_text(content + "\n")
        except OSError as error:
            print_note(f"the certificate cannot be written to {certificate}: {error.strerror}")
            print(content)
    print_note(f"{done.project}: erased {counted(len(done.memories), 'memory')}; the next run derives the rest again")
    _tell_left(done.left_in_sources, "stay")
    if not done.is_clean:
        print_note(f"something is left: {format_value(dict(done.scan['places']))}")
        raise typer.Exit(1)


def _tell_left(left: Mapping[str, int], verb: str) -> None:
    for source, count in left.items():
        print_note(
            f"{count} rows {verb} in the store of source {source}, which is only read, or as parts of files: "
            "delete them there"
        )


@contextmanager
def _reserve(certificate: Path | None) -> Iterator[None]:
    """Create the file of a certificate before anything is erased, for its owner alone; remove it if nothing is.

    Raises:
        UsageError: The file is there, or cannot be written.
    """
    if certificate is None:
        yield
        return
    try:
        certificate.touch(0o600, exist_ok=False)
    except FileExistsError:
        raise UsageError(f"{certificate} exists: name a new file for the certificate") from None
    except OSError as error:
        raise UsageError(
            f"the certificate cannot be written to {certificate}: {error.strerror}; nothing was erased"
        ) from error
    try:
        yield
    except BaseException:
        certificate.unlink()
        raise
