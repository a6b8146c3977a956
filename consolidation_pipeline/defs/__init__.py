"""The Dagster definitions: one file per stage, its checks under its asset."""
