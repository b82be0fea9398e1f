"""The ledger of a Redis sink, and the script that writes it.

Where it runs: driver; pure.

The script writes outputs too.  The invariant: the ledger counts the outputs that were written, not
those that were sent.  A script is one step to Redis, in its log and for its replicas too, but its
commands may fail individually, as in MULTI: effects before a failure stay.  So the script writes
the ledger first (if that fails, no output is written), and sets it back to the number of outputs
before the one that failed.  It does nothing if the ledger differs from the one that the caller
read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from wallaroo.durable.commit_id import CommitId

REPLACE = b"REPLACE"  # and a key: it is deleted before the command
# KEYS: the ledger, the key of the outputs if there is one.  ARGV: the ledger's field, its content
# before and after, the beginning of its content if an output fails, the number of outputs before
# these; then each output's command: the number of words, and the words.
SCRIPT = """
local field, before, after, partly = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local number = tonumber(ARGV[5])
local found = redis.pcall('HGET', KEYS[1], field)
if type(found) == 'table' then return found end
if (found or '') ~= before then return 0 end
local noted = redis.pcall('HSET', KEYS[1], field, after)
if type(noted) == 'table' then return noted end
local at = 6
while at <= #ARGV do
    local last = at + tonumber(ARGV[at])
    local ok, answer = true, nil
    if ARGV[at + 1] == 'REPLACE' then
        answer = redis.pcall('DEL', ARGV[at + 2])
        at = at + 2
    end
    if type(answer) ~= 'table' then
        ok, answer = pcall(function() return redis.pcall(unpack(ARGV, at + 1, last)) end)
    end
    if not ok then answer = {err = 'ERR ' .. tostring(answer)} end
    if type(answer) == 'table' and answer.err then
        redis.call('HSET', KEYS[1], field, partly .. number .. '}')
        return answer
    end
    at = last + 1
    number = number + 1
end
return 1
"""


@dataclass(frozen=True, slots=True)
class Line:
    """The ledger's line of a checkpoint.

    It holds the last commit that was put as a whole, and the number of outputs put of the next one.
    """

    last: CommitId
    next: CommitId | None = None
    outputs: int = 0

    @staticmethod
    def from_text(text: str, checkpoint: str) -> Line:
        """Parse the ledger's content; empty: nothing yet.

        >>> whole = Line(CommitId("c", 4, "x"))
        >>> begun = Line(whole.last, CommitId("c", 5, "y"), 700)
        >>> all(Line.from_text(line.to_text(), "c") == line for line in (whole, begun))
        True
        """
        if not text:
            return Line(CommitId(checkpoint))
        fields = json.loads(text)
        if "outputs" not in fields:
            return Line(CommitId.from_json(fields))
        last, begun = (CommitId.from_json(fields[name]) for name in ("last", "next"))
        return Line(last, begun, int(fields["outputs"]))

    def to_text(self) -> str:
        if self.next is None:
            return json.dumps(self.last.to_json())
        return f"{self.partly}{self.outputs}}}"

    @property
    def partly(self) -> str:
        """Return the text up to the next commit's number of outputs; that and ``}`` end it."""
        assert self.next is not None
        last, begun = (json.dumps(commit.to_json()) for commit in (self.last, self.next))
        return f'{{"last": {last}, "next": {begun}, "outputs": '
