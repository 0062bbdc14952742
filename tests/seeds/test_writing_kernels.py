"""The guide "Writing kernels", as written: its programs at the tensor level and at the tiling rung run
unchanged.

The snippets are the guide's own text; only the arrays X and W are given. What they compute is held
against float64, with the error that the formats predict, no more and no less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[np.float64]

TENSORS = """
from kohakutpu import api as ktpu

x, w = ktpu.tensor(X), ktpu.tensor(W)
y = (x @ w).silu()  # @ contracts the LAST axis of both
print(y.numpy())  # the only line that crosses the link
"""

MATMUL = """
from kohakuaccel.lang import dims, grid, sweep
from kohakutpu import lang as L
from kohakutpu.lang import kernel

M, K, N = dims("M, K, N")


@kernel
def matmul(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=1, nk=2):
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc


y = matmul(x, w)  # a call, not a launch
"""

INSPECTING = """
print(matmul.trace().pretty())  # the structure, before any shape
print(matmul.plan(x, w).pretty())  # stages, units, relayouts, buffers
print(ktpu.stats())  # dispatches, rounds, flits, bytes moved
"""


def run(*snippets: str, **given: Any) -> dict[str, Any]:
    space: dict[str, Any] = dict(given)
    for snippet in snippets:
        exec(compile(snippet, "guide", "exec"), space)
    return space


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def relative(got: NDArray[Any], exact: Array) -> float:
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def guide() -> dict[str, Any]:
    """The guide's programs, one after the other, on a 64 x 96 and a 40 x 96 operand."""
    return run(TENSORS, MATMUL, INSPECTING, X=normal(64, 96), W=normal(40, 96, seed=1) / 96**0.5)


def test_the_first_program(capsys: pytest.CaptureFixture[str]) -> None:
    X, W = normal(64, 96), normal(40, 96, seed=1) / 96**0.5
    y = run(TENSORS, X=X, W=W)["y"]
    assert y.shape == (64, 40)
    assert y.dtype == np.float16
    assert (y.ndim, y.size) == (2, 64 * 40)
    assert 1e-3 < relative(y.numpy(), silu(X @ W.T)) < 4e-2
    assert "[" in capsys.readouterr().out


def test_the_kernel_is_called_not_launched(guide: dict[str, Any]) -> None:
    got = guide["y"].numpy()
    assert got.shape == (64, 40)
    assert 1e-3 < relative(got, guide["X"] @ guide["W"].T) < 3e-2


def test_the_kernel_and_the_operator_agree_to_the_bit(guide: dict[str, Any]) -> None:
    by_operator = (guide["x"] @ guide["w"]).numpy()
    assert np.array_equal(guide["y"].numpy().view(np.uint16), by_operator.view(np.uint16))


@pytest.mark.parametrize("knobs", [{"gm": 1}, {"gm": 16, "gn": 8, "nk": 3}, {"nk": 1}, {"gm": 3, "gn": 5}])
def test_the_split_never_changes_the_bits(guide: dict[str, Any], knobs: dict[str, int]) -> None:
    got = guide["matmul"](guide["x"], guide["w"], **knobs).numpy()
    assert np.array_equal(got.view(np.uint16), guide["y"].numpy().view(np.uint16))


def test_inspecting_prints_something_of_substance(guide: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run(INSPECTING, **{name: guide[name] for name in ("matmul", "x", "w", "ktpu")})
    out = capsys.readouterr().out
    for word in ("matmul", "sweep", "acc", "stage", "dispatches", "rounds", "flits"):
        assert word in out


def test_the_error_is_what_the_formats_predict() -> None:
    """256^3 of normal values: MXFP7 with 6 magnitude bits under a block maximum gives about 1.6e-2."""
    X, W = normal(256, 256, seed=2), normal(256, 256, seed=3)
    space = run("from kohakutpu import api as ktpu\nproduct = ktpu.tensor(X) @ ktpu.tensor(W)", X=X, W=W)
    assert 1.4e-2 < relative(space["product"].numpy(), X @ W.T) < 1.8e-2


ROW: dict[str, Any] = {
    "silu": silu,
    "relu": lambda x: np.maximum(x, 0),
    "softmax": lambda x: (
        np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)
    ),
    "exp2": np.exp2,
}


@pytest.mark.parametrize("name", sorted(ROW))
def test_one_operand_operators_of_the_table(name: str) -> None:
    X = normal(33, 70)
    y = run(f"from kohakutpu import api as ktpu\ny = ktpu.tensor(X).{name}()", X=X)["y"]
    assert 1e-4 < relative(y.numpy(), ROW[name](X)) < 8e-4


def test_gelu_of_the_table() -> None:
    X = normal(33, 70)
    y = run("from kohakutpu import api as ktpu\ny = ktpu.tensor(X).gelu()", X=X)["y"]
    exact = 0.5 * X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)))
    assert relative(y.numpy(), exact) < 3e-2  # both usual approximations lie within this of each other


def test_norms_of_the_table() -> None:
    X, w, b = normal(16, 96), 1 + normal(96, seed=1) / 8, normal(96, seed=2)
    space = run(
        "from kohakutpu import api as ktpu\nx = ktpu.tensor(X)\n"
        "r = x.rmsnorm(ktpu.tensor(w))\nl = x.layernorm(ktpu.tensor(w), ktpu.tensor(b))",
        X=X,
        w=w,
        b=b,
    )
    rms = X / np.sqrt((X**2).mean(-1, keepdims=True)) * w
    centred = X - X.mean(-1, keepdims=True)
    layer = centred / np.sqrt((centred**2).mean(-1, keepdims=True)) * w + b
    assert 1e-4 < relative(space["r"].numpy(), rms) < 1e-3
    assert 1e-4 < relative(space["l"].numpy(), layer) < 1e-3


def test_elementwise_addition_of_the_table() -> None:
    A, B = normal(50, 50), normal(50, 50, seed=1)
    y = run("from kohakutpu import api as ktpu\ny = ktpu.tensor(A) + ktpu.tensor(B)", A=A, B=B)["y"]
    assert 1e-4 < relative(y.numpy(), A + B) < 6e-4


def test_device_control_of_the_table() -> None:
    space = run(
        "from kohakutpu import api as ktpu\nx = ktpu.tensor(X).pin()\ny = x + x\n"
        "ktpu.sync()\nktpu.empty_cache()\nx.unpin()\nkept = y.numpy()\ncost = ktpu.stats()",
        X=np.ones((8, 8)),
    )
    assert np.array_equal(space["kept"], np.full((8, 8), 2, np.float16))
    assert space["cost"]["dispatches"] > 0


ANY_RANK = """
from kohakuaccel.lang import dims, grid
from kohakutpu import lang as L
from kohakutpu.lang import kernel


@kernel
def double(x=L.In(...), y=L.Out(...)):
    for e in grid(x.parts()):
        y[e] <<= x[e] * 2
"""


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 7), (2, 3, 4, 5), (4096,), (1, 1, 1)])
def test_one_trace_serves_any_rank(shape: tuple[int, ...]) -> None:
    from kohakutpu import api as ktpu

    X = normal(*shape).astype(np.float16)
    y = run(ANY_RANK)["double"](ktpu.tensor(X))
    assert y.shape == shape
    assert np.array_equal(y.numpy(), X * np.float16(2))


def test_a_contraction_between_whole_buffers_is_refused_by_name() -> None:
    from kohakuaccel.diagnostics import Refusal
    from kohakutpu import api as ktpu

    snippet = MATMUL.split("@kernel")[0] + (
        "@kernel\n"
        "def whole(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=1):\n"
        "    for i, j in grid(a.tiles(gm), b.tiles(gn)):\n"
        "        c[i, j] <<= a @ b\n"
    )
    whole = run(snippet)["whole"]
    with pytest.raises(Refusal, match="a contraction between whole buffers states no split"):
        whole(ktpu.zeros((8, 32)), ktpu.zeros((8, 32)))


def test_an_accumulator_chained_from_an_outer_loop_is_refused() -> None:
    from kohakuaccel.diagnostics import Refusal
    from kohakutpu import api as ktpu

    snippet = MATMUL.split("@kernel")[0] + (
        "@kernel\n"
        "def chained(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=1, nk=1):\n"
        "    for i, j in grid(a.tiles(gm), b.tiles(gn)):\n"
        "        acc = L.tile(gm, gn, nk)\n"
        "        for outer in sweep(a.chunks32(nk)):\n"
        "            for k in sweep(a.chunks32(nk)):\n"
        "                acc += a[i, k] @ b[j, k]\n"
        "        c[i, j] <<= acc\n"
    )
    chained = run(snippet)["chained"]
    with pytest.raises(Refusal, match="opened after the tile"):
        chained(ktpu.zeros((8, 32)), ktpu.zeros((8, 32)))
