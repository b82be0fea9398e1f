"""``python -m wallaroo`` is the ``wallaroo`` command.

Where it runs: driver.
"""

from wallaroo.cli.main import entry

if __name__ == "__main__":
    entry()
