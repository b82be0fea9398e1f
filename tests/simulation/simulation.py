"""One simulated history: everything that a seed decides, from the first message to the verdict.

Where it runs: the simulation's process.

A history is a sequence of turns: of the ingress, of the driver, of the egress, of a nemesis.  The
processes meet between system calls, too: the ingress may take messages while the driver is in the
middle of a commit.  Faults are injected for ``FAULTY_LIVES_MAX`` lives of the driver at most; after
that the history has to come to its end, and then:

* each sink holds what the model says, per key in order: nothing lost, doubled, reordered, wrong;
* the state of every key is the model's;
* what was acknowledged to clients was never lost (checked at every start of the ingress);
* a start was refused, or a process ended with an error, only where a fault had been injected since
  the start before, and with an error that blames the outside, not this program.

With ``drivers`` above 1 another driver may take over inside of any system call of one, run for some
turns, and be taken over itself; the one that was held up resumes later, in the middle of that call,
and does not know.  Half of those that take over are standbys: each claims what comes after the run
that it saw, or leaves the checkpoint alone.  The processes around it have left by then: they ask
for themselves, and hold locks that the next ones need.  A pause between the question and a call on
the users' own files is left out: plain files cannot be fenced (docs/exactly-once.md).

Damage that no file system does by itself (a write that never reached the disk, or went to another
place) strikes the checkpoint only, as the users' files have no checksums of ours.  It may be
answered by a refusal; what came out until then is checked.
"""

from __future__ import annotations

import pickle
import random
import shutil
import time
import traceback
import uuid
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from tests.simulation import model
from tests.simulation.application import SOURCES, STEP, Kind, plan_under
from tests.simulation.system import CORRUPTIONS, Crashed, Fault, Plan, Process, System
from tests.simulation.world import (
    Client,
    Driver,
    Ingress,
    LostError,
    Receiver,
    SimulatedEgress,
    UnseenError,
)
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.dataflow.plan.model import Plan as WallarooPlan
from wallaroo.durable.disk_errors import disk_error_of
from wallaroo.errors import (
    CheckpointError,
    InternalError,
    InUseError,
    PeerError,
    TakenOverError,
    WallarooError,
)
from wallaroo.instrumentation.tuning import DEFAULT, Tuning
from wallaroo.monitoring.metrics.task_tally import TaskTally
from wallaroo.state.checkpoint import Checkpoint
from wallaroo.state.log.owners import newest_epoch
from wallaroo.state.views.environments import close_environments

FAULTY_LIVES_MAX = 4
MESSAGES = (4, 16)  # per source
REFUSALS = 3  # starts that damage may end before the history ends with that
# a driver that was held up before its claim owns the checkpoint with it, and finds this out
OTHERS_HELD = ("its ports, spools and outboxes are held by processes of the other run",)
# the calls that a driver is held up before: of this kind, empty for any, and on paths that begin so
HELD_UP_IN = (
    ("", "checkpoint"),
    ("", "checkpoint"),
    ("", "checkpoint/commits/"),
    ("", "checkpoint/owners/"),
    ("", "checkpoint/outbox/"),
    ("write", "checkpoint/commits/"),
    ("truncate", "checkpoint/commits/"),
    ("unlink", "checkpoint/"),
)
MOST_FORMER = 3  # drivers that were taken over and have not noticed
TURNS_MAX = 3000  # of one history: more is a hang
BEGAN_NS = 1_700_000_000_000_000_000
CLOCK_STEP_NS = 3_600_000_000_000
EVENTS_AT_MS = 1_600_000_000_000  # when the first events of timed applications were
AHEAD_MS = 1_000_000  # how far the last event of a source is ahead of the first one
# of samples: as in the product, and never
COUNTDOWNS = (TaskTally._countdown, *(4 * (lambda tally, runs: -1,)))


@dataclass(frozen=True, slots=True)
class Options:
    """What kind of history."""

    seed: int
    plan: Plan | None = None  # of faults; None: drawn from the seed
    corruptions: bool = False
    drivers: int = 1  # at a time, at most
    held_up_in: tuple[tuple[str, str], ...] = HELD_UP_IN


@dataclass(slots=True)
class Verdict:
    """What came of it."""

    problem: str = ""
    is_refused: bool = False
    steps: int = 0
    lives: int = 0
    taken_over: int = 0
    lost_claims: int = 0  # standbys that another driver was quicker than
    batches: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    trace: str = ""  # digest of all steps: the same for the same seed
    log: list[tuple[str, str, str]] = field(default_factory=list)


@cache
def _plan(place: Path, kind: Kind) -> WallarooPlan:
    return plan_under(place, kind)


MODELS = {
    Kind.TOTALS: model.answers,
    Kind.WINDOWS: model.windows,
    Kind.ADDED_UP: model.windows,
    Kind.TIMERS: model.timers,
    Kind.JOIN: model.join,
}


def kind_of(seed: int) -> Kind:
    """Which application the history of a seed runs: half of them totals."""
    return random.Random(f"kind {seed}").choices(tuple(Kind), (3, 1, 1, 1, 1))[0]


class Problem(Exception):
    """The history shows a defect."""


class Simulation:
    """One history in the folder ``place``, which is emptied first."""

    def __init__(self, options: Options, place: Path):
        self._options = options
        self._chance = random.Random(f"history {options.seed}")
        self._place = place
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700, parents=True)
        self._faults = random.Random(f"faults {options.seed}")
        self._system = System(place, self._faults, options.plan or Plan())
        self._kind = kind_of(options.seed)
        self._application = _plan(place, self._kind)
        self._messages = self._chance.randint(*MESSAGES)
        self._faulty_lives = self._chance.randint(1, FAULTY_LIVES_MAX)
        self._clients = {name: Client(self._payloads(name)) for name in SOURCES}
        self._expected = MODELS[self._kind](*(self._clients[name].payloads for name in SOURCES))
        self._expected_bytes = sum(
            len(line) + 1 for lines in self._expected.values() for line in lines
        )
        self._receiver = Receiver()
        self._driver: Driver | None = None
        self._ingress: Ingress | None = None
        self._egress: SimulatedEgress | None = None
        self._tuning = DEFAULT
        self._verdict = Verdict()
        self._clock_ns = BEGAN_NS
        self._looks = 0
        self._boot = 0
        self._nested = False
        self._depth = 0  # drivers that are held up in a system call
        self._former: list[Driver] = []  # were taken over; some have not noticed yet
        self._take_over_at = 0  # step
        self._take_over_in = ("", "")  # the call, and the beginning of its path
        self._run_max = 0
        self._injected_before = 0
        self._refusals = 0
        self._checkpoint = ""

    def _payloads(self, source: str) -> list[bytes]:
        chance, letter = self._chance, source[0]
        letter = "B" if self._kind is Kind.JOIN else letter
        payloads = [
            f"{letter}{chance.randint(0, 4)} {chance.randint(-99, 99)}"
            for _ in range(self._messages)
        ]
        if self._kind.is_timed:
            payloads = [*map(" ".join, zip(payloads, self._times(source), strict=True))]
            payloads.append(f"end 0 {EVENTS_AT_MS + AHEAD_MS}")
        return [one.encode() for one in payloads]

    def _times(self, source: str) -> list[str]:
        """Times of the messages of a source, out of order by less than the delay; no two of all
        are the same.
        """
        chance = self._chance
        ordered = range(0, self._messages * model.STEP, model.STEP)
        late = sorted(ordered, key=lambda at: at + chance.uniform(0, model.DELAY - model.STEP))
        first = EVENTS_AT_MS + SOURCES.index(source)
        return [str(first + at) for at in late]

    # -- the history ------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """Let it happen; return what came of it."""
        names = random.Random(f"names {self._options.seed}")

        def identity() -> uuid.UUID:
            return uuid.UUID(int=names.getrandbits(128))

        self._system.between = self._between
        chance = self._chance
        self._tuning = Tuning(
            inline_bytes_max=chance.choice((0, 60, 16384)),
            snapshot_every=chance.choice((1, 2, 5)),
            sweep_every=chance.choice((1, 3)),
        )
        self._run_max = chance.choice((0, 1, 3))
        clock = SimpleNamespace(monotonic=self._monotonic)
        source_clock = SimpleNamespace(monotonic=clock.monotonic, time_ns=self._now)
        with (
            mock.patch.object(uuid, "uuid4", identity),
            mock.patch.object(time, "time_ns", self._now),
            mock.patch("wallaroo.connectors.tcp.progress.time", clock),
            mock.patch("wallaroo.runtime.batch.housekeeping.time", clock),
            mock.patch("wallaroo.ingress.source_store.time", source_clock),
            mock.patch("wallaroo.state.views.view_folders.boot_id", self._boot_id),
            mock.patch("wallaroo.connectors.tcp.committer.EgressProcess", self._new_egress),
            # which steps take how long is seldom of interest, and costs more than the steps
            mock.patch.object(TaskTally, "_countdown", chance.choice(COUNTDOWNS)),
        ):
            self._system.install()
            try:
                self._happen()
                self._judge()
            except Problem as problem:
                self._verdict.problem = str(problem)
            finally:
                self._end_driver()
                for former in [*self._former]:
                    self._bury_former(former)
                self._system.remove()
        verdict = self._verdict
        verdict.steps = self._system.steps
        verdict.injected = self._system.injected
        verdict.log = [(step.call, step.path, step.process) for step in self._system.log]
        verdict.trace = blake2b(repr(verdict.log).encode(), digest_size=8).hexdigest()
        return verdict

    def _happen(self) -> None:
        for _ in range(TURNS_MAX):
            if self._is_over():
                return
            self._turn()
            if self._verdict.is_refused:
                return
        raise Problem(f"no end after {TURNS_MAX} turns: {self._places()}")

    def _turn(self) -> None:
        chance = self._chance
        driver = self._driver
        try:
            if driver is None:
                driver = self._new_driver()
                driver.start()
                return
            luck = chance.random()
            if luck < 0.35:
                self._ingress_step()
            elif luck < 0.7:
                driver.step()
            elif luck < 0.75 and self._former and not self._depth:
                driver = chance.choice(self._former)
                if driver.batches is not None and driver.step():
                    raise Problem("a driver that was taken over has committed")
            elif luck < 0.97:
                self._egress_step()
            else:
                self._clock_ns += chance.randint(-CLOCK_STEP_NS, CLOCK_STEP_NS)
        except Crashed:
            if driver in self._former and self._system.has_power:
                self._bury_former(driver)
            else:
                self._after_crash()
        except (LostError, UnseenError) as error:
            raise Problem(str(error)) from error
        except (WallarooError, OSError) as error:
            self._verdict.lost_claims += isinstance(error, InUseError)
            if driver not in self._former:
                self._after_error(error)
            elif driver.is_taken_over or error.args == OTHERS_HELD:
                self._bury_former(driver)
            else:
                raise Problem(f"taken over, and ended with another error: {error}") from error

    def _new_driver(self) -> Driver:
        self._verdict.lives += 1
        self._draw_fault()
        steps = self._system.steps
        luck = self._chance.uniform(0, 260 if self._options.drivers > 1 else 0)
        self._take_over_at = steps + int(1.03**luck)
        self._take_over_in = self._chance.choice(self._options.held_up_in)
        self._driver = Driver(
            self._system,
            self._place / "checkpoint",
            self._application,
            self._chance,
            self._chance.choice((0.0, 0.3)),
            self._begin_ingress,
            self._tuning,
            self._run_max,
            is_taking_over=bool(self._former),
            after=self._epoch_seen(),
        )
        return self._driver

    def _epoch_seen(self) -> int | None:
        """Return the epoch that a standby sees before it tries; None: this driver is none."""
        if (
            not self._former
            or random.Random(f"{self._options.seed} {self._verdict.lives}").random() < 0.5
        ):
            return None
        return newest_epoch(self._place / "checkpoint" / "owners")

    def _bury_former(self, driver: Driver) -> None:
        driver.end()
        self._system.bury(driver.process)
        self._former.remove(driver)

    @property
    def _is_former(self) -> bool:
        """Whether the process that makes a step now is a driver that was taken over."""
        return any(self._system.current is former.process for former in self._former)

    def _begin_ingress(self, checkpoint: Checkpoint) -> None:
        if self._is_former:
            raise PeerError(*OTHERS_HELD)
        if self._checkpoint not in ("", checkpoint.id) and self._has_commits(checkpoint):
            raise Problem("the checkpoint is another one")
        self._checkpoint = checkpoint.id
        self._ingress = Ingress(self._system, checkpoint.root, checkpoint.id, self._clients)
        self._ingress.start()

    def _has_commits(self, checkpoint: Checkpoint) -> bool:
        return any(client.acknowledged for client in self._clients.values())

    def _draw_fault(self) -> None:
        if self._options.plan is not None or self._verdict.lives > self._faulty_lives:
            return
        chance, system = self._faults, self._system
        fates = (
            sorted(CORRUPTIONS, key=str)
            if self._options.corruptions
            else sorted(set(Fault) - CORRUPTIONS, key=str)
        )
        at = system.steps + int(1.02 ** chance.uniform(0, 320))
        system.plan = Plan({at: chance.choice(fates)}, lasting=chance.choice((0, 0, 3, 12)))
        if self._options.corruptions:
            crash = at + int(1.02 ** chance.uniform(0, 250))
            system.plan.at[crash] = chance.choice((Fault.KILL, Fault.POWER))

    def _between(self) -> None:
        """Between two calls of the driver the other processes may make a turn."""
        driver = self._driver
        if self._nested or driver is None or self._system.current is not driver.process:
            return
        if self._is_to_be_taken_over():
            self._take_over(driver)
            return
        luck = self._chance.random()
        if luck > 0.06 or self._ingress is None or driver.batches is None:
            return
        self._nested = True
        try:
            if luck < 0.03:
                self._ingress_step()
            else:
                self._egress_step()
        finally:
            self._nested = False

    def _is_to_be_taken_over(self) -> bool:
        return (
            self._options.drivers > 1
            and self._depth + 1 < self._options.drivers
            and len(self._former) < MOST_FORMER
            and self._verdict.lives <= self._faulty_lives
            and self._system.steps >= self._take_over_at
            and self._system.call.startswith(self._take_over_in[0])
            and self._system.place.startswith(self._take_over_in[1])
            and (self._place / "checkpoint" / "format.json").exists()
        )

    def _take_over(self, former: Driver) -> None:
        """Hold a driver up in the middle of a call; another one takes over meanwhile."""
        self._verdict.taken_over += 1
        for one in (self._ingress, self._egress):
            if one is not None:
                self._system.bury(one.process)
        self._former.append(former)
        self._driver = self._ingress = self._egress = None
        self._depth += 1
        try:
            for _ in range(self._chance.randint(1, 60)):
                self._turn()
                if not self._system.has_power:
                    raise Crashed
        finally:
            self._depth -= 1

    def _ingress_step(self) -> None:
        """A turn of the ingress; where it dies alone, it is started again."""
        if self._ingress is None:
            self._restart_ingress()
        if self._ingress is None or len(self._ingress.stores) < len(SOURCES):
            return
        try:
            self._ingress.step(self._chance)
        except (Crashed, WallarooError) as error:
            if not self._system.has_power:
                raise
            self._check_blame(error)
            self._bury_ingress()
            self._restart_ingress()

    def _bury_ingress(self) -> None:
        if self._ingress is not None:
            self._system.bury(self._ingress.process)
            self._ingress = None

    def _restart_ingress(self) -> None:
        driver = self._driver
        assert driver is not None
        assert driver.checkpoint is not None
        self._system.repair()
        try:
            self._begin_ingress(driver.checkpoint)
        except (Crashed, WallarooError, OSError) as error:
            if not self._system.has_power:
                raise
            self._check_blame(error)
            self._bury_ingress()
            if self._is_corrupted() and isinstance(error, CheckpointError):
                self._note_refusal()

    def _egress_step(self) -> None:
        egress = self._egress
        if egress is None or self._driver is None or self._driver.batches is None:
            return
        try:
            egress.step(self._chance)
        except (Crashed, WallarooError, OSError) as error:
            if not self._system.has_power:
                raise
            self._check_blame(error)
            self._system.bury(egress.process)
            self._system.repair()
            try:
                egress.restart()
            except Crashed:
                if not self._system.has_power:
                    raise
                self._system.bury(egress.process)

    def _new_egress(self, *arguments: object) -> SimulatedEgress:
        if self._is_former:
            raise PeerError(*OTHERS_HELD)
        config, *hooks = arguments
        self._egress = SimulatedEgress(
            self._system,
            self._receiver,
            config,  # type: ignore[arg-type]
            (*hooks[:3], None),
        )
        self._egress.start()
        return self._egress

    # -- deaths -----------------------------------------------------------------------------------

    def _end_driver(self) -> None:
        driver = self._driver
        if driver is not None:
            driver.end()
        for process in self._processes():
            self._system.bury(process)
        if not self._depth:
            close_environments()
        self._driver = None
        self._ingress = None
        self._egress = None

    def _processes(self) -> list[Process]:
        return [one.process for one in (self._driver, self._ingress, self._egress) if one]

    def _after_crash(self) -> None:
        """The driver died, or everything did."""
        self._end_driver()
        if not self._system.has_power and not self._depth:
            for former in [*self._former]:
                self._bury_former(former)
            self._boot += 1
            self._system.lose_power()

    def _after_error(self, error: Exception) -> None:
        """The driver ended with an error."""
        self._check_blame(error)
        if not self._options.corruptions:
            self._check_cause(error)
        elif self._is_corrupted():
            self._note_refusal()
        self._end_driver()
        self._system.repair()

    def _note_refusal(self) -> None:
        self._refusals += 1
        if self._refusals == REFUSALS:
            self._verdict.is_refused = True
            self._judge_prefix()

    def _is_corrupted(self) -> bool:
        return any(
            name.startswith(fault.value) for fault in CORRUPTIONS for name in self._system.injected
        )

    def _check_blame(self, error: BaseException) -> None:
        is_ours = isinstance(error, InternalError)
        if isinstance(error, OSError) and error.filename:
            is_ours = disk_error_of(error) is None
        elif not isinstance(error, (WallarooError, Crashed)):
            is_ours = True
        if is_ours:
            places = traceback.extract_tb(error.__traceback__)
            ours = [
                f"{Path(at.filename).name}:{at.lineno}"
                for at in places
                if "wallaroo" in at.filename
            ]
            raise Problem(f"blames this program: {error!r}, at {' '.join(ours[-6:])}") from error

    def _check_cause(self, error: Exception) -> None:
        if isinstance(error, TakenOverError) and self._verdict.taken_over:
            return  # by a driver that was held up before its claim
        injected = sum(self._system.injected.values()) + self._verdict.taken_over
        if injected == self._injected_before:
            raise Problem(f"ended without a fault: {error}") from error
        self._injected_before = injected

    # -- the end ----------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if self._driver is None or self._driver.batches is None or self._egress is None:
            return False
        if any(client.acknowledged < len(client.payloads) for client in self._clients.values()):
            return False
        ends = self._driver.batches.ends
        return (
            all(ends[name].events == len(self._clients[name].payloads) for name in SOURCES)
            and len(self._receiver.received) >= self._expected_bytes
        )

    def _places(self) -> str:
        acknowledged = {name: client.acknowledged for name, client in self._clients.items()}
        batches = self._driver.batches if self._driver else None
        return (
            f"acknowledged {acknowledged}, committed {batches.ends if batches else None}, received "
            f"{len(self._receiver.received)} of {self._expected_bytes} bytes"
        )

    def _outputs(self) -> dict[str, bytes]:
        parts = sorted((self._place / "parts").glob("part-*"))
        lines = self._place / "lines.txt"
        return {
            "tcp": bytes(self._receiver.received),
            "folder": b"".join(path.read_bytes() for path in parts),
            "file": lines.read_bytes() if lines.exists() else b"",
        }

    def _judge_prefix(self) -> None:
        expected = self._expected
        for name, output in self._outputs().items():
            whole = output[: output.rfind(b"\n") + 1]
            if problem := model.problem_of_prefix(expected, model.by_key(whole)):
                raise Problem(f"sink {name}: {problem}")

    def _judge(self) -> None:
        if self._verdict.is_refused:
            return
        assert self._driver is not None
        batches = self._driver.batches
        assert batches is not None
        self._verdict.batches = batches.last.batch + 1 if batches.last else 0
        expected = self._expected
        for name, output in self._outputs().items():
            if problem := model.difference(expected, model.by_key(output)):
                raise Problem(f"sink {name}: {problem}")
        try:
            self._judge_state()
        except CheckpointError:  # of a file that nothing has read before
            if not self._is_corrupted():
                raise
            self._verdict.is_refused = True

    def _judge_state(self) -> None:
        wanted = self._totals()
        if wanted is None:
            return
        entries = CheckpointReader(self._place / "checkpoint").at().entries(STEP)
        states = ((entry.key, pickle.loads(entry.raw)) for entry in entries)
        found = {key: (state.count, state.sum) for key, state in states}
        if self._kind is Kind.TIMERS:  # its steps get events in order: these wait for the watermark
            found.pop("end", None)
            wanted.pop("end", None)
        if found != wanted:
            raise Problem(f"state is {found} instead of {wanted}")

    def _totals(self) -> dict[str, tuple[int, int]] | None:
        """What the states must be; None where windows and joins keep them."""
        if self._kind in (Kind.WINDOWS, Kind.ADDED_UP, Kind.JOIN):
            return None
        found: dict[str, tuple[int, int]] = {}
        for client in self._clients.values():
            for payload in client.payloads:
                key, value = payload.decode().split(" ")[:2]
                count, total = found.get(key, (0, 0))
                found[key] = count + 1, total + int(value)
        return found

    def _boot_id(self) -> str:
        return f"boot{self._boot}"

    def _monotonic(self) -> float:
        """Seconds that never go back: each look at them is one later."""
        self._looks += 1
        return float(self._looks)

    def _now(self) -> int:
        self._clock_ns += 1_000_000
        return self._clock_ns
