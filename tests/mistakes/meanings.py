"""Mistakes about times, and functions without a result, of the third trial's list of 54: those
that were taken without a word, or answered by a raw error.
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
        ("step 'Sum'", "is no span of time", "timedelta(seconds=5)"),
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
)
WHILE_RUNNING = (
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
