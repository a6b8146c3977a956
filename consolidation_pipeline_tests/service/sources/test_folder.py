"""Folders of notes as connected stores: sync, write, undo, erase, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from consolidation_pipeline.connect import folder_store, folder_writes
from consolidation_pipeline.connect.folder_files import Folder
from consolidation_pipeline.errors import ConflictError, StoreError, UsageError
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.sources.connections import (
    connect_source,
    disconnect_source,
    forget_source,
    list_connected,
    probe_source,
    restore_folder,
)
from consolidation_pipeline.service.sources.rehearsal import rehearse_writes
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import WriteResult, undo_writes, write_source
from consolidation_pipeline.service.sources.write_plan import make_patch, plan_writes
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, load_texts
from consolidation_pipeline_tests.service.sources.stores import FACTS, WORDINGS, word

# Two notes that may be merged, each with a detail of its own.
PARTIAL = (
    "The parser tests need the fixture folder mounted read-only and a fresh cache to pass on the build machine",
    "The parser tests need the fixture folder mounted read-only to pass on the build machine and on laptops",
)
OLD = 1_767_600_000
HIDDEN = len(FACTS) * (WORDINGS - 1)
LINKED = "claude-code"


def name_note(fact: int, at: int) -> str:
    return f"fact-{fact}-{at}.md"


def put(root: Path, name: str, body: str, *, title: str = "A fact") -> None:
    """Write a note as Claude Code does, ten minutes old and more."""
    stem = Path(name).stem
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {stem}\ndescription: {title}\ntype: project\n---\n\n{body}\n")
    os.utime(path, (OLD, OLD))


@pytest.fixture(params=[LINKED, "notes"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Folder with every fact in every wording, with an index or without one."""
    folder = tmp_path / ("shop" if request.param == "notes" else "projects-shop") / "store"
    lines = ["# Index", ""]
    for number, fact in enumerate(FACTS):
        for at in range(WORDINGS):
            put(folder, name_note(number, at), word(fact, at))
            lines.append(f"- [Fact {number}]({name_note(number, at)}) - wording {at}")
    if request.param == LINKED:
        (folder / "MEMORY.md").write_text("\n".join(lines) + "\n")
        (folder / "MEMORY.md").chmod(0o640)
    return folder


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Folder of Claude Code with an index, two notes and a file of rules."""
    folder = tmp_path / "linked"
    put(folder, "one.md", FACTS[0])
    put(folder, "two.md", f"{FACTS[0]}.")
    (folder / "MEMORY.md").write_text("# Index\n\n- [One](one.md) - first\n- [Two](two.md) - second\n- Lunch at noon\n")
    return folder


def config(root: Path) -> dict[str, Any]:
    """Return the configuration of a folder; without an index it is one of notes."""
    is_claude = (root / "MEMORY.md").exists() or not any(root.glob("fact-*.md"))
    return {"kind": "folder", "path": str(root), "format": LINKED if is_claude else "notes"}


def connect(pipeline: Pipeline, root: Path, mode: str = "write") -> None:
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config(root), mode=mode)
    sync_source(pipeline.engine, SOURCE)


def write_all(pipeline: Pipeline) -> WriteResult:
    return write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)


def consolidate(pipeline: Pipeline, root: Path) -> Any:
    connect(pipeline, root)
    outcome = pipeline.run(PROJECT)
    result = write_all(pipeline)
    assert result.refused == {}
    assert result.written
    return outcome


def read_tree(root: Path) -> dict[str, tuple[str, int, int]]:
    """Return hash, mode and time of every file that is not of the sidecar or of git, by path."""
    files = (path for path in root.rglob("*") if path.is_file() and not {".consolidated", ".git"} & set(path.parts))
    return {
        path.relative_to(root).as_posix(): (
            sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in files
    }


def hash_tree(root: Path) -> dict[str, str]:
    return {name: found[0] for name, found in read_tree(root).items()}


def run_git(root: Path, *arguments: str) -> str:
    names = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")
    done = subprocess.run(["git", *names, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


def test_written_notes_come_back_byte_for_byte(root: Path, pipeline: Pipeline) -> None:
    before = read_tree(root)
    outcome = consolidate(pipeline, root)
    notes = [name for name in hash_tree(root) if name != "MEMORY.md"]
    assert len(notes) == len(FACTS)
    if "MEMORY.md" in before:
        index = (root / "MEMORY.md").read_text()
        assert index.count("](") == len(FACTS)
        assert all(f"]({name})" in index for name in notes)
    again = sync_source(pipeline.engine, SOURCE)
    assert (again.added, again.revised, again.gone) == (0, 0, 0)
    pipeline.roll_back(outcome.job_id)
    assert read_tree(root) == before
    assert sync_source(pipeline.engine, SOURCE).gone == 0


def test_new_note_unites_facts_of_several(root: Path, pipeline: Pipeline) -> None:
    for number, body in enumerate(PARTIAL):
        put(root, f"parser-{number}.md", body)
    before = read_tree(root)
    outcome = consolidate(pipeline, root)
    united = (root / "parser-0-merged.md").read_text()
    assert "name: parser-0-merged\n" in united
    assert "laptops" in united
    assert "fresh cache" in united
    assert sync_source(pipeline.engine, SOURCE).added == 0
    pipeline.roll_back(outcome.job_id)
    assert read_tree(root) == before


def test_groups_are_undone_in_any_order(root: Path, pipeline: Pipeline) -> None:
    connect(pipeline, root)
    pipeline.run(PROJECT)
    before = hash_tree(root)
    index = root / "MEMORY.md"
    lines = sorted(index.read_text().split("\n")) if index.exists() else []
    planned = plan_writes(pipeline.engine, SOURCE)
    write_all(pipeline)
    for plan in (planned[1], planned[3], planned[0], planned[2]):
        assert undo_writes(pipeline.engine, SOURCE, [plan.memory_id]) == {}
    if index.exists():
        assert sorted(index.read_text().split("\n")) == lines
    assert {**hash_tree(root), "MEMORY.md": ""} == {**before, "MEMORY.md": ""}


def test_changes_of_files_arrive(root: Path, pipeline: Pipeline) -> None:
    connect(pipeline, root, "mirror")
    put(root, name_note(0, 0), "The billing service has no migrations any more")
    (root / name_note(0, 1)).unlink()
    put(root, "lunch.md", "Lunch is at noon")
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.added, result.revised, result.gone) == (1, 1, 1)
    assert {"The billing service has no migrations any more", "Lunch is at noon"} <= set(load_texts(pipeline))
    assert not (root / ".consolidated").exists()


def test_links_with_spaces_lead_to_the_note_that_stays(linked: Path, pipeline: Pipeline) -> None:
    index, kept, hidden = linked / "MEMORY.md", "kept ü.md", "hidden note.md"
    (linked / "one.md").rename(linked / kept)
    (linked / "two.md").rename(linked / hidden)
    index.write_text(f"- [Two](<{hidden}>) - second\n- [Lunch](<lunch at noon.md>)\n")
    put(linked, "lunch at noon.md", "Lunch is at noon")
    before = index.read_text()
    outcome = consolidate(pipeline, linked)
    (stays,) = {kept, hidden} & set(hash_tree(linked))
    assert index.read_text() == f"- [Two](<{stays}>) - second\n- [Lunch](<lunch at noon.md>)\n"
    pipeline.roll_back(outcome.job_id)
    assert index.read_text() == before
    lunch = pipeline.value("SELECT id FROM {s}.task_memories WHERE execution_summary = 'Lunch is at noon'")
    erase_memories(pipeline.engine, [lunch], changed_by="tester")
    assert index.read_text() == f"- [Two](<{hidden}>) - second\n"


def test_edited_index_keeps_its_edits_in_undo(linked: Path, pipeline: Pipeline) -> None:
    before = (linked / "MEMORY.md").read_text()
    outcome = consolidate(pipeline, linked)
    with (linked / "MEMORY.md").open("a") as index:
        index.write("- A line of the agent\n")
    pipeline.roll_back(outcome.job_id)
    assert (linked / "MEMORY.md").read_text() == before + "- A line of the agent\n"


def test_parts_of_files_are_kept_and_never_moved(tmp_path: Path, pipeline: Pipeline) -> None:
    folder = tmp_path / "work"
    put(folder, "memory/note.md", FACTS[0], title="Rules")
    (folder / "CLAUDE.md").write_text(f"# Rules\n\n- {FACTS[0]}\n- Ask before files are deleted\n")
    before = (folder / "CLAUDE.md").read_text()
    connect(pipeline, folder)
    assert len(load_texts(pipeline)) == 3
    pipeline.run(PROJECT)
    result = write_all(pipeline)
    assert (result.written, result.hidden) == (1, 1)
    assert (folder / "CLAUDE.md").read_text() == before
    assert not (folder / "memory" / "note.md").exists()


def test_notes_of_two_indexes_are_never_merged(tmp_path: Path, pipeline: Pipeline) -> None:
    folder = tmp_path / "memory"
    for project in ("one", "two"):
        put(folder, f"{project}/note.md", FACTS[0])
        (folder / project / "MEMORY.md").write_text("- [A fact](note.md)\n")
    connect(pipeline, folder)
    pipeline.run(PROJECT)
    assert plan_writes(pipeline.engine, SOURCE) == []
    assert pipeline.value("SELECT count(DISTINCT metadata ->> 'folder') FROM {s}.task_memories") == 2


@pytest.mark.parametrize("tool", ["git apply", "patch"])
def test_patch_does_what_a_write_does(root: Path, pipeline: Pipeline, tmp_path: Path, tool: str) -> None:
    if tool == "patch" and not shutil.which("patch"):
        pytest.skip("patch is not installed")
    for number, body in enumerate(PARTIAL):
        put(root, f"parser tests {number}.md", body)
    (root / name_note(0, 2)).write_text((root / name_note(0, 2)).read_text().rstrip("\n"))
    connect(pipeline, root, "review")
    pipeline.run(PROJECT)
    planned = plan_writes(pipeline.engine, SOURCE)
    patch = make_patch(pipeline.engine, SOURCE, planned)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    command = ["git", "apply"] if tool == "git apply" else ["patch", "-p1", "--silent"]
    subprocess.run(command, cwd=copy, input=patch, check=True)
    write_source(pipeline.engine, SOURCE, memory_ids=[plan.memory_id for plan in planned])
    assert hash_tree(copy) == hash_tree(root)


def test_write_and_undo_are_one_commit_each(root: Path, pipeline: Pipeline) -> None:
    run_git(root, "init", "--quiet")
    run_git(root, "add", ".")
    run_git(root, "commit", "--quiet", "-m", "Notes")
    tree = run_git(root, "rev-parse", "HEAD^{tree}")
    (root / "draft.txt").write_text("of somebody else")
    run_git(root, "add", "draft.txt")
    outcome = consolidate(pipeline, root)
    assert run_git(root, "log", "--format=%s").split("\n")[:-1] == ["Consolidate notes", "Notes"]
    assert run_git(root, "status", "--porcelain") == "A  draft.txt\n"
    pipeline.roll_back(outcome.job_id)
    assert run_git(root, "rev-parse", "HEAD^{tree}") == tree
    undone = "Undo the consolidation of notes"
    assert run_git(root, "log", "--format=%s").split("\n")[:-1] == [undone, "Consolidate notes", "Notes"]
    assert run_git(root, "status", "--porcelain") == "A  draft.txt\n"


def test_uncommitted_edits_are_not_committed(linked: Path, pipeline: Pipeline) -> None:
    put(linked, "three.md", f"Note: {FACTS[0][0].lower()}{FACTS[0][1:]}.")
    run_git(linked, "init", "--quiet")
    run_git(linked, "add", "one.md", "two.md", "MEMORY.md")
    run_git(linked, "commit", "--quiet", "-m", "Notes")
    (linked / "MEMORY.md").write_text((linked / "MEMORY.md").read_text() + "- Unfinished\n")
    consolidate(pipeline, linked)
    assert "Unfinished" not in run_git(linked, "show", "HEAD:MEMORY.md")
    assert " M MEMORY.md" in run_git(linked, "status", "--porcelain")


def test_note_edited_since_is_a_conflict(linked: Path, pipeline: Pipeline) -> None:
    outcome = consolidate(pipeline, linked)
    (hidden,) = {"one.md", "two.md"} - set(hash_tree(linked))
    put(linked, hidden, "Written again")
    with pytest.raises(ConflictError, match="a hidden note was written again") as error:
        pipeline.roll_back(outcome.job_id)
    assert error.value.conflicts == (hidden,)
    assert (linked / hidden).read_text().endswith("Written again\n")
    image = next((linked / ".consolidated").rglob("*.hidden"))
    (linked / hidden).unlink()
    image.write_text("changed")
    (conflicts,) = undo_writes(pipeline.engine, SOURCE).values()
    assert conflicts[0].reason == "the image of a hidden note was changed or is gone"


def test_notes_come_back_beside_one_written_again(root: Path, pipeline: Pipeline) -> None:
    before = read_tree(root)
    connect(pipeline, root)
    pipeline.run(PROJECT)
    plan = plan_writes(pipeline.engine, SOURCE)[0]
    write_all(pipeline)
    taken, *others = plan.hidden
    put(root, taken, "Written again")
    sync_source(pipeline.engine, SOURCE)
    result = write_source(pipeline.engine, SOURCE, everything=True)
    assert result.restored == 1
    assert any(f"row {taken} of group {plan.id} stays hidden" in note for note in result.notes)
    assert (root / taken).read_text().endswith("Written again\n")
    assert [name for name in others if (root / name).exists()] == others
    (root / taken).unlink()
    sync_source(pipeline.engine, SOURCE)
    assert disconnect_source(pipeline.engine, SOURCE, restore=True) == {}
    index = {"MEMORY.md": ("", 0, 0)}
    assert {**read_tree(root), **index} == {**before, **index}


def test_group_is_rolled_back_beside_a_conflict(root: Path, pipeline: Pipeline) -> None:
    connect(pipeline, root)
    outcome = pipeline.run(PROJECT)
    plans = plan_writes(pipeline.engine, SOURCE)
    write_all(pipeline)
    taken = [plan.hidden[0] for plan in plans[:2]]
    for name in taken:
        put(root, name, "Written again")
    written = read_tree(root)
    with pytest.raises(ConflictError, match="groups can be rolled back one by one by their ids") as error:
        pipeline.roll_back(outcome.job_id)
    assert set(error.value.conflicts) == set(taken)
    assert all(f"{root} {plan.hidden[0]} (group {plan.id})" in str(error.value) for plan in plans[:2])
    assert read_tree(root) == written
    for plan in plans[2:]:
        pipeline.roll_back(plan.id)
        assert all((root / name).exists() for name in plan.hidden)
    with pytest.raises(ConflictError, match="a hidden note was written again"):
        pipeline.roll_back(plans[0].id)


def test_changed_note_keeps_its_group_unwritten(linked: Path, pipeline: Pipeline) -> None:
    connect(pipeline, linked)
    pipeline.run(PROJECT)
    put(linked, "two.md", "Edited after the merge")
    (reason,) = write_all(pipeline).refused.values()
    assert "1 of its 2 rows changed or are gone" in reason
    assert set(hash_tree(linked)) == {"one.md", "two.md", "MEMORY.md"}


def test_note_edited_while_it_is_moved_is_put_back(
    linked: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(pipeline, linked)
    pipeline.run(PROJECT)
    plan = folder_writes.FolderWrites.plan

    def plan_and_edit(self: Any, group: Any, texts: Any = None) -> Any:
        change = plan(self, group, texts)
        put(linked, change.hidden[0].key, "Edited in between")
        return change

    monkeypatch.setattr(folder_writes.FolderWrites, "plan", plan_and_edit)
    (reason,) = write_all(pipeline).refused.values()
    assert "changed while it was read" in reason
    assert set(hash_tree(linked)) == {"one.md", "two.md", "MEMORY.md"}
    assert "](one.md)" in (linked / "MEMORY.md").read_text()


def test_folder_is_restored_without_our_database(root: Path, pipeline: Pipeline) -> None:
    before = read_tree(root)
    consolidate(pipeline, root)
    assert restore_folder(root) == {}
    assert read_tree(root) == before
    assert restore_folder(root) == {}


def test_folder_with_hidden_notes_is_not_connected_anew(root: Path, pipeline: Pipeline) -> None:
    before = read_tree(root)
    consolidate(pipeline, root)
    forget_source(pipeline.engine, SOURCE)
    with pytest.raises(ConflictError, match=f"`consolidation source restore --path {root}` shows them again"):
        connect(pipeline, root)
    assert restore_folder(root) == {}
    assert read_tree(root) == before
    connect(pipeline, root)


def test_disconnect_removes_the_sidecar(root: Path, pipeline: Pipeline) -> None:
    before = read_tree(root)
    consolidate(pipeline, root)
    assert disconnect_source(pipeline.engine, SOURCE, restore=True) == {}
    assert read_tree(root) == before
    assert not (root / ".consolidated").exists()


def test_erased_note_leaves_folder_and_images(linked: Path, pipeline: Pipeline) -> None:
    canary = "The quarterly audit of the warehouse robots starts in the northern aisle"
    put(linked, "robots.md", canary)
    put(linked, "robots-2.md", f"{canary}.")
    with (linked / "MEMORY.md").open("a") as index:
        index.write("- [Warehouse robots](robots.md)\n- [Warehouse robots again](robots-2.md)\n")
    consolidate(pipeline, linked)
    rows = pipeline.rows("SELECT id FROM {s}.task_memories WHERE execution_summary LIKE '%warehouse%'")
    done = erase_memories(pipeline.engine, [row.id for row in rows], changed_by="tester")
    assert done.is_clean
    assert done.rows[f"{SOURCE} (source)"] == 2
    found = [path for path in linked.rglob("*") if path.is_file() and b"arehouse" in path.read_bytes()]
    assert found == []
    assert "](one.md)" in (linked / "MEMORY.md").read_text() or "](two.md)" in (linked / "MEMORY.md").read_text()
    assert undo_writes(pipeline.engine, SOURCE) == {}
    assert {"one.md", "two.md"} <= set(hash_tree(linked))
    assert sync_source(pipeline.engine, SOURCE).added == 0


def test_part_of_a_file_stays_when_it_is_erased(linked: Path, pipeline: Pipeline) -> None:
    (linked / "MEMORY.md").write_text("- [One](one.md)\n- Lunch at noon\n- Dinner at eight\n")
    connect(pipeline, linked)
    row = pipeline.rows("SELECT id FROM {s}.task_memories WHERE execution_summary = 'Lunch at noon'")[0]
    done = erase_memories(pipeline.engine, [row.id], changed_by="tester")
    assert done.left_in_sources == {SOURCE: 1}
    assert sync_source(pipeline.engine, SOURCE).added == 0


def test_cut_off_steps_are_taken_back(root: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends after each step in turn, without a chance to clean up."""
    connect(pipeline, root)
    pipeline.run(PROJECT)
    before = read_tree(root)
    move = Folder.move

    def stop_after(count: int) -> Callable[..., None]:
        left = iter(range(count))

        def stopping(self: Folder, path: str, to: str, *, replace: bool = False) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            move(self, path, to, replace=replace)

        return stopping

    for count in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "move", stop_after(count))
            with pytest.raises(KeyboardInterrupt):
                write_all(pipeline)
        assert sync_source(pipeline.engine, SOURCE).gone == 0
        assert undo_writes(pipeline.engine, SOURCE) == {}
        assert read_tree(root) == before
    assert write_all(pipeline).written == len(FACTS)


def test_links_out_of_the_folder_are_not_followed(linked: Path, pipeline: Pipeline, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    put(outside, "secret.md", "The password of the vault is swordfish")
    (linked / "link.md").symlink_to(outside / "secret.md")
    (linked / "inner").symlink_to(outside)
    connect(pipeline, linked)
    assert not any("swordfish" in body for body in load_texts(pipeline))
    pipeline.run(PROJECT)
    write_all(pipeline)
    images = linked / ".consolidated"
    images.rename(tmp_path / "stolen")
    images.symlink_to(outside)
    (conflicts,) = undo_writes(pipeline.engine, SOURCE).values()
    assert conflicts[0].reason == "the images of a write are gone from the store"
    assert [path.name for path in outside.iterdir()] == ["secret.md"]


@pytest.mark.parametrize("path", ["../x.md", "/etc/passwd", "a/../../x.md"])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(ConflictError, match="leads out of the folder"):
        folder.read(path)
    assert folder.find(path) is None
    folder.close()


def test_files_that_cannot_be_read_are_told(linked: Path, pipeline: Pipeline) -> None:
    (linked / "bytes.md").write_bytes(b"---\nname: x\n---\n\xff\xfe\xfa")
    (linked / "large.md").write_bytes(b"x" * 3_000_000)
    found = probe_source(config(linked))
    assert (found.memories, found.skipped) == (2, 2)
    assert any("bytes.md: not valid UTF-8" in warning for warning in found.warnings)
    connect(pipeline, linked)
    assert pipeline.value("SELECT count(*) FROM {s}.source_rows WHERE state = 'refused'") == 2
    (linked / "one.md").write_bytes(b"---\nname: x\n---\n\xff\xfe\xfa")
    assert sync_source(pipeline.engine, SOURCE).gone == 0
    assert len(load_texts(pipeline)) == 2


def test_folder_that_is_not_mounted_deletes_nothing(linked: Path, pipeline: Pipeline) -> None:
    connect(pipeline, linked)
    away = linked.rename(linked.with_name("away"))
    with pytest.raises(StoreError, match="cannot be opened: No such file"):
        sync_source(pipeline.engine, SOURCE)
    linked.mkdir()
    with pytest.raises(StoreError, match="is it mounted"):
        sync_source(pipeline.engine, SOURCE)
    linked.rmdir()
    away.rename(linked)
    assert sync_source(pipeline.engine, SOURCE).unchanged == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": None}, "path is missing"),
        ({"path": "{root}/one.md"}, "is no folder"),
        ({"path": "{root}/none", "format": "notes"}, "cannot be opened"),
        ({"format": "word"}, "there is no format 'word' of folders: claude-code"),
        ({"table": "x"}, "table does not apply to a folder"),
        ({"format": "cursor"}, "holds no memories of a Cursor rules"),
    ],
)
def test_wrong_folders_are_refused(linked: Path, change: Mapping[str, str | None], words: str) -> None:
    values: dict[str, Any] = {"kind": "folder", "path": str(linked)}
    for name, value in change.items():
        values[name] = None if value is None else value.format(root=linked)
    with pytest.raises((UsageError, StoreError), match=words):
        probe_source({name: value for name, value in values.items() if value is not None})


def test_read_only_folder_is_only_mirrored(linked: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_store.os, "access", lambda *_, **__: False)
    assert any("only mode mirror works" in each for each in probe_source(config(linked)).warnings)
    with pytest.raises(UsageError, match="mode write needs more rights"):
        connect(pipeline, linked)
    assert list_connected(pipeline.engine) == []
    connect(pipeline, linked, "mirror")
    assert len(load_texts(pipeline)) == 2


def test_folder_inside_of_another_is_refused(linked: Path, pipeline: Pipeline) -> None:
    put(linked, "inner/note.md", "Lunch is late")
    connect(pipeline, linked)
    with pytest.raises(ConflictError, match=r"is connected as shop for project .+ already"):
        connect_source(pipeline.engine, "inner", project="other", config=config(linked / "inner"))


def test_folder_has_no_dry_run(linked: Path, pipeline: Pipeline) -> None:
    connect(pipeline, linked)
    pipeline.run(PROJECT)
    planned = plan_writes(pipeline.engine, SOURCE)
    with pytest.raises(UsageError, match="`source diff --patch` shows what would be changed"):
        rehearse_writes(pipeline.engine, SOURCE, planned)
