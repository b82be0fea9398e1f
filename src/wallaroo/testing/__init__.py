"""Test tools for applications, without Spark or a JVM.

Where it runs: in your tests.

>>> import wallaroo
>>> @wallaroo.computation("double")
... def double(number):
...     return number * 2
>>> run_step(double, [1, 2, 3])
[2, 4, 6]
"""

from wallaroo.testing.local_runner.runner import Wire
from wallaroo.testing.run import LocalApplication, LocalRun, VirtualClock, run_local
from wallaroo.testing.step import run_state_step, run_step

__all__ = [
    "LocalApplication",
    "LocalRun",
    "VirtualClock",
    "Wire",
    "run_local",
    "run_state_step",
    "run_step",
]
