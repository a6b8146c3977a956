"""Random sequences of operations on projects keep all invariants.

``CONSOLIDATION_LIFE_EXAMPLES=1000 pytest <this file>`` runs 1000 sequences instead of a few. A failure is printed as
its steps, with a line that reproduces it.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from consolidation_pipeline_tests.hypothesis_examples import ALL_TESTS
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.state_machine import ProjectMachine

EXAMPLES = int(os.environ.get("CONSOLIDATION_LIFE_EXAMPLES", "10" if ALL_TESTS else "2"))
STEPS = 12


@pytest.mark.timeout(300 + 10 * EXAMPLES)
def test_random_operations_keep_invariants(shared: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProjectMachine, "pipeline", shared, raising=False)
    run_state_machine_as_test(
        ProjectMachine,
        settings=settings(
            deadline=None,
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
