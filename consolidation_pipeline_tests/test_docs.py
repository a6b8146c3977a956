"""Docs list what the code has: names that appear in one and not in the other fail here."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import pytest

from consolidation_pipeline.options import OPTION_NAMES
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.schema import metadata


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    from consolidation_pipeline.definitions import defs

    return defs()


def read(name: str) -> str:
    return (PROJECT_ROOT / name).read_text()


def test_the_data_page_lists_every_table() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", read("docs/data.md"), flags=re.MULTILINE))
    assert listed == {table.name for table in metadata.tables.values()}


def test_the_assets_page_lists_every_asset_check_job_and_trigger(definitions: dg.Definitions) -> None:
    page = read("docs/assets.md")
    checks = {spec.name for check in definitions.asset_checks or () for spec in check.check_specs}  # type: ignore[union-attr]
    assets = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
    named = [*(definitions.jobs or ()), *(definitions.sensors or ()), *(definitions.schedules or ())]
    missing = [name for name in {*checks, *assets, *(thing.name for thing in named)} if f"`{name}`" not in page]
    assert missing == []


def test_the_environment_example_lists_every_setting() -> None:
    listed = set(re.findall(r"^#(\w+)=", read(".env.example"), flags=re.MULTILINE))
    prefix = Settings.model_config["env_prefix"]
    known = {f"{prefix}{name}".upper() for name in Settings.model_fields if name != "dagster_postgres_url"}
    assert known | {"DAGSTER_POSTGRES_URL"} == listed - {"OPENAI_API_KEY"}


def test_every_link_in_the_docs_leads_somewhere() -> None:
    for page in [PROJECT_ROOT / "README.md", *Path(PROJECT_ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_commands_in_the_readme_exist() -> None:
    from typer.main import get_command

    from consolidation_pipeline.cli.app import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    pages = read("README.md") + read("docs/operations.md") + read("docs/mcp.md")
    used = set(re.findall(r"(?:^|`|\$ )consolidation ([a-z]+)", pages, flags=re.MULTILINE))
    assert used
    assert used <= known


def test_the_subcommands_in_the_docs_exist() -> None:
    from typer.main import get_command

    from consolidation_pipeline.cli.app import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    groups = {name: found.commands for name, found in commands.items() if hasattr(found, "commands")}
    pages = "".join(
        read(name) for name in ("README.md", "CHANGELOG.md", "docs/assets.md", "docs/operations.md", "docs/mcp.md")
    )
    used = re.findall(rf"consolidation ({'|'.join(groups)}) ([\w|]+)", pages)
    missing = [f"{group} {name}" for group, names in used for name in names.split("|") if name not in groups[group]]
    assert used
    assert missing == []


def test_the_options_that_the_docs_set_exist() -> None:
    pages = "".join(read(name) for name in ("README.md", "docs/assets.md", "docs/operations.md"))
    configured = re.findall(r"projects configure \w+((?: \w+=\S*)+)", pages)
    inline = re.findall(r"`(\w+)=\w+`", pages)
    used = {*inline, *(name for found in configured for name in re.findall(r"(\w+)=", found))}
    assert used
    assert used <= set(OPTION_NAMES)
