"""A process that is killed while it saves leaves the old file or the new one."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("save_killed.py")
KILLS = 50


def killed(folder, how):
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # one thread: it forks
    run = subprocess.run(
        [sys.executable, PROGRAM, folder, str(KILLS), "7", how],
        env=env,
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(run.stdout)


def test_fifty_kills_during_a_save(tmp_path):
    found = killed(tmp_path, "whole")
    print(found)
    assert found["wrong"] == []
    assert found["kills"] == found["old"] + found["new"] == KILLS
    assert found["left"] > 0  # some died before the new file had its name


def test_writing_over_the_file_is_found_out(tmp_path):
    """The same program, a writer that is not whole: kills leave wrong files."""
    found = killed(tmp_path, "plain")
    print(found)
    assert found["wrong"]
