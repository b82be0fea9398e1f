"""A process that may have fewer addresses than a view needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wallaroo.processes.environment import python_environment

PROGRAM = """
import resource, sys
from pathlib import Path
from wallaroo.errors import PeerError
from wallaroo.state.views.environments import open_environment

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
try:
    open_environment(Path(sys.argv[1], "00"))
except PeerError as error:
    print(error)
"""


def test_the_limit_is_named_with_the_way_to_raise_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        env=python_environment(),
    )
    assert str(tmp_path) in ran.stdout, ran.stderr
    assert "ulimit -v unlimited" in ran.stdout
    assert "what was committed stays" in ran.stdout
