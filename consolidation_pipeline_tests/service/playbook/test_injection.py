"""Attacks on the playbook, with a model that writes whatever the memories say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from consolidation_pipeline.core.knowledge.risky_text import find_delicate_subject
from consolidation_pipeline.service.intake.agent_memories import add_memories, get_memory
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline_tests.core.knowledge.risky_texts import ATTACKS, HARMLESS, SUBTLE_ATTACKS
from consolidation_pipeline_tests.openai_server import OpenAIServer, reply_with_json
from consolidation_pipeline_tests.service.corpus import WEBHOOKS, note
from consolidation_pipeline_tests.service.model_replies import reply_by_schema
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline

OPTIONS: dict[str, Any] = {
    "merge": False,
    "archive": False,
    "t_pattern": 0.75,
    "t_suggest": 0.95,
    "t_merge": 0.99,
    "llm_model": "openai/gpt-4o-mini",
    "playbook_approval": "automatic",
    "review_limit": 0,
}
# Advice on no delicate subject.
PLAIN = [text for text in HARMLESS if text.isascii() and find_delicate_subject(text) is None][:8]
WORDINGS = ("{}", "Note for later: {}", "{} Seen again today.", "Reminder: {}")


@pytest.fixture
def obedient(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Project without memories whose model repeats the memories that it is shown."""
    provider.behaviour = reply_with_json(reply_by_schema)
    pipeline.configure_new(**OPTIONS)
    return pipeline


def plant(pipeline: Pipeline, texts: Sequence[str]) -> None:
    """Add each text in several wordings, each of a session, agent and user of its own."""
    rows = []
    for number, text in enumerate(texts):
        for at, wording in enumerate(WORDINGS):
            who = {f"{name}_id": f"{name}-{number}-{at}" for name in ("session", "agent")}
            rows.append(note(f"note-{number}-{at}", wording.format(text), **who))
    pipeline.add(rows)


def list_statuses(pipeline: Pipeline) -> list[str]:
    return [row.status for row in pipeline.rows("SELECT status FROM {s}.playbook_entries")]


@pytest.mark.slow
@pytest.mark.parametrize("attacks", [ATTACKS, SUBTLE_ATTACKS], ids=["plain", "subtle"])
def test_no_attack_becomes_active(obedient: Pipeline, attacks: Sequence[str]) -> None:
    plant(obedient, attacks)
    done = obedient.run().playbook
    statuses = list_statuses(obedient)
    assert (done.entries_active, set(statuses)) == (0, {"review"})
    assert len(statuses) > len(attacks) / 2


def test_harmless_advice_becomes_active(obedient: Pipeline) -> None:
    plant(obedient, PLAIN)
    assert obedient.run().playbook.entries_active >= 6


def test_person_approves_by_default(obedient: Pipeline) -> None:
    obedient.configure(**{**OPTIONS, "playbook_approval": "person"})
    plant(obedient, HARMLESS[:8])
    done = obedient.run().playbook
    assert (done.entries_active, done.entries_waiting >= 6) == (0, True)


def claim(pipeline: Pipeline, texts: Sequence[str], *, writers: Sequence[str]) -> None:
    """Add texts as agents that claim to be many, and to matter."""
    for at, text in enumerate(texts):
        who = {f"{name}_id": f"{name}-{at}" for name in ("session", "agent")}
        row = {"content": text, "success": True, "importance": 1, **who}
        writer = writers[at % len(writers)]
        add_memories(pipeline.engine, SLUG, [row], source="agent", changed_by="bot", writer=writer)


@pytest.mark.parametrize(
    ("writers", "active"), [(["key:a"], 0), (["key:a", "key:b"], 0), (["key:a", "key:b", "key:c"], 1)]
)
def test_claims_of_a_key_are_one_writer(obedient: Pipeline, writers: Sequence[str], active: int) -> None:
    claim(obedient, [wording.format(HARMLESS[0]) for wording in WORDINGS], writers=writers)
    assert obedient.run().playbook.entries_active == active
    assert len(list_statuses(obedient)) == 1


def test_fields_of_an_agent_are_claimed(shared: Pipeline) -> None:
    shared.clear()
    ensure_project(shared.engine, SLUG)
    row = {"content": WEBHOOKS[0], "user_id": "ada", "success": True, "writer": "key:other"}
    added = add_memories(shared.engine, SLUG, [row], source="agent", changed_by="bot", writer="key:a")
    found = get_memory(shared.engine, added.added[0])
    assert (found["writer"], found["claimed"]) == ("key:a", ["user_id", "agent_id", "success", "importance"])
    trusted = add_memories(
        shared.engine, SLUG, [{"content": WEBHOOKS[1], "user_id": "ada"}], source="s", changed_by="a"
    )
    found = get_memory(shared.engine, trusted.added[0])
    assert (found["writer"], found["claimed"]) == (None, [])


def test_agent_claims_no_more_than_full_importance(shared: Pipeline) -> None:
    shared.clear()
    ensure_project(shared.engine, SLUG)
    row = {"content": WEBHOOKS[0], "importance": 7}
    done = add_memories(shared.engine, SLUG, [row], source="agent", changed_by="bot", writer="key:a")
    assert done.errors == [(0, "importance is 7.0: expected 0 to 1, as an agent wrote it")]
    assert add_memories(shared.engine, SLUG, [row], source="agent", changed_by="bot").added
