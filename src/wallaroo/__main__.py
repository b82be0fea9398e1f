"""The ``wallaroo`` command, run as ``python -m wallaroo``.

Where it runs: driver.
"""

from wallaroo.cli.main import entry

if __name__ == "__main__":
    entry()
