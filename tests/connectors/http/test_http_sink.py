"""The HTTP sink: every output posted at least once, with a key by which repetitions are known."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.file.files import staged
from tests.connectors.http.server import GONE, TRICKLE, Hook, running_hook
from tests.unit.ingress.test_tls import make_certificate
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.http.committer import DRAINED_MAX, HTTPSystem
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.network.tls import TLS
from wallaroo.sinks import HTTPSinkConfig, SinkCommitter
from wallaroo.sinks.queued.queued_committer import QueuedCommitter
from wallaroo.sinks.queued.system import CommitContext
from wallaroo.spark.local_cluster.hosts import free_ports

ROOT = Path(__file__).parents[3]
DRAIN_S = 400.0
Eventually = Callable[..., None]


def opened(config: HTTPSinkConfig, folder: Path) -> SinkCommitter:
    committer = config.committer("s", folder, True)
    committer.recover(history_to(-1), [])
    return committer


def committed(config: HTTPSinkConfig, folder: Path, *outputs: bytes) -> SinkCommitter:
    """A committer that was given a batch with these outputs."""
    committer = opened(config, folder)
    committer.commit(commit_of(0), staged(config, folder, 0, list(outputs)))
    return committer


def test_an_output_is_a_request_with_its_commit_and_number_as_key(tmp_path: Path) -> None:
    with running_hook() as hook:
        config = HTTPSinkConfig(hook.url, headers={"Authorization": "Bearer secret"})
        committer = committed(config, tmp_path, b'{"a": 1}', b'{"a": 2}')
        committer.commit(commit_of(1), staged(config, tmp_path, 1, [b'{"a": 3}']))
        committer.close(DRAIN_S)
    assert [body for _, body, _ in hook.requests] == [b'{"a": 1}', b'{"a": 2}', b'{"a": 3}']
    first, second = commit_of(0).id, commit_of(1).id
    assert hook.keys == [f"{first}-0", f"{first}-1", f"{second}-0"]
    headers = hook.requests[0][0]
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Bearer secret"
    assert committer.status().outputs == 3


def test_several_outputs_go_line_by_line(tmp_path: Path) -> None:
    with running_hook() as hook:
        committed(HTTPSinkConfig(hook.url, batch=2), tmp_path, b"1", b"2\n", b"3").close(DRAIN_S)
    assert hook.taken() == [b"1\n2\n", b"3\n"]
    assert hook.keys == [f"{commit_of(0).id}-0-1", f"{commit_of(0).id}-2"]
    assert hook.requests[0][0]["Content-Type"] == "application/x-ndjson"


@pytest.mark.parametrize("failure", [503, 429, GONE])
def test_what_passes_is_tried_again_with_the_same_key(tmp_path: Path, failure: int) -> None:
    with running_hook(hook=Hook(answers=[204, failure, failure])) as hook:
        committed(HTTPSinkConfig(hook.url, backoff_s=0.001), tmp_path, b"1", b"2").close(DRAIN_S)
    key = f"{commit_of(0).id}-1"
    assert hook.keys == [f"{commit_of(0).id}-0", key, key, key]
    assert hook.taken() == [b"1", b"2"]


def test_a_server_that_is_away_is_waited_for_and_named(
    tmp_path: Path, eventually: Eventually
) -> None:
    (port,) = free_ports(1)
    config = HTTPSinkConfig(f"http://127.0.0.1:{port}/alerts?key=secret", backoff_s=0.01)
    committer = committed(config, tmp_path, b"1")
    wanted = f"http://127.0.0.1:{port}/alerts (Failed to establish a new connection"
    eventually(lambda: committer.status().waiting_for.startswith(wanted), "it says so")
    assert "secret" not in committer.status().waiting_for
    assert committer.backlog() > 0
    with running_hook(port) as hook:
        committer.close(DRAIN_S)
    assert hook.taken() == [b"1"]


def test_named_authorities_are_trusted_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's are not, which the client's library would load by itself."""
    server = make_certificate(tmp_path, "server")
    monkeypatch.setenv("SSL_CERT_FILE", server.certificate)
    other = TLS(ca=make_certificate(tmp_path, "other").certificate)
    with running_hook(tls=server) as hook:
        committed(HTTPSinkConfig(hook.url), tmp_path, b"1").close(DRAIN_S)
        with pytest.raises(PeerError, match="CERTIFICATE_VERIFY_FAILED"):
            committed(HTTPSinkConfig(hook.url, tls=other), tmp_path, b"2").close(DRAIN_S)
    assert hook.taken() == [b"1"]


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_an_answer_that_trickles_in_is_given_up_and_the_output_sent_again(
    tmp_path: Path,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    is_encrypted: bool,
) -> None:
    """No part of it is late by itself."""
    tls = make_certificate(tmp_path, "server") if is_encrypted else None
    with running_hook(hook=Hook(answers=[TRICKLE, TRICKLE]), tls=tls) as hook:
        trusted = None if tls is None else TLS(ca=tls.certificate)
        config = HTTPSinkConfig(hook.url, backoff_s=0.001, tls=trusted)
        context = CommitContext("s", tmp_path, is_durable=False)
        system = HTTPSystem(config, context)
        assert system.stalled_s > 3 * config.timeout_s
        system.stalled_s = 0.5
        committer = QueuedCommitter(system, context, points="http")
        committer.recover(history_to(-1), [])
        committer.commit(commit_of(0), staged(config, tmp_path, 0, [b"1", b"2"]))

        def is_sent() -> bool:
            committer.poll()
            return committer.backlog() == 0

        eventually(is_sent, "the output has left")
        committer.close(DRAIN_S)
    assert hook.taken() == [b"1", b"2"]
    assert len(hook.requests) == 4
    assert "Sink 's': http" in caplog.text
    assert "it is closed and opened again" in caplog.text


def test_informational_answers_are_not_taken_for_the_final_one(tmp_path: Path) -> None:
    with running_hook(hook=Hook(early=(103, 102, 100), answers=[204, 503])) as hook:
        committed(HTTPSinkConfig(hook.url, backoff_s=0.001), tmp_path, b"1", b"2").close(DRAIN_S)
    assert hook.taken() == [b"1", b"2"]
    assert len(hook.requests) == 3


def test_retry_after_is_kept(tmp_path: Path, eventually: Eventually) -> None:
    with running_hook(hook=Hook(answers=[503], retry_after="17")) as hook:
        committer = committed(HTTPSinkConfig(hook.url), tmp_path, b"1")
        wanted = f"{hook.url} (answer 503: so it is; retry 1 in 17 s)"
        eventually(lambda: committer.status().waiting_for == wanted, "it waits so long")
        committer.close(0)


@pytest.mark.parametrize(
    ("retry_after", "words"),
    [
        ("35", "retry 1 in 35 s"),
        ("86400", "retry 1 in 3600 s"),
        ("{in_100_s}", r"retry 1 in (99|100) s"),
        ("Thu, 01 Jan 1970 00:00:00 GMT", "retry 1 in 9 s"),
        ("Thu, 01 Jan 1970 00:00:00", "retry 1 in 9 s"),
        ("soon", "retry 1 in 9 s"),
    ],
)
def test_retry_after_may_be_a_date_and_longer_than_other_pauses(
    tmp_path: Path, eventually: Eventually, retry_after: str, words: str
) -> None:
    in_100_s = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    hook = Hook(answers=[429], retry_after=retry_after.format(in_100_s=in_100_s))
    with running_hook(hook=hook):
        committer = committed(HTTPSinkConfig(hook.url, backoff_s=9.0), tmp_path, b"1")
        eventually(lambda: committer.status().waiting_for.startswith("http"), "it waits")
        assert re.search(words, committer.status().waiting_for)
        committer.close(0)


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
def test_an_accepting_answer_is_accepted_whatever_its_body(tmp_path: Path, encoding: str) -> None:
    with running_hook(hook=Hook(answers=[200] * 3, encoding=encoding)) as hook:
        committed(HTTPSinkConfig(hook.url), tmp_path, b"1", b"2", b"3").close(DRAIN_S)
    assert [body for _, body, _ in hook.requests] == [b"1", b"2", b"3"]
    assert len(hook.clients) == 1


@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_that_was_cut_off_is_none(tmp_path: Path, status: int) -> None:
    with running_hook(hook=Hook(answers=[status], missing=7)) as hook:
        committed(HTTPSinkConfig(hook.url, backoff_s=0.001), tmp_path, b"1").close(DRAIN_S)
    assert [status for _, _, status in hook.requests] == [status, 204]
    assert len(set(hook.keys)) == 1


def test_a_refusal_that_cannot_be_decoded_is_a_refusal(tmp_path: Path) -> None:
    with running_hook(hook=Hook(answers=[400], encoding="gzip")) as hook:
        with pytest.raises(PeerError, match=r"of sink 's': answer 400\."):
            committed(HTTPSinkConfig(hook.url), tmp_path, b"1").close(DRAIN_S)


@pytest.mark.parametrize("status", [200, 503])
def test_only_the_beginning_of_a_large_answer_is_read(tmp_path: Path, status: int) -> None:
    hook = Hook(answers=[status] * 2, body=b"x" * (8 * DRAINED_MAX))
    tracemalloc.start()
    try:
        with running_hook(hook=hook):
            config = HTTPSinkConfig(hook.url, backoff_s=0.001)
            committed(config, tmp_path, b"1", b"2").close(DRAIN_S)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * DRAINED_MAX
    assert hook.taken() == [b"1", b"2"]


@pytest.mark.parametrize("status", [401, 302])
def test_what_does_not_pass_ends_the_run_and_the_next_one_goes_on(
    tmp_path: Path, status: int
) -> None:
    with running_hook(hook=Hook(answers=[status])) as hook:
        committer = committed(HTTPSinkConfig(hook.url), tmp_path, b"1")
        wanted = (
            rf"alerts did not accept output of batch 0 of sink 's': answer {status}: so it is\."
        )
        with pytest.raises(PeerError, match=wanted):
            committer.close(DRAIN_S)
        again = HTTPSinkConfig(hook.url).committer("s", tmp_path, True)
        again.recover(history_to(0), [])
        again.close(DRAIN_S)
    assert hook.taken() == [b"1"]


def test_what_is_refused_is_skipped_where_the_user_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_hook(hook=Hook(answers=[204, 422])) as hook:
        config = HTTPSinkConfig(hook.url, on_refused="skip")
        committed(config, tmp_path, b"1", b"2", b"3").close(DRAIN_S)
    assert hook.taken() == [b"1", b"3"]
    assert f"refused {commit_of(0).id}-1, which is skipped: answer 422: so it is" in caplog.text


def test_outputs_beside_a_refused_one_are_not_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a refused request of three outputs, then they come one by one, also after a retry."""
    with running_hook(hook=Hook(answers=[204, 400, 204, 503, 400])) as hook:
        config = HTTPSinkConfig(hook.url, on_refused="skip", batch=3, backoff_s=0.001)
        outputs = [b"%d" % number for number in range(8)]
        committed(config, tmp_path, *outputs).close(DRAIN_S)
    assert hook.taken() == [b"0\n1\n2\n", b"3\n", b"5\n", b"6\n7\n"]
    numbers = [key.removeprefix(f"{commit_of(0).id}-") for key in hook.keys]
    assert numbers == ["0-2", "3-5", "3", "4", "4", "5", "6-7"]
    skipped = [record.getMessage() for record in caplog.records if "skipped" in record.message]
    assert len(skipped) == 1
    assert f"refused {commit_of(0).id}-4, which is skipped: answer 400: so it is" in skipped[0]


def test_a_number_of_retries_is_a_bound(tmp_path: Path) -> None:
    with running_hook(hook=Hook(answers=[500] * 9)) as hook:
        config = HTTPSinkConfig(hook.url, retries=2, backoff_s=0.001)
        with pytest.raises(PeerError, match="3 times in a row, the last time with answer 500"):
            committed(config, tmp_path, b"1").close(DRAIN_S)
    assert len(hook.requests) == 3


@pytest.mark.parametrize("fault", ["http.request:2", "http.answer:2", "http.left:1"])
def test_a_killed_driver_loses_nothing_and_a_repetition_has_the_same_key(
    tmp_path: Path, fault: str
) -> None:
    with running_hook() as hook:
        config = HTTPSinkConfig(hook.url)
        opened(config, tmp_path).close(0)
        tokens = json.dumps(staged(config, tmp_path, 0, [b"1", b"2", b"3"]))
        command = [sys.executable, "-m", "tests.connectors.http.child"]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        for plan, code in ((fault, -signal.SIGKILL), ("", 0)):
            environment = os.environ | {"PYTHONPATH": path, "WALLAROO_FAULT": plan}
            arguments = [*command, hook.url, str(tmp_path), tokens]
            done = subprocess.run(arguments, env=environment, check=False, timeout=400)
            assert done.returncode == code
    assert len(hook.requests) > 3 or fault.startswith("http.request")
    assert hook.taken() == [b"1", b"2", b"3"]


def test_the_configuration_travels_and_hides_what_is_secret() -> None:
    config = HTTPSinkConfig("https://h/p?key=secret", headers={"Authorization": "secret"})
    assert pickle.loads(pickle.dumps(config)) == config
    assert config.label == "http https://h/p"
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "ftp://host/x"}, "does not begin with http"),
        ({"url": "http://me:pw@host/x"}, "holds a user's name"),
        ({"method": "GET"}, "sends no body"),
        ({"batch": 0}, "batch=0 outputs"),
        ({"timeout_s": 0}, "is not a time"),
        ({"retries": -1}, "retries=-1 is not a number"),
        ({"on_refused": "drop"}, "Write 'stop' or 'skip'"),
        ({"headers": {"idempotency-key": "x"}}, "the sink's own"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        HTTPSinkConfig(**{"url": "http://h/p", **options})


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wallaroo.connectors.http.committer", None)
    with pytest.raises(PeerError, match=r"pip install urllib3"):
        HTTPSinkConfig("http://h/p").committer("s", tmp_path, True)
