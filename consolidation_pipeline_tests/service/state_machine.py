"""State machine of three projects: random steps, with all invariants checked after each.

Steps import memories, run jobs, make and execute plans, take manual actions, and roll back or redo any of these.
After every step:

- replaying the ledger from the imports gives the tables, column by column;
- every invariant holds, after a run also those that hold only then;
- a step changes rows of its own project only, and a refused step changes nothing;
- a rollback restores every row it touches and leaves all others; the newest step of a project can be undone and redone.

At the end, everything is undone newest first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.lifecycle.archive import archive_memories
from consolidation_pipeline.service.lifecycle.associations import associate_memories
from consolidation_pipeline.service.lifecycle.decay import score_relevance
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, pin_memories, restore_memories
from consolidation_pipeline.service.lifecycle.relations import decide_relations
from consolidation_pipeline.service.plan.apply import request_plan_job
from consolidation_pipeline.service.plan.plan_document import Plan
from consolidation_pipeline.service.review.review_queue import decide_review
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline_tests.service.corpus import (
    LESSONS,
    NEAR_MISSES,
    REWORDINGS,
    STALE,
    TODAY,
    UNRELATED,
    WEBHOOKS,
    note,
)
from consolidation_pipeline_tests.service.full_undo import roll_back_everything
from consolidation_pipeline_tests.service.ledger_replay import (
    Key,
    Replay,
    Row,
    State,
    find_differences,
    load_state,
    select_project,
)
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, run_phases
from consolidation_pipeline_tests.service.plan.test_plan import load_plan_decisions, load_run_decisions
from consolidation_pipeline_tests.service.rules import AFTER_A_RUN, AT_ANY_TIME, find_violations
from consolidation_pipeline_tests.service.table_dumps import compute_checksums

SLUGS = ("alpha", "beta", "gamma")

# Few texts, so that they form groups; a text has several ids, so that it can be repeated.
_TEXTS = {
    **{f"lesson-{n}-{at}": how.format(LESSONS[n]) for n in range(2) for at, how in enumerate(REWORDINGS[:3])},
    **{f"shout-{n}": LESSONS[n].upper().rstrip(".") for n in range(2)},
    **{f"near-{side}": text for side, text in enumerate(NEAR_MISSES[0])},
    **{f"topic-{at}": text for at, text in enumerate(WEBHOOKS[:3])},
    "alone": UNRELATED[0],
}
_AGES: Mapping[str, Mapping[str, Any]] = {
    "new": {},
    "stale": STALE,
    "used": {**STALE, "reused_count": 5},
    "dull": {"created_at": (TODAY - timedelta(days=100)).isoformat(), "reused_count": 5, "importance": 0.1},
}  # fmt: skip


# (text, type, age, number of the copy); mostly of one type, because only one type merges.
NoteKey = tuple[str, str, str, int]
NOTES = st.tuples(
    st.sampled_from(sorted(_TEXTS)),
    st.sampled_from(["learning", "learning", "learning", "learning", "decision", "discovery", "refactor"]),
    st.sampled_from(["new", "new", "new", "stale", "used", "dull"]),
    st.integers(0, 2),
)

# Memories of a pattern, in the first project from the start.
TOPIC: list[NoteKey] = [(f"topic-{at}", "learning", "new", 0) for at in range(3)]


def _note(noted: NoteKey) -> dict[str, Any]:
    name, memory_type, age, number = noted
    user = {"user_id": "ada"} if number == 2 else {}
    return note("-".join(map(str, noted)), _TEXTS[name], **{"memory_type": memory_type, **_AGES[age], **user})


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "t_merge": st.sampled_from(["auto", 0.999, 0.999, 0.9, 0.82]),
        "sample_size": st.just(0),
        "cross_type": st.just(True),
        "scope": st.just("project"),
        "archive_max_share": st.just(1.0),
        "merge_max_chars": st.just(300),
        "min_pattern_size": st.just(3),
    },
)
# Index into a list, near its beginning, so that steps meet the same rows.
INDEXES = st.integers(0, 7)
# Number of alternating undos and redos directly after a step.
UNDO_COUNTS = st.sampled_from([0, 0, 0, 1, 1, 2])


@dataclass(frozen=True)
class Step:
    """Applied step of one project: the targets that undo it, and its rows before and after."""

    slug: str
    targets: Sequence[UUID]
    before: State
    after: State


class ProjectMachine(RuleBasedStateMachine):
    """Random operations on three projects; ``pipeline`` is the database of all examples."""

    pipeline: ClassVar[Pipeline]

    @initialize(options=OPTIONS, rows=st.lists(NOTES, min_size=4, max_size=12))
    def begin(self, options: dict[str, Any], rows: list[NoteKey]) -> None:
        self.pipeline.clear()
        for slug in SLUGS:
            self.pipeline.configure_new(slug, **_valid_options(options if slug == "alpha" else {}))
        self.ids = {slug: self.pipeline.project(slug).id for slug in SLUGS}
        self.ledger = Replay()
        self.state: State = {}
        self.steps: list[Step] = []
        self.newest: dict[str, Step] = {}
        self.plans: dict[str, Plan] = {}
        self.used: list[str] = []
        self.add("alpha", [*rows, *TOPIC], None, "run")

    @rule(
        slug=st.sampled_from(["alpha", *SLUGS]),
        rows=st.lists(NOTES, min_size=1, max_size=6),
        options=st.none() | OPTIONS,
        then=st.sampled_from([None, "run", "run", "run_planned", "plan", "carry_out", "associate"]),
    )
    def add(self, slug: str, rows: list[NoteKey], options: dict[str, Any] | None, then: str | None) -> None:
        """Import memories, sometimes change options, and mostly run an operation after it."""
        if options is not None:
            self.pipeline.configure(slug, **_valid_options(options))
        self.pipeline.add(map(_note, rows), slug)
        self.used = list(dict.fromkeys([*self.used, slug]))
        self.check(slug)
        if then is not None:
            getattr(self, then)(slug)

    def teardown(self) -> None:
        """Undo everything, group by group: newest first, this is never refused."""
        for slug in self.used:
            roll_back_everything(self.pipeline, slug)

    # --- jobs --------------------------------------------------------------------------------------------------------

    @rule(
        place=INDEXES,
        job=st.sampled_from(["run", "run_planned", "carry_out", "associate", "forget", "summarize"]),
        turns=UNDO_COUNTS,
    )
    def job(self, place: int, job: str, turns: int) -> None:
        slug = self.used[place % len(self.used)]
        getattr(self, job)(slug)
        self.undo_newest(slug, turns)

    def run(self, slug: str) -> None:
        self.record(slug, [self.pipeline.run(slug).job_id], after_run=True)

    def run_planned(self, slug: str) -> None:
        """Run, and compare the result with a plan made just before."""
        made = self._plan(slug)
        outcome = self.pipeline.run(slug)
        merged, archived = load_plan_decisions(made)
        assert load_run_decisions(self.pipeline, outcome.job_id) == (merged, {} if made.held_back else archived)
        self.record(slug, [outcome.job_id], after_run=True)

    def plan(self, slug: str) -> None:
        before = compute_checksums(self.pipeline)
        self.plans[slug] = self._plan(slug)
        assert compute_checksums(self.pipeline) == before

    def carry_out(self, slug: str) -> None:
        """Apply a plan made earlier: all of it that is not done yet, or nothing."""
        made = self.plans.pop(slug, None) or self._plan(slug)
        expected = self._drop_done(made)
        project = self.pipeline.project(slug)
        job = request_plan_job(
            self.pipeline.engine, project, made, settings=self.pipeline.settings, triggered_by="tester"
        )
        try:
            with self.pipeline.open(slug) as run:
                run_phases(run)
        except ConflictError:
            assert not self.check(slug)
            return
        assert load_run_decisions(self.pipeline, job) == expected
        self.record(slug, [job], after_run=True)

    def _drop_done(self, made: Plan) -> tuple[Any, Any]:
        """Return the decisions of a plan that no other run has made since."""
        merges, archives = load_plan_decisions(made)
        rows = {UUID(id_): row for (_, id_), row in self.state.items()}
        done = {
            id_
            for id_, (text, sources) in merges.items()
            if (row := rows.get(id_)) and row["content"] == text and sources == set(map(UUID, row["source_memory_ids"]))
        }
        return (
            {id_: merge for id_, merge in merges.items() if id_ not in done},
            {id_: policy for id_, policy in archives.items() if rows.get(id_, {}).get("archive_reason") != policy},
        )

    def associate(self, slug: str) -> None:
        with self.pipeline.open(slug, job="associate", planned=("associations",)) as run:
            with run.phase("associations"):
                associate_memories(run)
            job = run.job_id
        self.record(slug, [job])

    def forget(self, slug: str) -> None:
        phases = {"decay_scores": score_relevance, "archived_memories": archive_memories}
        with self.pipeline.open(slug, job="forget", planned=tuple(phases)) as run:
            run.options = run.options.model_copy(update={"forgetting": True, "forget_threshold": 0.3})
            for name, phase in phases.items():
                with run.phase(name):
                    phase(run)
            job = run.job_id
        self.record(slug, [job])

    def summarize(self, slug: str) -> None:
        phases = JOB_PHASES["summarize"]
        with self.pipeline.open(slug, job="summarize", planned=phases) as run:
            run_phases(run, phases)
            job = run.job_id
        self.record(slug, [job])

    # --- manual actions ----------------------------------------------------------------------------------------------

    @rule(
        place=INDEXES,
        act=st.sampled_from(
            ["pin", "unpin", *["archive", "restore", "approve", "dismiss"] * 2, "confirmed", "rejected"]
        ),
        chosen=st.lists(INDEXES, min_size=1, max_size=3),
        fit=st.sampled_from([True, True, False]),
        turns=UNDO_COUNTS,
    )
    def by_hand(self, place: int, act: str, chosen: list[int], fit: bool, turns: int) -> None:
        """Apply a manual action to rows that allow it, or to any rows."""
        slug = self.used[place % len(self.used)]
        own = select_project(self.state, self.ids[slug])
        found = [
            UUID(key[1])
            for key in sorted(own)
            if _applies_to(act, key, own[key]) and (not fit or _ALLOWED[act](key, own[key]))
        ]
        ids = list(dict.fromkeys(found[at % len(found)] for at in chosen)) if found else []
        if ids:
            self._record_unless_refused(slug, lambda: self._act(act, ids))
            self.undo_newest(slug, turns)

    def _act(self, act: str, ids: list[UUID]) -> list[UUID]:
        """Apply a manual action; return its groups."""
        engine, by = self.pipeline.engine, {"changed_by": "tester"}
        if act in ("confirmed", "rejected"):
            return list(decide_relations(engine, ids, act, **by).values())
        if act in ("approve", "dismiss"):
            return [one.group_id for one in decide_review(engine, ids, approved=act == "approve", **by)]
        if act in ("pin", "unpin"):
            handled = pin_memories(engine, ids, pinned=act == "pin", **by)
        else:
            handled = (archive_manually if act == "archive" else restore_memories)(engine, ids, **by)
        return [one.group_id for one in handled]

    # --- undo and redo -----------------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["step", "id", "group_id", "job_id"]),
        place=INDEXES,
        cascade=st.booleans(),
        turns=UNDO_COUNTS,
    )
    def undo(self, what: str, place: int, cascade: bool, turns: int) -> None:
        """Undo any earlier step, change, group or job."""
        if what != "step":
            self._undo_any(what, place, cascade=cascade)
        elif self.steps:
            step = self.steps[-1 - place % len(self.steps)]
            self._undo(step.slug, step.targets, cascade=cascade)
            self.undo_newest(step.slug, turns)

    def undo_newest(self, slug: str, turns: int) -> None:
        """Undo and redo the newest step of a project in turn; this never conflicts."""
        for _ in range(turns if slug in self.newest else 0):
            assert self._undo(slug, self.newest[slug].targets)

    def _undo_any(self, level: str, place: int, *, cascade: bool) -> None:
        query = (
            f"SELECT {level}, project_id FROM {{s}}.consolidation_changes WHERE {level} IS NOT NULL "
            "GROUP BY 1, 2 ORDER BY max(seq) DESC"
        )
        found = self.pipeline.rows(query)
        if found:
            target, project_id = found[place % len(found)]
            self._undo(next(slug for slug, id_ in self.ids.items() if id_ == project_id), [target], cascade=cascade)

    def _undo(self, slug: str, targets: Sequence[UUID], *, cascade: bool = False) -> bool:
        return all(self._undo_one(slug, target, cascade=cascade) for target in reversed(targets))

    def _undo_one(self, slug: str, target: UUID, *, cascade: bool) -> bool:
        standing, everything = select_project(self.state, self.ids[slug]), compute_checksums(self.pipeline)
        known = next((step for step in self.steps if list(step.targets) == [target]), None)
        try:
            done = self.pipeline.roll_back(target, cascade=cascade)
        except ConflictError as error:
            event("refused to undo", " ".join(str(error).split()[1:6]))
            assert compute_checksums(self.pipeline) == everything
            return False
        event("undone", f"{done.scope}, {'redone' if done.redone else 'undone'}, {'cascade' if cascade else 'alone'}")
        expected = {**standing, **self._rows_before(done.rollback_id)}
        step = self.record(slug, [done.rollback_id])
        _assert_equal(step.after, {key: row for key, row in expected.items() if row})
        if known is not None and _contains(known.after, standing):
            came = known.after.keys() - known.before.keys()
            _assert_equal(
                {key: step.after[key] for key in step.after.keys() & (known.before.keys() | came)}, known.before
            )
        return True

    def _rows_before(self, rollback_id: UUID) -> dict[Any, Any]:
        """Return the rows of a rollback as they were before the oldest change that it undid."""
        query = (
            "SELECT c.entity_type, c.entity_id::text, min(c.seq) FROM {s}.consolidation_changes r "
            "JOIN {s}.consolidation_changes c ON c.id = r.reverts_change_id WHERE r.group_id = :rollback GROUP BY 1, 2"
        )
        undone = self.pipeline.rows(query, rollback=rollback_id)
        return {(table, id_): self.ledger.before((table, id_), seq) for table, id_, seq in undone}

    # --- checks ------------------------------------------------------------------------------------------------------

    def record(self, slug: str, targets: Sequence[UUID], *, after_run: bool = False) -> Step:
        """Check and record a step; a step without changes cannot be undone."""
        before = select_project(self.state, self.ids[slug])
        changed = self.check(slug, after_run=after_run)
        step = Step(slug, targets, before, select_project(self.state, self.ids[slug]))
        event("done", f"{sys._getframe(1).f_code.co_name} {'changed' if changed else 'nothing'}")
        if changed:
            self.steps.append(step)
            self.newest[slug] = step
        return step

    def check(self, slug: str, *, after_run: bool = False) -> int:
        """Check ledger and invariants after a step; return the number of new changes."""
        before, seq = self.state, self.ledger.seq
        self.state = load_state(self.pipeline)
        self.ledger.add_imported(self.state)
        self.ledger.apply_changes(self.pipeline)
        _assert_equal(self.state, self.ledger.state)
        project = str(self.ids[slug])
        changed_rows = find_differences(self.state, before)
        foreign = [key for key in changed_rows if (self.state.get(key) or before[key]).get("project_id") != project]
        assert not foreign, foreign
        finders = [*(AT_ANY_TIME if changed_rows else ()), *(AFTER_A_RUN if after_run else ())]
        with self.pipeline.engine.connect() as connection:
            broken = find_violations(connection, self.ids[slug], finders)
        assert not broken, broken
        return self.ledger.seq - seq

    def _plan(self, slug: str) -> Plan:
        return self.pipeline.plan(slug)

    def _record_unless_refused(self, slug: str, act: Callable[[], Any]) -> None:
        everything = compute_checksums(self.pipeline)
        try:
            groups = list(act())
        except ConflictError:
            assert compute_checksums(self.pipeline) == everything
            return
        self.record(slug, groups)


def _valid_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with ordered tiers, in which two memories form a pattern."""
    return {
        "t_pattern": 0.5,
        "min_pattern_size": 2,
        **options,
        **({"t_suggest": 0.75} if options.get("t_merge", "auto") != "auto" else {}),
    }


def _is_active(key: Key, row: Row) -> bool:
    if key[0] == "task_memories":
        return row["archived_at"] is None and row["consolidated_into_id"] is None
    return row["retired_at"] is None


def _applies_to(act: str, key: Key, row: Row) -> bool:
    """Return True if the action applies to rows of this kind."""
    if act in ("confirmed", "rejected"):
        return key[0] == "memory_relations"
    if act in ("approve", "dismiss"):
        return key[0] == "playbook_entries" or row.get("kind") in ("pattern", "principle")
    return key[0] in ("task_memories", "consolidated_memories")


def _waits(key: Key, row: Row) -> bool:
    return bool(
        row["status"] == "review" if key[0] == "playbook_entries" else row["needs_review"] and _is_active(key, row)
    )


# Manual actions and the rows that allow them.
_ALLOWED: Mapping[str, Callable[[Key, Row], bool]] = {
    "pin": lambda key, row: _is_active(key, row) and not row["pinned"],
    "unpin": lambda key, row: _is_active(key, row) and row["pinned"],
    "archive": lambda key, row: _is_active(key, row) and not row["pinned"],
    "restore": lambda _, row: row["archive_reason"] is not None,
    "approve": _waits,
    "dismiss": _waits,
    "confirmed": lambda _, row: row["status"] != "confirmed",
    "rejected": lambda _, row: row["status"] != "rejected",
}


def _assert_equal(found: State, expected: State) -> None:
    wrong = find_differences(found, expected)
    assert not wrong, wrong


def _contains(rows: State, state: State) -> bool:
    """Return True if ``state`` holds all of ``rows`` unchanged."""
    return all(state.get(key) == row for key, row in rows.items())
