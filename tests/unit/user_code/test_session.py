"""What is typed into a prompt runs in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TYPED = """
import sys
from dataclasses import dataclass
import wallaroo
from wallaroo.user_code.references import pack_session
from wallaroo.user_code.references import pickle_by_name

LIMIT = 2

@dataclass
class Word:
    text: str

class Count:
    def __init__(self):
        self.seen = 0

class NotToBePickled:
    lock = sys.stdout

@wallaroo.decoder
def word(payload):
    return Word(payload.decode())

@wallaroo.key_extractor
def text_of(word):
    return word.text

def is_short(word):
    return len(word.text) <= LIMIT

@wallaroo.state_computation(state=Count)
def count(word, state):
    state.seen += 1
    return f"{word} {state.seen}"

source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", word))
counts = source.filter(is_short).key_by(text_of).to(count).map(lambda text: text + "!")
app = wallaroo.build_application("typed", counts.to_sink(wallaroo.StdoutSinkConfig()))
with open(sys.argv[1], "wb") as file:
    file.write(len(session := pack_session()).to_bytes(4, "big") + session)
    file.write(pickle_by_name(app.plan))
"""
WORKER = """
import pickle, sys
from wallaroo.testing.local_runner.runner import LocalRunner
from wallaroo.user_code.references import unpack_session

content = open(sys.argv[1], "rb").read()
size = int.from_bytes(content[:4], "big")
unpack_session(content[4 : 4 + size])
runner = LocalRunner(pickle.loads(content[4 + size :]))
for batch in range(2):
    both = [(0, runner.frames(0, b"be"), 0), (0, runner.frames(0, b"not"), 0)]
    result = runner.run_batch([both], 2)
    runner.commit(result)
    print(result.outputs[0])
print(type(runner.states("count")["be"]).__name__, runner.states("count")["be"].seen)
"""


def python(program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_steps_state_and_events_of_a_session_work_in_another_process(tmp_path: Path) -> None:
    """Given classes and functions without a file; a class that cannot be sent harms no one."""
    content = str(tmp_path / "content")
    python(TYPED, content)
    assert python(WORKER, content).splitlines() == [
        "[b\"Word(text='be') 1!\"]",
        "[b\"Word(text='be') 2!\"]",
        "Count 2",
    ]
