"""What the pages show, and what their forms do, in a browser that knows no scripts."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from consolidation_pipeline.api.pages.rendering import CONFLICT_LABELS, KIND_LABELS, OPERATION_LABELS, STATUS_LABELS
from consolidation_pipeline.core.conflicts.literals import KINDS
from consolidation_pipeline.core.memories.memories import LEVELS
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.service.lifecycle.manual_actions import archive_by_hand
from consolidation_pipeline.service.review.suggestions import get_suggestion
from consolidation_pipeline.store.database.schema import JOB_STATUSES, OPERATIONS, SUGGESTION_STATUSES
from consolidation_pipeline_tests.api.conftest import Served
from consolidation_pipeline_tests.api.review_client import SHOP, Person, ask
from consolidation_pipeline_tests.service.pipeline_runner import SLUG


@pytest.fixture(scope="module")
def asked(served: Served) -> list[UUID]:
    """Suggestions in the project ``shop``."""
    return ask(served.pipeline, count=6)


@pytest.fixture
def anna(served: Served, asked: list[UUID]) -> Person:
    """Somebody who may decide."""
    del asked
    person = Person(served.client(None))
    person.log_in(served.key("admin"))
    return person


def status(served: Served, id_: UUID) -> str:
    return get_suggestion(served.pipeline.engine, id_).status


def merged_of(served: Served) -> UUID:
    """The merged memory that the run made."""
    query = "SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged' AND project_id = :of AND retired_at IS NULL"
    found: UUID = served.pipeline.value(query, of=served.pipeline.project().id)
    return found


def test_page_labels_cover_all_stored_values() -> None:
    assert set(OPERATION_LABELS) == set(OPERATIONS)
    assert {*JOB_STATUSES, *SUGGESTION_STATUSES} == set(STATUS_LABELS)
    assert {*KINDS, "polarity"} <= set(CONFLICT_LABELS)
    assert {*LEVELS, "playbook"} == set(KIND_LABELS)


def test_review_page_highlights_differences(anna: Person) -> None:
    page = anna.see("/review").text
    for said in (
        "Do these 2 memories say the same?",
        "Check carefully:",
        "different numbers",
        "1</strong> of 6 waiting",
    ):
        assert said in page
    assert '<mark class="conflict">30 minutes</mark>' in page
    assert '<mark class="conflict">35 minutes</mark>' in page
    assert '<mark class="new">or</mark>' in page
    assert "2</strong> of 6 waiting" in anna.see("/review?at=1").text
    assert "No waiting suggestion matches these filters" in anna.see("/review?similarity=1").text


def test_approval_with_edited_text_merges_and_undoes(served: Served, anna: Person, asked: list[UUID]) -> None:
    path = f"/review/{asked[0]}"
    done = anna.send(f"{path}/approve", content="Wait half\r\nan hour.", note="ok", back="/review?project=shop")
    assert (done.status_code, done.headers["location"]) == (303, f"/review?project=shop&done={asked[0]}")
    told = anna.see(done.headers["location"]).text
    assert "<strong>Merged.</strong> 2 memories became one." in told
    decided = get_suggestion(served.pipeline.engine, asked[0])
    assert decided.status == "validated"
    assert decided.reviewed_by == "web:admin of all projects"
    merged = anna.see(f"/projects/{SHOP}/memories/{decided.memory_id}").text
    assert "Wait half\nan hour." in merged
    assert "Made from <small>2</small>" in merged
    assert "<strong>Undone.</strong>" in anna.see(anna.send(f"{path}/undo").headers["location"]).text
    assert status(served, asked[0]) == "pending"
    assert anna.see(f"/projects/{SHOP}/memories/{decided.memory_id}").status_code == 404


def test_second_decision_shows_first_reviewer(served: Served, anna: Person, asked: list[UUID]) -> None:
    assert anna.send(f"/review/{asked[1]}/reject", note="not the same").status_code == 303
    late = anna.send(f"/review/{asked[1]}/approve", back="/review?at=1")
    assert late.status_code == 409
    assert "This suggestion was rejected by admin of all projects" in late.text
    assert 'href="/review?at=1"' in late.text
    assert str(asked[1]) not in late.text
    assert "“not the same”" in anna.see(f"/review/{asked[1]}").text
    assert status(served, asked[1]) == "rejected"


def test_approval_refuses_archived_original(served: Served, anna: Person, asked: list[UUID]) -> None:
    original = get_suggestion(served.pipeline.engine, asked[2]).originals[0]
    archive_by_hand(served.pipeline.engine, [original.id], changed_by="test")
    assert "changed since this was proposed" in anna.see(f"/review/{asked[2]}").text
    late = anna.send(f"/review/{asked[2]}/approve", content="Words that took an hour.")
    assert late.status_code == 409
    assert "Words that took an hour.</textarea>" in late.text
    assert "changed, archived or merged after" in late.text
    assert status(served, asked[2]) == "superseded"


def test_approval_refuses_blank_text(served: Served, anna: Person, asked: list[UUID]) -> None:
    refused = anna.send(f"/review/{asked[3]}/approve", content="   ")
    assert refused.status_code == 400
    assert "Back to the queue" in refused.text
    assert status(served, asked[3]) == "pending"


def test_project_pages_show_knowledge_and_sources(served: Served, anna: Person) -> None:
    page = anna.see(f"/projects/{SLUG}").text
    for said in ("Playbook", "Map", "History", "Knowledge", "memories merged", "Undo this run"):
        assert said in page
    assert anna.see(f"/projects/{SLUG}/map.svg").text.startswith("<svg")
    merged = merged_of(served)
    for path in (f"/projects/{SLUG}/memories/{merged}", f"/projects/{SLUG}/memories/{merged}/sources"):
        assert "otherwise the first jobs fail on missing columns" in anna.see(path).text
    assert "<html" not in anna.see(f"/projects/{SLUG}/memories/{merged}/sources").text


def test_knowledge_page_filters_and_pages(served: Served, anna: Person) -> None:
    at = f"/projects/{SLUG}/knowledge?kind=merged"
    assert anna.see(f"{at}&confidence=0.95").text.count('class="node"') == 1
    assert "Nothing matches" in anna.see(f"{at}&confidence=0.96").text
    at = f"/projects/{SHOP}/knowledge?kind=raw"
    assert "Nothing matches" in anna.see(f"{at}&type=decision").text
    assert "Nothing matches" in anna.see(f"{at}&until=2001-01-01").text
    served.pipeline.add([{"id": f"more-{n}", "content": f"Lesson {n} of many"} for n in range(30)], SHOP)
    first, second = anna.see(at).text, anna.see(f"{at}&page=2").text
    assert "Page 1 of 2" in first
    assert first.count('class="node"') == 25
    assert second.count('class="node"') < 25
    assert anna.see(f"{at}&page=99").status_code == 200


def test_playbook_page_decides_and_undoes_entry(served: Served, anna: Person) -> None:
    served.pipeline.write(
        "INSERT INTO {s}.playbook_entries (project_id, content, content_hash, status, category) "
        "SELECT id, 'Batch the requests.', 'h', 'review', 'performance' FROM {s}.projects WHERE slug = :slug",
        slug=SLUG,
    )
    playbook = f"/projects/{SLUG}/playbook"
    [entry] = served.pipeline.rows("SELECT id FROM {s}.playbook_entries WHERE content_hash = 'h'")
    path = f"/projects/{SLUG}/memories/{entry.id}"
    assert f'action="{path}/approve"' in anna.see(playbook).text
    assert f'formaction="{path}/dismiss"' in anna.see(path).text
    reader = Person(served.client(None))
    reader.log_in(served.key("reader"))
    assert "Approve" not in reader.see(playbook).text
    for decision, status in (("approve", "active"), ("dismiss", "retired")):
        done = anna.send(f"{path}/{decision}", on=playbook, back=playbook)
        assert done.headers["location"].startswith(f"{playbook}?done=")
        assert served.pipeline.value("SELECT status FROM {s}.playbook_entries WHERE content_hash = 'h'") == status
        again = anna.send(f"{path}/{decision}", on=playbook)
        assert again.status_code == 409
    undo = re.search(r'href="([^"]+/undo/[^"]+)"', anna.see(done.headers["location"]).text)
    assert undo is not None
    assert anna.send(undo[1], on=undo[1]).status_code == 303
    assert served.pipeline.value("SELECT status FROM {s}.playbook_entries WHERE content_hash = 'h'") == "active"
    assert anna.send(f"/projects/{SHOP}/memories/{entry.id}/dismiss").status_code == 404


def test_undo_page_lists_dependents_before_cascade(served: Served, anna: Person) -> None:
    merged = merged_of(served)
    archive_by_hand(served.pipeline.engine, [merged], changed_by="cli:tom")
    at = f"/projects/{SLUG}/undo/{served.job_id}"
    assert "Undo this run?" in anna.see(at).text
    refused = anna.send(at, on=at)
    assert refused.status_code == 409
    assert "later changes depend on this" in refused.text
    assert "Archived" in refused.text
    assert anna.send(at, on=at, cascade="yes").headers["location"] == f"/projects/{SLUG}/changes"
    assert anna.see(f"/projects/{SLUG}/memories/{merged}").status_code == 404
    assert ">undone<" in anna.see(f"/projects/{SLUG}/history").text
    assert "Redo…" in anna.see(f"/projects/{SLUG}/changes").text
    again = anna.send(at, on=at)
    assert again.status_code == 409
    assert "was rolled back before" in again.text


def test_empty_pages_name_the_next_step(served: Served, anna: Person) -> None:
    ensure_project(served.pipeline.engine, "new")
    assert "consolidation import memories.jsonl --project new" in anna.see("/projects/new").text
    assert "Not run yet" in anna.see("/projects/new/history").text
    assert "No principles yet" in anna.see("/projects/new/knowledge?kind=principle").text
    assert "llm_model=" not in anna.see("/review").text
    assert "No expired suggestions" in anna.see("/review?status=expired").text
    assert anna.see("/projects/new/map.svg").status_code == 404
