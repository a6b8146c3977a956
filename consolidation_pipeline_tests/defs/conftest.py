"""What a run of Dagster leaves behind keeps the rules too."""

from consolidation_pipeline_tests.service.rules import rules_hold as rules_hold
