"""``wallaroo graph`` and its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from wallaroo.cli.main import main

APPLICATION = """
import sys
import wallaroo

@wallaroo.decoder(header_length=4, length_fmt=">I")
def text(payload):
    return payload.decode()

@wallaroo.encoder
def line(event):
    return event.encode()

def application_setup(args):
    print("for the application:", args, file=sys.stderr)
    numbers = wallaroo.source("numbers", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, text))
    return wallaroo.build_application("copy", numbers.to_sink(wallaroo.StdoutSinkConfig(line)))
"""


@pytest.fixture
def app(tmp_path: Path) -> str:
    file = tmp_path / f"{tmp_path.name.replace('-', '_')}_app.py"
    file.write_text(APPLICATION)
    return str(file)


def test_the_format_of_a_graph_may_follow_the_application(
    app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["graph", app, "--of-mine", "--format", "mermaid"]) == 0
    after = capsys.readouterr()
    assert main(["graph", "--format", "mermaid", app, "--of-mine"]) == 0
    before = capsys.readouterr()

    assert after.out == before.out
    assert after.out.startswith("flowchart")
    assert after.err == before.err == "for the application: ['--of-mine']\n"


def test_options_after_two_dashes_are_the_applications(
    app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("graph", "explain"):
        assert main([command, app, "--", "--format", "svg"]) == 0
        said = capsys.readouterr()
        assert said.err == "for the application: ['--format', 'svg']\n"
        assert "<svg" not in said.out
