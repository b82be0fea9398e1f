"""What a trace of epochs is read as."""

from __future__ import annotations

from pathlib import Path

from benchmarks.latency.epoch_trace import DRIVER, Took, epochs_of, others, read, story, summary

MS = 1_000_000
DRIVER_POINTS = (  # at ms, computed, without a core, name
    (0, 0, 0, "batch.ends 6 10"),
    (5, 1, 0, "batch.begins"),
    (6, 2, 0, "batch.planned"),
    (96, 3, 40, "batch.committed"),
    (105, 4, 40, "batch.ends 7 30"),
)


def line(at: float, computed: float, waited: float, process: int, thread: str, name: str) -> str:
    numbers = (round(number * MS) for number in (at, computed, waited))
    return "\t".join(map(str, (*numbers, process, thread, name)))


def test_an_epoch_is_separate_from_the_pause_before_it_and_from_other_threads(
    tmp_path: Path,
) -> None:
    lines = [line(*point[:3], 1, DRIVER, point[3]) for point in DRIVER_POINTS]
    lines += [line(at, 0, 0, 2, "MainThread", "task.ran") for at in (10, 50)]
    trace = tmp_path / "trace"
    trace.write_text("\n".join(reversed(lines)) + "\n")

    points = read(trace)
    (epoch,) = epochs_of(points)

    assert (epoch.batch, epoch.events) == (7, 30)
    assert epoch.took == Took(100.0, 3.0, 40.0)
    assert epoch.took.own == 60.0
    assert epoch.steps()["batch.planned - batch.committed"] == Took(90.0, 1.0, 40.0)
    assert "batch.planned - batch.committed" in summary([epoch])
    assert "task.ran - task.ran" in others(points)
    assert "epoch 7: 100.0 ms (40.0 of its thread without a core), 30 events" in story(
        epoch, points
    )
