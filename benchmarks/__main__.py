"""``python -m benchmarks``: all benchmarks, one after the other.  See ``benchmarks.run_all``."""

import sys

from benchmarks.run_all import main

if __name__ == "__main__":
    sys.exit(main())
