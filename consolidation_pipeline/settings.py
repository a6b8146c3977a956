"""What the environment says: where memories live and which models are used. All optional."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

from platformdirs import user_data_path
from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_PACKAGE = Path(__file__).resolve().parent
# A wheel has inside the package (`installed`, see pyproject.toml) what a checkout has beside it.
IS_INSTALLED = not (_PACKAGE.parent / "dagster.yaml").is_file()
RESOURCE_DIR = _PACKAGE / "installed" if IS_INSTALLED else _PACKAGE.parent
# Where data and Dagster's files are: the checkout, or one folder of the user, whatever folder a process starts in.
PROJECT_ROOT = user_data_path("consolidation-pipeline") if IS_INSTALLED else _PACKAGE.parent


def use_dagster_home() -> Path:
    """DAGSTER_HOME; where it is not set, it is set to the project's folder.

    An installed package puts its dagster.yaml there, once: people may edit it.
    """
    if "DAGSTER_HOME" not in os.environ:
        os.environ["DAGSTER_HOME"] = str(PROJECT_ROOT)
        if IS_INSTALLED and not (PROJECT_ROOT / "dagster.yaml").exists():
            PROJECT_ROOT.mkdir(parents=True, exist_ok=True)
            # In one step: another process may be about to read it.
            written = shutil.copy(RESOURCE_DIR / "dagster.yaml", PROJECT_ROOT / f".dagster.yaml.{os.getpid()}")
            os.replace(written, PROJECT_ROOT / "dagster.yaml")
    return Path(os.environ["DAGSTER_HOME"])


class Settings(BaseSettings):
    """Settings of this process, read from ``CONSOLIDATION_*`` variables when it is created."""

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
    api_host: str = Field("127.0.0.1", description="Address the HTTP API listens on.")
    api_port: int = Field(8642, ge=1, le=65535, description="Port the HTTP API listens on.")
    api_auth: Literal["on", "off"] = Field("on", description="off = no keys; only on a loopback host.")
    api_rate: float = Field(500, gt=0, description="Requests a second that each key may make.")
    api_burst: int = Field(1000, ge=1, description="Requests that a key may make at once, after a pause.")
    api_max_body: int = Field(1_000_000, ge=1_000, description="Largest body of a request, bytes.")
    log_format: Literal["text", "json"] = Field("text", description="Lines of the log: text, or JSON for programs.")
    mcp_hosts: str = Field(
        "", description="Names, separated by commas, under which a proxy on this machine serves MCP to others."
    )
    webhook_url: SecretStr | None = Field(None, description="Where events are delivered; its path may be a secret.")
    webhook_secret: SecretStr | None = Field(None, description="Signs webhook deliveries (Standard Webhooks).")
    webhook_allow_private: bool = Field(
        False, description="Whether the webhook may be on a private or loopback address; off keeps requests outside."
    )
    dagster_postgres_url: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("DAGSTER_POSTGRES_URL"),
        description="Postgres of Dagster's own storage; unset = a database of the embedded server.",
    )
    broker_url: SecretStr | None = Field(
        None, description="Celery broker from which workers take runs; unset = the Postgres of Dagster's own storage."
    )

    @field_validator("data_dir")
    @classmethod
    def _from_the_project(cls, folder: Path) -> Path:
        # Not from the current folder, which differs between the processes that share the server.
        return PROJECT_ROOT / folder.expanduser()
