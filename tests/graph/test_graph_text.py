"""The text form, golden, and what it refuses; JSON of the same graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohakuaccel.diagnostics import DefinitionError, Refusal
from kohakuaccel.graph import from_json, load, parse, run, save, to_json

GOLDEN = """\
format E7M10 = {"type": "ScalarFormat", "name": "E7M10", "exp_bits": 7, "man_bits": 10, "bias": 63, \
"subnormals": false, "inf_nan": "none", "overflow": "marker", "rounding": "nearest-even", "zero": "unsigned", \
"signed": true}
input x: FP16[4, 8]
input w: FP16[3, 8]
input ids: INT32[5]
input s: FP32[]
const c: FP32[2, 2] = [1.0, -inf, nan, -0.0]
const b: BOOL[2] = [True, False]
acc: E7M10[i<4, j<3] = sum[k<8] x[i, k] * w[j, k]
y: FP16[i<4, j<3] = max(acc[i, j], 0.0) * (1.0 - (2.0 - acc[i, j])) / (s[()] + -1.5)
p: FP16[i<6, j<3] = guard(y[i - 1, j], 0.0, 0 <= i - 1 < 4)
r: FP16[a<9, b_<2] = p[(2 * a + b_) // 3, (2 * a + b_) % 3]
t: FP16[i<3] = y[3 - i, 2 * (i // 2)]
e: FP16[i<5, j<8] = x[at(ids[i], 4), j]
m: BOOL[i<5, j<8] = ~(iota(i) < iota(j + 1)) & ((iota(i) == 2) | ((x[0, 0] == 0.0) == True))
f: INT32[i<5] = cast(floor(x[0, i]), INT32) // 3 % 2 + ids[i] * -4
top: FP16[] = max[i<4, k<8] where(x[i, k] < 0.0, neg(x[i, k]), fma(x[i, k], x[i, k], 0.5))
output y
output gathered = e
"""


def test_golden_round_trip() -> None:
    graph = parse(GOLDEN)
    assert str(graph) == GOLDEN
    assert parse(str(graph)) == graph
    assert hash(parse(str(graph))) == hash(graph)


def test_json_round_trip(tmp_path: Path) -> None:
    graph = parse(GOLDEN)
    assert from_json(to_json(graph)) == graph
    save(graph, tmp_path / "g.json")
    assert load(tmp_path / "g.json") == graph
    assert to_json(load(tmp_path / "g.json")) == to_json(graph)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("y: FP16[i<4] = x[i, 0] + ", "line of the text form"),
        ("y: FP16[i<4] = foo(x[i, 0])", "no scalar operation is called 'foo'"),
        ("y: FP16[i<4] = max(x[i, 0])", "max takes 2 arguments"),
        ("y: FP116[i<4] = x[i, 0]", "did you mean 'FP16'"),
        ("y: FP16[i] = x[i, 0]", "written name<extent"),
        ("y: FP16[i<0] = x[i, 0]", "concrete positive integer"),
        ("y: FP16[i<4] = x[i * i, 0]", "an index adds"),
        ("y: FP16[i<4] = x[q, 0]", "not an index: q"),
        ("y: FP16[i<4] = __import__('os')", "no scalar operation"),
        ("y: FP16[i<4] = x[i, 0].real", "not an expression"),
        ("y: FP16[i<4] = guard(x[i, 0], 0.0, i < 3)", "low <= index < high"),
        ("y: FP16[i<4] = guard(x[i, 0], x[0, 0], 0 <= i < 3)", "pad value is a number"),
        ("y: FP16[i<4] = x[i // 0, 0]", "positive integer"),
        ("hello", "line of the text form"),
        ("y: FP16[i<4] = x[i, 0]" + " + x[i, 0]" * 4000, "line of the text form"),
    ],
)
def test_what_does_not_parse_is_refused_with_its_line(line: str, words: str) -> None:
    with pytest.raises(Refusal, match="graph text:2") as refused:
        parse(f"input x: FP16[4, 8]\n{line}\noutput y\n")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("y: FP16[i<4] = x[i, i + 5]", "statement y: x[i, i + 5]: the index i + 5 of axis 1 spans 5..8, x has 0..7"),
        ("y: FP16[i<4] = guard(x[i, i + 5], 0.0, 0 <= i < 4)", "spans 5..8"),
        ("y: FP16[i<4] = x[i]", "x has 2 axes, the read 1 indices"),
        ("y: FP16[i<4] = z[i]", "unknown value 'z'"),
        ("y: FP16[i<4] = y[i]", "before it is made"),
        ("y: FP16[i<4] = z[i]\nz: FP16[i<4] = x[i, 0]", "reads z before it is made"),
        ("y: FP16[i<4] = sum[i<8] x[0, i]", "the range i stands for 2 axes"),
        ("y: FP16[max<4] = x[max, 0]", "has the name of an operation"),
        ("y: FP16[i<4] = cast(x[i, 0], INT32)", "its body is int, its dtype FP16 is real"),
        ("y: FP16[i<4] = x[i, 0] + 1", "add takes real or int or word, not real, int"),
        ("y: FP16[i<4] = where(x[i, 0], 1.0, 2.0)", "where asks a truth value"),
        ("y: BOOL[i<4] = sum[k<8] x[i, k] < 0.0", "sum folds numbers"),
        ("y: FP16[i<4] = x[at(ids[i], 5), 0]", "spans 0..4, x has 0..3"),
        ("y: FP16[i<4] = x[at(x[i, 0], 4), 0]", "a gathered index is an integer, not real"),
        ("y: FP16[i<4] = guard(x[i, 0], 0, 0 <= i < 2)", "the pad value is int"),
        ("y: FP16[i<4] = guard(x[i, 0], None, 0 <= i < 2)", "a guarded read has a pad value"),
        ("y: FP16[i<4] = x[i, 0]\ny: FP16[i<4] = x[i, 1]", "the name 'y' belongs to 2 values"),
        ("y: FP16[i<4] = x[i, 0]\noutput q", "unknown value 'q'"),
        ("y: FP16[i<4] = x[i, 0]\noutput y", "named 2 times"),
        ("if: FP16[i<4] = x[i, 0]\ny: FP16[i<4] = x[i, 0]", "not an identifier, or has a meaning of its own"),
        ("const c: FP16[3] = [1.0]\ny: FP16[i<4] = x[i, 0]", "constant c: its data has 8 bytes"),
        ("input c: FP16[0]\ny: FP16[i<4] = x[i, 0]", "extents are concrete positive integers"),
    ],
)
def test_a_wrong_graph_is_refused_by_name(lines: str, words: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        parse(f"input x: FP16[4, 8]\ninput ids: INT32[4]\n{lines}\noutput y\n")
    assert words in str(refused.value)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(DefinitionError) as refused:
        parse("input x: FP16[4]\na: FP16[i<4] = x[i + 1]\ny: FP16[i<4] = a[i + 2]\noutput y\n")
    assert "statement a" in str(refused.value)
    assert "statement y" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"kohakuaccel.graph": 1', '"kohakuaccel.graph": 2'), "known version"),
        (('"is": "input"', '"is": "inputs"'), "not 'inputs'"),
        (('"name": "x"', '"nam": "x"'), "KeyError"),
        (('"reduce": "sum"', '"reduce": "mean"'), "a fold is one of"),
        (('"bias": 63', '"base": 63'), "fields of its type"),
        (("{", "["), "JSONDecodeError"),
    ],
)
def test_a_wrong_file_is_refused(change: tuple[str, str], words: str) -> None:
    text = to_json(parse(GOLDEN))
    assert change[0] in text
    with pytest.raises(Refusal) as refused:
        from_json(text.replace(*change))
    assert words in str(refused.value)


def test_a_wide_promise_and_a_guard() -> None:
    text = "input table: FP32[4]\ninput ids: INT32[3]\n"
    text += "t: FP32[n<3] = guard(table[at(ids[n], 100)], 0.5, 0 <= at(ids[n], 100) < 4)\noutput t\n"
    out = run(parse(text), {"table": [1.0, 2.0, 3.0, 4.0], "ids": [3, 99, 0]})
    assert out["t"].tolist() == [4.0, 0.5, 1.0]
