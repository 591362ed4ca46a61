"""The report in headless Chromium: no error, and every figure is drawn."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
from test_report import FIGURES, trained

import pyqfw as q

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--enable-logging=stderr", "--log-level=0"),
    *("--virtual-time-budget=10000", "--dump-dom"),
)
SCRIPT = """<script>
const faults = [];
addEventListener("error", e => faults.push(String(e.message || e.target.alt)), true);
addEventListener("load", () => {
  const images = [...document.images].map(i => [i.alt, i.complete ? i.naturalWidth : 0]);
  const wide = document.documentElement.scrollWidth > innerWidth;
  const links = performance.getEntriesByType("resource").filter(r => !r.name.startsWith("data:"));
  const found = {images, faults, wide, fetched: links.map(r => r.name)};
  document.body.dataset.found = btoa(JSON.stringify(found));
});
</script>"""


def browser():
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found is not None, "apt-get install chromium"
    return found


def looked_at(page, folder):
    """What the page says about itself when it is loaded, and what the browser complains of."""
    head = page.read_text().replace("<head>", f"<head>{SCRIPT}", 1)
    copy = folder / "copy.html"
    copy.write_text(head)
    command = [browser(), *OPTIONS, f"--user-data-dir={folder / 'profile'}", copy.as_uri()]
    done = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = done.communicate(timeout=120)
    finally:
        if done.poll() is None:
            os.killpg(done.pid, signal.SIGKILL)
            done.wait()
    found = json.loads(base64.b64decode(re.search(r'data-found="([^"]+)"', out).group(1)))
    return found, re.findall(r"CONSOLE.*", err)


@pytest.mark.parametrize("policy", ["int8", "float32"])
def test_the_page_shows_its_figures(tmp_path, policy):
    net, given = trained(getattr(q.Policy, policy)())
    page = q.report(net, tmp_path / "report.html", **given)
    found, complaints = looked_at(page, tmp_path)
    assert complaints == []
    assert found["faults"] == []
    assert found["fetched"] == []
    assert not found["wide"]
    drawn = dict(found["images"])
    wanted = [f for f in FIGURES if policy == "int8" or f not in ("Codes", "Counters over time")]
    assert set(wanted) <= set(drawn)
    assert min(drawn.values()) > 300


def test_a_broken_figure_would_be_seen(tmp_path):
    net, given = trained(q.Policy.int8())
    page = q.report(net, tmp_path / "report.html", **given)
    text = page.read_text()
    at = [m.end() for m in re.finditer("svg.xml;base64,", text)]
    page.write_text(text[: at[1]] + "AAAA" + text[at[1] + 4 :])
    found, _ = looked_at(page, tmp_path)
    assert 0 in dict(found["images"]).values()
    assert np.size(found["faults"]) == 1
