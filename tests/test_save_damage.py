"""Files that are not what a save wrote: each is a FileError that names the file, never a net."""

import copy
import hashlib
import json
import pickle

import numpy as np
import pytest
from safetensors import numpy as safetensors
from save_helpers import kept, run
from session_helpers import INPUTS, POLICIES, session, train

import pyqfw as q
from pyqfw import nn, saving

INT8 = POLICIES["int8"].replace(bias=q.Float32(), state=q.Asym(6))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


def refused(path, data, message=r"."):
    path.write_bytes(data)
    with pytest.raises(q.FileError, match=message) as caught:
        q.Session.load(path)
    assert str(caught.value).startswith(f"{path}: ")


# --- accidents ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A file with codes, scales, zero points, floats and padding."""
    layers = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    plan = q.compile(
        layers,
        input_shape=3,
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(momentum=0.5),
        policy=INT8,
    )
    path = tmp_path_factory.mktemp("small") / "net"
    q.Session(plan).save(path)
    data = path.read_bytes()
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    assert header.endswith(b" ")  # else there is no padding to flip
    return data


@pytest.fixture
def damaged(monkeypatch):
    """Loads bytes as if they had been read from a file, without the disk's delay."""
    given = []
    monkeypatch.setattr(saving.Path, "read_bytes", lambda path: given[-1])

    def check(data):
        given.append(bytes(data))
        try:
            q.Session.load("file")
        except q.FileError as e:
            text = str(e)
            assert text.startswith(("file: this is no file that", "file: the file is damaged"))
        else:
            pytest.fail("a damaged file was loaded")

    return check


def test_cut_anywhere(small, damaged):
    for n in range(len(small)):
        damaged(small[:n])


def test_any_bit_flipped(small, damaged):
    data = bytearray(small)
    for i in range(len(data)):
        for bit in range(8):
            data[i] ^= 1 << bit
            damaged(data)
            data[i] ^= 1 << bit
    assert data == small


def test_bytes_more_or_less_or_elsewhere(small, damaged):
    rng = np.random.default_rng(0)
    for _ in range(300):
        i, j = sorted(rng.integers(0, len(small), 2).tolist())
        for data in (
            small[:i] + small[j + 1 :],
            small[:i] + b"\0" + small[i:],
            small[:i] + bytes(j + 1 - i) + small[j + 1 :],
            small[i:] + small[:i],
        ):
            if data != small:
                damaged(data)
    damaged(small + small)
    damaged(small + b"\0")


def test_the_file_that_is_damaged_here_is_a_good_one(small, path):
    path.write_bytes(small)
    q.Session.load(path)


OTHERS = {
    "nothing": b"",
    "one byte": b"\0",
    "text": b"hello\n" * 100,
    "zeros": bytes(10_000),
    "noise": np.random.default_rng(0).bytes(10_000),
    "a pickle": pickle.dumps({"weight": [1.0]}),
    "a plan": session().plan.to_bytes(),
    "tensors of others": safetensors.save({"weight": np.zeros(3)}, {"format": "pt"}),
    "no digest": safetensors.save({"weight": np.zeros(3)}, {"pyqfw": '{"version":1}'}),
    "the beginning": b'        {"__metadata__":{"pyqfw":"{\\"sha256\\":\\"',
}


@pytest.mark.parametrize("case", OTHERS)
def test_files_of_other_programs(case, path):
    refused(path, OTHERS[case], "no file that Session.save wrote|is damaged")


# --- malice ---------------------------------------------------------------------------------------


def opened(data):
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["pyqfw"]), safetensors.load(data)


def sealed(content, arrays):
    """A file with a right digest, by docs/files.md alone."""
    text = content
    if not isinstance(content, str):
        text = json.dumps({**content, "sha256": 64 * "0"}, separators=(",", ":"), sort_keys=False)
        text = json.dumps({"sha256": 64 * "0", **json.loads(text)}, separators=(",", ":"))
    data = safetensors.save(
        {n: np.require(a, None, "C") for n, a in arrays.items()}, {"pyqfw": text}
    )
    at = data.index(b'"pyqfw":"{\\"sha256\\":\\"') + len('"pyqfw":"{\\"sha256\\":\\"')
    digest = hashlib.sha256(data[:at] + 64 * b"0" + data[at + 64 :]).hexdigest().encode()
    return data[:at] + digest + data[at + 64 :]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "net"
    train(session(INT8.replace(weights=q.BFP(8, 4)))).save(path)
    return path.read_bytes()


def test_the_sealer_of_these_tests(good, path):
    assert sealed(*opened(good)) == good


def fields(content):
    return content["request"]["fields"]


def layer(content, i):
    return fields(content)["model"]["layers"][i][1]


def put(where, key, value):
    where[key] = value


def changed(array, value):
    """A copy with one number another."""
    found = array.copy()
    found.reshape(-1)[-1] = value
    return found


WEIGHT, SCALE, BIAS, STATE = "0.weight", "0.weight:scale", "0.bias", "0.weight:momentum"
ZERO = f"{STATE}:zero_point"
DESCRIPTIONS = {
    "a later version": (lambda c: put(c, "version", 2), "version 2: this pyqfw reads version 1"),
    "no version": (lambda c: c.pop("version"), "version"),
    "no request": (lambda c: c.pop("request"), "request"),
    "another thing": (lambda c: put(c, "request", fields(c)["policy"]), "not that of a net"),
    "no model": (lambda c: put(fields(c), "model", None), "model must be a layer"),
    "a loss as model": (lambda c: put(fields(c), "model", fields(c)["loss"]), "model must be"),
    "an unknown layer": (lambda c: put(layer(c, 1), "type", "nn.Tanh2"), "'nn.Tanh2' is no class"),
    "code": (lambda c: put(layer(c, 1), "type", "os.system"), "'os.system' is no class"),
    "an unknown field": (lambda c: put(layer(c, 0)["fields"], "x", 1), r"model\.0: Linear has no"),
    "a huge layer": (lambda c: put(layer(c, 0)["fields"], "out_features", 2**31 - 1), "layer '2'"),
    "huge layers": (
        lambda c: (
            put(layer(c, 0)["fields"], "out_features", 2**31 - 1),
            put(layer(c, 2)["fields"], "in_features", 2**31 - 1),
        ),
        "arena",
    ),
    "wider layers": (
        lambda c: (
            put(layer(c, 0)["fields"], "out_features", 2**20),
            put(layer(c, 2)["fields"], "in_features", 2**20),
        ),
        "'0.weight' has another format or shape",
    ),
    "a huge batch": (lambda c: put(fields(c), "batch", 10**30), r"batch must be 1\.\."),
    "a negative seed": (lambda c: put(fields(c), "seed", -1), "seed must be 0"),
    "a strange shape": (lambda c: put(fields(c), "input_shape", []), "input_shape must be"),
    "a huge shape": (lambda c: put(fields(c), "input_shape", [2**28, 10]), "input_shape must be"),
    "a policy of text": (lambda c: put(fields(c), "policy", "int8"), "policy must be"),
    "an optimizer of text": (lambda c: put(fields(c), "optimizer", "SGD"), "optimizer must be"),
    "layers that learn": (lambda c: put(fields(c), "train", ["5"]), "'0.*' is not in the net"),
    "a type for train": (lambda c: put(fields(c), "train", 5), "TypeError"),
    "other bits": (
        lambda c: put(fields(c)["policy"]["fields"]["weights"]["fields"], "bits", 7),
        "'0.weight' has another format",
    ),
    "another format": (lambda c: put(c["tensors"], WEIGHT, c["tensors"][BIAS]), "another format"),
    "another shape": (lambda c: put(c["tensors"][WEIGHT], 1, [10, 9]), "another format or shape"),
    "an unknown tensor": (lambda c: put(c["tensors"], "x", 1), "'x' is not in the net"),
    "a tensor not named": (lambda c: c["tensors"].pop(STATE), "momentum' is missing"),
    "tensors as a list": (lambda c: put(c, "tensors", []), "AttributeError"),
    "tensors as text": (lambda c: put(c["tensors"], WEIGHT, "xy"), "describes|another"),
    "a step below 0": (lambda c: put(c["progress"], "step", -1), "OverflowError"),
    "a step too far": (lambda c: put(c["progress"], "step", 2**32), "OverflowError"),
    "half a step": (lambda c: put(c["progress"], "updates", 0.5), "TypeError"),
    "a step of text": (lambda c: put(c["progress"], "updates", "3"), "TypeError"),
    "a learning rate below 0": (lambda c: put(c["progress"], "lr", -0.1), "progress"),
    "a tiny learning rate": (lambda c: put(c["progress"], "lr", 1e-40), "progress"),
    "an infinite learning rate": (lambda c: put(c["progress"], "lr", 1e300), "progress"),
    "no learning rate": (lambda c: put(c["progress"], "lr", float("nan")), "NaN"),
    "unknown progress": (lambda c: put(c["progress"], "speed", 3), "AttributeError"),
    "progress as a list": (lambda c: put(c, "progress", [1, 2]), "TypeError"),
    "epochs below 0": (lambda c: put(c, "epochs", -1), "epochs must be"),
    "half an epoch": (lambda c: put(c, "epochs", 0.5), "epochs must be"),
    "a truth for epochs": (lambda c: put(c, "epochs", True), "epochs must be"),
    "sources of nothing": (lambda c: put(c, "source", ["x"]), "KeyError: 'x'"),
    "sources that are missing": (lambda c: put(c, "source", [WEIGHT]), "weight:source' is missing"),
}
ARRAYS = {
    "a missing tensor": (WEIGHT, lambda a: None, f"the array '{WEIGHT}' is missing"),
    "missing scales": (SCALE, lambda a: None, f"the array '{SCALE}' is missing"),
    "missing zero points": (ZERO, lambda a: None, f"'{ZERO}' is missing"),
    "one more tensor": ("x", lambda a: np.zeros(3), "the array 'x' is not in the net"),
    "one more source": ("0.weight:source", lambda a: np.zeros(3), "source' is not in the net"),
    "another type": (WEIGHT, lambda a: a.astype(np.int16), "'0.weight' must be int8 .*, not int16"),
    "without a sign": (WEIGHT, lambda a: a.view(np.uint8), "must be int8 .*, not uint8"),
    "doubles": (BIAS, lambda a: a.astype(np.float64), "must be float32 .*, not float64"),
    "halves of scales": (SCALE, lambda a: a.astype(np.float16), "must be float32"),
    "a flat one": (WEIGHT, lambda a: a.reshape(-1), r"must be int8 \(9, 10\), not int8 \(90,\)"),
    "one turned": (WEIGHT, lambda a: a.reshape(a.shape[::-1]), r"must be int8 \(9, 10\), not"),
    "one too short": (STATE, lambda a: a[:-1], "'0.weight:momentum' must be uint8"),
    "scales for others": (SCALE, lambda a: a[:-1], "scale' must be float32"),
    "a float that is none": (BIAS, lambda a: changed(a, np.nan), r"'0\.bias'\[8\] is nan"),
    "an infinite float": (BIAS, lambda a: changed(a, -np.inf), r"'0\.bias'\[8\] is -inf"),
    "a scale of 0": (SCALE, lambda a: changed(a, 0), "'0.weight': scale must be finite"),
    "a scale below 0": (SCALE, lambda a: changed(a, -1), "'0.weight': scale must be finite"),
    "a scale that is none": (SCALE, lambda a: changed(a, np.nan), "scale must be finite"),
    "an infinite scale": (SCALE, lambda a: changed(a, np.inf), "scale must be finite"),
    "a scale below normal": (SCALE, lambda a: changed(a, 1e-40), "scale must be finite"),
    "no power of two": (SCALE, lambda a: changed(a, 0.3), "scales of .* must be powers of two"),
    "a code beyond Q": (WEIGHT, lambda a: changed(a, -128), r"'0.weight': codes .*-127\.\.127"),
    "a zero point beyond": (ZERO, lambda a: changed(a, 64), r"zero_point of .* must be 0\.\.63"),
}


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_descriptions_of_what_cannot_be(case, good, path):
    change, message = DESCRIPTIONS[case]
    content, arrays = opened(good)
    change(content)
    refused(path, sealed(content, arrays), message)


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_cannot_be(case, good, path):
    name, change, message = ARRAYS[case]
    content, arrays = opened(good)
    arrays[name] = change(arrays.get(name))
    given = {n: a for n, a in arrays.items() if a is not None}
    refused(path, sealed(content, given), message)


def test_a_source_that_is_none(path):
    session("int8").save(path)
    content, arrays = opened(path.read_bytes())
    arrays["0.weight:source"] = changed(arrays["0.weight:source"], np.nan)
    refused(path, sealed(content, arrays), r"'0\.weight:source'\[8, 9\] is nan")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "",
        "[1]",
        '{"version":',
        '{"version":' + 20_000 * "[" + "}",
        '{"version":NaN}',
        '{"version":1' + 5000 * "0" + "}",
    ],
    ids=["empty", "nothing", "a list", "cut", "deep", "NaN", "long"],
)
def test_text_that_is_no_description(text, good, path):
    full = '{"sha256":"' + 64 * "0" + '"' + ("," + text[1:] if text[:1] == "{" else text)
    refused(path, sealed(full, opened(good)[1]))


def test_a_model_deeper_than_the_stack(good, path):
    content, arrays = opened(good)
    content["request"]["fields"]["model"] = "here"
    deep = 3000 * '{"type":"nn.Sequential","layers":[["0",' + "null" + 3000 * "]]}"
    text = json.dumps(content, separators=(",", ":")).replace('"here"', deep)
    refused(path, sealed(text.replace(content["sha256"], 64 * "0"), arrays), "RecursionError")


def nodes(tree, found):
    """Every (container, key) of a JSON tree."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in pairs:
        found.append((tree, key))
        if isinstance(value, (dict, list)):
            nodes(value, found)
    return found


JUNK = [None, True, 0, -1, 7, 2**31, 2**70, 0.5, -1e300, "", "0", "sym", "nn.ReLU", [], {}, [[1]]]


def test_anything_anywhere_in_the_description(good, path):
    """A net with a description of its own, or a FileError; no other way out."""
    rng = np.random.default_rng(0)
    content, arrays = opened(good)
    ends = {"refused": 0, "loaded": 0}
    for _ in range(400):
        tried = copy.deepcopy(content)
        places = nodes(tried, [])
        where, key = places[rng.integers(len(places))]
        if key == "plan":
            continue
        if rng.random() < 0.2 and isinstance(where, dict):
            del where[key]
        else:
            where[key] = JUNK[rng.integers(len(JUNK))]
        path.write_bytes(sealed(tried, arrays))
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("warnings.warn", lambda *_, **__: None)  # another plan, as it is
                net = q.Session.load(path)
            ends["loaded"] += 1
        except q.FileError:
            ends["refused"] += 1
            continue
        assert np.isfinite(net.predict(np.zeros((1, INPUTS)))).all()
    assert min(ends.values()) >= 20, ends


def test_an_older_file_lacks_what_came_later(good, path):
    """Progress and fields that a later version adds begin with their defaults."""
    content, arrays = opened(good)
    del content["progress"]["updates"]
    del fields(content)["train"]
    path.write_bytes(sealed(content, arrays))
    net = q.Session.load(path)
    assert net.steps == 3
    assert net._get().updates == 0


def test_a_good_file_is_good(good, path):
    path.write_bytes(good)
    net = train(session(INT8.replace(weights=q.BFP(8, 4))))
    assert kept(q.Session.load(path)) == kept(net)
    assert run(q.Session.load(path), 3) == run(net, 3)
