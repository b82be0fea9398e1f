"""A cluster that changes under a running application: real Master, Workers and executors."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.verification.cases import Sequence
from tests.verification.clusters import verify_scaling
from tests.verification.scaling import every_pair
from wallaroo.options import HostKind
from wallaroo.testing.verify.options import VerifyOptions

# `make scaling` does the rest: all pairs, SIGKILL of workers, master and driver
CHANGES = ("grow1", "shrink1")


@pytest.mark.long
@pytest.mark.parametrize("host", HostKind)
def test_growing_and_shrinking_under_load_loses_nothing(  # type: ignore[no-untyped-def]
    tmp_path: Path, capsys, host: HostKind
) -> None:
    """The harness itself checks, after each change, that new workers own key groups and leavers
    none.
    """
    result = verify_scaling(
        VerifyOptions("sequence", Sequence, seed=7, rate=300, host=host),
        tmp_path,
        CHANGES,
        workers=1,
    )
    assert result.is_clean, result.text()
    assert result.events > 1000
    said = capsys.readouterr().err
    assert re.search(
        r"worker-2 joined: key groups moved: 64 of 128, state moved: \d+\.\d MB, pause \d+\.\d s",
        said,
    )
    assert re.search(r"worker-2 left: key groups moved: 64 of 128", said)


@pytest.mark.long
def test_a_killed_worker_with_copies_elsewhere_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = VerifyOptions("sequence", Sequence, seed=8, rate=300, host=HostKind.RESIDENT)
    changes = ("kill", "revive", "kill", "revive")
    result = verify_scaling(options, tmp_path, changes, workers=2, replicas=1)
    assert result.is_clean, result.text()
    assert result.events > 1000
    assert capsys.readouterr().err.count("change") == 4


def test_the_walk_over_all_pairs_stays_between_its_bounds() -> None:
    walk = every_pair(1, 5, 3)
    assert len(set(pairwise(walk))) == 16
