"""The README's program prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_program_and_its_output(tmp_path: Path) -> None:
    program, output = re.search(r"```python\n(.*?)```\n+```\n(.*?)```", README, re.DOTALL).groups()
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (output, "")


def test_nothing_is_left_to_fill_in() -> None:
    assert not re.findall(r"\b[A-Z]+_[A-Z]+\b", README)
