"""``wallaroo new --template``: each one's test passes, and it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.fixtures import broker, topic
from tests.unit.cli.test_new_and_dev import executed
from wallaroo.cli.main import main
from wallaroo.cli.new import TEMPLATES, _files

__all__ = ["broker", "topic"]

OUTPUTS = {
    "clicks": "ada has 3 clicks",
    "windows": '{"minute":"2025-12-31T12:00+00:00","page":"/","views":2}',
    "vectorized": '{"page":"/","user":"ada","number":3}',
    "model": '{"id":3,"score":0.8586}',
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "own", "--template", request.param]) == 0
    return tmp_path


@pytest.mark.parametrize("made", list(TEMPLATES), indirect=True)
def test_its_test_passes_as_a_script_and_with_pytest(made: Path) -> None:
    script = executed("python own/test_own.py", made)
    assert (script.returncode, script.stderr) == (0, "")
    assert script.stdout.endswith("passed\n")
    by_pytest = executed("python -m pytest -q -p no:cacheprovider own", made)
    assert by_pytest.returncode == 0, by_pytest.stdout
    assert "$" not in (made / "own" / "README.md").read_text()


@pytest.mark.parametrize(("made", "output"), OUTPUTS.items(), indirect=["made"])
def test_it_runs_in_dev_on_its_sample(made: Path, output: str) -> None:
    done = executed("wallaroo dev own/own.py --once", made)
    assert (done.returncode, done.stderr) == (0, "")
    assert output in done.stdout.splitlines()


@pytest.mark.kafka
@pytest.mark.parametrize("made", ["kafka"], indirect=True)
def test_the_one_for_kafka_runs_in_dev_on_its_sample(
    made: Path, broker: Broker, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for line in _files("kafka", "own")["own.jsonl"].splitlines():
        producer.produce(topic, line)
    producer.flush(60)

    options = f"--brokers {broker.address} --clicks {topic}"
    done = executed(f"wallaroo dev own/own.py --once --until-now {options}", made)

    assert done.returncode == 0, done.stderr
    assert '[kafka] {"user":"ada","clicks":2}  key=\'ada\'' in done.stdout.splitlines()


def test_help_lists_the_templates_and_another_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["new", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"{template}:" in shown for template in TEMPLATES)
    with pytest.raises(SystemExit) as ended:
        main(["new", "own", "--template", "kafak"])
    assert ended.value.code == 2
    assert "Did you mean kafka?" in capsys.readouterr().err
