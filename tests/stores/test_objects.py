"""The client of object stores: what servers answer, and what becomes of it in a child."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.conftest import Place
from tests.stores.model import Model, ModelObjects
from wallaroo.errors import CheckpointError, InternalError, PeerError
from wallaroo.state.store.objects import CloudObjects, NoAnswerError, TakenKeyError
from wallaroo.state.store.records import Kind
from wallaroo.state.store.store_log import StoreLog


class _Scripted(http.server.BaseHTTPRequestHandler):
    """Answers every PUT with the next status of ``answers``, every GET with 404."""

    answers: list[int]
    conditions: list[tuple[str | None, str | None]]

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        condition = (self.headers["If-None-Match"], self.headers["x-goog-if-generation-match"])
        type(self).conditions.append(condition)
        self._answer(type(self).answers.pop(0))

    def do_GET(self) -> None:
        self._answer(404)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("ETag", '"1"')
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Scripted]]:
    """A server of S3, Azure and Google with answers from a list."""

    class Handler(_Scripted):
        answers: list[int] = []
        conditions: list[tuple[str | None, str | None]] = []

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    google = {"gcs_base_url": address, "disable_oauth": True}
    google |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    for variable, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AZURE_ALLOW_HTTP": "true",
        "AZURE_STORAGE_ENDPOINT": address,
        "AZURE_STORAGE_ACCOUNT_NAME": "account",
        "AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0",
        "GOOGLE_ALLOW_HTTP": "true",
        "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(google),
    }.items():
        monkeypatch.setenv(variable, value)
    yield Handler
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("url", "condition"),
    [
        ("s3://bucket/app", ("*", None)),
        ("az://container/app", ("*", None)),
        ("gs://bucket/app", (None, "0")),
    ],
)
@pytest.mark.parametrize("status", [409, 412])
def test_a_conflict_is_a_statement_to_check(
    scripted: type[_Scripted], url: str, condition: tuple[str | None, str | None], status: int
) -> None:
    """S3's 409 comes although no object is there; Azure states a failed create in another way."""
    scripted.answers.append(status)

    with pytest.raises(TakenKeyError):
        CloudObjects(url).create("log/0", b"content")

    assert scripted.conditions == [condition]


@pytest.mark.parametrize("status", [500, 503])
def test_a_failed_create_is_not_repeated_by_the_client(
    scripted: type[_Scripted], status: int
) -> None:
    """Only the log knows whether it was carried out."""
    scripted.answers += [status, 200]

    with pytest.raises(NoAnswerError):
        CloudObjects("s3://bucket/app").create("log/0", b"content")

    assert scripted.answers == [200]


def test_a_start_waits_for_a_store_that_is_overloaded(scripted: type[_Scripted]) -> None:
    """It has answered, so the address is right: a start is as patient as the rest of the run."""
    scripted.answers += [503] * 20 + [200]
    waits: list[float] = []

    StoreLog(CloudObjects("s3://bucket/app"), sleep=waits.append).put_file("deltas/1", b"content")

    assert len(waits) == 20


@pytest.mark.parametrize(("status", "said"), [(401, "is refused"), (403, "is refused")])
def test_what_is_refused_is_not_tried_again(
    scripted: type[_Scripted], status: int, said: str
) -> None:
    scripted.answers.append(status)

    with pytest.raises(PeerError, match=said):
        CloudObjects("s3://bucket/app").create("log/0", b"content")


def test_a_conflict_without_an_object_is_tried_again() -> None:
    """A number is taken only by an object that can be read."""
    model = Model()
    log = StoreLog(ModelObjects(model), sleep=lambda seconds: None)
    assert log.fence(None, "checkpoint")
    create = log._objects.create
    refused = [TakenKeyError("409"), NoAnswerError("timeout")]

    def conflict(key: str, content: bytes) -> None:
        if refused:
            raise refused.pop()
        create(key, content)

    log._objects.create = conflict  # type: ignore[method-assign]

    log.append(Kind.COMMITS)

    assert sorted(model.objects) == ["log/00000000000000000000", "log/00000000000000000001"]


def test_a_probe_is_not_misled_by_a_conflict_without_an_object() -> None:
    """The second creation succeeds then, which is what a store does that ignores conditions."""
    model = Model()
    objects = ModelObjects(model)
    create = objects.create
    refused = [TakenKeyError("409")]

    def conflict(key: str, content: bytes) -> None:
        if refused:
            raise refused.pop()
        create(key, content)

    vars(objects)["create"] = conflict

    StoreLog(objects, sleep=lambda seconds: None).probe()

    assert not refused
    assert not model.objects


def test_an_object_with_the_content_of_another_one_is_refused() -> None:
    """It would be taken for the commit of another run."""
    model = Model()
    log = StoreLog(ModelObjects(model), sleep=lambda seconds: None)
    assert log.fence(None, "checkpoint")
    first, second = (f"log/{number:020d}" for number in range(2))
    model.objects[second] = model.objects[first]

    with pytest.raises(CheckpointError, match=f"{second} has the content of object 0"):
        log.append(Kind.COMMITS)


def test_what_a_server_has_half_written_is_no_number() -> None:
    """S3Proxy lists it while it writes."""
    model = Model()
    objects = ModelObjects(model)
    log = StoreLog(objects, sleep=lambda seconds: None)
    assert log.fence(None, "checkpoint")
    names = objects.names
    half = "00000000000000000001-d91770f3-1d02-4ff3-ba75-2d8b6f31aecb"
    vars(objects)["names"] = lambda folder: [*names(folder), half]

    newest = log.newest()

    assert newest is not None
    assert newest.head.number == 0


def test_a_lost_answer_is_read_back() -> None:
    """The object is ours by its identity."""
    model = Model()
    log = StoreLog(ModelObjects(model), sleep=lambda seconds: None)
    assert log.fence(None, "checkpoint")
    create = log._objects.create

    def lost(key: str, content: bytes) -> None:
        create(key, content)
        raise NoAnswerError("the answer was lost")

    log._objects.create = lost  # type: ignore[method-assign]

    assert log.append(Kind.COMMITS).number == 1


@pytest.mark.s3
def test_a_client_is_not_used_after_a_fork(place: Place, tmp_path: Path) -> None:
    """Its threads are not there, and it would wait for them for ever."""
    objects = CloudObjects(place.url)
    objects.put("key", b"content")
    child = os.fork()
    if not child:
        try:
            objects.get("key")
        except InternalError:
            os._exit(7)
        os._exit(1)

    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7
    assert objects.get("key") == b"content"


@pytest.mark.s3
def test_files_in_folders_are_listed_by_their_whole_names(place: Place) -> None:
    """By them they are found to be superfluous, and are deleted."""
    objects = CloudObjects(f"{place.url}/files/of mine")
    for key in ("files/outbox/tcp-0/1.out", "files/deltas/2.delta", "images/3"):
        objects.put(key, b"content")

    assert objects.names("files") == ["deltas/2.delta", "outbox/tcp-0/1.out"]

    objects.delete("files/deltas/2.delta")
    assert objects.names("files") == ["outbox/tcp-0/1.out"]


@pytest.mark.parametrize("url", ["ftp://host/path", "s3://", "file:///tmp/x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(PeerError, match="is not a place in an object store"):
        CloudObjects(url)
