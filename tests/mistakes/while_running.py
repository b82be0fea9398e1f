"""Mistakes that show when an event comes: what the run ends with, from a run whose batches are in
this process.  The functions are called by the same engine as in Spark's workers, which
``tests/conformance/test_errors.py`` holds against each other.
"""

from __future__ import annotations

from tests.mistakes.mistake import Mistake, framed

RAN = 3  # exit code: a function of the application failed
KEY = "@wallaroo.key_extractor\ndef key(line):\n    return line\n"


def computation(body: str, kind: str = "computation") -> str:
    """An application with one step that does this."""
    return framed(".to(step)", f"@wallaroo.{kind}\ndef step(event):\n    {body}\n")


MISTAKES = (
    Mistake(
        "6",
        "state that cannot be pickled from some event on",
        framed(
            ".key_by(key).to(keep)",
            f"class Kept:\n    pass\n{KEY}"
            "@wallaroo.state_computation(state=Kept)  # here\ndef keep(line, state):\n"
            "    state.callback = lambda: line\n    return line\n",
        ),
        ("step 'keep' failed at HERE", "state of key 'a'", "attribute 'callback'", "picklable"),
        RAN,
    ),
    Mistake(
        "7a",
        "an exception in a computation, two calls deep",
        framed(
            ".to(parse)",
            "def deep(text):\n    return int(text)  # here\n"
            "def middle(text):\n    return deep(text)\n"
            "@wallaroo.computation\ndef parse(event):\n    return middle(event)\n",
        ),
        (
            "step 'parse' failed at HERE",
            "ValueError: invalid literal",
            "event: 'a'",
            "called from",
            "in middle",
            "in parse",
            "Correct the function and run again",
        ),
        RAN,
    ),
    Mistake(
        "7b",
        "an exception in a decoder",
        framed("")
        .replace('"in.txt"', '"in.txt", decode')
        .replace(
            "import wallaroo\n",
            "import json\nimport wallaroo\n@wallaroo.decoder\ndef decode(payload):\n"
            "    return json.loads(payload)  # here\n",
        ),
        ("step 'decode' failed at HERE", "JSONDecodeError", "frame of 1 byte: a"),
        RAN,
    ),
    Mistake(
        "8a",
        "an encoder that returns a number",
        framed("")
        .replace('"out"', '"out", encode')
        .replace(
            "import wallaroo\n",
            "import wallaroo\n@wallaroo.encoder  # here\ndef encode(event):\n    return 7\n",
        ),
        ("step 'encode' failed at HERE", "an encoder must return bytes or str", "int"),
        RAN,
    ),
    Mistake(
        "8b",
        "a multi computation that returns a string",
        computation("return event", "computation_multi"),
        ("step 'step' failed at APP:", "must return a list", "str"),
        RAN,
    ),
    Mistake(
        "8c",
        "a tuple with a float as key",
        framed(
            ".key_by(key).to(count)",
            "@wallaroo.key_extractor  # here\ndef key(line):\n    return (line, 1.5)\n"
            "@wallaroo.state_computation(state=dict)\ndef count(line, state):\n    return line\n",
        ),
        (
            "step 'key' failed at HERE",
            "a key must be str, bytes, int, or a tuple of these, not float",
        ),
        RAN,
    ),
    Mistake(
        "8d",
        "a number of numpy as key",
        framed(
            ".key_by(key).to(count)",
            "import numpy\n@wallaroo.key_extractor  # here\ndef key(line):\n"
            "    return numpy.int64(len(line))\n"
            "@wallaroo.state_computation(state=dict)\ndef count(line, state):\n    return line\n",
        ),
        (
            "step 'key' failed at HERE",
            "a key must be str, bytes, int, or a tuple of these, not int64: return int(key)",
        ),
        RAN,
    ),
    Mistake(
        "10b",
        "a step that calls an async function and returns what it got",
        framed(
            ".to(asked)",
            "async def ask(line):\n    return line\n"
            "@wallaroo.computation\ndef asked(line):\n    return ask(line)\n",
        ),
        ("step 'asked' failed at APP:", "coroutine"),
        RAN,
    ),
    Mistake(
        "11",
        "an object to a sink without encoder",
        framed(
            ".to(wrap)",
            "class Thing:\n    pass\n@wallaroo.computation  # here\ndef wrap(line):\n"
            "    return Thing()\n",
        ),
        ("step 'wrap' failed at APP:", "Thing", "give the sink an encoder"),
        RAN,
    ),
)
