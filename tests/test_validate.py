"""q.validate: every finding is provoked, and a network much like it does not provoke it."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from session_helpers import POLICIES
from validate_cases import CASES, F32, INT8, NEAREST, RAW, asked, chain

import pyqfw as q
from pyqfw import nn
from pyqfw.findings import RULES, SEVERITIES, Finding
from pyqfw.validate import CAUSES

DOCS = (Path(__file__).parents[1] / "docs" / "validator.md").read_text()
SEVERITY = {**dict.fromkeys(CAUSES, "error"), **{r.code: r.severity for r in RULES.values()}}

EACH = [
    pytest.param(code, *case, id=f"{code}-{i}")
    for code, cases in CASES.items()
    for i, case in enumerate(cases)
]


def found(given, code=None):
    return [f for f in q.validate(**given) if code in (None, f.code)]


def refusal(given):
    try:
        q.compile(**given)
    except q.QfwError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("code", "provoking", "layers", "harmless"), EACH)
def test_it_is_found_where_it_is(code, provoking, layers, harmless):
    findings = found(provoking, code)
    assert [f.layer for f in findings] == layers
    assert {f.severity for f in findings} == {SEVERITY[code]}
    assert all(f.message and f.remedy for f in findings)
    assert not found(harmless, code)


@pytest.mark.parametrize(("code", "provoking", "layers", "harmless"), EACH)
def test_errors_are_what_compile_raises(code, provoking, layers, harmless):
    """In its words; and there is an error if and only if it raises."""
    for given in (provoking, harmless):
        said = refusal(given)
        errors = [f.message for f in found(given) if f.severity == "error"]
        assert (said is not None) == bool(errors)
        assert said is None or said in errors


@pytest.mark.parametrize("policy", POLICIES)
def test_what_compiles_has_no_error(policy):
    assert "error" not in {f.severity for f in found(asked(policy=POLICIES[policy]))}


@pytest.mark.parametrize("policy", [F32, q.Policy.full_sym(), INT8], ids=repr)
def test_nothing_is_found_about_the_presets(policy):
    assert q.validate(**asked(policy=policy)) == []
    assert q.validate(**asked(policy=policy, loss=None, optimizer=None)) == []


def test_no_code_without_a_test():
    assert set(CASES) == set(SEVERITY)


# --- several at once ------------------------------------------------------------------------------


def test_independent_errors_and_warnings_come_together():
    """Errors first; what can be repaired does not hide the rest."""
    model = nn.Sequential(
        nn.Linear(12, 9, output=q.RAW), nn.Linear(9, 9, output=q.RAW), nn.ReLU(), nn.Linear(9, 4)
    )
    policy = INT8.replace(errors=q.Sym(16), weights=q.Sym(4))
    findings = q.validate(**asked(model, policy=policy, batch=70000, optimizer=NEAREST))
    assert [(f.code, f.layer) for f in findings if f.severity == "error"] == [
        ("raw-wire", "0"),
        ("raw-wire", "1"),
        ("bias-overflow", "3"),
        ("bias-overflow", "1"),
        ("bias-overflow", "0"),
    ]
    assert {"dead-zone", "scale-per-tensor"} <= {f.code for f in findings}
    order = [SEVERITIES.index(f.severity) for f in findings]
    assert order == sorted(order)


def test_the_model_is_left_as_it_is():
    model = chain(first=RAW)
    model[1].requires_grad_(False)
    before = repr(model), [layer.requires_grad for layer in model]
    assert found(asked(model), "raw-wire")
    assert (repr(model), [layer.requires_grad for layer in model]) == before


def test_a_frozen_layer_stays_frozen_when_it_is_repaired():
    model = nn.Sequential(nn.Linear(12, 4, output=q.RAW).requires_grad_(False))
    assert [f.code for f in q.validate(**asked(model))] == ["raw-wire", "no-learning"]


def test_a_plan_has_the_findings_of_compile_alone():
    given = asked(policy=INT8.replace(weights=q.Sym(16), errors=q.Sym(16)), optimizer=NEAREST)
    mine = [f for f in q.validate(**given) if RULES[f.code].at_compile]
    assert q.compile(**given).findings == mine != q.validate(**given)


@pytest.mark.parametrize("wrong", [{"batches": 3}, {"input_shape": None}])
def test_a_call_that_python_refuses_is_no_finding(wrong):
    given = {k: v for k, v in {**asked(), **wrong}.items() if v is not None}
    with pytest.raises(TypeError):
        q.compile(**given)
    with pytest.raises(TypeError):
        q.validate(**given)


# --- what is printed and written ------------------------------------------------------------------


def test_a_finding_reads_well():
    f = Finding("dead-zone", "warning", "0", "updates are lost", "round otherwise")
    assert str(f) == "warning: dead-zone: layer '0': updates are lost\n  remedy: round otherwise"
    whole = replace(f, layer="")
    assert str(whole) == "warning: dead-zone: updates are lost\n  remedy: round otherwise"
    assert str(replace(f, message="layer '0': lost")).count("layer '0'") == 1


def test_the_page_has_every_code():
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \|(.*)\|(.*)\|(.*)\|$", DOCS, re.M)
    assert {code: severity for code, severity, *_ in rows} == SEVERITY
    assert len(rows) == len(SEVERITY)
    assert all(cell.strip() for row in rows for cell in row)


def test_the_page_shows_what_is_printed(tmp_path):
    program, output = re.search(r"```python\n(.*?)```\n+```\n(.*?)```", DOCS, re.S).groups()
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (output, "")
