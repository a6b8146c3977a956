"""Programming languages and tools by name and by file ending, to count what a project works with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import PurePosixPath

from consolidation_pipeline.core.case_blind import ignore_case

# File endings of languages and formats.
_ENDINGS = {
    "py": "Python", "pyi": "Python", "ipynb": "Jupyter", "ts": "TypeScript", "tsx": "TypeScript", "mts": "TypeScript",
    "js": "JavaScript", "jsx": "JavaScript", "mjs": "JavaScript", "cjs": "JavaScript", "rs": "Rust", "go": "Go",
    "java": "Java", "kt": "Kotlin", "kts": "Kotlin", "scala": "Scala", "c": "C", "h": "C", "cpp": "C++", "cc": "C++",
    "hpp": "C++", "cs": "C#", "rb": "Ruby", "php": "PHP", "swift": "Swift", "dart": "Dart", "ex": "Elixir",
    "exs": "Elixir", "erl": "Erlang", "hs": "Haskell", "lua": "Lua", "pl": "Perl", "r": "R", "jl": "Julia",
    "sql": "SQL", "sh": "shell", "bash": "shell", "ps1": "PowerShell", "html": "HTML", "css": "CSS", "scss": "CSS",
    "vue": "Vue", "svelte": "Svelte", "tf": "Terraform", "proto": "Protocol Buffers", "yml": "YAML", "yaml": "YAML",
    "toml": "TOML", "json": "JSON", "md": "Markdown", "rst": "reStructuredText", "zig": "Zig", "sol": "Solidity",
}  # fmt: skip
# Names that are no other words, in any letter case.
_LANGUAGES = (
    "Python TypeScript JavaScript Kotlin Scala Ruby PHP Dart Elixir Haskell Julia SQL PowerShell HTML CSS Java C++ C# "
    "Solidity"
).split()
_TOOLS = (
    """
    Docker Kubernetes Helm Terraform Ansible Jenkins Nginx Apache Redis PostgreSQL Postgres MySQL MariaDB SQLite
    MongoDB Kafka RabbitMQ Elasticsearch OpenSearch ClickHouse BigQuery Snowflake DuckDB Supabase Firebase AWS Azure
    GCP S3 Lambda CloudFront Cloudflare Vercel Netlify Heroku GitHub GitLab Bitbucket Jira Slack Telegram Discord
    Grafana Prometheus Datadog Sentry OpenTelemetry pytest unittest mypy ruff flake8 pylint Poetry pip conda NumPy
    pandas SciPy PyTorch TensorFlow scikit-learn Jupyter Airflow Dagster dbt Django FastAPI SQLAlchemy Alembic
    Celery Pydantic Node.js npm pnpm yarn webpack Vite ESLint Prettier Vitest Mocha Playwright Selenium Next.js Nuxt
    Angular Svelte Tailwind GraphQL gRPC Gradle Maven JUnit Hibernate Hadoop HDFS YARN ZooKeeper Protobuf cargo
    rustc clippy tokio CMake LLVM Bazel Git PM2 systemd cron SSH tmux VSCode Ollama OpenAI Anthropic Claude Codex
    DeepSeek Gemini LangChain MCP Webpack Babel Electron Android iOS Xcode Unity Stripe n8n Promtail Loki Netdata
    """
).split()
# Names that are words too: counted as written here, and not at the beginning of a sentence.
_NAMES_AS_WRITTEN = (
    "Rust Go Swift React Vue Express Flask Spring Spark Node Jest Vault Consul Chef Make Celery R".split()
)


def _match_any(names: Iterable[str]) -> str:
    return rf"(?<![\w./-])(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?![\w/-])"


_SPELLINGS = {name.lower(): name for name in (*_LANGUAGES, *_TOOLS)} | {"postgresql": "Postgres"}
_ANY_CASE = ignore_case(_match_any(name.lower() for name in (*_LANGUAGES, *_TOOLS)))
# Behind a word in lower case or a comma: "in Express", not "American Express".
_AS_WRITTEN = re.compile(rf"(?:\b[a-z][\w'’-]*|,) ({_match_any(_NAMES_AS_WRITTEN)})")
_LANGUAGE_NAMES = frozenset(_LANGUAGES) | {"Rust", "Go", "Swift", "R"}


def find_languages(text: str, tags: Iterable[str], files: Iterable[str]) -> set[str]:
    """Return the programming languages and formats of the files, and the languages that the text or tags name."""
    endings = (PurePosixPath(file.replace("\\", "/")).suffix[1:].lower() for file in files)
    tagged = {tag.lower() for tag in tags}
    by_tag = {name for name in _LANGUAGE_NAMES if name.lower() in tagged} if tagged else set()
    return (
        {_ENDINGS[ending] for ending in endings if ending in _ENDINGS} | by_tag | (_find_names(text) & _LANGUAGE_NAMES)
    )


def find_tools(text: str, tags: Iterable[str]) -> set[str]:
    """Return the tools and services that the text or the tags name."""
    return {*_find_names(text), *_find_names(" ".join(tags))} - _LANGUAGE_NAMES


# A profile asks for the languages of a text, then for its tools.
@lru_cache(maxsize=1 << 10)
def _find_names(text: str) -> frozenset[str]:
    return frozenset({_SPELLINGS[name.lower()] for name in _ANY_CASE.findall(text)} | set(_AS_WRITTEN.findall(text)))
