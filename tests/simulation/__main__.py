"""``python -m tests.simulation``: simulated histories, many, on all cores; or one, again.

Where it runs: a terminal.

``--seeds N`` runs N histories.  A failing one prints the command that replays it.  ``--points``
fails each system call of a small history in every way, one history per call and way, and kills and
cuts the power in pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time

from tests.simulation.runner import begin, of_points, place, run_all
from tests.simulation.simulation import Options, Simulation
from tests.simulation.system import Fault, Plan


def main(arguments: list[str]) -> int:
    """Do what the arguments say; 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    add = parser.add_argument
    add("--seeds", type=int, default=2000, metavar="N", help="so many histories")
    add("--first", type=int, default=0, metavar="S", help="the first seed, or point of --every")
    add("--seed", type=int, metavar="S", help="this history only")
    add("--at", action="append", default=[], metavar="STEP=FAULT", help="with --seed: this fault")
    add("--lasting", type=int, default=0, metavar="N", help="with --at: steps that fail after it")
    add("--damage", action="store_true", help="writes that get lost or go astray on the disk")
    add("--drivers", type=int, default=1, metavar="N", help="that take over from each other")
    add("--points", action="store_true", help="every system call failed in every way")
    add("--every", type=int, default=1, metavar="N", help="with --points: one of so many")
    add("--seconds", type=float, default=float("inf"), metavar="S", help="begin no more after this")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    add("--json", metavar="FILE", help="append the figures to this file, as a line of JSON")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    if options.seed is not None:
        begin()
        plan = None
        if options.at:
            pairs = (text.split("=") for text in options.at)
            plan = Plan({int(step): Fault[name] for step, name in pairs}, options.lasting)
        one = Options(options.seed, plan, options.damage, options.drivers)
        verdict = Simulation(one, place()).run()
        for number, (call, path, process) in enumerate(verdict.log, 1):
            print(f"{number:5} {process:8} {call:9} {path}")
        shutil.rmtree(place(), ignore_errors=True)
        print(f"trace {verdict.trace}; faults {dict(verdict.injected)}")
        print(f"problem: {verdict.problem or 'none'}")
        return 1 if verdict.problem else 0
    seeds = range(options.first, options.first + options.seeds)
    planned = (
        of_points(options.every, options.first)
        if options.points
        else (Options(seed, None, options.damage, options.drivers) for seed in seeds)
    )
    totals = run_all(planned, options.jobs, options.seconds)
    print(totals.text(time.monotonic() - began))
    if options.json:
        figures = {"first": options.first, "points": options.points, **totals.figures()}
        with open(options.json, "a", encoding="utf-8") as file:
            file.write(f"{json.dumps(figures)}\n")
    return 1 if totals.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
