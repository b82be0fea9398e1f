"""Deployment files: what can be checked without a container runtime or a cluster."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from wallaroo.cli.main import EXIT_PIPELINE, EXIT_TAKEN_OVER, main
from wallaroo.monitoring.status_api.access import TOKEN_VARIABLE
from wallaroo.monitoring.status_api.figures import FIGURES

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
YAML = sorted(DEPLOY.rglob("*.y*ml"))
METRIC = re.compile(r"\bwallaroo_[a-z0-9_]+\b")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


@pytest.mark.parametrize("file", YAML, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_every_yaml_file_is_valid(file: Path) -> None:
    assert all(document is not None for document in yaml.safe_load_all(file.read_text()))


def test_promtool_accepts_the_alert_rules_and_the_configuration(promtool: str) -> None:
    folder = DEPLOY / "prometheus"
    for arguments in (
        ["check", "rules", "--lint-fatal", str(folder / "alerts.yml")],
        ["check", "config", "--syntax-only", str(folder / "prometheus.yml")],
    ):
        checked = subprocess.run(
            [promtool, *arguments], capture_output=True, timeout=400, text=True
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "file",
    [
        DEPLOY / "prometheus" / "alerts.yml",
        DEPLOY / "grafana" / "wallaroo.json",
        ROOT / "docs" / "monitoring.md",
    ],
    ids=lambda file: str(file.name),
)
def test_rules_panels_and_pages_use_metrics_that_exist(file: Path) -> None:
    """Every name of a metric is that of a sample in the table of figures."""
    used = {name for name in METRIC.findall(file.read_text()) if not name.endswith("_")}
    assert used
    assert used <= {sample for figure in FIGURES for sample in (figure.family, *figure.samples)}


def test_the_grafana_dashboard_has_panels_with_queries_and_no_fixed_data_source() -> None:
    dashboard = json.loads((DEPLOY / "grafana/wallaroo.json").read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["expr"] for target in panel["targets"])


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "systemd/wallaroo@.service").read_text()
    unit = tmp_path / "wallaroo@.service"
    unit.write_text(text.replace("/opt/wallaroo/bin/wallaroo", "/bin/true"))
    checked = subprocess.run([analyze, "verify", unit], capture_output=True, timeout=400, text=True)
    ours = [line for line in checked.stderr.splitlines() if "wallaroo@" in line]
    version = subprocess.run([analyze, "--version"], capture_output=True, text=True, timeout=400)
    found = re.search(r"systemd (\d+)", version.stdout)
    assert found
    if int(found[1]) < 254:  # it warns of them, and goes on
        ours = [line for line in ours if "RestartSteps" not in line and "MaxDelay" not in line]
    assert (checked.returncode, ours) == (0, [])


def test_the_unit_restarts_as_the_page_says() -> None:
    """After every failure but a wrong command line and a take-over, with a growing pause."""
    text = (DEPLOY / "systemd/wallaroo@.service").read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))
    assert settings["Restart"] == "on-failure"
    assert settings["RestartPreventExitStatus"] == f"{EXIT_PIPELINE} {EXIT_TAKEN_OVER}"
    pauses = settings["RestartSec"], settings["RestartSteps"], settings["RestartMaxDelaySec"]
    assert pauses == ("5", "6", "300")
    assert settings["StartLimitIntervalSec"] == "0"
    page = " ".join((ROOT / "docs/operations.md").read_text().split())
    assert "after every failure except 2 and 4, with a pause that grows from 5 s to 5 min" in page


def test_the_settings_are_installed_as_the_page_says(tmp_path: Path) -> None:
    """The command makes the folder, which nothing else does."""
    page = (ROOT / "docs/deployment.md").read_text()
    (command,) = re.findall(r"^install .*?(?=\s+#)", page, re.MULTILINE)
    here = command.replace(" /etc/", f" {tmp_path}/etc/")
    subprocess.run(here, shell=True, check=True, cwd=ROOT, timeout=400)
    file = tmp_path / "etc/wallaroo/word-count.env"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "APPLICATION=" in file.read_text()


def test_the_image_has_the_clients_of_all_connectors() -> None:
    assert "'.[all]'" in (DEPLOY / "docker/Dockerfile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (all_of_them,) = extras["all"]
    named = set(re.findall(r"[\w-]+", all_of_them.partition("[")[2]))
    assert named == extras.keys() - {"all", "dev", "bench", "inference"}


def test_the_command_that_shows_the_clients_of_the_image_imports_all() -> None:
    """Given each library of the extras that has a module, then the page imports one of it."""
    page = (ROOT / "docs/deployment.md").read_text()
    imported = re.search(r'--entrypoint python wallaroo-spark -c "import (.*)"', page)
    assert imported is not None
    roots = {name.partition(".")[0] for name in imported[1].split(", ")}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    chosen = re.findall(r"[\w-]+", extras["all"][0].partition("[")[2])
    wanted = {re.split(r"[\[<>=]", each)[0] for name in chosen for each in extras[name]}
    modules = packages_distributions()
    has_module = {name for names in modules.values() for name in names}
    missing = wanted - {name for root in roots for name in modules.get(root, ())}
    assert missing & has_module == set()


def test_the_versions_of_the_image_fit_together() -> None:
    """Pip refuses a set of constraints that an extra of a package contradicts.

    Installing the constraints themselves does not show it: their lines name no extras.
    """
    pinned = {
        canonicalize_name(line.name): str(line.specifier).removeprefix("==")
        for line in map(Requirement, lines_of(ROOT / "constraints.txt"))
    }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    clients = [each for name in extras.keys() - {"dev", "bench", "all"} for each in extras[name]]
    wanted = list(needed([Requirement(each) for each in clients]))
    named = {canonicalize_name(each.name) for each in wanted}
    assert named > {"certifi", "pyiceberg-core"}  # needed only through extras of others
    wrong = [
        f"{each} is pinned to {pinned[name]}"
        for each in wanted
        if not each.specifier.contains(pinned[name := canonicalize_name(each.name)])
    ]
    assert not wrong


def lines_of(file: Path) -> list[str]:
    """The lines of a file of requirements without comments."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [line for line in lines if line]


def needed(first: list[Requirement]) -> Iterator[Requirement]:
    """These requirements, and all that they lead to by what is installed."""
    seen: set[str] = set()
    waiting = [(each, {""}) for each in first]
    while waiting:
        requirement, extras = waiting.pop()
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        yield requirement
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        inner = requires(requirement.name) or []
        waiting += [(Requirement(each), requirement.extras | {""}) for each in inner]


def standby_script() -> str:
    """The script of the pods of which one leads."""
    pods = documents("kubernetes/standby.yaml")[1]["spec"]["template"]["spec"]
    return str(pods["containers"][0]["args"][0])


@pytest.mark.parametrize(
    ("pod", "has_checkpoint", "is_standby"),
    [
        ("word-count-0", False, False),
        ("word-count-0", True, True),
        ("word-count-1", False, True),
        ("word-count-1", True, True),
    ],
)
def test_the_first_pod_begins_a_checkpoint_and_all_others_stand_by(
    tmp_path: Path, pod: str, has_checkpoint: bool, is_standby: bool
) -> None:
    if has_checkpoint:
        (tmp_path / "format.json").touch()
    script = standby_script().replace("/var/lib/wallaroo/word-count", str(tmp_path))
    shown = subprocess.run(
        ["/bin/sh", "-c", script.replace("exec wallaroo", "exec echo")],
        env={"HOSTNAME": pod, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert ("--standby" in shown.stdout.split()) == is_standby
    assert shown.stdout.startswith("run ")


def test_the_standby_of_a_cluster_shares_one_volume_and_is_never_ready() -> None:
    """A probe of the start that asks for readiness would end it."""
    claim, pods = documents("kubernetes/standby.yaml")
    template = pods["spec"]["template"]["spec"]
    (container,) = template["containers"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    names = [
        volume.get("persistentVolumeClaim", {}).get("claimName") for volume in template["volumes"]
    ]
    assert claim["metadata"]["name"] in names
    assert container["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert pods["spec"]["podManagementPolicy"] == "Parallel"


def test_the_drop_in_restarts_a_run_that_was_taken_over_as_a_standby() -> None:
    """Systemd empties a list by an assignment without a value."""
    text = (DEPLOY / "systemd/standby.conf").read_text()
    assert f"RestartPreventExitStatus=\nRestartPreventExitStatus={EXIT_PIPELINE}\n" in text
    assert "Environment=OPTIONS=--standby\n" in text
    assert " run --no-live $OPTIONS " in (DEPLOY / "systemd/wallaroo@.service").read_text()


def commands() -> dict[str, list[str]]:
    """The arguments of ``wallaroo run`` in each file, placeholders filled in."""
    container = documents("kubernetes/wallaroo.yaml")[2]["spec"]["template"]["spec"]["containers"][
        0
    ]
    (compose,) = documents("docker/compose.yaml")
    (standby,) = documents("docker/compose.standby.yaml")
    unit = (DEPLOY / "systemd/wallaroo@.service").read_text()
    line = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    filled = line.replace("${MASTER}", "local[4]").replace("${STATUS}", "127.0.0.1:4040")
    return {
        "kubernetes": container["args"],
        "compose": compose["services"]["word-count"]["command"],
        "compose standby": standby["services"]["standby"]["command"],
        "kubernetes standby": standby_script().partition("exec wallaroo ")[2].split(),
        "systemd": [*filled.split()[1:-2], "word_count.py"],
    }


@pytest.mark.parametrize(
    "name", ["kubernetes", "kubernetes standby", "compose", "compose standby", "systemd"]
)
def test_the_commands_are_ones_that_wallaroo_run_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``--help`` in front of the application the options are parsed and nothing runs."""
    words = commands()[name]
    assert words[0] == "run"
    options = words[: next(i for i, word in enumerate(words) if word.endswith(".py"))]
    known = capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    known = capsys.readouterr()
    for option in (word for word in options if word.startswith("--")):
        assert option in known.out, option


def test_probes_of_kubernetes_and_docker_ask_paths_that_exist() -> None:
    container = documents("kubernetes/wallaroo.yaml")[2]["spec"]["template"]["spec"]["containers"][
        0
    ]
    paths = {
        container[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {"/healthz", "/readyz"}
    assert "/healthz" in (DEPLOY / "docker/Dockerfile").read_text()


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.36"])
@pytest.mark.parametrize("name", ["wallaroo", "standby"])
def test_kubernetes_objects_fit_the_schemas_of_its_versions(name: str, version: str) -> None:
    """Unknown fields are errors.  A PodMonitor is of Prometheus's operator, and has no schema."""
    for document in documents(f"kubernetes/{name}.yaml"):
        assert kubernetes_validate.validate(document, version, strict=True) == version


def test_the_schemas_refuse_a_field_that_does_not_exist() -> None:
    stateful = documents("kubernetes/wallaroo.yaml")[2]
    stateful["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePullPolice"):
        kubernetes_validate.validate(stateful, "1.33", strict=True)


def test_kubernetes_objects_fit_together() -> None:
    application, service, stateful = documents("kubernetes/wallaroo.yaml")
    pod = stateful["spec"]["template"]
    selector = stateful["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == selector
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert stateful["spec"]["serviceName"] == service["metadata"]["name"]
    assert stateful["spec"]["replicas"] == 1  # a checkpoint has one owner
    (container,) = pod["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert application["metadata"]["name"] in json.dumps(pod)


def test_the_pod_monitor_finds_the_pod_its_port_and_its_token() -> None:
    (monitor,) = documents("kubernetes/podmonitor.yaml")
    pod = documents("kubernetes/wallaroo.yaml")[2]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (token,) = container["env"]
    assert monitor["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    assert endpoint["authorization"]["credentials"] == token["valueFrom"]["secretKeyRef"]
    assert token["name"] == TOKEN_VARIABLE
    assert "annotations" not in pod["metadata"]  # scraping by annotation sends no token


def test_the_dockerfile_copies_only_what_exists() -> None:
    text = (DEPLOY / "docker/Dockerfile").read_text()
    root = DEPLOY.parent
    for line in text.splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for name in line.split()[1:-1]:
                assert (root / name).exists(), name


def test_the_image_of_an_application_installs_as_root_and_runs_as_its_user() -> None:
    """The environment of the image belongs to root."""
    text = (ROOT / "docs/kubernetes.md").read_text()
    built = text.partition("```dockerfile\n")[2].partition("```")[0].splitlines()
    base = (DEPLOY / "docker/Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in base if line.startswith("USER ")]
    run = users[-1]
    for line in built:
        if line.startswith("USER "):
            users.append(line.split()[1])
        if line.startswith("RUN "):
            assert users[-1] == "root", line
    assert users[-1] == run != "root"
