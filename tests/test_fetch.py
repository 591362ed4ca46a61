"""ECG5000 from a server: fetched once, compared with what was published, or synthetic beats."""

import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_ecg import same_beats, write_beats

import pyqfw as q
from pyqfw import data
from pyqfw.data import ecg


class Server:
    """Answers every path with `content`; counts."""

    def __init__(self):
        self.content, self.status, self.length, self.asked = b"", 200, None, 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                owner.asked += 1
                self.send_response(owner.status)
                self.send_header("Content-Length", str(owner.length or len(owner.content)))
                self.end_headers()
                self.wfile.write(owner.content)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/ECG5000.zip"

    def stop(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("PYQFW_CACHE", str(tmp_path / "cache"))
    found = Server()
    monkeypatch.setattr(ecg, "URL", found.url)
    yield found
    found.stop()


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """A zip of small beats, which count as the published ones."""
    folder = tmp_path / "published"
    folder.mkdir()
    write_beats(folder, ".ts")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
    monkeypatch.setattr(ecg, "PUBLISHED", ecg.digest(data.ecg5000(folder)))
    return (tmp_path / "all.zip").read_bytes()


def test_it_is_fetched_once(server, packed, tmp_path, capsys):
    server.content = packed
    same_beats(data.ecg5000(progress=True))
    assert "ECG5000.zip: 100%" in capsys.readouterr().err
    same_beats(data.ecg5000())
    same_beats(data.beats())
    assert server.asked == 1
    assert [f.name for f in (tmp_path / "cache").iterdir()] == ["ECG5000.zip"]


def test_other_numbers_are_refused_and_not_kept(server, packed, tmp_path, monkeypatch):
    server.content = packed
    monkeypatch.setattr(ecg, "PUBLISHED", "0" * 64)
    with pytest.raises(q.FileError, match="not the numbers that were published"):
        data.ecg5000()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cut_answer(server, packed, tmp_path):
    server.content, server.length = packed[:100], len(packed)
    with pytest.raises(q.FileError, match=r"could not be fetched: (IncompleteRead|100 of)"):
        data.ecg5000()
    assert not (tmp_path / "cache").exists()


def test_no_zip(server, tmp_path):
    server.content = b"<html>log in to the hotel's network</html>"
    with pytest.raises(q.FileError, match="damaged or of another kind"):
        data.ecg5000()
    assert list((tmp_path / "cache").iterdir()) == []


def test_no_such_page(server):
    server.status = 404
    with pytest.raises(q.FileError, match=r"could not be fetched: .*404"):
        data.ecg5000()


def test_without_a_network_beats_are_synthetic(server, tmp_path, monkeypatch):
    server.status = 503
    train, test = data.beats()
    assert (len(train), len(test)) == (500, 4500)
    assert train.about == test.about == "synthetic PQRST beats, not recorded from anyone"
    with pytest.raises(q.FileError, match="nowhere"):  # a path that was given is meant
        data.beats(tmp_path / "nowhere")


def test_nobody_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("PYQFW_CACHE", str(tmp_path))
    monkeypatch.setattr(ecg, "URL", "http://127.0.0.1:9/ECG5000.zip")
    with pytest.raises(q.FileError, match="could not be fetched"):
        data.ecg5000()
