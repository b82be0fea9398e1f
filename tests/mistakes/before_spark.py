"""Mistakes that ``wallaroo run`` answers before it starts Spark: all of them by one command line,
an exit code and one text that names the step, the line and the fix.
"""

from __future__ import annotations

import sys

from tests.mistakes.mistake import Mistake, framed

WORD_COUNT = """
import wallaroo

@wallaroo.decoder
def decode(payload):
    return payload.decode()

@wallaroo.encoder
def encode(text):
    return text

def application_setup(args):
    given = wallaroo.tcp_parse_input_addrs(args)  # asked
    addresses = {name: (host, port) for name, host, port in given}  # here
    host, port = addresses["Lines"]
    lines = wallaroo.source("Lines", wallaroo.TCPSourceConfig("Lines", host, port, decode))
    return wallaroo.build_application("App", lines.to_sink(wallaroo.StdoutSinkConfig(encode)))
"""
STATE = """
@wallaroo.key_extractor
def key(line):
    return line

@wallaroo.state_computation(state={state}){mark}
def count(line, state):
    return line
"""
KEYED = ".key_by(key).to(count)"
GOOD = framed("")
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


def with_state(state: str, before: str = "", mark: str = "  # here") -> str:
    """An application whose state step has this state."""
    return framed(KEYED, before + STATE.format(state=state, mark=mark))


STEPS = (
    Mistake(
        "1",
        "a computation of two arguments",
        framed(
            ".to(two)",
            "@wallaroo.computation  # here\ndef two(event, more):\n    return event\n",
        ),
        ("step 'two' (HERE)", "2 arguments", "Write it as: def two(event)"),
    ),
    Mistake(
        "2a",
        "to() with a function without a decorator",
        framed(".to(plain)", "def plain(event):\n    return event\n"),
        (
            "bare function plain",
            "Put @wallaroo.computation on its definition",
            ".map(plain)",
            "APP:",
        ),
    ),
    Mistake(
        "2b",
        "to() with a lambda",
        framed(".to(lambda event: event)"),
        ("APP:5", "bare function <lambda>", "Write .map(lambda ...)"),
    ),
    Mistake(
        "3",
        "state without key_by",
        framed(".to(count)", STATE.format(state="dict", mark="  # here")),
        ("step 'count'", "APP:", "keeps state", "key_by()"),
    ),
    Mistake(
        "4a",
        "a lambda as state class",
        with_state("lambda: 0", mark=""),
        ("count", "APP:", "class"),
    ),
    Mistake(
        "4b",
        "an object as state class",
        with_state("{}", mark=""),
        ("count", "APP:", "class"),
    ),
    Mistake(
        "4c",
        "a state class whose constructor takes arguments",
        with_state(
            "Total", "class Total:\n    def __init__(self, start):\n        self.start = start\n"
        ),
        ("step 'count' (HERE)", "Total", "argument"),
    ),
    Mistake(
        "4d",
        "a state class inside of a function",
        framed(
            KEYED,
            "def made():\n    class Total:\n        pass\n    return Total\n"
            + STATE.format(state="made()", mark="  # here"),
        ),
        ("step 'count' (HERE)", "Total", "module"),
    ),
    Mistake(
        "4e",
        "a state that cannot change",
        with_state("int"),
        ("step 'count' (HERE)", "Its state, int, cannot change", "class of its own"),
    ),
    Mistake(
        "5",
        "state that holds a lock",
        with_state(
            "Total",
            "import threading\nclass Total:\n    def __init__(self):\n"
            "        self.lock = threading.Lock()\n",
        ),
        ("step 'count' (HERE)", "'lock'", "cannot be pickled"),
    ),
    Mistake(
        "9",
        "a generator as computation",
        framed(
            ".to(words)",
            "@wallaroo.computation  # here\ndef words(line):\n    yield line\n",
        ),
        ("step 'words' (HERE)", "generator", "computation_multi"),
    ),
    Mistake(
        "10",
        "an async computation",
        framed(
            ".to(asked)",
            "@wallaroo.computation  # here\nasync def asked(line):\n    return line\n",
        ),
        ("step 'asked' (HERE)", "async", "def asked"),
    ),
    Mistake(
        "41a",
        "a lock in a closure",
        framed(
            ".to(made())",
            "import threading\ndef made():\n    lock = threading.Lock()\n"
            "    @wallaroo.computation('held')  # here\n    def held(line):\n"
            "        with lock:\n            return line\n    return held\n",
        ),
        ("step 'held' (HERE)", "lock"),
    ),
    Mistake(
        "41b",
        "two sources on one port",
        "import wallaroo\n"
        "@wallaroo.decoder\ndef decode(payload):\n    return payload.decode()\n"
        "def at_7010(name):\n"
        "    return wallaroo.TCPSourceConfig(name, '127.0.0.1', '7010', decode)\n"
        "def application_setup(args):\n"
        "    one = wallaroo.source('one', at_7010('one'))\n"
        "    two = wallaroo.source('two', at_7010('two'))  # here\n"
        "    merged = one.merge(two).to_sink(wallaroo.FileSinkConfig('out'))\n"
        "    return wallaroo.build_application('App', merged)\n",
        ("source 'two' (HERE)", "7010 is taken by source 'one'", "a port of its own"),
    ),
    Mistake(
        "41c",
        "two steps of one name",
        framed(
            ".to(one).to(two)",
            "@wallaroo.computation('same')\ndef one(line):\n    return line\n"
            "@wallaroo.computation('same')\ndef two(line):  # here\n    return line\n",
        ),
        ("'same'", "APP:", "name"),
    ),
    Mistake(
        "41d",
        "arguments of build_application in the wrong order",
        "import wallaroo\n"
        "def application_setup(args):\n"
        "    lines = wallaroo.source('in', wallaroo.FileSourceConfig('in', 'in.txt'))\n"
        "    closed = lines.to_sink(wallaroo.FileSinkConfig('out'))\n"
        "    return wallaroo.build_application(closed, 'App')  # here\n",
        ("HERE", 'name comes first: build_application("My application", pipeline)'),
    ),
)

SET_UP = (
    Mistake(
        "17",
        "no --in",
        WORD_COUNT,
        ("APP:13", "--in NAME@HOST:PORT"),
    ),
    Mistake(
        "18a",
        "--in with the name of no source",
        WORD_COUNT,
        ("APP:15", "--in gives 'Orders'. Write --in Lines@HOST:PORT"),
        arguments=("--in", "Orders@127.0.0.1:0"),
    ),
    Mistake(
        "18b",
        "--in without a name",
        WORD_COUNT,
        ("HERE", "127.0.0.1:7010 has no name", "NAME@HOST:PORT"),
        arguments=("--in", "127.0.0.1:7010"),
    ),
    Mistake(
        "19a",
        "no application_setup",
        "import wallaroo\n",
        ("APP", "no function application_setup(args)", "build_application(name, pipeline)"),
    ),
    Mistake(
        "19b",
        "application_setup returns nothing",
        "def application_setup(args):  # here\n    pass\n",
        ("HERE", "returned None", "return wallaroo.build_application(name, pipeline)"),
    ),
    Mistake(
        "19c",
        "application_setup returns a pipeline",
        framed("").replace('return wallaroo.build_application("App", lines', "return (lines"),
        ("APP:", "returned", "return wallaroo.build_application(name, pipeline)"),
    ),
    Mistake(
        "19d",
        "a pipeline without a sink",
        "import wallaroo\n"
        "def application_setup(args):\n"
        "    lines = wallaroo.source('in', wallaroo.FileSourceConfig('in', 'in.txt'))  # here\n"
        "    return wallaroo.build_application('App', lines)\n",
        ("APP:", "to_sink"),
    ),
    Mistake(
        "20",
        "application_setup without its argument",
        "def application_setup():  # here\n    pass\n",
        ("HERE", "cannot be called with one argument", "def application_setup(args):"),
    ),
    Mistake(
        "21",
        "a syntax error",
        "import wallaroo\ndef application_setup(args)  # here\n    pass\n",
        ("HERE", "SyntaxError: expected ':'", "def application_setup(args)", "^"),
    ),
    Mistake(
        "22",
        "a package that is not installed",
        "import no_such_package_anywhere  # here\n",
        ("HERE", "no_such_package_anywhere", f"{sys.executable} -m pip install"),
    ),
    Mistake(
        "23",
        "a method that there is not",
        framed(".mapp(str)"),
        ("APP:", "mapp", "Did you mean map?", "A Pipeline has"),
    ),
    Mistake(
        "39a",
        "a file whose name is no module's",
        GOOD,
        ("my-app", "cannot be a module's name", "Rename the file"),
        file="my-app.py",
    ),
    Mistake(
        "39b",
        "a file with the name of one of Python's modules",
        GOOD,
        ("'random'", "already belongs to", "Rename the application's file"),
        file="random.py",
    ),
)

COMMAND_LINE = (
    Mistake(
        "24a",
        "a Python of another version for the workers",
        GOOD,
        ("PYSPARK_PYTHON", "Python 2.7", f"this is Python {THIS}", "unset PYSPARK_PYTHON"),
        1,
        environment={"PYSPARK_PYTHON": "FOLDER/python2"},
        files={"python2": "#!/bin/sh\necho 2.7\n"},
    ),
    Mistake(
        "25",
        "a Python for the workers that is not there",
        GOOD,
        ("PYSPARK_PYTHON is /nonexistent/python", "no such program", "unset PYSPARK_PYTHON"),
        1,
        environment={"PYSPARK_PYTHON": "/nonexistent/python"},
    ),
    Mistake(
        "26a",
        "no Java",
        GOOD,
        ("Java 17 or newer", "apt-get install openjdk-17-jre-headless"),
        1,
        environment={"PATH": "FOLDER", "JAVA_HOME": ""},
    ),
    Mistake(
        "26b",
        "JAVA_HOME without a Java",
        GOOD,
        ("JAVA_HOME is /nonexistent", "unset"),
        1,
        environment={"JAVA_HOME": "/nonexistent"},
    ),
    Mistake(
        "27",
        "a mistyped master",
        GOOD,
        ("'locl' is not a master of Spark", "Did you mean local[*]?", "spark://HOST:PORT"),
        2,
        options=("--master", "locl"),
    ),
    Mistake(
        "28a",
        "a checkpoint where nothing can be written",
        GOOD,
        ("checkpoint folder /proc/nothing cannot be used", "Choose a writable folder"),
        1,
        options=("--checkpoint", "/proc/nothing"),
    ),
    Mistake(
        "28b",
        "a checkpoint that is a file",
        GOOD,
        ("in.txt", "Not a directory. Choose a writable folder"),
        1,
        options=("--checkpoint", "FOLDER/in.txt"),
    ),
    Mistake(
        "28c",
        "a checkpoint in a folder of something else",
        GOOD,
        ("FOLDER/other is not empty and not a checkpoint", "Choose an empty or a new folder"),
        1,
        options=("--checkpoint", "FOLDER/other"),
        files={"other/notes": "mine"},
    ),
    Mistake(
        "29a",
        "a file sink in a folder that cannot be made",
        GOOD.replace('"out"', '"/proc/nothing/out"'),
        ("/proc/nothing",),
        1,
    ),
    Mistake(
        "29b",
        "a file sink where another run's output is",
        GOOD.replace('"out"', '"out.txt"'),
        ("out.txt holds 15 bytes", "Move it to another place", "overwrite=True"),
        1,
        files={"out.txt": "of another run\n"},
    ),
    Mistake(
        "37",
        "a mistyped option",
        GOOD,
        ("--chekpoint", "Did you mean --checkpoint?", "APP -- --chekpoint"),
        arguments=("--chekpoint", "x"),
    ),
    Mistake(
        "38b",
        "a mistyped framing",
        WORD_COUNT.replace("port, decode)", 'port, decode, framing="line")'),
        ("TCPSourceConfig(name='Lines')", "framing='line' is unknown", "'length' or 'lines'"),
        arguments=("--in", "Lines@127.0.0.1:0"),
    ),
    Mistake(
        "38",
        "--acknowledged with the name of no source",
        WORD_COUNT,
        ("no TCP source 'lines'", "'Lines'", "Write --acknowledged Lines=7700"),
        options=("--acknowledged", "lines=7700"),
        arguments=("--in", "Lines@127.0.0.1:0"),
    ),
)

MISTAKES = (*STEPS, *SET_UP, *COMMAND_LINE)
