"""The saved file, and that it is written wholly or not at all."""

import json
import os
import stat
import warnings

import numpy as np
import pytest
import savegold
from safetensors import numpy as safetensors
from save_helpers import kept
from session_helpers import POLICIES, data, held, session, train

import pyqfw as q
from pyqfw import _files, optim, saving


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_net_is_the_same_file(policy, path):
    net = train(session(policy))
    net.save(path)
    first = path.read_bytes()
    q.Session.load(path).save(path)
    assert path.read_bytes() == first


def test_other_programs_read_it(path):
    """Plain tensors under PyTorch's names: floats as floats, 8 bits as int8."""
    net = train(session(q.Policy.int8().replace(bias=q.Float32(), state=q.Asym(5))))
    net.save(path)
    found = safetensors.load(path.read_bytes())
    for name in net.state_dict():
        stored = net.tensor(name)
        np.testing.assert_array_equal(found[name], stored.codes)
        assert found[name].dtype == stored.codes.dtype
    np.testing.assert_array_equal(found["0.weight:scale"], net.tensor("0.weight").scale)
    state = net.tensor("0.weight:momentum")
    assert found["0.weight:momentum"].tobytes() == state._stored.codes.tobytes()
    np.testing.assert_array_equal(found["0.weight:momentum:zero_point"], state.zero_point)


def test_another_plan_of_the_same_net_is_said(path, monkeypatch):
    net = session("int8")
    monkeypatch.setattr(saving.zlib, "crc32", lambda data: 1)
    net.save(path)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="another plan of the same net") as caught:
        other = q.Session.load(path)
    assert caught[0].filename == __file__
    assert kept(other) == kept(net)


def test_a_net_that_diverged_is_not_saved(path):
    net = session(optimizer=optim.SGD(3e38))
    net.save(path)
    before = path.read_bytes()
    net.step(1e3 * data()[0], data()[1])
    with pytest.raises(q.NonFiniteError, match=r"'0\.weight'.*(inf|nan)"):
        net.save(path)
    assert path.read_bytes() == before


# --- writing --------------------------------------------------------------------------------------


def folder(path):
    return sorted(p.name for p in path.parent.iterdir())


@pytest.mark.parametrize("name", ["write", "fsync", "fchmod", "close", "replace"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()], ids=repr)
def test_an_error_leaves_the_old_file_and_nothing_else(path, monkeypatch, name, error):
    net = session("int8")
    net.save(path)
    path.chmod(0o640)
    before = path.read_bytes()
    real, files = getattr(os, name), []

    def broken(*args):
        files.append(args[0])
        if name == "close":
            real(*args)
        raise error

    monkeypatch.setattr(_files.os, name, broken)
    with pytest.raises(type(error)):
        train(net).save(path)
    monkeypatch.undo()
    assert files
    assert path.read_bytes() == before
    assert folder(path) == [path.name]


def test_a_disk_that_takes_little_at_a_time(path, monkeypatch):
    real = os.write
    monkeypatch.setattr(_files.os, "write", lambda file, data: real(file, data[:100]))
    net = train(session("int8"))
    net.save(path)
    assert path.stat().st_size > 1000
    assert kept(q.Session.load(path)) == kept(net)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_open(path, mask):
    before = os.umask(mask)
    try:
        session().save(path)
        (path.parent / "plain").write_bytes(b"")
    finally:
        os.umask(before)
    plain = (path.parent / "plain").stat().st_mode
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain) == 0o666 & ~mask
    path.chmod(0o640)
    session().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_links_stay_links(path):
    real = path.parent / "real.safetensors"
    path.symlink_to(real)
    session().save(path)
    session(seed=1).save(path)
    assert path.is_symlink()
    assert kept(q.Session.load(real)) == kept(session(seed=1))
    assert folder(path) == sorted([path.name, real.name])


def test_places_that_are_no_files(path, tmp_path):
    with pytest.raises(IsADirectoryError):
        session().save(tmp_path)
    with pytest.raises(FileNotFoundError):
        session().save(tmp_path / "missing" / "net")
    with pytest.raises(FileNotFoundError):
        q.Session.load(path)
    os.mkfifo(path)
    with pytest.raises(q.FileError, match="no plain file"):
        session().save(path)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_paths_may_be_text(path):
    net = session()
    net.save(str(path))
    assert kept(q.Session.load(str(path))) == kept(net)


def test_a_read_only_file_stays(path, monkeypatch):
    session().save(path)
    path.chmod(0o444)
    monkeypatch.setattr(_files.os, "access", lambda *_: False)  # as if this were not root
    with pytest.raises(PermissionError):
        session(seed=1).save(path)
    assert kept(q.Session.load(path)) == kept(session())


def test_loading_is_quiet(path):
    net = train(session("int8"))
    net.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert held(q.Session.load(path))["steps"] == 3


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*another plan of the same net")  # which is no reason to fail
@pytest.mark.parametrize("name", savegold.POLICIES)
def test_files_of_version_1(name):
    path = savegold.GOLD / f"net_v1_{name}.safetensors"
    net = q.Session.load(path)
    assert savegold.shown(net) == json.loads(path.with_suffix(".json").read_text())
    assert np.isfinite(net.step(*savegold.rows(5)))
