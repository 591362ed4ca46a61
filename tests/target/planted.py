"""Passes if a run fails, and fails in one suite only:  planted.py SUITE EXECUTABLE"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys


def faults(suite: str, text: str, code: int) -> list[str]:
    """What is wrong with the output and the exit code of a run with a planted fault."""
    lines = re.findall(r"^(\w+): \d+ cases, \d+ passed, (\d+) failed$", text, flags=re.M)
    failed = [name for name, count in lines if int(count) > 0]
    found = []
    if code != 1:
        found.append(f"the exit code is {code}, not 1")
    if failed != [suite]:
        found.append(f"failures in {failed}, not in {suite}")
    if not re.search(rf"^{suite}: the first to fail is case \d+, ", text, flags=re.M):
        found.append("the failing case is not named")
    if not re.search(r"^\d+ passed, [1-9]\d* failed$", text, flags=re.M):
        found.append("the last line counts no failure")
    return found


def main(suite: str, executable: str) -> int:
    wrapper = shlex.split(os.environ.get("MESON_EXE_WRAPPER", ""))  # on a board: the emulator
    run = subprocess.run(
        [*wrapper, executable], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    print(run.stdout, end="")
    found = faults(suite, run.stdout, run.returncode)
    for fault in found:
        print(fault, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
