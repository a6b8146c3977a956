"""Settings from environment variables: database, models, servers. All are optional."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

from platformdirs import user_data_path
from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_PACKAGE = Path(__file__).resolve().parent
# A wheel has its resource files in the package (`installed`, see pyproject.toml), a checkout next to it.
IS_INSTALLED = not (_PACKAGE.parent / "dagster.yaml").is_file()
RESOURCE_DIR = _PACKAGE / "installed" if IS_INSTALLED else _PACKAGE.parent
# Folder of the data and of Dagster's files: the checkout, or one folder of the user if installed.
PROJECT_ROOT = user_data_path("consolidation-pipeline") if IS_INSTALLED else _PACKAGE.parent


def use_dagster_home() -> Path:
    """Return DAGSTER_HOME; if it is not set, set it to the project's folder.

    An installed package copies its dagster.yaml there once. Users may edit the copy.
    """
    if "DAGSTER_HOME" not in os.environ:
        os.environ["DAGSTER_HOME"] = str(PROJECT_ROOT)
        if IS_INSTALLED and not (PROJECT_ROOT / "dagster.yaml").exists():
            PROJECT_ROOT.mkdir(parents=True, exist_ok=True)
            # Atomic: another process may be about to read it.
            copied = shutil.copy(RESOURCE_DIR / "dagster.yaml", PROJECT_ROOT / f".dagster.yaml.{os.getpid()}")
            os.replace(copied, PROJECT_ROOT / "dagster.yaml")
    return Path(os.environ["DAGSTER_HOME"])


class Settings(BaseSettings):
    """Settings of this process, read from ``CONSOLIDATION_*`` variables when the object is created."""

    model_config = SettingsConfigDict(env_prefix="CONSOLIDATION_", extra="ignore", env_ignore_empty=True)

    database_url: SecretStr | None = Field(None, description="Postgres with pgvector; unset = the embedded server.")
    data_dir: Path = Field(
        PROJECT_ROOT / ".consolidation",
        description="Folder of the embedded server and its logs; relative to the project's folder.",
    )
    llm_model: str | None = Field(None, description="litellm model name; unset = no LLM.")
    embedding_model: str | None = Field(
        None, description="litellm embedding model; unset = each project's own (local)."
    )
    allowed_models: str = Field(
        "",
        description="litellm models that projects may choose, separated by commas, with * as a wildcard; empty = any.",
    )
    max_usd_per_day: float | None = Field(
        None, ge=0, description="Highest budget_usd_per_day that a project may choose; unset = no limit."
    )
    max_tokens_per_run: int | None = Field(
        None, ge=0, description="Highest budget_tokens_per_run that a project may choose; unset = no limit."
    )
    judge_dir: Path | None = Field(
        None,
        description="Folder of the cross-encoders that projects may choose as pair judge; relative to the project's "
        "folder; unset = none.",
    )
    api_host: str = Field("127.0.0.1", description="Address the HTTP API listens on.")
    api_port: int = Field(8642, ge=1, le=65535, description="Port the HTTP API listens on.")
    api_auth: Literal["on", "off"] = Field("on", description="off = no keys; only on a loopback host.")
    api_rate: float = Field(500, gt=0, description="Requests per second allowed for each key.")
    api_burst: int = Field(1000, ge=1, description="Requests allowed at once for a key after a pause.")
    api_max_body: int = Field(1_000_000, ge=1_000, description="Largest request body, bytes.")
    api_max_connections: int = Field(512, ge=8, description="Connections open at once.")
    log_format: Literal["text", "json"] = Field("text", description="Format of log lines: text, or JSON for programs.")
    mcp_hosts: str = Field(
        "", description="Host names, separated by commas, under which a proxy on this machine serves MCP."
    )
    webhook_url: SecretStr | None = Field(None, description="URL that events are sent to; its path may be a secret.")
    webhook_secret: SecretStr | None = Field(
        None, description="Secret that signs webhook deliveries (Standard Webhooks)."
    )
    webhook_allow_private: bool = Field(False, description="Allow a webhook on a private or loopback address.")
    dagster_postgres_url: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("DAGSTER_POSTGRES_URL"),
        description="Postgres of Dagster's own storage; unset = beside the memories.",
    )
    broker_url: SecretStr | None = Field(
        None, description="Celery broker that workers take runs from; unset = the Postgres of Dagster's own storage."
    )

    @field_validator("data_dir", "judge_dir")
    @classmethod
    def _resolve_folder(cls, folder: Path | None) -> Path | None:
        # Relative to the project, not to the current folder, which differs between processes that share the server.
        return None if folder is None else PROJECT_ROOT / folder.expanduser()
