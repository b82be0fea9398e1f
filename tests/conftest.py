"""What every test may use: polling with a deadline, the command line, and skips that say what is
missing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.forks import Forks, forks_of
from tests.scheduling import Together, in_order
from wallaroo.cli.doctor.command import examine_java
from wallaroo.cli.doctor.machine import Finding, Verdict
from wallaroo.cli.main import main
from wallaroo.sources.feeds.inbox import InboxFeed
from wallaroo.spark.session.host_session import open_context, session_in
from wallaroo.user_code import worker_mark

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TESTS = Path(__file__).resolve().parent
# What holds in every attempt, whatever the machine does meanwhile.  A test of anything else that
# failed is tried once more; the report says which.
GUARANTEES = {
    *("conformance", "faults", "ingresses", "properties", "replication", "savepoints"),
    *("simulation", "stores"),
}
POLL_S = 0.01
REST = 9  # times as long as a question took
LIMIT_S = 400.0
PRINTED_CHARACTERS = 3000  # of an attempt that failed
KAFKA = Path(__file__).resolve().parents[1] / ".servers" / "kafka"
# Hypothesis draws the same examples in every run, so that a run says what a change did; `make long`
# draws others, and twice as many.  No time limit for an example, nor for drawing one: the machine
# may be busy.
settings.register_profile(
    "the same",
    deadline=None,
    database=None,
    print_blob=True,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "others", settings.get_profile("the same"), derandomize=False, max_examples=50
)
settings.load_profile("others" if os.environ.get("WALLAROO_OTHER_EXAMPLES") else "the same")
JAVA = pytest.StashKey[Finding]()  # looked at once a session


@pytest.fixture(autouse=True)
def is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that a test runs in this process forbids runs in it, as in a worker: until the test's
    end.
    """
    monkeypatch.setattr(worker_mark, "_is_forbidden", False)


@pytest.fixture(autouse=True)
def no_feed_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A feed's thread reads until its process ends; here others need the interpreter's lock."""
    feeds: list[InboxFeed] = []
    start = InboxFeed._start

    def begin(feed: InboxFeed) -> None:
        feeds.append(feed)
        start(feed)

    monkeypatch.setattr(InboxFeed, "_start", begin)
    yield
    for feed in feeds:
        feed._inbox.end()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait until a condition holds: ``eventually(lambda: file.exists(), "the file is there")``.
    The limit is there to end a test that failed, and a busy machine must not reach it.  What takes
    long to ask is asked seldom: it would keep what it waits for from a core.
    """

    def wait(condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        asked = time.monotonic()
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not in time: {what}")
            time.sleep(max(POLL_S, REST * (time.monotonic() - asked)))
            asked = time.monotonic()

    return wait


@pytest.fixture(scope="module")
def child_of() -> Iterator[Callable[..., Forks]]:
    """A program that is run again and again, by the name of its module: see ``tests.forks``."""
    with ExitStack() as stack:
        made: dict[str, Forks] = {}

        def child(module: str, at_once: int = 1) -> Forks:
            if module not in made:
                made[module] = stack.enter_context(forks_of(module, at_once))
            return made[module]

        yield child


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark for all tests that run applications in this process."""
    folder = tmp_path_factory.mktemp("spark")
    session = session_in(open_context("tests", "local[2]", folder, "error", ()))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for a file of tests.

    Playwright's event loop counts as running in this thread until the browser is closed: tests
    of other files, which run event loops of their own, would be refused theirs.
    """
    if CHROMIUM is None:
        _missing("Chromium is not installed (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which checks a page's accessibility."""
    file = TESTS.parent / ".servers/axe/node_modules/axe-core/axe.min.js"
    if not file.exists():
        _missing("axe-core is not there; run scripts/setup-test-servers")
    return file.read_text(encoding="utf-8")


@pytest.fixture
def save_screen() -> Callable[..., None]:
    """Save a picture of a page as NAME.png in $WALLAROO_SCREENS; without that do nothing."""
    folder = os.environ.get("WALLAROO_SCREENS")

    def save(page: Any, name: str, *, is_whole: bool = False) -> None:
        if folder:
            page.screenshot(path=Path(folder, f"{name}.png"), full_page=is_whole)

    return save


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus's checker of metrics and rules."""
    found = shutil.which("promtool")
    if found is None:
        _missing("promtool is not installed (Debian: apt-get install prometheus)")
    return str(found)


@pytest.fixture
def wallaroo(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line; return exit code, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what takes long first; try once more what failed, unless it tests a guarantee."""
    absent = {reason for item in items for reason in _absent(item)}
    if absent and os.environ.get("CI"):
        raise pytest.UsageError(f"tests would be skipped: {'; '.join(sorted(absent))}")
    items[:] = in_order(items)
    for item in items:
        if not GUARANTEES & set(item.path.relative_to(TESTS.parent).parts):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["."]))


def _absent(item: pytest.Item) -> Iterator[str]:
    """Yield the reasons for which a test is skipped that ``scripts/setup-test-servers`` removes."""
    for mark in item.iter_markers("skipif"):
        reason = mark.kwargs.get("reason", "")
        if mark.args[0] and reason.endswith(("is missing", "setup-test-servers")):
            yield reason


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print why tests were tried again: nothing else prints an attempt before the last one."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"tried again: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext[-PRINTED_CHARACTERS:])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let files that share what takes long to start share it."""
    return Together(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run; where everything has to be there (CI), fail instead."""
    if item.get_closest_marker("postgres") and not _has_postgres():
        _missing("PostgreSQL's programs are not installed (Debian: apt-get install postgresql)")
    if item.get_closest_marker("kafka") and not list(KAFKA.glob("kafka_*.jar")):
        _missing("the Kafka broker is not installed: run scripts/setup-test-servers")
    if item.get_closest_marker("java"):
        if JAVA not in item.session.stash:
            item.session.stash[JAVA] = examine_java()
        finding = item.session.stash[JAVA]
        if finding.verdict is Verdict.FAIL:
            _missing(f"no usable Java: {finding.seen}")


def _missing(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _has_postgres() -> bool:
    return bool(
        shutil.which("postgres") or list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    )
