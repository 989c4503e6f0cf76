"""Runs a script in several processes that jax joins to one machine: ``python -m stkm.launch``.

On one machine, N processes:

    python -m stkm.launch -n 2 fit.py ARGUMENTS

On several machines, the same line on each, with a number of its own; machine 0 listens:

    python -m stkm.launch --coordinator HOST:PORT --processes 4 --number 0 fit.py ARGUMENTS

``-- -m MODULE`` in place of the script runs a module. The script needs no change: an estimator with
``devices=None`` takes the devices of all processes, every process ends with the same fit, and what
process 0 prints is shown. Every process must see the same images and the same ``random_state``. A
script that writes files does so where ``jax.process_index() == 0``.
"""

from __future__ import annotations

import argparse
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time

__all__ = ["launch", "main"]

WAIT = 0.05  # seconds between two looks at the processes


def launch(n, command, **options):
    """Run ``command`` (script and arguments) in n processes of this machine; the exit code.

    What process 0 prints is printed, and the errors of all. When one process fails, the others are
    ended, and its exit code is the answer. ``options`` go to `subprocess.Popen`.
    """
    with socket.socket() as s:
        s.bind(("localhost", 0))
        address = f"localhost:{s.getsockname()[1]}"
    workers, main_thread = [], threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _exit) if main_thread else None
    try:
        for number in range(n):
            place = ["--coordinator", address, "--processes", str(n), "--number", str(number)]
            quiet = {} if number == 0 else {"stdout": subprocess.DEVNULL}
            whole = [sys.executable, "-m", "stkm.launch", *place, "--", *command]
            workers.append(subprocess.Popen(whole, **(options | quiet)))
        while any(worker.poll() is None for worker in workers):
            if any(worker.poll() for worker in workers):
                break
            time.sleep(WAIT)
        return next((worker.returncode for worker in workers if worker.poll()), 0)
    finally:
        if main_thread:
            signal.signal(signal.SIGTERM, before)
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
            worker.wait()


def _exit(number, frame):
    """A launcher that is told to end takes its processes along."""
    sys.exit(128 + number)


def _work(coordinator, processes, number, command):
    """Join the other processes, then run the script as ``python`` would."""
    import jax

    jax.distributed.initialize(coordinator, processes, number)
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def main(arguments=None):
    """Command line of ``python -m stkm.launch``; returns the exit code."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m stkm.launch", description=__doc__,
                                     formatter_class=raw)  # fmt: skip
    parser.add_argument("-n", type=int, metavar="N", help="processes on this machine")
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0")
    parser.add_argument("--processes", type=int, metavar="N", help="on all machines")
    parser.add_argument("--number", type=int, metavar="I", help="of this process, from 0")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGUMENTS]")
    given = parser.parse_args(arguments)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    place = (given.coordinator, given.processes, given.number)
    if not command:
        parser.error("no script to run")
    if given.n is not None:
        if given.n < 1 or any(p is not None for p in place):
            parser.error("-n takes a number of at least 1, and none of the other options")
        return launch(given.n, command)
    if any(p is None for p in place) or not 0 <= given.number < given.processes:
        parser.error("either -n, or --coordinator, --processes and --number from 0 below it")
    _work(*place, command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
