"""Loading an application by path or name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wallaroo
from wallaroo.cli.application.loading import load_application

APPLICATION = """
import wallaroo

@wallaroo.decoder
def decode(payload):
    return payload.decode()

@wallaroo.encoder
def encode(value):
    return value

def application_setup(args):
    (name, host, port), = wallaroo.tcp_parse_input_addrs(args)
    lines = wallaroo.source("Lines", wallaroo.TCPSourceConfig(name, host, port, decode))
    sink = wallaroo.TCPSinkConfig("127.0.0.1", "7002", encode)
    return wallaroo.build_application("Loaded", lines.to_sink(sink))
"""
ARGS = ["--in", "Lines@127.0.0.1:7010"]


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.endswith("_app"):  # the package's own stay: a second import makes other classes
            del sys.modules[name]


def write(directory: Path, name: str, text: str) -> str:
    file = directory / name
    file.write_text(text)
    return str(file)


def test_a_file_is_imported_under_its_own_name_and_gets_the_arguments(tmp_path: Path) -> None:
    application = load_application(write(tmp_path, "loaded_app.py", APPLICATION), ARGS)
    assert application.name == "Loaded"
    assert application.plan.sources[0].decoder.__module__ == "loaded_app"


def test_a_module_is_found_by_its_name_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "named_app.py", APPLICATION)
    monkeypatch.chdir(tmp_path)
    assert load_application("named_app", ARGS).name == "Loaded"


def test_an_application_brings_its_own_serialization(tmp_path: Path) -> None:
    hooks = "\ndef serialize(value):\n    return b''\n\ndef deserialize(packed):\n    return None\n"
    application = load_application(write(tmp_path, "own_pickle_app.py", APPLICATION + hooks), ARGS)
    assert application.serializer is not None
    assert application.serializer[0].__module__ == "own_pickle_app"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("no_setup_app.py", "", "it has no function application_setup(args)."),
        (
            "none_app.py",
            "def application_setup(args):\n    pass\n",
            "application_setup returned None, not an application.",
        ),
        ("json.py", "", "the name 'json' already belongs to"),
        ("word-count.py", "", "'word-count' cannot be a module's name."),
        ("syntax_app.py", "x = 1\ndef (:\n", "syntax_app.py:2): the import failed: SyntaxError"),
        (
            "missing_import_app.py",
            "import no_such_thing_anywhere\n",
            "No module named 'no_such_thing_anywhere'",
        ),
        ("text.txt", "", "it is not a Python file."),
    ],
)
def test_what_cannot_be_loaded_is_reported_with_its_cause(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    with pytest.raises(wallaroo.PipelineError) as caught:
        load_application(write(tmp_path, name, text), [])
    assert expected in str(caught.value)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_that_is_not_utf_8_is_refused_with_the_way_out(
    tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / f"encoded_{encoding[:3]}.py"
    path.write_bytes('NAME = "zähler"\n'.encode(encoding))
    with pytest.raises(wallaroo.PipelineError, match="Save the file as UTF-8, or") as caught:
        load_application(str(path), [])
    assert "None" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_files_of_editors_elsewhere_are_loaded(tmp_path: Path, encoding: str, ending: str) -> None:
    """With a byte order mark, other line ends, tabs, and names that are not ASCII."""
    path = tmp_path / f"größe_{len(encoding)}_{len(ending)}.py"
    text = APPLICATION.replace("    ", "\t").replace("\n", ending)
    path.write_bytes(text.encode(encoding))
    assert load_application(str(path), ARGS).name


@pytest.mark.parametrize("file", ["queue.py", "random.py", "types.py", "email/__init__.py"])
def test_a_file_in_place_of_a_module_of_pythons_is_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    name = file.partition("/")[0]
    with pytest.raises(wallaroo.PipelineError, match=f"{name}, in its folder") as caught:
        load_application(write(tmp_path, "beside_app.py", APPLICATION), ARGS)
    assert f"Rename {name}" in str(caught.value)


@pytest.mark.parametrize("file", ["time.py", "os.py", "test.py", "email/notes.py", "helper.py"])
def test_a_file_that_hides_no_module_in_use_is_accepted(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    name = f"beside_{file[:2]}_app"
    assert load_application(write(tmp_path, f"{name}.py", APPLICATION), ARGS).name == "Loaded"


def test_a_missing_file_is_named_with_its_whole_path(tmp_path: Path) -> None:
    with pytest.raises(wallaroo.PipelineError, match=r"there is no such file \(.*/absent\.py\)"):
        load_application(str(tmp_path / "absent.py"), [])


def test_a_missing_module_asks_for_a_path() -> None:
    with pytest.raises(wallaroo.PipelineError, match="no such file or module"):
        load_application("no_such_application", [])


def test_a_directory_is_answered_with_the_file_meant(tmp_path: Path) -> None:
    with pytest.raises(wallaroo.PipelineError, match=rf"{tmp_path.name}\.py"):
        load_application(str(tmp_path), [])


def test_a_failing_setup_shows_the_users_lines_and_no_others(tmp_path: Path) -> None:
    text = (
        "def port(args):\n    return int('x')\n\ndef application_setup(args):\n    return "
        "port(args)\n"
    )
    file = write(tmp_path, "failing_app.py", text)
    with pytest.raises(wallaroo.PipelineError) as caught:
        load_application(file, [])
    message = str(caught.value)
    assert f"({file}:2): application_setup failed: ValueError: invalid literal" in message
    assert f"{file}:5 in application_setup: return port(args)" in message
    assert "loading.py" not in message


SETUP = "import wallaroo\ndef application_setup(args):\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "no_args_app.py",
            "\ndef application_setup():\n    pass\n",
            [
                "no_args_app.py:2): application_setup cannot be called with one argument",
                "Write it as: def application_setup(args):",
            ],
        ),
        ("line_app.py", "x = 1\nif x\n    y = 2\n", ["\n    if x\n        ^"]),
        (
            "package_app.py",
            "import yaml_that_is_not_there\n",
            [f"This Python is {sys.executable}.", "-m pip install yaml_that_is_not_there"],
        ),
        (
            "method_app.py",
            SETUP + "    wallaroo.source('a', wallaroo.FileSourceConfig('a', 'a')).too(len)\n",
            ["Did you mean to? A Pipeline has ", "filter, flat_map, key_by,", "method_app.py:3"],
        ),
        ("typo_app.py", SETUP + "    wallaroo.compuation\n", ["Did you mean computation?"]),
        (
            "name_app.py",
            SETUP
            + (
                "    at = {a[0]: a for a in wallaroo.tcp_parse_input_addrs(args)}\n    "
                "at['Orders']\n"
            ),
            ["KeyError: 'Orders'", "--in gives 'Lines'. Write --in Orders@HOST:PORT."],
        ),
    ],
)
def test_what_is_wrong_comes_with_its_place_and_its_fix(
    tmp_path: Path, name: str, text: str, expected: list[str]
) -> None:
    with pytest.raises(wallaroo.PipelineError) as caught:
        load_application(write(tmp_path, name, text), ARGS)
    for words in expected:
        assert words in str(caught.value)


def test_an_address_without_its_name_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(wallaroo.PipelineError) as caught:
        load_application(write(tmp_path, "unnamed_app.py", APPLICATION), ["--in", "127.0.0.1:7010"])
    assert "--in 127.0.0.1:7010 has no name. Write it as NAME@HOST:PORT." in str(caught.value)


def test_too_few_addresses_are_counted(tmp_path: Path) -> None:
    text = SETUP + "    wallaroo.tcp_parse_input_addrs(args)[1]\n"
    with pytest.raises(wallaroo.PipelineError) as caught:
        load_application(write(tmp_path, "few_app.py", text), ["--in", "127.0.0.1:7010"])
    assert "--in gives 1 address. If the application needs more: --in HOST" in str(caught.value)
    assert "NAME@" not in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_an_async_setup_is_refused(tmp_path: Path) -> None:
    text = "async def application_setup(args):\n    pass\n"
    with pytest.raises(wallaroo.PipelineError, match="application_setup is async"):
        load_application(write(tmp_path, "async_app.py", text), [])


def test_a_missing_in_is_reported_with_the_line_that_asks_for_it(tmp_path: Path) -> None:
    file = write(tmp_path, "without_in_app.py", APPLICATION)
    with pytest.raises(wallaroo.PipelineError) as caught:
        load_application(file, [])
    assert str(caught.value).startswith(f"--in ({file}:13): The application needs this option.")


def test_what_a_set_up_assigns_goes_to_workers_and_what_cannot_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assigning = APPLICATION.replace(
        "def application_setup(args):\n",
        "def application_setup(args):\n    global FACTOR\n    FACTOR = 10\n",
    )
    application = load_application(write(tmp_path, "sets_globals_app.py", assigning), ARGS)
    assert b"FACTOR" in application.plan.setup_values
    assert not caplog.records

    unsendable = assigning.replace("FACTOR = 10", "FACTOR = [lambda: 10]")
    load_application(write(tmp_path, "sets_code_app.py", unsendable), ARGS)
    (record,) = caplog.records
    assert "assigns FACTOR, which cannot be sent to workers" in record.message

    caplog.clear()
    application = load_application(write(tmp_path, "sets_none_app.py", APPLICATION), ARGS)
    assert application.plan.setup_values == b""
    assert not caplog.records
