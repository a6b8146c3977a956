"""Files in deploy/ agree with the code: names, ports, paths, variables and limits. No container is started."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from consolidation_pipeline.settings import PROJECT_ROOT, Settings

DEPLOY = PROJECT_ROOT / "deploy"
CODE_MODULE = "consolidation_pipeline.definitions"
# Variables read by Dagster, the providers and the workspace, in addition to the settings.
OTHER_VARIABLES = {"DAGSTER_HOME", "CONSOLIDATION_AUTOMATION", "CONSOLIDATION_CODE_HOST", "CONSOLIDATION_CODE_PORT"} | {
    "OPENAI_API_KEY",
    "POSTGRES_PASSWORD",
    "CONSOLIDATION_INSTANCE",
    "CONSOLIDATION_VERSION",
}


def known_variables() -> set[str]:
    prefix = str(Settings.model_config["env_prefix"])
    return OTHER_VARIABLES | {"DAGSTER_POSTGRES_URL"} | {f"{prefix}{name}".upper() for name in Settings.model_fields}


def load_yaml(path: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / path).read_text())
    return loaded


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = load_yaml("deploy/docker-compose.yml")["services"]
    return found


def test_distributed_instance_matches_local_settings() -> None:
    local, distributed = load_yaml("dagster.yaml"), load_yaml("deploy/distributed/dagster.yaml")
    for section in ("storage", "concurrency", "run_retries"):
        assert distributed[section] == local[section]
    waits = "free_slots_after_run_end_seconds"
    assert distributed["run_monitoring"][waits] == local["run_monitoring"][waits] > 0
    launcher = distributed["run_launcher"]
    module = pytest.importorskip(launcher["module"])
    assert vars(module)[launcher["class"]].__mro__[1].__name__ == "CeleryRunLauncher"
    assert module.app.main == "dagster"


def test_distributed_workspace_names_code_server(services: dict[str, dict[str, Any]]) -> None:
    server = load_yaml("deploy/distributed/workspace.yaml")["load_from"][0]["grpc_server"]
    environment = services["code"]["environment"]
    assert environment[server["host"]["env"]] == "code"
    assert environment[server["port"]["env"]] == services["code"]["command"][-1]
    assert server["location_name"] == load_yaml("workspace.yaml")["load_from"][0]["python_module"]["location_name"]


def test_compose_sets_only_known_variables(services: dict[str, dict[str, Any]]) -> None:
    text = (DEPLOY / "docker-compose.yml").read_text()
    own = {name for service in services.values() for name in service["environment"]} - {"POSTGRES_USER", "POSTGRES_DB"}
    assert own | set(re.findall(r"\$\{(\w+)", text)) <= known_variables()


def test_compose_runs_existing_commands(services: dict[str, dict[str, Any]]) -> None:
    from typer.main import get_command

    from consolidation_pipeline.cli.app import app

    commands = {name: service["command"] for name, service in services.items() if "command" in service}
    assert commands["init"][-1].startswith("consolidation init")
    assert {"init", commands["api"][1]} <= set(get_command(app).commands)  # type: ignore[attr-defined]
    assert commands["code"][4] == CODE_MODULE
    assert find_spec(CODE_MODULE) is not None
    assert find_spec(commands["worker"][2]) is not None
    for name in ("webserver", "daemon"):
        assert (PROJECT_ROOT / commands[name][-1]).is_file()


def test_compose_health_checks_match_services(services: dict[str, dict[str, Any]]) -> None:
    from consolidation_pipeline.api.health import router

    checks = {name: " ".join(map(str, service["healthcheck"]["test"])) for name, service in services.items()
             if "healthcheck" in service}  # fmt: skip
    port, path = re.findall(r"127\.0\.0\.1:(\d+)(/[\w/]+)", checks["api"])[0]
    assert port == services["api"]["command"][-1] == str(Settings.model_fields["api_port"].default)
    assert path in {route.path for route in router.routes}  # type: ignore[attr-defined]
    assert checks["code"].split()[-1] == services["code"]["command"][-1]
    for waiting in services.values():
        for other, condition in waiting.get("depends_on", {}).items():
            assert condition["condition"] != "service_healthy" or other in checks


def test_compose_publishes_only_loopback_ports(services: dict[str, dict[str, Any]]) -> None:
    published = {name: port for name, service in services.items() for port in service.get("ports", ())}
    assert set(published) == {"webserver", "api"}
    for name, port in published.items():
        host, outside, inside = port.split(":")
        assert (host, outside) == ("127.0.0.1", inside)
        assert inside in services[name]["command"]


def test_deploy_files_hold_no_secret() -> None:
    for path in [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"]:
        text = re.sub(r"^ *#.*$", "", path.read_text(), flags=re.MULTILINE)
        for found in re.findall(r"(?i)(?:password|secret|api_key)\w*: +(\S+)", text):
            assert found.startswith(("${", "*", "&", "dagster-postgresql", "false")), (path.name, found)


def test_dockerfile_copies_existing_allowed_files() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    allowed = [line[1:] for line in (PROJECT_ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    for name in copied:
        assert (PROJECT_ROOT / name).exists()
        assert any(fnmatch.fnmatch(name, pattern) for pattern in allowed), name
    pyproject = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
    assert set(pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]) <= set(copied)
    assert set(re.findall(r"--extra (\w+)", text)) <= set(pyproject["project"]["optional-dependencies"])
    assert all(re.search(r":\d+\.\d+\.\d+", image) for image in re.findall(r"^FROM (\S+[./:]\S+)", text, re.MULTILINE))
    assert re.search(r"^USER [1-9]\d*$", text, re.MULTILINE)


def test_helm_values_match_dagster_version_and_limits() -> None:
    from importlib.metadata import version

    text, values = (DEPLOY / "helm" / "values.yaml").read_text(), load_yaml("deploy/helm/values.yaml")
    assert f"version {version('dagster')}," in text
    deployment = values["dagster-user-deployments"]["deployments"][0]
    assert deployment["dagsterApiGrpcArgs"] == ["-m", CODE_MODULE]
    assert deployment["image"]["tag"] == version("consolidation-pipeline")
    (user,) = re.findall(r"^USER (\d+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert deployment["podSecurityContext"]["runAsUser"] == int(user)
    limits = values["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"]["tagConcurrencyLimits"]
    assert limits == load_yaml("dagster.yaml")["concurrency"]["runs"]["tag_concurrency_limits"]
    assert set(re.findall(r"\b(?:CONSOLIDATION|DAGSTER)_\w+", text)) <= known_variables()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_workers_share_runs_and_survive_kill() -> None:
    pytest.importorskip("dagster_celery")
    done = subprocess.run([sys.executable, Path(DEPLOY, "two_workers.py"), "5", "500"], check=False)
    assert done.returncode == 0
