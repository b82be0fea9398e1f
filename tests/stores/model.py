"""An object store in memory, and a seeded scheduler of the drivers that use it.

Where it runs: tests.  Drivers are threads of which one runs at a time; each request is a point at
which another one may run for a while, at which a request fails with or without effect, takes effect
once more later, or at which the driver dies.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from wallaroo.state.store.objects import NoAnswerError, TakenKeyError


class DeadError(BaseException):
    """The end of a driver that was killed."""


class Model:
    """The objects of a place, and what is still to happen to them."""

    def __init__(self, seed: int = 0, fault: float = 0.0, death: float = 0.0):
        self.random = random.Random(seed)
        self.fault = fault
        self.death = death
        self.objects: dict[str, bytes] = {}
        self.is_quiet = False
        self._late: list[Callable[[], None]] = []
        self._lists: dict[str, list[str]] = {}

    def late(self) -> None:
        """Let a request that was carried out be carried out once more, now and then."""
        if self._late and self.random.random() < 0.2:
            self._late.pop(self.random.randrange(len(self._late)))()

    def repeat(self, request: Callable[[], None]) -> None:
        """Note a request that may take effect once more."""
        self._late.append(request)

    def listed(self, folder: str) -> list[str]:
        """Return the names in a folder, as they were a while ago now and then."""
        prefix = f"{folder}/"
        names = sorted(key.removeprefix(prefix) for key in self.objects if key.startswith(prefix))
        old = self._lists.get(folder, names)
        if self.is_quiet or self.random.random() < 0.7:
            self._lists[folder] = names
            return names
        return old


class ModelObjects:
    """One driver's requests; an ``ObjectStore``."""

    url = "model://place"

    def __init__(self, model: Model, turn: Callable[[], None] = lambda: None):
        self._model = model
        self._turn = turn

    def _request(self, effect: Callable[[], object], is_repeatable: bool = True) -> None:
        """Carry a request out, or not."""
        model = self._model
        self._turn()
        if model.is_quiet:
            effect()
            return
        model.late()
        if model.random.random() < model.death:
            if model.random.random() < 0.5:
                effect()
            raise DeadError
        chance = model.random.random() / model.fault if model.fault else 1.0
        if chance < 0.3:
            raise NoAnswerError("nothing was done")
        effect()
        if is_repeatable and chance < 0.6:
            model.repeat(lambda: effect() and None)
        if chance < 0.9:
            self._turn()  # long enough for another driver to come in between
            if chance < 0.7:
                raise NoAnswerError("the answer was lost")

    def create(self, key: str, content: bytes) -> None:
        objects = self._model.objects
        is_taken = False

        def create() -> None:
            nonlocal is_taken
            is_taken = key in objects
            objects.setdefault(key, content)

        if not self._model.is_quiet and self._model.random.random() < self._model.fault / 4:
            self._turn()
            raise TakenKeyError("a conflict, and nothing was done")
        self._request(create)
        if is_taken:
            raise TakenKeyError("there is one")

    def put(self, key: str, content: bytes | Path) -> None:
        stored = content if isinstance(content, bytes) else content.read_bytes()
        self._request(lambda: self._model.objects.update({key: stored}), False)

    def get(self, key: str) -> bytes | None:
        answer: list[bytes | None] = []
        self._request(lambda: answer.append(self._model.objects.get(key)), False)
        return answer[-1]

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def names(self, folder: str) -> list[str]:
        answer: list[list[str]] = []
        self._request(lambda: answer.append(self._model.listed(folder)), False)
        return answer[-1]

    def delete(self, key: str) -> None:
        self._request(lambda: self._model.objects.pop(key, None), False)

    def replace_stale(self, key: str, content: bytes) -> bool:
        self._turn()
        return False


class Turns:
    """A seeded scheduler: one of some threads runs, and hands on at each turn, or not."""

    def __init__(self, chooser: random.Random):
        self._random = chooser
        self._ready = threading.Condition()
        self._running: int | None = None
        self._alive: set[int] = set()
        self._errors: list[BaseException] = []
        self._held: dict[int, int] = {}  # turns for which a driver is stopped, as by SIGSTOP

    def run(self, drivers: Sequence[Callable[[Callable[[], None]], None]]) -> None:
        """Run the drivers to their ends; each is given the function to call at its turns."""
        self._alive = set(range(len(drivers)))
        threads = [
            threading.Thread(target=self._run, args=(number, driver), daemon=True)
            for number, driver in enumerate(drivers)
        ]
        with self._ready:
            self._hand_on()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(400)
            assert not thread.is_alive(), "a driver does not end"
        if self._errors:
            raise self._errors[0]

    def _run(self, number: int, driver: Callable[[Callable[[], None]], None]) -> None:
        with self._ready:
            self._ready.wait_for(lambda: self._running == number)
        try:
            driver(lambda: self._turn(number))
        except BaseException as error:  # noqa: BLE001  # raised where the drivers were started
            self._errors.append(error)
        finally:
            with self._ready:
                self._alive.discard(number)
                self._hand_on()

    def _turn(self, number: int) -> None:
        with self._ready:
            if self._random.random() < 0.02:
                self._held[number] = self._random.randrange(200)
            self._hand_on()
            self._ready.wait_for(lambda: self._running == number)

    def _hand_on(self) -> None:
        """Choose who runs now: rather the same one than another."""
        for number in list(self._held):
            self._held[number] -= 1
            if self._held[number] <= 0:
                del self._held[number]
        free = sorted(self._alive - set(self._held)) or sorted(self._alive)
        if self._running not in free or self._random.random() < 0.15:
            self._running = self._random.choice(free) if free else None
        self._ready.notify_all()
