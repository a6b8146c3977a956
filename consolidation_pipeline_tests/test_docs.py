"""Documentation: names, links, commands and options agree with the code."""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from consolidation_pipeline.options import OPTION_NAMES
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.database.schema import metadata


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    from consolidation_pipeline.definitions import defs

    return defs()


def read_page(name: str) -> str:
    return (PROJECT_ROOT / name).read_text()


def read_pages(*names: str) -> str:
    return "".join(map(read_page, names))


@functools.cache
def load_commands() -> dict[str, Any]:
    """Return the commands of the command line, by name."""
    from typer.main import get_command

    from consolidation_pipeline.cli.app import app

    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    return commands


def test_data_page_lists_every_table() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", read_page("docs/data.md"), flags=re.MULTILINE))
    assert listed == {table.name for table in metadata.tables.values()}


def test_assets_page_lists_every_definition(definitions: dg.Definitions) -> None:
    page = read_page("docs/assets.md")
    assert [name for name in definition_names(definitions) if f"`{name}`" not in page] == []


def test_env_example_lists_every_setting() -> None:
    listed = set(re.findall(r"^#(\w+)=", read_page(".env.example"), flags=re.MULTILINE))
    prefix = Settings.model_config["env_prefix"]
    known = {f"{prefix}{name}".upper() for name in Settings.model_fields if name != "dagster_postgres_url"}
    assert known | {"DAGSTER_POSTGRES_URL"} == listed - {"OPENAI_API_KEY"}


def test_links_in_docs_have_existing_targets() -> None:
    for page in list_pages():
        for target, _, heading in (
            link.partition("#") for link in re.findall(r"\]\((?!https?:)(.+?)\)", page.read_text())
        ):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name}: {target}"
            assert not heading or heading in list_headings(linked), f"{page.name}: {target}#{heading}"


def list_pages() -> list[Path]:
    return [*PROJECT_ROOT.glob("*.md"), *(PROJECT_ROOT / "docs").rglob("*.md")]


def list_headings(page: Path) -> set[str]:
    """Return the headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_commands_in_docs_exist() -> None:
    used = [
        (page.name, command)
        for page in list_pages()
        for command in re.findall(
            r"(?:^|[`(]|&& )consolidation ([a-z][^`|>;#&\n]*)", page.read_text(), flags=re.MULTILINE
        )
    ]
    assert len(used) > 200
    assert [(page, command, wrong) for page, command in used if (wrong := find_wrong_word(command))] == []


def find_wrong_word(text: str) -> str | None:
    """Return the first word of a command line that is no command, or no option of the command."""
    found: Any = None
    commands = load_commands()
    words = text.split()
    while words and commands:
        name = words.pop(0)
        if name not in commands:
            return None if found and not re.fullmatch(r"[a-z-]+", name) else name
        found = commands[name]
        commands = getattr(found, "commands", {})
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return next((word for word in words if re.fullmatch(r"--[a-z-]+", word) and word not in {*known, "--help"}), None)


def test_options_in_docs_exist() -> None:
    pages = read_pages("README.md", "docs/assets.md", "docs/operations.md")
    configured = re.findall(r"projects configure \w+((?: \w+=\S*)+)", pages)
    inline = re.findall(r"`(\w+)=\w+`", pages)
    used = {*inline, *(name for found in configured for name in re.findall(r"(\w+)=", found))}
    assert used
    assert used <= set(OPTION_NAMES)


def test_names_on_features_pages_exist(definitions: dg.Definitions) -> None:
    known = {*OPTION_NAMES, *schema_names(), *definition_names(definitions), *metadata_names(), *interface_names()}
    pages = read_pages("docs/features.md", "docs/design-differences.md")
    names = set(re.findall(r"`([^`]+)`", pages))
    missing = sorted(name for name in names - known if not name_exists(name))
    assert len(names) > 200
    assert missing == []


def schema_names() -> set[str]:
    tables = list(metadata.tables.values())
    indexes = {str(index.name) for table in tables for index in table.indexes}
    return {"playbook_changes", *indexes, *(t.name for t in tables), *(c.name for t in tables for c in t.columns)}


def definition_names(definitions: dg.Definitions) -> set[str]:
    """Return the names of assets, checks, jobs, sensors and schedules."""
    checks = {spec.name for check in definitions.asset_checks or () for spec in check.check_specs}  # type: ignore[union-attr]
    assets = {spec.key.path[-1] for spec in definitions.resolve_all_asset_specs()}
    named = [*(definitions.jobs or ()), *(definitions.sensors or ()), *(definitions.schedules or ())]
    return checks | assets | {one.name for one in named}


def metadata_names() -> set[str]:
    """Return the names in the table of assets and their metadata."""
    table, *_ = re.findall(r"\| asset \|.*?\n\n", read_page("docs/assets.md"), flags=re.DOTALL)
    return set(re.findall(r"`(\w+)`", table))


def interface_names() -> set[str]:
    """Return routes, body fields and MCP tools from pages that other tests check, and commands."""
    groups = {name: getattr(found, "commands", {}) for name, found in load_commands().items()}
    commands = {f"consolidation {name}" for name in groups}
    commands |= {f"consolidation {name} {sub}" for name, found in groups.items() for sub in found}
    api = read_page("docs/api.md")
    routes = re.findall(r"`([A-Z]+) /api/v1(/[^`]+)`", api)
    return {
        "/api/v1",
        "--help",
        "--json",
        "/review",
        "/projects",
        "consolidation run --pending",
        *commands,
        *(f"{method} {path}" for method, path in routes),
        *re.findall(r'"(\w+)":', api),
        *re.findall(r"^\| `(\w+)` \|", read_page("docs/mcp.md"), flags=re.MULTILINE),
    }


def name_exists(name: str) -> bool:
    """Return True if a test, file, public name of ``core`` or environment variable has this name."""
    if name.startswith("test_"):
        return name in list_test_names()
    if name.startswith("core."):
        module, _, attribute = name.rpartition(".")
        return hasattr(importlib.import_module(f"consolidation_pipeline.{module}"), attribute)
    if "/" in name:
        return any((folder / name).is_file() for folder in (PROJECT_ROOT, PROJECT_ROOT / "consolidation_pipeline"))
    return f"#{name}=" in read_page(".env.example")


@functools.cache
def list_test_names() -> frozenset[str]:
    files = Path(__file__).parent.rglob("test_*.py")
    return frozenset(name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))
