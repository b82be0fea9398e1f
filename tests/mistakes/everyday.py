"""Mistakes of the first day with Python's own pitfalls, each with its answer: state that is no one
key's, results that are not used, names that other systems have, events that no process can send.
"""

from __future__ import annotations

from tests.mistakes.mistake import Mistake, framed
from tests.mistakes.while_running import KEY, RAN

STATE = KEY + "{body}\n@wallaroo.state_computation(state={state})  # here\n{function}"
KEEP = "def keep(line, state):\n    {body}\n    return line\n"
TEXT = 'wallaroo.FileSourceConfig("in", "in.txt")'
SINK = 'wallaroo.FileSinkConfig("out")'


def stateful(state: str, function: str, body: str = "") -> str:
    """An application with this step, whose state is of this class."""
    steps = STATE.format(state=state, body=body, function=function)
    return framed(".key_by(key).to(keep)", steps)


def with_state(state: str, change: str, body: str = "") -> str:
    """An application whose step does this to its state."""
    return stateful(state, KEEP.format(body=change), body)


def first_line(line: str) -> str:
    """An application that begins with this import."""
    return framed("").replace("import wallaroo\n", f"import wallaroo\n{line}\n", 1)


def source_of(config: str) -> str:
    """An application with this source."""
    return framed("").replace(TEXT, f"wallaroo.{config}")


LOST = "assigns another object to state, its state, which would be lost"
SHARED = "All objects of its state class Total have one items in common"
BEFORE_SPARK = (
    Mistake(
        "1",
        "a name of the package that it does not have",
        first_line("from wallaroo import KafkaSource"),
        ("cannot import name 'KafkaSource'", "Write: from wallaroo import KafkaSourceConfig"),
    ),
    Mistake(
        "1a",
        "a name of the package in another case",
        first_line("from wallaroo.serdes import JSON"),
        ("cannot import name 'JSON'", "Write: from wallaroo.serdes import Json"),
    ),
    Mistake(
        "1b",
        "a module of the package that it does not have",
        first_line("import wallaroo.kafka"),
        ("No module named 'wallaroo.kafka'", "Names are in wallaroo, wallaroo.sinks, "),
    ),
    Mistake(
        "2",
        "a list in the class of a state",
        with_state("Total", "state.items.append(line)", "class Total:\n    items = []"),
        ("step 'keep' (HERE)", SHARED, "in the body of __init__: self.items = []"),
    ),
    Mistake(
        "2b",
        "a list as the default of an argument of a state's __init__",
        with_state(
            "Total",
            "state.items.append(line)",
            "class Total:\n    def __init__(self, items=[]):\n        self.items = items",
        ),
        ("step 'keep' (HERE)", SHARED, "in the body of __init__: self.items = []"),
    ),
    Mistake(
        "3",
        "a new dict in place of the state",
        with_state("dict", "state = {'count': state.get('count', 0) + 1}"),
        ("step 'keep' (HERE)", LOST, "state.update(...)", "give it another name"),
    ),
    Mistake(
        "3b",
        "a longer list in place of the state",
        with_state("list", "state = state + [line]"),
        ("step 'keep' (HERE)", LOST, "state.update(...)"),
    ),
    Mistake(
        "4",
        "a step whose result is not used",
        framed("").replace("    return", "    lines.map(str.upper)  # here\n    return"),
        ("step 'upper' (HERE)", "What it returned is not used", "lines = lines.map(...)"),
    ),
    Mistake(
        "4b",
        "a sink whose pipeline is not used",
        framed("").replace(
            "    return", "    lines.to_sink(wallaroo.StdoutSinkConfig())  # here\n    return"
        ),
        ("to_sink() (HERE)", "What it returned is not used"),
    ),
    Mistake(
        "5",
        "a step after the application was built",
        framed("").replace("    return", "    built =") + "    return built.to(str)  # here\n",
        ("(HERE)", "has no attribute 'to'", "call build_application(...) last"),
    ),
    Mistake(
        "6",
        "one pipeline for both sides of a branch",
        framed(".branch(bool)"),
        ("'tuple' object has no attribute 'to_sink'", "two pipelines: first, second = ..."),
    ),
    Mistake(
        "7",
        "the name of an argument in another system",
        source_of("KafkaSourceConfig('in', 't', bootstrap_servers='b:1', decoder=None)"),
        ("unexpected keyword argument 'bootstrap_servers'", "Did you mean brokers=?"),
    ),
    Mistake(
        "7b",
        "an argument that is not there",
        source_of("KafkaSourceConfig('in', 't')"),
        ("missing", "Write KafkaSourceConfig(name, topic, brokers, decoder, ...)."),
    ),
    Mistake(
        "7c",
        "an application without its name",
        framed("").replace('"App", ', ""),
        ("missing", "Write build_application(application_name, pipeline, ...)."),
    ),
    Mistake(
        "7d",
        "a mistyped argument",
        framed(".map(str, nmae='x')"),
        ("unexpected keyword argument 'nmae'", "Did you mean name=?"),
    ),
    Mistake(
        "8",
        "a span from text",
        framed(".with_event_time(float, delay=wallaroo.seconds('5'))"),
        ("APP:5", "wallaroo.seconds('5') expects a number, got text; write seconds(5)"),
    ),
    Mistake(
        "9",
        "a variable of the environment that is not set",
        framed("").replace(
            "    lines", "    __import__('os').environ['NO_SUCH']  # here\n    lines"
        ),
        ("(HERE)", "KeyError: 'NO_SUCH'"),
    ),
    Mistake(
        "10",
        "a function for timers without its arguments",
        stateful(
            "dict",
            "def keep(line, state, context):\n    return line\n"
            "@keep.on_timer\ndef due(state):\n    return 1\n",
        ),
        (
            "step 'keep' (HERE)",
            "Its on_timer function due takes 1 argument; it is called with three arguments.",
            "Write it as: def due(state, context, timer): ...",
        ),
    ),
    Mistake(
        "11",
        "a sink that writes over what its source reads",
        framed("").replace(SINK, 'wallaroo.FileSinkConfig("./in.txt", overwrite=True)'),
        ("to_sink() (APP:5)", "writes ./in.txt, which source 'in' reads", "another path"),
    ),
    Mistake(
        "12",
        "a lock of the module in a lambda",
        framed(".map(lambda line: lock and line)", "import threading\nlock = threading.Lock()\n"),
        ("variable 'lock' is a _thread.lock", "put both it and the function, as a def, at the top"),
    ),
    Mistake(
        "16",
        "the class of a serde in place of its decoder",
        framed("").replace('"in.txt"', '"in.txt", wallaroo.serdes.Json'),
        ("source 'in' (APP:", "the class Json. Write Json(...).decoder."),
    ),
    Mistake(
        "17",
        "a defaultdict of a lambda in the state",
        with_state(
            "Total",
            "state.counts[line] += 1",
            "import collections\nclass Total:\n    def __init__(self):\n"
            "        self.counts = collections.defaultdict(lambda: 0)",
        ),
        ("the default factory of attribute 'counts' is the function Total.__init__.<locals>",),
    ),
    Mistake(
        "18",
        "an aggregation that combines in place and returns nothing of it",
        framed(
            ".key_by(key).to(wallaroo.range_windows(wallaroo.seconds(5)).over(Lists))",
            KEY + "class Lists(wallaroo.Aggregation):\n"
            "    def initial_accumulator(self):\n        return []\n"
            "    def update(self, event, accumulator):\n        accumulator.append(event)\n"
            "    def combine(self, left, right):\n        return left.extend(right)\n"
            "    def output(self, key, accumulator):\n        return accumulator\n",
        ),
        ("step 'Lists' (APP:", "combine() returned None for two empty accumulators", "Return the"),
    ),
    Mistake(
        "13",
        "windows whose slide is longer than they are",
        framed(
            ".key_by(key).to(wallaroo.range_windows(wallaroo.seconds(5))"
            ".with_slide(wallaroo.seconds(10)).over(wallaroo.aggregations.Count()))",
            KEY,
        ),
        ("step 'count' (APP:", "The slide (10 s) is longer than the range (5 s)", "at most the"),
    ),
)
EVENT = (
    "class Event:\n    def __init__(self, line):\n        self.line = line\n"
    "        self.lock = __import__('threading').Lock()\n"
    "def key(event):\n    return 'k'\n"
    "@wallaroo.state_computation(state=dict)\ndef keep(event, state):\n    return event.line\n"
)
WHILE_RUNNING = (
    *(
        Mistake(
            f"14{letter}",
            f"a {kind} as a key",
            framed(
                ".key_by(key).to(keep)",
                f"def key(line):  # here\n    return {key}\n"
                "@wallaroo.state_computation(state=dict)\ndef keep(line, state):\n"
                "    return line\n",
            ),
            (
                "step 'key' failed at HERE",
                f"a key must be str, bytes, int, or a tuple of these, not {kind}",
            ),
            RAN,
        )
        for letter, kind, key in (("a", "list", "[line]"), ("b", "dict", "{'line': line}"))
    ),
    Mistake(
        "15",
        "an event with a lock",
        framed(
            ".map(wrap).key_by(key).to(keep)", EVENT + "def wrap(line):\n    return Event(line)\n"
        ),
        (
            "step 'wrap' failed at APP:",
            "it cannot be sent to another worker: attribute 'lock' is a _thread.lock",
            "keep only picklable values in events",
        ),
        RAN,
    ),
    Mistake(
        "15b",
        "an event of a class that is defined in a function",
        framed(
            ".map(wrap).key_by(key).to(keep)",
            EVENT + "def wrap(line):\n    class Inner:\n        pass\n    return Inner()\n",
        ),
        (
            "step 'wrap' failed at APP:",
            "it cannot be sent to another worker",
            "define their classes at the top level of a module",
        ),
        RAN,
    ),
)
