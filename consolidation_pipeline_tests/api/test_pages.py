"""Content of the pages and effect of their forms, without JavaScript."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import escape
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.api.pages import history
from consolidation_pipeline.api.pages.rendering import (
    DIFFERENCE_LABELS,
    KIND_LABELS,
    OPERATION_WORDS,
    STATUS_LABELS,
    format_day,
)
from consolidation_pipeline.core.differences.explanation import PROOFS
from consolidation_pipeline.core.memories.memories import LEVELS
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, restore_memories
from consolidation_pipeline.service.review.suggestions import get_suggestion
from consolidation_pipeline.store.database.schema import JOB_STATUSES, OPERATIONS, SUGGESTION_STATUSES
from consolidation_pipeline_tests.api.conftest import ApiContext, add_entry
from consolidation_pipeline_tests.api.review_client import (
    SHOP,
    PageVisitor,
    add_pair_suggestions,
    add_suggestion,
    find_form_token,
)
from consolidation_pipeline_tests.cli.conftest import RECENT
from consolidation_pipeline_tests.service.pipeline_runner import SLUG


@pytest.fixture(scope="module")
def suggestion_ids(api: ApiContext) -> list[UUID]:
    """Ids of six suggestions in the project ``shop``."""
    return add_pair_suggestions(api.pipeline, count=6)


@pytest.fixture
def visitor(api: ApiContext, suggestion_ids: list[UUID]) -> PageVisitor:
    """Visitor logged in as admin."""
    del suggestion_ids
    visitor = PageVisitor(api.client(None))
    visitor.log_in(api.key("admin"))
    return visitor


def suggestion_status(api: ApiContext, id_: UUID) -> str:
    return get_suggestion(api.pipeline.engine, id_).status


def find_merged_id(api: ApiContext) -> UUID:
    """Return the id of the memory that the run merged."""
    query = "SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged' AND project_id = :of AND retired_at IS NULL"
    found: UUID = api.pipeline.value(query, of=api.pipeline.project().id)
    return found


def test_page_labels_cover_all_stored_values() -> None:
    assert set(OPERATION_WORDS) == set(OPERATIONS)
    assert {*JOB_STATUSES, *SUGGESTION_STATUSES} == set(STATUS_LABELS)
    assert set(PROOFS) == set(DIFFERENCE_LABELS)
    assert {*LEVELS, "playbook"} == set(KIND_LABELS)


def test_page_of_no_postgres_text_is_not_found(visitor: PageVisitor) -> None:
    for path in ("/projects/%00", "/projects/%00/history", "/projects/%00/map.svg"):
        assert visitor.get(path).status_code == 404


def test_review_page_highlights_differences(visitor: PageVisitor) -> None:
    page = visitor.get("/review").text
    for text in (
        "Do these 2 memories say the same?",
        "Check carefully:",
        "they contradict each other",
        DIFFERENCE_LABELS["value"],
        '<mark class="conflict">marked</mark>: contradictions',
        "<b>contradiction</b>",
        "1</strong> of 6 waiting",
    ):
        assert text in page
    assert '<mark class="conflict">30 minutes</mark>' in page
    assert '<mark class="conflict">35 minutes</mark>' in page
    assert '<mark class="new">or</mark>' in page
    assert "2</strong> of 6 waiting" in visitor.get("/review?at=1").text
    assert "No waiting suggestion matches these filters" in visitor.get("/review?similarity=1").text


def test_differences_of_many_originals_are_numbered(api: ApiContext, visitor: PageVisitor) -> None:
    texts = ["The customer prefers tea.", "The customer prefers coffee.", "Note: the customer prefers tea."]
    (id_,) = add_suggestion(api.pipeline, "drinks", *texts)
    page = visitor.get(f"/review/{id_}").text
    said = re.findall(r'<b class="number">([\d, ]+)</b> <mark>(\w+)</mark>', page)
    assert sorted(said) == [("1, 3", "tea"), ("2", "coffee")]
    cards = re.findall(r'<p class="meta"><b class="number">(\d)</b>', page)
    assert cards == ["1", "2", "3"]
    assert "<kbd>v</kbd> keep all" in visitor.get("/review?project=drinks").text


def test_memory_is_left_out_on_the_page(api: ApiContext, visitor: PageVisitor) -> None:
    texts = ["The customer prefers tea.", "The customer prefers coffee.", "Note: the customer prefers tea."]
    (id_,) = add_suggestion(api.pipeline, "some", *texts)
    coffee = next(one.id for one in get_suggestion(api.pipeline.engine, id_).originals if "coffee" in one.content)
    page = visitor.get(f"/review/{id_}").text
    assert page.count('form="decision" name="leave_out_') == 3
    field = f"leave_out_{coffee}"
    assert f'name="{field}"' in page
    refused = visitor.submit(f"/review/{id_}/approve", **{field: "1", "content": " "})
    assert (refused.status_code, f'name="{field}" value="1" checked' in refused.text) == (400, True)
    visitor.submit(f"/review/{id_}/approve", **{field: "1", "content": texts[0]})
    done = get_suggestion(api.pipeline.engine, id_)
    assert (done.status, [one.content for one in done.originals]) == ("validated", [texts[0], texts[2]])


def test_review_list_names_projects_unless_filtered(visitor: PageVisitor) -> None:
    assert f"<small>{SHOP} · similarity" in visitor.get("/review").text
    assert f"<small>{SHOP}" not in visitor.get(f"/review?project={SHOP}").text


def test_approval_with_edited_text_merges_and_undoes(
    api: ApiContext, visitor: PageVisitor, suggestion_ids: list[UUID]
) -> None:
    path = f"/review/{suggestion_ids[0]}"
    refused = visitor.submit(f"{path}/approve", content="Wait half an hour.", note="shorter", back="/review?at=2")
    assert refused.status_code == 400
    for text in (
        "leaves out what the originals say",
        "Wait half an hour.</textarea>",
        'name="accept_loss"',
        'value="shorter"',
        f'action="{path}/approve"',
        'name="back" value="/review?at=2"',
        '<a href="/review?at=2">← Back to the queue</a>',
    ):
        assert text in refused.text
    edit = {"content": "Wait half\r\nan hour.", "accept_loss": "1", "note": "ok"}
    done = visitor.submit(f"{path}/approve", **edit, back="/review?project=shop")
    assert (done.status_code, done.headers["location"]) == (303, f"/review?project=shop&done={suggestion_ids[0]}")
    page = visitor.get(done.headers["location"]).text
    assert "<strong>Merged.</strong> 2 memories became one." in page
    decided = get_suggestion(api.pipeline.engine, suggestion_ids[0])
    assert decided.status == "validated"
    assert decided.reviewed_by == "web:admin of all projects"
    merged = visitor.get(f"/projects/{SHOP}/memories/{decided.memory_id}").text
    assert "Wait half\nan hour." in merged
    assert "Made from <small>2</small>" in merged
    assert "<strong>Undone.</strong>" in visitor.get(visitor.submit(f"{path}/undo").headers["location"]).text
    assert suggestion_status(api, suggestion_ids[0]) == "pending"
    assert visitor.get(f"/projects/{SHOP}/memories/{decided.memory_id}").status_code == 404


def test_review_page_decides_one_kind_together(api: ApiContext, visitor: PageVisitor) -> None:
    ids = add_pair_suggestions(api.pipeline, "kinds", count=3)
    page = visitor.get("/review?project=kinds").text
    assert "3 with one difference only</a>: different values, as in “after 1”" in page
    assert '<option value="value: after #">different values, as in “after 1”</option>' in page
    filtered = visitor.get("/review?project=kinds&differ=value%3A+after+%23").text
    assert "Decide 3 suggestions together…" in filtered
    of_all = visitor.get("/review?differ=value%3A+after+%23").text
    assert "Choose a project to decide on all of them together." in of_all
    assert "Choose a project" not in filtered
    path = "/review/decide?project=kinds&differ=value%3A+after+%23"
    assert "Keep 3 as variants" in visitor.get(path).text
    late = visitor.submit(f"{path}&count=4", decision="keep")
    assert (late.status_code, "3 suggestions match now" in late.text) == (409, True)
    assert {suggestion_status(api, id_) for id_ in ids} == {"pending"}
    done = visitor.submit(f"{path}&count=3", decision="keep")
    assert done.headers["location"] == "/review?project=kinds&decided=3&left=0"
    page = visitor.get(done.headers["location"]).text
    assert "3 suggestions decided" in page
    assert 'data-key="u" aria-keyshortcuts="u" href="/projects/kinds/changes?operation=review"' in page
    assert {suggestion_status(api, id_) for id_ in ids} == {"kept"}
    assert "Nothing matches" in visitor.get(path).text
    assert visitor.submit(f"{path}&count=0", decision="merge").status_code == 400
    assert visitor.get("/review/decide?project=kinds").status_code == 400


def test_joint_decision_follows_all_filters(api: ApiContext, visitor: PageVisitor) -> None:
    ids = add_pair_suggestions(api.pipeline, "typed", count=3)
    first = get_suggestion(api.pipeline.engine, ids[0]).originals[0].id
    api.pipeline.write("UPDATE {s}.task_memories SET memory_type = 'change' WHERE id = :id", id=first)
    filters = "project=typed&type=change&differ=value%3A+after+%23"
    assert "with one difference only" not in visitor.get("/review?project=typed&type=change").text
    assert f'href="/review/decide?{escape(filters)}"' in visitor.get(f"/review?{filters}").text
    assert "Decide 1 suggestion together?" in visitor.get(f"/review/decide?{filters}").text
    visitor.submit(f"/review/decide?{filters}&count=1", decision="keep")
    assert [suggestion_status(api, id_) for id_ in ids] == ["kept", "pending", "pending"]


def test_review_page_keeps_variants_and_undoes(api: ApiContext, visitor: PageVisitor) -> None:
    (id_,) = add_suggestion(api.pipeline, "variants", "Retry after 30 s.", "Retry after 60 s.")
    kept = visitor.submit(f"/review/{id_}/keep", note="two services", back="/review?project=variants")
    assert "Kept as variants." in visitor.get(kept.headers["location"]).text
    assert suggestion_status(api, id_) == "kept"
    assert f'<a href="/review/{id_}">Retry after 30 s.</a>' in visitor.get("/projects/variants/changes").text
    assert visitor.submit(f"/review/{id_}/undo").status_code == 303
    assert suggestion_status(api, id_) == "pending"


def test_changes_page_tells_who_did_what(api: ApiContext, visitor: PageVisitor) -> None:
    (id_,) = add_suggestion(api.pipeline, "who", "Retry after 30 s.", "Retry after 60 s.")
    visitor.submit(f"/review/{id_}/keep")
    kept = get_suggestion(api.pipeline.engine, id_).group_id
    page = visitor.get("/projects/who/changes").text
    decision, proposal = re.findall(r"<strong>([^<]+)</strong> <span class=\"meta\">[^·]+· ([^<]+)</span>", page)
    assert decision == ("Kept as variants", "admin of all projects")
    assert proposal == ("Proposed a merge", "by the program")
    assert "variants by web:" not in page
    visitor.submit(f"/review/{id_}/undo")
    page = visitor.get("/projects/who/changes").text
    assert f'undoes <a href="/projects/who/changes?group={kept}">an earlier change</a>' in page
    assert "undoes group" not in page
    one = visitor.get(f"/projects/who/changes?group={kept}").text
    assert one.count('class="run faded"') == 1
    assert "Kept as variants" in one
    assert "by a run of" in visitor.get(f"/projects/{SLUG}/changes?job={api.job_id}").text


def test_review_page_tells_groups_that_wait(visitor: PageVisitor) -> None:
    page = visitor.get("/review?project=notes").text
    assert "1 group waits to be proposed" in page
    assert "No suggestions to review" not in page
    assert "1 more group waits" in visitor.get("/review").text


def test_second_decision_shows_first_reviewer(
    api: ApiContext, visitor: PageVisitor, suggestion_ids: list[UUID]
) -> None:
    assert visitor.submit(f"/review/{suggestion_ids[1]}/reject", note="not the same").status_code == 303
    late = visitor.submit(f"/review/{suggestion_ids[1]}/approve", back="/review?at=1")
    assert late.status_code == 409
    assert "This suggestion was rejected by admin of all projects" in late.text
    assert 'href="/review?at=1"' in late.text
    assert str(suggestion_ids[1]) not in late.text
    proposed = get_suggestion(api.pipeline.engine, suggestion_ids[1]).content
    assert "Your text" not in visitor.submit(f"/review/{suggestion_ids[1]}/approve", content=proposed).text
    assert "“not the same”" in visitor.get(f"/review/{suggestion_ids[1]}").text
    assert suggestion_status(api, suggestion_ids[1]) == "rejected"


def test_approval_refuses_archived_original(api: ApiContext, visitor: PageVisitor, suggestion_ids: list[UUID]) -> None:
    original = get_suggestion(api.pipeline.engine, suggestion_ids[2]).originals[0]
    archive_manually(api.pipeline.engine, [original.id], changed_by="test")
    assert "changed since this was proposed" in visitor.get(f"/review/{suggestion_ids[2]}").text
    late = visitor.submit(f"/review/{suggestion_ids[2]}/approve", content="A text edited for an hour.", accept_loss="1")
    assert late.status_code == 409
    assert "A text edited for an hour.</textarea>" in late.text
    assert "changed, archived or merged after" in late.text
    assert suggestion_status(api, suggestion_ids[2]) == "superseded"


def test_approval_refuses_blank_text(api: ApiContext, visitor: PageVisitor, suggestion_ids: list[UUID]) -> None:
    refused = visitor.submit(f"/review/{suggestion_ids[3]}/approve", content="   ")
    assert refused.status_code == 400
    assert "Back to the queue" in refused.text
    assert suggestion_status(api, suggestion_ids[3]) == "pending"


def test_project_pages_show_knowledge_and_sources(api: ApiContext, visitor: PageVisitor) -> None:
    page = visitor.get(f"/projects/{SLUG}").text
    for text in ("Playbook", "Map", "History", "Knowledge", "memories merged", "Undo this run"):
        assert text in page
    assert visitor.get(f"/projects/{SLUG}/map.svg").text.startswith("<svg")
    merged = find_merged_id(api)
    for path in (f"/projects/{SLUG}/memories/{merged}", f"/projects/{SLUG}/memories/{merged}/sources"):
        page = visitor.get(path).text
        assert "or the first jobs fail on missing columns" in page
        assert f"{format_day(datetime.fromisoformat(RECENT).replace(tzinfo=UTC))} · from " in page
    assert "<html" not in visitor.get(f"/projects/{SLUG}/memories/{merged}/sources").text


def test_knowledge_page_filters_and_pages(api: ApiContext, visitor: PageVisitor) -> None:
    at = f"/projects/{SLUG}/knowledge?kind=merged"
    assert visitor.get(f"{at}&confidence=0.95").text.count('class="node"') == 1
    assert "Nothing matches" in visitor.get(f"{at}&confidence=0.96").text
    at = f"/projects/{SHOP}/knowledge?kind=raw"
    assert "Nothing matches" in visitor.get(f"{at}&type=decision").text
    assert "Nothing matches" in visitor.get(f"{at}&until=2001-01-01").text
    api.pipeline.add([{"id": f"more-{n}", "content": f"Lesson {n} of many"} for n in range(30)], SHOP)
    first, second = visitor.get(at).text, visitor.get(f"{at}&page=2").text
    assert "Page 1 of 2" in first
    assert first.count('class="node"') == 25
    assert second.count('class="node"') < 25
    for past_end in (f"{at}&page=99", f"/projects/{SLUG}/history?page=99", f"/projects/{SLUG}/changes?page=99"):
        page = visitor.get(past_end).text
        assert "Nothing on this page" in page
        assert " yet" not in page


def test_playbook_page_decides_and_undoes_entry(api: ApiContext, visitor: PageVisitor) -> None:
    entry_id = add_entry(api)
    playbook = f"/projects/{SLUG}/playbook"
    path = f"/projects/{SLUG}/memories/{entry_id}"
    assert f'action="{path}/approve"' in visitor.get(playbook).text
    overview = visitor.get(f"/projects/{SLUG}").text
    for text in ("1 playbook entry waits for review.", "agents do not receive these", f'action="{path}/approve"'):
        assert text in overview
    page = visitor.get(path).text
    assert f'formaction="{path}/dismiss"' in page
    assert "<strong>waiting for review</strong>" in page
    reader = PageVisitor(api.client(None))
    reader.log_in(api.key("reader"))
    assert "Approve" not in reader.get(playbook).text
    assert "Approve" not in reader.get(f"/projects/{SLUG}").text
    for decision, status in (("approve", "active"), ("dismiss", "retired")):
        done = visitor.submit(f"{path}/{decision}", on=playbook, back=playbook)
        assert done.headers["location"].startswith(f"{playbook}?done=")
        assert api.pipeline.value("SELECT status FROM {s}.playbook_entries WHERE content_hash = 'h'") == status
        again = visitor.submit(f"{path}/{decision}", on=playbook)
        assert again.status_code == 409
    undo = re.search(r'href="([^"]+/undo/[^"]+)"', visitor.get(done.headers["location"]).text)
    assert undo is not None
    assert visitor.submit(undo[1], on=undo[1]).status_code == 303
    assert api.pipeline.value("SELECT status FROM {s}.playbook_entries WHERE content_hash = 'h'") == "active"
    assert visitor.submit(f"/projects/{SHOP}/memories/{entry_id}/dismiss").status_code == 404


def test_refused_form_leads_back_to_its_page(visitor: PageVisitor) -> None:
    path, playbook = f"/projects/{SLUG}/memories/{uuid4()}/approve", f"/projects/{SLUG}/playbook"
    form = {"form_token": find_form_token(visitor.get("/projects").text)}
    for referer, back in (
        (f"http://localhost{playbook}", f'href="{playbook}" autofocus>Back<'),
        (f"http://elsewhere{playbook}", 'href="/review" autofocus>Go to the review<'),
        ("http://localhost//elsewhere", 'href="/review" autofocus>Go to the review<'),
    ):
        refused = visitor.client.post(path, data=form, headers={"Referer": referer})
        assert refused.status_code == 404
        assert back in refused.text


def test_undo_page_of_no_change_is_not_found(api: ApiContext, visitor: PageVisitor) -> None:
    assert "is not the id of a run" in visitor.get(f"/projects/{SLUG}/undo/{uuid4()}").text
    assert visitor.get(f"/projects/{SHOP}/undo/{api.job_id}").status_code == 404


def test_undo_page_lists_dependents_before_cascade(
    api: ApiContext, visitor: PageVisitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = find_merged_id(api)
    archive_manually(api.pipeline.engine, [merged], changed_by="cli:tom")
    restore_memories(api.pipeline.engine, [merged], changed_by="cli:tom")
    archive_manually(api.pipeline.engine, [merged], changed_by="cli:tom")
    monkeypatch.setattr(history, "_MAX_STEPS", 1)
    at = f"/projects/{SLUG}/undo/{api.job_id}"
    page = visitor.get(at).text
    for text in ("Undo this run?", "<strong>Later changes depend on this.", "Undo the 3 later changes too"):
        assert text in page
    refused = visitor.submit(at, on=at)
    assert refused.status_code == 409
    assert "Not undone: later changes depend on this" in refused.text
    assert "Archived" in refused.text
    assert "… and 2 more" in refused.text
    assert "Undo the 3 later changes too" in refused.text
    assert visitor.submit(at, on=at, cascade="yes").headers["location"] == f"/projects/{SLUG}/changes"
    assert visitor.get(f"/projects/{SLUG}/memories/{merged}").status_code == 404
    assert ">undone<" in visitor.get(f"/projects/{SLUG}/history").text
    assert "Redo…" in visitor.get(f"/projects/{SLUG}/changes").text
    again = visitor.submit(at)
    assert again.status_code == 409
    assert "was rolled back before" in again.text
    assert "<strong>This cannot be undone.</strong>" in visitor.get(at).text


def test_history_tells_what_was_proposed_for_playbook(api: ApiContext, visitor: PageVisitor) -> None:
    done = "jsonb_build_object('playbook_entries', jsonb_build_object('entries_proposed', 3))"
    api.pipeline.write(f"UPDATE {{s}}.consolidation_jobs SET metrics = metrics || {done}")
    assert "added to the playbook · 3 proposed for it" in visitor.get(f"/projects/{SLUG}/history").text


def test_decided_suggestion_tells_no_keys_to_decide(api: ApiContext, visitor: PageVisitor) -> None:
    (proposed,) = add_suggestion(api.pipeline, "keys", "The customer prefers tea.", "The customer prefers coffee.")
    assert "<kbd>a</kbd> approve" in visitor.get("/review?project=keys").text
    visitor.submit(f"/review/{proposed}/reject", on=f"/review/{proposed}")
    decided = visitor.get("/review?project=keys&status=rejected").text
    assert "<kbd>a</kbd> approve" not in decided
    assert "<kbd>j</kbd> next" in decided
    assert "<kbd>u</kbd> undo" in decided
    reader = PageVisitor(api.client(None))
    reader.log_in(api.key("reader"))
    assert "<kbd>u</kbd> undo" not in reader.get("/review?project=keys&status=rejected").text


def test_review_page_tells_doubt_from_contradiction(api: ApiContext, visitor: PageVisitor) -> None:
    (doubtful,) = add_suggestion(api.pipeline, "doubt", "The customer prefers tea.", "The customer prefers coffee.")
    page = visitor.get(f"/review/{doubtful}").text
    assert "Nothing proves that they say the same." in page
    assert DIFFERENCE_LABELS["word"] in page
    assert "<mark>tea</mark>" in page
    assert "<mark>coffee</mark>" in page
    assert "contradict" not in page
    assert 'class="conflict"' not in page
    assert "<b>contradiction</b>" not in visitor.get("/review?project=doubt").text
    (alike,) = add_suggestion(api.pipeline, "alike", "The cache is cold.", "Note: the cache is cold!")
    page = visitor.get(f"/review/{alike}").text
    assert 'aria-label="Differences"' not in page
    assert "contradict" not in page


def test_empty_pages_name_next_step(api: ApiContext, visitor: PageVisitor) -> None:
    ensure_project(api.pipeline.engine, "new")
    assert "consolidation import memories.jsonl --project new" in visitor.get("/projects/new").text
    assert "Not run yet" in visitor.get("/projects/new/history").text
    assert "No principles yet" in visitor.get("/projects/new/knowledge?kind=principle").text
    assert "llm_model=" not in visitor.get("/review").text
    assert "No expired suggestions" in visitor.get("/review?status=expired").text
    assert visitor.get("/projects/new/map.svg").status_code == 404
