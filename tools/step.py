"""Runs one step of the Makefile: says what it does and how long it takes, and keeps its output in a log.

    python tools/step.py "[2/6] building" 90 build/logs/build.txt command ...

On a terminal the last line of the output is shown while the command runs. If the command fails, the end of the log is
printed, and the log's name. This file needs only Python, because it runs before anything is installed.
"""

import os
import shutil
import subprocess
import sys
import time

SHOWN = 40  # the lines of the log that a failure prints


def last_line(log):
    """The last line that says something, without the directories of a compiler's command."""
    with open(log, errors="replace") as file:
        lines = [line.strip() for line in file.read()[-4000:].splitlines() if line.strip()]
    return lines[-1] if lines else ""


def wait(process, log, started):
    """Wait for the command. On a terminal, show how far it is."""
    while True:
        try:
            return process.wait(0.5 if sys.stderr.isatty() else None)
        except subprocess.TimeoutExpired:
            width = shutil.get_terminal_size().columns - 1
            text = f"      {time.monotonic() - started:3.0f} s  {last_line(log)}"
            print(f"\r{text[:width]:<{width}}", end="", file=sys.stderr, flush=True)


def main(title, seconds, log, *command):
    print(f"{title} (about {seconds} s)", flush=True)
    os.makedirs(os.path.dirname(log), exist_ok=True)
    started = time.monotonic()
    with open(log, "w") as output:
        try:
            with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
                code = wait(process, log, started)
        except OSError as exc:  # there is no such command
            print(exc, file=output)
            code = 1
    if sys.stderr.isatty():
        print("\r" + " " * (shutil.get_terminal_size().columns - 1), end="\r", file=sys.stderr, flush=True)
    if code == 0:
        print(f"      took {time.monotonic() - started:.0f} s", flush=True)
        return 0
    with open(log, errors="replace") as file:
        print("".join(file.readlines()[-SHOWN:]), end="")
    print(f"\nThis step failed. All of its output is in {log}", flush=True)
    return code if code > 0 else 1


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # the locale may not have all characters of a compiler's output
        stream.reconfigure(errors="backslashreplace")
    sys.exit(main(*sys.argv[1:]))
