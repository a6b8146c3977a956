"""Settings from environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from consolidation_pipeline.settings import PROJECT_ROOT, Settings


@pytest.fixture(autouse=True)
def _unset_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "DATA_DIR", "LLM_MODEL", "EMBEDDING_MODEL"):
        monkeypatch.delenv(f"CONSOLIDATION_{name}", raising=False)
    monkeypatch.delenv("DAGSTER_POSTGRES_URL", raising=False)


def test_settings_have_working_defaults() -> None:
    settings = Settings()
    assert settings.database_url is None
    assert settings.dagster_postgres_url is None
    assert settings.data_dir == PROJECT_ROOT / ".consolidation"


def test_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", "")
    assert Settings().database_url is None


@pytest.mark.parametrize(
    ("value", "folder"),
    [("data", PROJECT_ROOT / "data"), ("/srv/memories", Path("/srv/memories")), ("~/m", Path.home() / "m")],
)
def test_data_folder_ignores_working_directory(
    value: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONSOLIDATION_DATA_DIR", value)
    assert Settings().data_dir == folder


def test_settings_repr_hides_password() -> None:
    assert "hunter2" not in repr(Settings(database_url="postgresql://me:hunter2@db/memories"))
