"""Mistakes of the third trial's list of 54 that a run in this process can make; ``LATER`` in
``elsewhere.py`` names the tests of the others.
"""

from __future__ import annotations

from tests.mistakes.mistake import Mistake, framed
from tests.mistakes.while_running import KEY, RAN

TIME = "def time_of(line):\n    return 1.7e9\n"
SUM = """
class Sum(wallaroo.Aggregation):
    def initial_accumulator(self):
        return 0
    def update(self, event, accumulator):
        {update}
    def combine(self, left, right):
        return left + right
    def output(self, key, accumulator):
        return str(accumulator)
"""
ADDS = SUM.format(update="return accumulator + 1")
TIMED = """
class Total:
    def __init__(self):
        self.count = 0

@wallaroo.state_computation(state=Total)  # here
def watch(line, total, context):
    {body}
    return line
"""
ON_TIMER = "\n@watch.on_timer\ndef due(total, context, name):\n    return name\n"


def windowed(windows: str, aggregation: str = ADDS) -> str:
    """An application with these windows."""
    steps = f".with_event_time(time_of).key_by(key).to({windows}.over(Sum))"
    return framed(steps, TIME + KEY + aggregation)


def watched(body: str, on_timer: str = ON_TIMER) -> str:
    """An application whose state step does this."""
    steps = ".with_event_time(time_of).key_by(key).to(watch)"
    return framed(steps, TIME + KEY + TIMED.format(body=body) + on_timer)


def stamped(returned: str) -> str:
    """An application whose events have this time."""
    return framed(
        ".with_event_time(time_of)", f"def time_of(line):  # here\n    return {returned}\n"
    )


RANGE = "wallaroo.range_windows(wallaroo.seconds(5))"
LACKING = """
class Sum(wallaroo.Aggregation):
    def initial_accumulator(self):
        return 0
    def output(self, key, accumulator):
        return str(accumulator)
"""


def kafka_source(arguments: str) -> str:
    """An application that reads Kafka with these arguments."""
    kafka = f"KafkaSourceConfig('in', {arguments}, decoder=wallaroo.decoder(str))"
    return framed("").replace('FileSourceConfig("in", "in.txt")', kafka)


def kafka_sink(arguments: str) -> str:
    """An application that writes to Kafka with these arguments."""
    return framed("").replace('FileSinkConfig("out")', f"KafkaSinkConfig({arguments})")


def orders_of_json() -> str:
    """An application whose lines are orders in JSON."""
    return (
        framed(
            "",
            "import dataclasses\nimport wallaroo.serdes\n@dataclasses.dataclass\nclass Order:\n"
            "    id: int\n",
        )
        .replace('"in.txt"', '"in.txt", wallaroo.serdes.Json(Order).decoder')
        .replace('FileSinkConfig("out")', 'FileSinkConfig("out", wallaroo.encoder(str))')
    )


SHORT = ("5 is 5 nanoseconds", "Write wallaroo.seconds(5) or timedelta(seconds=5)")
BEFORE_SPARK = (
    Mistake(
        "11",
        "windows of five nanoseconds",
        windowed("wallaroo.range_windows(5)"),
        ("step 'Sum'", "APP:", "range_windows(5) is 5 nanoseconds", *SHORT[1:]),
    ),
    Mistake(
        "12a",
        "a delay of five nanoseconds",
        framed(".with_event_time(time_of, delay=5)", TIME),
        ("with_event_time() (APP:", "delay=" + SHORT[0], *SHORT[1:]),
    ),
    Mistake(
        "12b",
        "a ttl of five nanoseconds",
        framed(
            "", "@wallaroo.state_computation(state=dict, ttl=5)  # here\ndef count(e, s): pass\n"
        ),
        ("@state_computation (HERE", "ttl=" + SHORT[0], *SHORT[1:]),
    ),
    Mistake(
        "12c",
        "sessions of five nanoseconds",
        windowed("wallaroo.session_windows(5)"),
        ("step 'Sum'", "session_windows(5) is 5 nanoseconds", *SHORT[1:]),
    ),
    Mistake(
        "12d",
        "a join of events five nanoseconds apart",
        framed(".key_by(key).dedupe(within=5)", KEY),
        ("step 'dedupe'", "within=" + SHORT[0], *SHORT[1:]),
    ),
    Mistake(
        "12e",
        "a batch that waits five nanoseconds",
        framed(".key_by(key).batch(10, within=5)", KEY),
        ("step 'batch' (APP:", "within=" + SHORT[0], *SHORT[1:]),
    ),
    Mistake(
        "14",
        "a negative timedelta as a window",
        windowed("wallaroo.range_windows(timedelta(seconds=-5))").replace(
            "import wallaroo\n", "from datetime import timedelta\nimport wallaroo\n"
        ),
        ("step 'Sum'", "range_windows(-5 s) is not a span of time", "timedelta(seconds=5)"),
    ),
    Mistake(
        "18",
        "windows without over",
        framed(".key_by(key).to(wallaroo.range_windows(wallaroo.seconds(10)))", KEY),
        ("step 'RangeWindows' (APP:", "End the windows with over(YourAggregation)."),
    ),
    Mistake(
        "22",
        "an aggregation of numbers whose update has no return",
        windowed(
            "wallaroo.range_windows(wallaroo.seconds(5))", SUM.format(update="accumulator += 1")
        ),
        ("step 'Sum'", "Sum.update returns no value", "int, cannot be", "Return the new"),
    ),
    Mistake(
        "22c",
        "an aggregation whose combine has no return",
        windowed(RANGE, ADDS.replace("return left + right", "left + right")),
        ("step 'Sum' (APP:", "Sum.combine never returns a value", "Return the combined"),
    ),
    Mistake(
        "22d",
        "an aggregation whose output has no return",
        windowed(RANGE, ADDS.replace("return str(accumulator)", "str(accumulator)")),
        ("step 'Sum' (APP:", "Sum.output never returns a value", "Return the result"),
    ),
    Mistake(
        "24",
        "event time that no one declared",
        framed(".key_by(key).to(watch)", KEY + TIMED.format(body="print(context.event_time)")),
        ("step 'watch' (HERE)", "events have no time", ".with_event_time(...)"),
    ),
    Mistake(
        "27",
        "a timer that no function is called for",
        watched("context.set_timer('t', context.event_time)", ""),
        ("step 'watch' (HERE)", "sets a timer", "@watch.on_timer"),
    ),
    Mistake(
        "38",
        "a computation without a return",
        framed(".to(shout)", "@wallaroo.computation  # here\ndef shout(line):\n    line.upper()\n"),
        ("step 'shout' (HERE)", "never returns a value", "Add the return", "peek()", "-> None"),
    ),
    Mistake(
        "38e",
        "a lambda that only prints",
        framed(".map(lambda line: print(line))"),
        ("step 'computation at", "APP:5", "never returns a value", "Use peek()"),
    ),
    Mistake(
        "38f",
        "a filter that only prints",
        framed(".filter(lambda line: print(line))"),
        ("step 'filter at", "APP:5", "never returns a value: no event passes", "Add the return"),
    ),
    Mistake(
        "38d",
        "a key extractor without a return",
        framed(
            ".key_by(key)", "@wallaroo.key_extractor  # here\ndef key(line):\n    line.split()[0]\n"
        ),
        ("key_by 'key' (HERE)", "no event has a key", "Add the return"),
    ),
    Mistake(
        "45",
        "a serde in place of its decoder",
        framed("")
        .replace('"in.txt"', '"in.txt", wallaroo.serdes.Json(dict)')
        .replace("import wallaroo\n", "import wallaroo\nimport wallaroo.serdes\n"),
        ("source 'in' (APP:", "Its decoder is a Json", "Write Json(...).decoder"),
    ),
    Mistake(
        "6a",
        "a mistyped start of a Kafka source",
        kafka_source("'clicks', 'b:9092', start='begining'"),
        ("KafkaSourceConfig(name='in')", "start='begining' is unknown. Write 'earliest', 'latest'"),
    ),
    Mistake(
        "6b",
        "a mistyped delivery of a Kafka sink",
        kafka_sink("'clicks', 'b:9092', delivery='exactly_once'"),
        ("KafkaSinkConfig(topic='clicks')", "Write 'exactly-once' or 'at-least-once'."),
    ),
    Mistake(
        "7a",
        "brokers in place of a topic",
        kafka_source("'b:9092', 'clicks'"),
        (
            "topic='b:9092' is not a name.",
            "Give a topic's name, several, or '^' and a pattern; brokers= comes after it.",
        ),
    ),
    Mistake(
        "7b",
        "brokers in place of a sink's topic",
        kafka_sink("'b:9092', 'clicks'"),
        ("topic='b:9092' is not a name. Give the topic's name; brokers= comes after it.",),
    ),
    Mistake(
        "9",
        "windows without a key",
        framed(f".with_event_time(time_of).to({RANGE}.over(Sum))", TIME + ADDS),
        ("step 'Sum' (APP:", "no key_by() or collect() comes before it", "Put key_by("),
    ),
    Mistake(
        "10",
        "event time after key_by",
        framed(f".key_by(key).with_event_time(time_of).to({RANGE}.over(Sum))", TIME + KEY + ADDS),
        ("APP:", "after a key_by()", "Call with_event_time() before the first key_by()"),
    ),
    Mistake(
        "13a",
        "a negative delay",
        framed(".with_event_time(time_of, delay=-5)", TIME),
        ("with_event_time() (APP:", "delay=-5 is not a span of time", "wallaroo.seconds(5)"),
    ),
    Mistake(
        "13b",
        "a delay that is a float",
        framed(".with_event_time(time_of, delay=1.5)", TIME),
        ("with_event_time() (APP:", "delay=1.5 is not a span of time", "wallaroo.seconds(5)"),
    ),
    Mistake(
        "16c",
        "a time without a return",
        stamped("None"),
        ("step 'event time at", "HERE", "no event has a time. Add the return."),
    ),
    Mistake(
        "18b",
        "windows over one of Python's functions",
        windowed(RANGE).replace("over(Sum)", "over(sum)"),
        ("step 'sum' (APP:", "instead of an aggregation", "Give it one of wallaroo.aggregations"),
    ),
    Mistake(
        "19",
        "the windows' name in other systems",
        windowed("wallaroo.tumbling_windows(wallaroo.seconds(5))"),
        ("APP:", "no attribute 'tumbling_windows'", "Did you mean range_windows?"),
    ),
    Mistake(
        "19b",
        "a sink without its module",
        framed("").replace('wallaroo.FileSinkConfig("out")', "wallaroo.HTTPSinkConfig('http://h')"),
        ("APP:", "no attribute 'HTTPSinkConfig'", "Write wallaroo.sinks.HTTPSinkConfig."),
    ),
    Mistake(
        "20",
        "an aggregation without two of its methods",
        windowed(RANGE, LACKING),
        (
            "2 problems",
            "has no method update(). Add def update(self, event, accumulator).",
            "has no method combine(). Add def combine(self, left, right).",
        ),
    ),
    Mistake(
        "21",
        "an initial accumulator without a return",
        windowed(RANGE, ADDS.replace("return 0", "pass")),
        ("step 'Sum' (APP:", "initial_accumulator() returned None", "Return an empty accumulator"),
    ),
    Mistake(
        "36",
        "a step that takes another class than the one before it returns",
        framed(
            ".to(wrap).to(read)",
            "class Order:\n    pass\n@wallaroo.computation\ndef wrap(line: str) -> Order:\n"
            "    return Order()\n"
            "@wallaroo.computation  # here\ndef read(order: dict) -> str:\n"
            "    return order['id']\n",
        ),
        (
            "step 'read' (HERE)",
            "takes dict, and step 'wrap' returns Order",
            "Correct one of the annotations",
        ),
    ),
    Mistake(
        "36b",
        "a step that cannot use what the one before it returns",
        framed(
            ".to(wrap).to(read)",
            "class Order:\n    pass\n@wallaroo.computation\ndef wrap(line):\n"
            "    return Order()\n"
            "@wallaroo.computation  # here\ndef read(order):\n    return order['id']\n",
        ),
        (
            "step 'read' (HERE)",
            "reads order['id'], and step 'wrap' returns Order, which has no items.",
            "Read an attribute.",
        ),
    ),
    Mistake(
        "36c",
        "a dict of JSON that is read as an object",
        framed(
            ".filter(lambda order: True).to(read)",
            "import wallaroo.serdes\n@wallaroo.computation  # here\ndef read(order):\n"
            "    return f'{order.id}'\n",
        ).replace('"in.txt"', '"in.txt", wallaroo.serdes.Json(dict).decoder'),
        (
            "step 'read' (HERE)",
            "reads order.id, and decoder 'decode json dict' returns dict, which has no attribute",
            "Write ['id'] in place of .id, or decode to a class.",
        ),
    ),
    Mistake(
        "18c",
        "an aggregation without windows",
        framed(".to(wallaroo.aggregations.Count())"),
        ("to() was given a Count", "goes into windows: wallaroo.range_windows(span).over(Count)."),
    ),
    Mistake(
        "9b",
        "a join without keys",
        framed(".join(lines, within=wallaroo.seconds(1))"),
        ("APP:", "no attribute 'join'", "Call key_by(...) before join(...): it is of events with"),
    ),
    Mistake(
        "40b",
        "an empty name in place of a key's function",
        framed(".key_by('')"),
        ("key_by() was given a str",),
    ),
    Mistake(
        "23c",
        "an event time without its argument",
        framed(".with_event_time(lambda: 1)"),
        ("an event_time is called with one argument. Write it as: lambda event: ...",),
    ),
    Mistake(
        "45c",
        "JSON in a file without newlines",
        framed("")
        .replace('"out"', '"out", wallaroo.serdes.Json().encoder')
        .replace("import wallaroo\n", "import wallaroo\nimport wallaroo.serdes\n"),
        ("FileSinkConfig would be one line without an end", 'Add form="lines".'),
    ),
    Mistake(
        "45f",
        "binary payloads in a file of lines",
        framed("")
        .replace('"out"', '"out", wallaroo.serdes.MessagePack().encoder, form="lines"')
        .replace("import wallaroo\n", "import wallaroo\nimport wallaroo.serdes\n"),
        ("FileSinkConfig may hold newlines in their lines", 'Write form="frames".'),
    ),
    Mistake(
        "45d",
        "the class of a sink in place of its object",
        framed("").replace('wallaroo.FileSinkConfig("out")', "wallaroo.FileSinkConfig"),
        ("error: to_sink() (APP:", "It was given the class FileSinkConfig"),
    ),
    Mistake(
        "45b",
        "a serde in place of its encoder",
        framed("")
        .replace('"out"', '"out", wallaroo.serdes.Json(dict)')
        .replace("import wallaroo\n", "import wallaroo\nimport wallaroo.serdes\n"),
        ("APP:", "is a Json", "Write Json(...).encoder"),
    ),
    *(
        Mistake(
            f"47{letter}",
            f"a URL without its scheme: {config}",
            framed("").replace('wallaroo.FileSinkConfig("out")', f"wallaroo.sinks.{config}"),
            (config.partition("(")[0], *said),
        )
        for letter, config, said in (
            (
                "b",
                "RedisSinkConfig('localhost:6379', stream='s')",
                ("The url does not begin with redis://", "Write 'redis://host:6379/0'."),
            ),
            (
                "c",
                "RabbitMQSinkConfig('localhost', exchange='e')",
                ("The url does not begin with amqp://", "Write 'amqp://user:password@host:5672/'."),
            ),
            (
                "d",
                "MQTTSinkConfig('mqtt://localhost', 't')",
                ("host='mqtt://localhost' is a URL.", "Give the host's name alone."),
            ),
            (
                "e",
                "WebSocketSinkConfig('localhost:80')",
                ("The url does not begin with ws:// or wss://.", "Write 'ws://host:port/path'."),
            ),
        )
    ),
    Mistake(
        "47",
        "a URL without its scheme",
        framed("").replace(
            'wallaroo.FileSinkConfig("out")', "wallaroo.sinks.HTTPSinkConfig('127.0.0.1:80/x')"
        ),
        (
            "HTTPSinkConfig('127.0.0.1:80/x')",
            "does not begin with http:// or https://",
            "Write 'https://host/path'.",
        ),
    ),
)
WHILE_RUNNING = (
    Mistake(
        "22b",
        "an aggregation of numbers whose update returns nothing for some events",
        windowed(RANGE, SUM.format(update="return accumulator + 1 if event == 'b' else None")),
        (
            "step 'Sum' failed at APP:",
            "update() returned None, and its accumulator, int, cannot be changed",
            "return the new accumulator",
            "event: 'a' (key 'a')",
        ),
        RAN,
        lines="a\nb\n",
    ),
    Mistake(
        "54",
        "a PostgreSQL server that is not there",
        framed("").replace(
            'wallaroo.FileSourceConfig("in", "in.txt")',
            "wallaroo.sources.PostgresSourceConfig('in', 'postgresql://127.0.0.1:9/d', 't', 'id')",
        ),
        (
            "source 'in': PostgreSQL at 127.0.0.1: connection to server at",
            "Connection refused. Is it running? Start it, or correct its address; then run again.",
        ),
        1,
    ),
    Mistake(
        "4",
        "a mistyped option of Kafka's client",
        kafka_source("'clicks', 'b:9092', options={'securty.protocol': 'SSL'}"),
        (
            "source 'in'",
            '"securty.protocol"',
            "Options have librdkafka's names; correct options={...}.",
        ),
        1,
    ),
    Mistake(
        "15",
        "a time without a zone",
        stamped("__import__('datetime').datetime(2026, 1, 1)"),
        ("failed at HERE", "a datetime without time zone; give it one", "event: 'a' (file"),
        RAN,
    ),
    Mistake(
        "16",
        "a time as text",
        stamped("'2026-01-01'"),
        ("failed at HERE", "an aware datetime, seconds as float", "not str", "event: 'a' (file"),
        RAN,
    ),
    Mistake(
        "23a",
        "an aggregation whose update raises",
        windowed(RANGE, ADDS.replace("return accumulator + 1", "raise ValueError('no sum')")),
        ("step 'Sum' failed at APP:", "ValueError: no sum", "event: 'a' (key 'a')"),
        RAN,
    ),
    Mistake(
        "23b",
        "an aggregation whose output raises",
        windowed(RANGE, ADDS.replace("return str(accumulator)", "raise ValueError('no text')")),
        (
            "step 'Sum' failed at APP:",
            "ValueError: no text",
            "(key 'a', window from 2023-11-14 22:13:20 to 2023-11-14 22:13:25 UTC)",
        ),
        RAN,
    ),
    Mistake(
        "36d",
        "a step that cannot use what some branch of the one before it returns",
        framed(
            ".to(wrap).to(read)",
            "class Order:\n    pass\n@wallaroo.computation\ndef wrap(line):\n"
            "    return Order() if line else {'id': 1}\n"
            "@wallaroo.computation\ndef read(order):\n    return order['id']  # here\n",
        ),
        ("step 'read' failed at HERE", "'Order' object is not subscriptable", "event: Order()"),
        RAN,
    ),
    Mistake(
        "39",
        "an encoder that raises",
        framed("")
        .replace('"out"', '"out", encode')
        .replace(
            "import wallaroo\n",
            "import wallaroo\n@wallaroo.encoder\ndef encode(event):\n"
            "    raise KeyError(event)  # here\n",
        ),
        ("step 'encode' failed at HERE", "KeyError: 'a'", "event: 'a' (file"),
        RAN,
    ),
    Mistake(
        "41",
        "fewer keys than rows",
        framed(
            ".key_by(keys).to(count)",
            "@wallaroo.batch_key_extractor\ndef keys(rows: list):\n    return ['one']\n"
            "@wallaroo.state_computation(state=dict)\ndef count(line, state):\n    return line\n",
        ),
        ("step 'keys' failed at APP:", "it returned 1 keys for 2 rows"),
        RAN,
        lines="a\nb\n",
    ),
    Mistake(
        "43",
        "a payload that is not as long as its layout",
        framed("")
        .replace('"in.txt"', '"in.txt", wallaroo.fixed_layout([("x", "<i4"), ("y", "<i8")])')
        .replace('FileSinkConfig("out")', 'FileSinkConfig("out", wallaroo.encoder(str))'),
        ("step 'fixed layout' failed at APP:", "the payload has 1 bytes, and the layout 12"),
        RAN,
    ),
    *(
        Mistake(
            f"44{letter}",
            f"a line of JSON with {what}",
            orders_of_json(),
            (
                "step 'decode json Order' failed at APP:",
                said,
                f"bytes: {line.strip()} (file",
                'Correct the function or the payloads, or give the decoder on_error="skip" or',
            ),
            RAN,
            lines=line,
        )
        for letter, what, line, said in (
            ("a", "a missing field", '{"count": 1}\n', "missing required field 'id', got 'count'"),
            ("b", "a wrong type", '{"id": "1"}\n', "id: expected int, got '1' (str)"),
            ("c", "something else", "order 1\n", "JSON is malformed"),
        )
    ),
    Mistake(
        "17a",
        "event time as milliseconds",
        stamped("1_764_000_000_000"),
        (
            "step 'event time at",
            "failed at HERE",
            "1764000000000 is 1970-01-01 00:29:24 in nanoseconds since 1970",
            "If it counts milliseconds, multiply it by 1_000_000: 2025-11-24 16:00:00",
            "allow_before_1980=True",
            "event: 'a'",
        ),
        RAN,
    ),
    Mistake(
        "17b",
        "event time as whole seconds",
        stamped("1_764_000_000"),
        ("If it counts seconds, multiply it by 1_000_000_000: 2025-11-24 16:00:00",),
        RAN,
    ),
    Mistake(
        "17c",
        "event time as milliseconds with a fraction",
        stamped("1_764_000_000_000.5"),
        ("If it counts milliseconds, divide it by 1_000: 2025-11-24 16:00:00",),
        RAN,
    ),
    Mistake(
        "25",
        "a timer with a relative time",
        watched("context.set_timer('t', wallaroo.seconds(30))"),
        ("step 'watch' failed at APP:", "not 30000000000", "set_timer_after(name, span)"),
        RAN,
    ),
    Mistake(
        "26",
        "a timer with a timedelta",
        watched("import datetime; context.set_timer('t', datetime.timedelta(seconds=30))"),
        ("step 'watch' failed at APP:", "not timedelta", "set_timer_after(name, span)"),
        RAN,
    ),
    Mistake(
        "28",
        "a function of a timer that raises",
        watched(
            "context.set_timer_after('t', 0)",
            ON_TIMER.replace("return name", "raise ValueError(name)  # this"),
        ),
        ("step 'watch' failed at APP:", "ValueError: t", "timer t of key 'a'"),
        RAN,
    ),
)
