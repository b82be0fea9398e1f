"""Appends to Delta tables by Delta Kernel in a separate JVM.

Where it runs: driver, in the committer's thread; the JVM ends with its stdin.

Kernel writes tables that deltalake does not, for example those whose columns are mapped.  Spark's
connector records no identity in the table, or does not run (``docs/decisions/0066``).  Arrow writes
a group into the outbox, under the names that columns have in the table's files; Kernel copies it
into the table, with statistics, and commits it with the identity.  The public API of version 4.4.0
has one identity per transaction and no mapped columns: the rest uses internal classes, so other
versions are rejected.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from wallaroo.processes.environment import spark_home
from wallaroo.sinks.queued.system import DeliveryError

VERSION = "4.4.0"
JARS = tuple(
    f"{name}-{VERSION}.jar"
    for name in ("delta-kernel-api", "delta-kernel-defaults", "delta-storage")
)
WRITER = "Wallaroo"
# one compiler, as in Spark's JVM: it starts sooner, and what it runs is mostly Parquet's loops
OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
BATCHES = 256  # in a file of the table; a batch has 1,024 rows
END_S = 10.0  # for the JVM to end
CHECKPOINT = "CHECKPOINT"  # the table's log gets one after so many commits
# a commit of another writer was first: read what the table records, and try again
PASSES = ("ConcurrentTransactionException", "ConcurrentWriteException", "CommitStateUnknown")


class Kernel:
    """A JVM with Delta Kernel, and a table."""

    def __init__(self, jars: Path, path: str):
        """Start the JVM.

        Raises DeliveryError, if Kernel does not write the table say.
        """
        port, token, self._process = _launched(jars)
        parameters = GatewayParameters(port=port, auth_token=token)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self._java: Any = self._gateway.jvm
        self._kernel = self._java.io.delta.kernel
        try:
            with _translated():
                engines = self._kernel.defaults.engine.DefaultEngine
                self._engine = engines.create(self._java.org.apache.hadoop.conf.Configuration())
                self._table = self._kernel.Table.forPath(self._engine, os.path.abspath(path))
                self._begun().build(self._engine)
        except BaseException:
            self.close()
            raise

    def cancel(self) -> None:
        """End the JVM, and with it the call that waits for it; called from any thread."""
        self._process.kill()

    def close(self) -> None:
        """End the JVM."""
        with suppress(Py4JError, OSError):
            self._gateway.close()
        assert self._process.stdin is not None
        self._process.stdin.close()  # it removes its files, and ends
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def append(self, rows: pa.Table, identity: Sequence[tuple[str, int]], file: Path) -> None:
        """Append rows in a transaction that records applications and their versions.

        The first of these must be higher than the table's.  ``file`` is written and removed.
        Raises DeliveryError.
        """
        (application, version), *others = identity
        with _translated():
            begun = self._begun().withTransactionId(self._engine, application, version)
            transaction = begun.build(self._engine)
            state = transaction.getTransactionState(self._engine)
            actions = self._java.java.util.ArrayList()
            if len(rows):
                actions.addAll(self._added(rows, transaction, state, file))
            for name, number in others:
                actions.add(self._recorded(name, number))
            listed = self._kernel.utils.CloseableIterable.inMemoryIterable(self._closeable(actions))
            committed = transaction.commit(self._engine, listed)
            for hook in committed.getPostCommitHooks():
                if hook.getType().name() == CHECKPOINT:
                    with suppress(Py4JJavaError):  # the next one is tried after as many commits
                        hook.threadSafeInvoke(self._engine)

    def _begun(self) -> Any:
        write = self._kernel.Operation.WRITE
        return self._table.createTransactionBuilder(self._engine, WRITER, write)

    def _recorded(self, application: str, version: int) -> Any:
        """Return the action that records a version."""
        actions = self._kernel.internal.actions
        nothing = self._java.java.util.Optional.empty()
        record = actions.SetTransaction(application, version, nothing)
        return actions.SingleAction.createTxnSingleAction(record.toRow())

    def _added(self, rows: pa.Table, transaction: Any, state: Any, file: Path) -> Any:
        """Copy rows into files of the table; return the actions that add these."""
        physical = self._kernel.internal.data.TransactionStateRow.getPhysicalSchema(state)
        logical = transaction.getSchema(self._engine).fieldNames()
        names = dict(zip(logical, physical.fieldNames(), strict=True))
        if not names.keys() >= set(rows.column_names):
            raise DeliveryError("columns were removed", is_transient=True)  # a session names them
        pq.write_table(rows.rename_columns([names[name] for name in rows.column_names]), file)
        kernel = self._kernel.Transaction
        no_partition = self._java.java.util.HashMap()
        context = kernel.getWriteContext(self._engine, state, no_partition)
        written = self._java.java.util.ArrayList()
        for batches in self._batches(file, physical):
            files = self._engine.getParquetHandler().writeParquetFiles(
                context.getTargetDirectory(),
                self._closeable(batches),
                context.getStatisticsColumns(),
            )
            written.addAll(files.toInMemoryList())
        file.unlink()
        added = kernel.generateAppendActions(self._engine, state, self._closeable(written), context)
        return added.toInMemoryList()

    def _batches(self, file: Path, schema: Any) -> Iterator[Any]:
        """Yield lists of batches of a file, each for a file of the table."""
        util = self._java.java.util
        size = file.stat().st_size
        status = self._kernel.utils.FileStatus.of(str(file), size, 0)
        files = self._closeable(util.Collections.singletonList(status))
        nothing = util.Optional.empty()
        read = self._engine.getParquetHandler().readParquetFiles(files, schema, nothing)
        batches = util.ArrayList()
        while read.hasNext():
            batches.add(self._kernel.data.FilteredColumnarBatch(read.next().getData(), nothing))
            if batches.size() == BATCHES:
                yield batches
                batches = util.ArrayList()
        if batches.size():
            yield batches

    def _closeable(self, several: Any) -> Any:
        return self._kernel.internal.util.Utils.toCloseableIterator(several.iterator())


def _launched(jars: Path) -> tuple[int, str, subprocess.Popen[bytes]]:
    """Start a JVM; return its port, the secret that it asks for, and its process."""
    spark = spark_home()
    if spark is None:
        raise DeliveryError("Spark, whose libraries Delta Kernel uses, is not installed", False)
    libraries = [str(spark / "jars" / "*"), *(str(jars / name) for name in JARS)]
    try:
        launched: tuple[int, str, subprocess.Popen[bytes]] = launch_gateway(
            classpath=os.pathsep.join(libraries),
            javaopts=list(OPTIONS),
            java_path=None,  # that of JAVA_HOME
            die_on_exit=True,
            create_new_process_group=True,
            enable_auth=True,
            return_proc=True,
        )
    except (OSError, ValueError, Py4JError) as error:
        raise DeliveryError(f"the JVM for Delta Kernel did not start: {error}", False) from error
    return launched


@contextmanager
def _translated() -> Iterator[None]:
    """Raise errors of Java and of the connection to it as DeliveryError."""
    try:
        yield
    except Py4JJavaError as error:
        raised = error.java_exception
        kind = str(raised.getClass().getSimpleName())
        passes = any(kind.startswith(name) for name in PASSES)
        raise DeliveryError(f"{kind}: {raised.getMessage()}", passes) from None
    except Py4JError as error:
        raise DeliveryError(f"the JVM of Delta Kernel ended: {error}", is_transient=True) from error
