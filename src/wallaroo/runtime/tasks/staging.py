"""Output of one task: its writers and its transfer to the driver.

The invariant: once a task has its tokens, the output they name is in the sinks' folders on the
driver's host: written there, or handed over.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from wallaroo.dataflow.plan.model import SinkPlan
from wallaroo.engine.report import TaskReport
from wallaroo.runtime.tasks.job import Deployment, plan_of
from wallaroo.sinks.interface import SinkWriter, WriteContext
from wallaroo.sinks.staging import is_staged_token, remove_staged
from wallaroo.spool.remote.storage import RemoteStorage
from wallaroo.state.log.layout import OUTBOX


def drop_staged(deployment: Deployment, reports: Iterable[TaskReport]) -> None:
    """Remove the files of reports that will not count, from the checkpoint's folder."""
    for report in reports:
        for sink, token in report.tokens.items():
            if is_staged_token(token):
                name = plan_of(deployment).sinks[sink].name
                remove_staged(Path(deployment.outbox_root, name), [token])


class StagedOutputs:
    """The outputs of one attempt of a task, by sink."""

    def __init__(self, deployment: Deployment, batch: int, task: int, tasks: int, attempt: str):
        self._deployment = deployment
        self._batch = batch
        self._task = task
        self._attempt = attempt
        self._inline_bytes_max = deployment.tuning.inline_bytes(tasks)
        self._writers: dict[int, SinkWriter] = {}
        self._own: tempfile.TemporaryDirectory[str] | None = None  # if hosts do not share a folder

    def write(self, sink: int, plan: SinkPlan, outputs: Sequence[bytes]) -> None:
        """Stage encoded outputs for a sink, in order."""
        if sink not in self._writers:
            context = WriteContext(
                plan.name,
                self._batch,
                self._task,
                self._attempt,
                self._folder(plan.name),
                self._deployment.is_durable,
                self._inline_bytes_max,
            )
            self._writers[sink] = plan.config.writer(context)
        self._writers[sink].write(outputs)

    def _folder(self, sink: str) -> Path:
        """Return the folder for a sink's output; it exists."""
        if self._deployment.outbox_root:
            return Path(self._deployment.outbox_root, sink)
        if self._own is None:
            self._own = tempfile.TemporaryDirectory(prefix="wallaroo-staging-")
        folder = Path(self._own.name, sink)
        folder.mkdir(mode=0o700)
        return folder

    def prepare(self) -> dict[int, Any]:
        """Finish; return the tokens of the sinks with output.  Raises PeerError."""
        tokens = {sink: writer.prepare() for sink, writer in self._writers.items()}
        if self._own is not None:
            storage = self._deployment.storage
            assert isinstance(storage, RemoteStorage)
            root = Path(self._own.name)
            for file in sorted(root.glob("*/*")):
                storage.publish_file(f"{OUTBOX}/{file.relative_to(root)}", file)
        return {sink: token for sink, token in tokens.items() if token is not None}

    def close(self) -> None:
        """Remove output staged in this task's own folder."""
        if self._own is not None:
            self._own.cleanup()
