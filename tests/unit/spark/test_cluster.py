"""Layouts as batches get them, without a cluster: what Spark is asked for, and what follows from
where tasks ran.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PythonException

from wallaroo.engine.report import TaskReport
from wallaroo.errors import PeerError
from wallaroo.spark.cluster import cluster as module
from wallaroo.spark.cluster.cluster import Cluster, Placement
from wallaroo.spark.cluster.joining_hosts import HostProbe
from wallaroo.spark.cluster.layout import MISPLACED
from wallaroo.spark.cluster.membership import ExecutorHost

JOB: Any = SimpleNamespace(tasks=2, state_level=0, committed=1)


class Layout:
    """A layout that only remembers what was done with it."""

    def __init__(self, context: Any, hosts: tuple[str, ...]):
        self.hosts, self.prepared, self.forgotten = hosts, 0, 0

    def prepare(self) -> None:
        self.prepared += 1

    def forget(self) -> list[Any]:
        self.forgotten += 1
        return []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Cluster:
    """Two hosts, a and b, with a core each; the parameter: with how many hosts a run starts."""
    monkeypatch.setattr(module, "Layout", Layout)
    context: Any = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(conf=dict)), getConf=dict
    )
    cleaner: Any = SimpleNamespace(forget=lambda rdds: None)
    deployment: Any = None
    placement = Placement(is_local=False, members_min=getattr(request, "param", 1))
    made = Cluster(context, deployment, 4, placement, cleaner, lambda: JOB)
    for host in ("a", "b"):
        assert (
            made._joined(
                ExecutorHost(host, (host,), 1), lambda host=host: HostProbe(f"worker-{host}", host)
            )
            is None
        )
    return made


def batch(cluster: Cluster, *workers: str) -> Any:
    """Run a batch of which task 0, 1, ... ran on these workers; return its layout."""
    layout = cluster.layout(2)
    cluster.batch_done(
        JOB,
        [TaskReport(0, task, "x", worker=worker) for task, worker in enumerate(workers)],
        0.1,
    )
    return layout


def test_a_layout_is_filled_once_and_used_as_long_as_tasks_run_where_they_are_wanted(
    cluster: Cluster,
) -> None:
    layouts = [batch(cluster, "worker-a", "worker-b") for _ in range(3 * MISPLACED[0])]
    assert layouts[0].hosts == ("a", "b")
    assert len(set(map(id, layouts))) == 1
    assert (layouts[0].prepared, layouts[0].forgotten) == (1, 0)


def test_a_layout_that_tasks_keep_leaving_is_made_again(cluster: Cluster) -> None:
    """What holds a task to its host was put elsewhere, when its host was busy: it would stay there
    forever.
    """
    layouts = [batch(cluster, "worker-b", "worker-b") for _ in range(MISPLACED[0] + 1)]
    assert len(set(map(id, layouts))) == 2
    assert layouts[0].forgotten == 1
    assert layouts[-1].prepared == 1


def test_a_single_misplaced_task_changes_nothing(cluster: Cluster) -> None:
    layouts = []
    for _ in range(3):
        layouts += [batch(cluster, "worker-b", "worker-b") for _ in range(MISPLACED[0] - 1)]
        layouts.append(batch(cluster, "worker-a", "worker-b"))
    assert len(set(map(id, layouts))) == 1


def test_where_the_first_host_cannot_take_part_others_are_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a cluster come one by one; on a busy machine seconds lie between them."""
    first = {"c": ExecutorHost("c", ("c",), 1)}
    looks = iter([first, first])
    monkeypatch.setattr(
        module, "executors_of", lambda _: next(looks, first | {"d": ExecutorHost("d", ("d",), 1)})
    )

    def ask(seen: ExecutorHost) -> HostProbe:
        if seen.host == "c":
            raise PeerError("no library")
        return HostProbe("worker-d", "d")

    monkeypatch.setattr(cluster._prober, "ask", ask)
    monkeypatch.setattr(cluster._excluded, "add", lambda host, why: True)
    cluster._membership.members = ()
    cluster.start(lambda: True)
    assert [member.host for member in cluster._membership.members] == ["d"]


def test_a_worker_whose_python_lacks_a_module_is_named_and_others_continue(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a session, PySpark raises what a task raised in Python as an error of its own."""

    def ask() -> HostProbe:
        raise PythonException(
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'lmdb'\n"
        )

    monkeypatch.setattr(cluster._excluded, "add", lambda host, why: True)
    error = cluster._joined(ExecutorHost("c", ("c",), 1), ask)
    assert "worker c cannot take part: its Python has no module named 'lmdb'." in str(error)
    assert str(error) in caplog.text
    assert [member.host for member in cluster.members] == ["a", "b"]


def test_two_workers_of_one_name_each_own_what_their_tasks_do(cluster: Cluster) -> None:
    """Both report the name; the hosts of their executors tell them apart."""
    cluster._joined(ExecutorHost("c", ("c",), 1), lambda: HostProbe("worker-a", "c"))
    job: Any = SimpleNamespace(tasks=3, state_level=0, committed=1)
    names = {"a": "worker-a", "b": "worker-b", "c": "worker-a"}
    hosts: Any = cluster.layout(3)
    reports = [
        TaskReport(0, task, "x", worker=names[host], host=host)
        for task, host in enumerate(hosts.hosts)
    ]
    for _ in range(MISPLACED[0] + 1):
        cluster.batch_done(job, cluster.named(reports), 0.1)
    assert cluster.layout(3) is hosts
    assert {each.name: each.tasks for each in cluster.status()} == {
        "worker-a": 1,
        "worker-a/c": 1,
        "worker-b": 1,
    }
    assert sorted(len(each.key_groups) for each in cluster.status()) == [1, 1, 2]
    failed = TaskReport(0, 0, "x", worker="worker-a", host="c", error=PeerError("no"))
    assert cluster.failure_on_non_member(cluster.named([failed])) == ""


def _joining(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *looks: str) -> None:
    """Let Spark's executors be on these hosts at each look; the last one stays."""
    remaining = list(looks)

    def executors_of(_: Any) -> dict[str, ExecutorHost]:
        hosts = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return {host: ExecutorHost(host, (host,), 1) for host in hosts}

    monkeypatch.setattr(module, "executors_of", executors_of)
    monkeypatch.setattr(
        cluster._prober, "ask", lambda seen: HostProbe(f"worker-{seen.host}", seen.host)
    )
    cluster._membership.members = ()


@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_a_run_begins_once_as_many_workers_as_asked_for_have_joined(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One of those that came first leaves before the third has come."""
    _joining(cluster, monkeypatch, "c", "c", "cd", "d", "de", "def")
    cluster.start(lambda: True)
    assert sorted(member.host for member in cluster.members) == ["d", "e", "f"]
    assert "waiting for workers: 1 of at least 3 (--min-workers) has joined" in caplog.text
    assert "waiting for workers: 2 of at least 3 (--min-workers) have joined" in caplog.text


@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_a_run_that_waits_for_more_workers_can_be_stopped(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _joining(cluster, monkeypatch, "c")
    cluster.start(lambda: cluster.is_empty)
    assert [member.host for member in cluster.members] == ["c"]


def test_a_worker_that_has_gone_is_named_once_and_is_no_member(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "executors_of", lambda _: {"a": ExecutorHost("a", ("a",), 1)})
    cluster.look_now()
    cluster.look_now()
    assert [message for message in caplog.messages if "has left" in message] == [
        "worker-b has left: its Spark executor has ended"
    ]
    assert [worker.name for worker in cluster.status()] == ["worker-a"]


def test_a_host_that_comes_later_and_failed_at_a_task_is_excluded_before_the_next_attempt(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all attempts of a batch may end there, in a time too short for it to be asked."""
    here = {name: ExecutorHost(name, (name,), 1) for name in ("a", "b", "c")}
    monkeypatch.setattr(module, "executors_of", lambda _: here)
    excluded: list[str] = []

    def ask(seen: ExecutorHost) -> HostProbe:
        raise PeerError("no library")

    monkeypatch.setattr(cluster._prober, "ask", ask)
    monkeypatch.setattr(cluster._excluded, "add", lambda host, why: excluded.append(host))
    layout: Any = cluster.layout(2)
    reports = [TaskReport(0, 0, "x", worker="worker-c", error=PeerError("no library"))]
    assert cluster.failure_on_non_member(reports)
    cluster.ask_others()
    assert excluded == ["c"]
    again: Any = cluster.layout(2)
    assert again is not layout
    assert again.hosts == ("a", "b")


@pytest.fixture
def probes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Errors of the probes of hosts; both executors stay."""
    here = {name: ExecutorHost(name, (name,), 1) for name in ("a", "b")}
    monkeypatch.setattr(module, "executors_of", lambda _: here)
    settings = SimpleNamespace(set=lambda name, value: None)
    monkeypatch.setattr(cluster._excluded, "_settings", settings)
    errors: dict[str, Exception] = {}

    def ask(seen: ExecutorHost) -> HostProbe:
        if seen.host in errors:
            raise errors[seen.host]
        return HostProbe(f"worker-{seen.host}", seen.host)

    monkeypatch.setattr(cluster._prober, "ask", ask)
    return errors


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PeerError("it cannot use its folder /x."), "it cannot use its folder /x."),
        (PythonException("Traceback\nOSError: No space left"), "OSError: No space left"),
    ],
)
def test_a_member_that_fails_its_probe_is_excluded_by_name_until_it_passes(
    cluster: Cluster,
    probes: dict[str, Exception],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    reason: str,
) -> None:
    probes["a"] = error
    assert str(cluster.exclude_unfit()) == f"worker-a (a) cannot take part: {reason}"
    assert caplog.messages == [f"worker-a (a) cannot take part: {reason}"]
    assert [member.host for member in cluster.members] == ["b"]
    layout: Any = cluster.layout(2)
    assert layout.hosts == ("b", "b")

    monkeypatch.setattr(cluster._excluded, "may_join", lambda host: True)
    cluster.ask_others()
    assert len(caplog.messages) == 1, "the same reason is reported once"
    probes.clear()
    cluster.ask_others()
    assert [member.host for member in cluster.members] == ["a", "b"]


def test_members_that_pass_their_probes_stay(
    cluster: Cluster, probes: dict[str, Exception], caplog: pytest.LogCaptureFixture
) -> None:
    assert cluster.exclude_unfit() is None
    assert [member.host for member in cluster.members] == ["a", "b"]
    assert caplog.messages == []


def test_workers_are_named_with_their_hosts_and_by_host_once_they_have_left(
    cluster: Cluster,
) -> None:
    assert cluster.names({"c", "b"}) == "worker-b (b), c"
    assert cluster.names(()) == ""


def test_copies_are_kept_as_long_as_a_generation_of_tasks(cluster: Cluster) -> None:
    object.__setattr__(cluster._place, "has_replicas", True)
    layout: Any = cluster.layout(2)
    assert cluster.replicas(layout) == ((2, 3), (0, 1))
    reports = [TaskReport(0, task, "x", {}, worker=f"worker-{'ab'[task]}") for task in range(2)]
    reports[0].notes["replica"] = 1.0
    cluster.batch_done(JOB, reports, 0.1)
    copied = {worker.name: worker.replica_groups for worker in cluster.status()}
    assert copied == {"worker-a": (2, 3), "worker-b": ()}
    cluster.replicas(layout)
    assert {worker.replica_groups for worker in cluster.status()} == {()}


def test_without_the_option_no_copies_are_kept(cluster: Cluster) -> None:
    layout: Any = cluster.layout(2)
    assert cluster.replicas(layout) == ()
