"""Fixtures of Dagster tests: invariants are checked after every run."""

from consolidation_pipeline_tests.service.rules import rules_hold as rules_hold
