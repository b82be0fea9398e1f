"""What a child process said last."""

from __future__ import annotations

from wallaroo.processes.supervisor import END, Child

LEAVES_ANOTHER = "import os, subprocess; subprocess.Popen(['sleep', '5']); os._exit(3)"


def test_a_child_whose_own_child_holds_its_output_open_has_said_nothing() -> None:
    """The end of its output does not come, which is no error of the driver's."""
    child = Child("ingress", ["timeit", "-n1", "-r1", LEAVES_ANOTHER], print)
    assert child.process.wait(400) == 3
    assert child.last_line(0.2) == (END, None)
    child.release()
