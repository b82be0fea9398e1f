"""A checkpoint in Azurite, Microsoft's emulator of Azure Blob Storage."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError

from tests.sampling import sampled
from tests.savepoints.test_places import check_moves
from tests.stores.azurite.server import (
    IS_MISSING,
    MISSING,
    Azurite,
    azure_environment_of,
    running_azurite,
)
from tests.stores.conftest import Place, Ran
from tests.stores.fault_proxy import ALL, NONE, Faults, running_proxy
from tests.stores.machines import EVENTS, KILLED, Input, output, started
from tests.stores.stored_driver import expected, raise_limit
from tests.unit.runtime.applications import until
from wallaroo.cli.doctor.command import examine_store
from wallaroo.errors import PeerError
from wallaroo.state.store.objects import CloudObjects, TakenKeyError
from wallaroo.state.store.store_log import StoreLog

pytestmark = pytest.mark.skipif(IS_MISSING, reason=MISSING)
RACERS = 4


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with running_azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def place(azurite: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place of a test's own; this process is a machine with the cache ``tmp_path/cache``."""
    url = f"az://container/{tmp_path.name}"
    place = Place(url, azurite.folder, azurite.port, azure_environment_of)
    for variable, value in place.environment(tmp_path / "cache").items():
        monkeypatch.setenv(variable, value)
    return place


def test_an_object_is_created_once(place: Place) -> None:
    """The second creation is refused as one of an object that exists."""
    objects = CloudObjects(place.url)
    objects.create("log/0", b"first")

    with pytest.raises(TakenKeyError) as refused:
        objects.create("log/0", b"second")

    assert isinstance(refused.value.__cause__, AlreadyExistsError)
    assert objects.get("log/0") == b"first"


def test_an_object_is_replaced_on_a_condition_that_holds_alone(place: Place) -> None:
    """Of a version that it never had: the precondition fails."""
    objects = CloudObjects(place.url)
    objects.create("log/0", b"first")

    assert not objects.replace_stale("log/0", b"second")

    stale = {"e_tag": '"0x000000000000000"'}
    with pytest.raises(PreconditionError):
        objects._api.put(objects._store, "log/0", b"second", mode=stale, use_multipart=False)
    assert objects.get("log/0") == b"first"


def test_of_creations_at_once_one_succeeds(place: Place) -> None:
    clients = [CloudObjects(place.url) for _ in range(RACERS)]
    for number in range(25):

        def wins(racer: int, key: str = f"log/{number}") -> bool:
            try:
                clients[racer].create(key, b"%d" % racer)
            except TakenKeyError:
                return False
            return True

        with ThreadPoolExecutor(RACERS) as pool:
            winners = [racer for racer, won in enumerate(pool.map(wins, range(RACERS))) if won]

        assert len(winners) == 1
        assert clients[0].get(f"log/{number}") == b"%d" % winners[0]


def test_objects_are_listed_read_and_deleted(place: Place, tmp_path: Path) -> None:
    """Also one that is uploaded in parts, from a file."""
    objects = CloudObjects(f"{place.url}/files/of mine")
    large = bytes(range(256)) * 48 * 1024
    (tmp_path / "large").write_bytes(large)
    for key in ("files/outbox/tcp-0/1.out", "files/deltas/2.delta", "images/3"):
        objects.put(key, b"content")
    objects.put("files/deltas/large", tmp_path / "large")

    names = ["deltas/2.delta", "deltas/large", "outbox/tcp-0/1.out"]
    assert objects.names("files") == names
    assert objects.names("nothing") == []
    assert objects.get_many(["files/deltas/large", "images/4"]) == [large, None]

    for _ in range(2):
        objects.delete("files/deltas/large")
    assert objects.get("files/deltas/large") is None
    assert objects.names("files") == ["deltas/2.delta", "outbox/tcp-0/1.out"]


@pytest.mark.parametrize(
    "moves",
    sampled([("folder", "store", "folder")], [("store", "folder", "store"), ("store",) * 3]),
)
def test_a_savepoint_moves_between_azure_and_folders(
    tmp_path: Path, place: Place, moves: tuple[str, str, str]
) -> None:
    check_moves(tmp_path, place.url, *moves)


def test_the_store_is_tried(place: Place) -> None:
    """As the first start does."""
    StoreLog(CloudObjects(place.url)).probe()

    assert str(examine_store(place.url)).startswith("ok    object store az://container/")


def test_a_store_that_ignores_conditions_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs could overwrite each other's commits there."""
    with running_proxy(place.port, NONE) as proxy:
        proxy.ignores_conditions = True
        for variable, value in place.environment(Path("cache"), proxy.port).items():
            monkeypatch.setenv(variable, value)

        with pytest.raises(PeerError, match=r"ignores conditions \(If-None-Match, If-Match\)"):
            StoreLog(CloudObjects(place.url)).probe()


@pytest.mark.parametrize(
    ("url", "variable", "value", "said"),
    [
        ("az://container/app", "AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=", "is refused: "),
        ("az://nowhere/app", "WALLAROO_CACHE", "cache", "az://nowhere/app does not exist: "),
    ],
)
def test_a_store_that_cannot_be_used_is_reported(
    place: Place, monkeypatch: pytest.MonkeyPatch, url: str, variable: str, value: str, said: str
) -> None:
    """At the first request, list or creation."""
    monkeypatch.setenv(variable, value)
    objects = CloudObjects(url)

    for request in (lambda: objects.names("log"), lambda: objects.create("log/0", b"content")):
        with pytest.raises(PeerError, match=said):
            request()


@pytest.mark.parametrize(
    ("point", "machine"),
    sampled(
        [("store.appended", "other")],
        [
            ("store.fence", "same"),
            ("store.fence", "other"),
            ("store.append", "same"),
            ("store.append", "other"),
            ("store.appended", "same"),
            ("store.sweep", "same"),
            ("store.sweep", "other"),
            ("storage.published", "same"),
            ("commit.after", "other"),
        ],
    ),
)
def test_a_killed_run_is_continued(tmp_path: Path, ran: Ran, point: str, machine: str) -> None:
    """On the same machine, which has its files, and on another one, which has none."""
    file = Input(tmp_path)
    file.grow(2 * EVENTS)
    nth = 1 if point in ("store.fence", "store.sweep") else 3
    if point == "store.fence":  # of a run that is not the first
        assert ran("same")[0] == 0
        file.grow()
    assert ran("same", WALLAROO_FAULT=f"{point}:{nth}")[0] == KILLED

    code, said = ran(machine, *(["--take-over"] if machine == "other" else []))

    assert code == 0, said
    assert output(tmp_path) == expected(file.events)


def test_a_run_that_was_taken_over_commits_nothing(tmp_path: Path, place: Place) -> None:
    """It is stopped as by a paused machine, and ends with exit code 4 when it wakes up."""
    file = Input(tmp_path)
    file.grow(2 * EVENTS)
    limit = tmp_path / "limit"
    raise_limit(limit, EVENTS)
    first = started(tmp_path, place, "a", STORED_PAUSE_S="0.05", STORED_LIMIT=str(limit))
    objects = CloudObjects(place.url)
    until(lambda: len(objects.names("log")) >= 5)
    first.send_signal(signal.SIGSTOP)
    try:
        second = started(tmp_path, place, "b", "--take-over")
        assert second.wait(400) == 0
    finally:
        raise_limit(limit, file.events)
        first.send_signal(signal.SIGCONT)

    said, _ = first.communicate(timeout=400)
    assert first.returncode == 4
    assert f"checkpoint {place.url} was taken over by epoch 2, process {second.pid} on " in said
    assert output(tmp_path) == expected(file.events)


@pytest.mark.parametrize("seed", sampled([0], [1, 2]))
def test_a_bad_network_loses_and_doubles_nothing(
    tmp_path: Path, place: Place, ran: Ran, seed: int
) -> None:
    """Answers lost, requests doubled, resets, 503 and 409: by turns on two machines, one killed."""
    file = Input(tmp_path)
    faults = Faults(ALL.lost, ALL.duplicated, ALL.reset, ALL.busy, ALL.conflict, (0.0, 0.02))
    with running_proxy(place.port, faults, seed) as proxy:
        for turn in range(3):
            file.grow()
            fault = f"store.appended:{5 + turn}" if turn < 2 else ""
            machine = f"machine{turn % 2}"
            code, said = ran(machine, "--take-over", port=proxy.port, WALLAROO_FAULT=fault)
            assert code in (0, KILLED), said

        assert output(tmp_path) == expected(file.events)
        assert sum(proxy.counts.values()) > proxy.counts["served"] > 30
