"""The interface of sinks, for those who write one, and ready-made sinks.

Where it runs: everywhere; see below.

A sink is three classes.  All outputs of a batch pass through them in three steps:

1. **Write**, in the tasks: ``SinkConfig.writer(context)`` creates a ``SinkWriter``.  It gets
   encoded outputs in order (``write``, many times), stages them out of sight, and returns a *token*
   that names the place (``prepare``).
2. **Commit**, in the driver: once the batch and its tokens are recorded in the checkpoint,
   ``SinkCommitter.commit(commit, tokens)`` makes the output visible, tokens in output order.
3. **Abort**: the batch did not commit; drop what the tokens name.

What a sink must keep to be exactly-once:

* A task may run more than once.  Name what is staged after ``context.attempt``; only one attempt's
  token comes back.
* ``commit`` may be called again for the last commit after a crash.  It must recognize the commit by
  its identity, which is best stored in the same transaction as the output.
* A ``CommitId`` names the checkpoint, the batch and an id.  Batch numbers restart at 0 with a fresh
  checkpoint and are reused after a rollback; ids are not.
* A crash may prevent ``abort``.  ``recover(history, tokens)``, called before the first batch, gets
  the retained commits and the tokens of the last one: finish that one, remove everything else that
  is staged, and refuse to continue after output of a commit that is not in ``history``.
* ``rollback(to, tokens)`` is optional; see ``SinkCommitter.rollback``.
* Tokens go into the checkpoint: small and JSON-able; ``None`` means that nothing was written.

The configuration is a frozen dataclass, pickled on its way to workers: open connections in
``writer`` and ``committer``, not in it.  docs/sinks.md has a sink of one page.  ``StagedWriter``,
``read_staged``, ``remove_staged`` and ``remove_orphans`` stage outputs that are too large for a
token.
"""

from wallaroo.connectors import sink_names
from wallaroo.user_code.lazy_exports import lazy_exports

HOMES = {
    # to write a sink
    "SinkConfig": "wallaroo.sinks.interface",
    "SinkWriter": "wallaroo.sinks.interface",
    "SinkCommitter": "wallaroo.sinks.interface",
    "SinkStatus": "wallaroo.sinks.interface",
    "WriteContext": "wallaroo.sinks.interface",
    "CommitId": "wallaroo.durable.commit_id",
    "CommitHistory": "wallaroo.durable.commit_id",
    # to remove rows by their key
    "Delete": "wallaroo.sinks.changes",
    # to stage large outputs
    "StagedWriter": "wallaroo.sinks.staging",
    "read_staged": "wallaroo.sinks.staging",
    "remove_staged": "wallaroo.sinks.staging",
    "remove_orphans": "wallaroo.sinks.staging",
    **sink_names(),
}
__getattr__ = lazy_exports(__name__, HOMES)
__all__ = [*HOMES]
