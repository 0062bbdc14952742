"""Laws that hold for all values: dispatches compose, modes agree, moves invert, signs multiply (datasheet 17)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.machine import Machine
from tinytpu.isa import SXU, VPU
from tinytpu.machines import load
from tinytpu_rig.build import HALT, run, vpu, word

Words = list[list[int]]
MACHINES: dict[int, Machine] = {n: load().with_(params={"rows": n, "columns": n}) for n in (2, 4, 6, 8)}
SEEDS = st.integers(0, 2**32 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


def int8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.choice([-128, 127, 0, 1, -1], shape) if rng.random() < 0.3 else rng.integers(-128, 128, shape)


def flat(a: np.ndarray) -> dict[int, list[int]]:
    return {i: [int(x) for x in row.reshape(-1)] for i, row in enumerate(a)}


def matrix_of(n: int, body: Words, wmem: np.ndarray, amem: np.ndarray) -> np.ndarray:
    """The array's matrix after the dispatches, [n, n]."""
    rows = [w for r in range(n) for w in (word(SXU.LOAD_MXU_MATRIX_ROW, src=r, dst=r), word(SXU.STORE, vmem=r, src=r))]
    done = run([*body, *rows, HALT], MACHINES[n], wmem=flat(wmem), amem=flat(amem), vmem_outputs=range(n))
    return np.array([tile[0] for tile in done.vmem])


def wrapped(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int64).astype(np.int32)


@pytest.mark.parametrize("n", MACHINES)
@given(seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_output_stationary_is_a_product(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [int(rng.integers(1, n + 1)) for _ in range(int(rng.integers(1, 4)))]
    parts = parts[: max(1, sum(np.cumsum(parts) <= 32))]
    w = int8(rng, len(parts), n, n)
    a = int8(rng, n, sum(parts))
    starts = [sum(parts[:i]) for i in range(len(parts))]
    body = [word(SXU.MXU_OS_ACCUMULATE if i else SXU.MXU_OS, wbase=i, abase=at, tlen=k)
            for i, (at, k) in enumerate(zip(starts, parts))]  # fmt: skip
    stacked = np.vstack([w[i][:k] for i, k in enumerate(parts)])
    assert np.array_equal(matrix_of(n, body, w, a.T), wrapped(a @ stacked))


def staircase(a: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The array stepped as the datasheet feeds it (7): activations to the right, weights down, sums stay."""
    n, k = len(w), a.shape[1]
    acts, weights, sums = np.zeros((n, n), int), np.zeros((n, n), int), np.zeros((n, n), int)
    for t in range(k + 2 * n - 2):
        acts = np.column_stack([[a[r, t - r] if 0 <= t - r < k else 0 for r in range(n)], acts[:, :-1]])
        weights = np.vstack([[w[t - c, c] if 0 <= t - c < k else 0 for c in range(n)], weights[:-1]])
        sums += acts * weights
    return sums


@pytest.mark.parametrize("n", MACHINES)
@given(seed=SEEDS)
@settings(max_examples=6, deadline=None)
def test_output_stationary_is_the_staircase(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, n + 1))
    a, w = int8(rng, n, k), int8(rng, 1, n, n)
    assert np.array_equal(matrix_of(n, [word(SXU.MXU_OS, tlen=k)], w, a.T), staircase(a, w[0]))


@pytest.mark.parametrize("n", MACHINES)
@given(seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_weight_stationary(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    t = int(rng.integers(1, 7))
    w, a = int8(rng, 1, n, n), int8(rng, t, n)
    want = a.sum(0)[:, None] * w[0]
    assert np.array_equal(matrix_of(n, [word(SXU.MXU, tlen=t)], w, a), want)
    done = run([word(SXU.MXU, tlen=t), HALT], MACHINES[n], wmem=flat(w), amem=flat(a), mxu_result=True)
    assert done.mxu_result is not None
    assert np.array_equal(done.mxu_result, want.sum(0))


@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_accumulation_composes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w, a = int8(rng, 3, 4, 4), int8(rng, 12, 4)

    def one() -> list[int]:
        at, count = int(rng.integers(8)), int(rng.integers(1, 5))
        return word(SXU.MXU_ACCUMULATE, wbase=int(rng.integers(3)), abase=at, tlen=count)

    def lists(n: int) -> Words:
        return [one() for _ in range(n)]

    xs, ys = lists(int(rng.integers(0, 4))), lists(int(rng.integers(1, 4)))
    clear = word(SXU.MXU_CLEAR)
    both = matrix_of(4, [clear, *xs, *ys], w, a)
    parts = matrix_of(4, [clear, *xs], w, a) if xs else np.zeros((4, 4), int)
    assert np.array_equal(both, wrapped(parts + matrix_of(4, [clear, *ys], w, a)))
    # A dispatch that clears leaves nothing behind, and nothing before it shows.
    assert np.array_equal(matrix_of(4, [*xs, word(SXU.MXU, tlen=2)], w, a), matrix_of(4, [word(SXU.MXU, tlen=2)], w, a))


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_zero_weights_change_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w, a = np.concatenate([int8(rng, 1, 4, 4), np.zeros((1, 4, 4), int)]), int8(rng, 8, 4)
    first = word(SXU.MXU_OS, tlen=4)
    for op in (SXU.MXU_ACCUMULATE, SXU.MXU_OS_ACCUMULATE):
        more = word(op, wbase=1, abase=4, tlen=4)
        assert np.array_equal(matrix_of(4, [first, more], w, a), matrix_of(4, [first], w, a))


def test_accumulators_wrap() -> None:
    w, a = np.full((1, 4, 4), -128), np.full((31, 4), -128)
    fed = word(SXU.MXU_ACCUMULATE, tlen=31)
    count = 2**31 // (31 * 128 * 128) + 1
    end = word(SXU.LOOP_END)
    loops = [word(SXU.LOOP_BEGIN, tlen=count // 61 + 1), word(SXU.LOOP_BEGIN, tlen=61), fed, end, end]
    slow = load().with_(params={"cycle_limit": 10**6})
    total = (count // 61 + 1) * 61 * 31 * 128 * 128
    row = [word(SXU.LOAD_MXU_MATRIX_ROW), word(SXU.STORE), HALT]
    done = run([*loops, *row], slow, wmem=flat(w), amem=flat(a), vmem_outputs=[0])
    assert total > 2**31
    assert done.vmem[0][0, 0] == (total + 2**31) % 2**32 - 2**31


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_psum_is_a_sum_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tiles = rng.integers(-(2**31), 2**31, (5, 16))
    order = [int(x) for x in rng.permutation(5)]
    loads = [word(SXU.LOAD, vmem=i, dst=i) for i in range(5)]
    adds = [word(SXU.PSUM_ACCUMULATE if n else SXU.PSUM_WRITE, src=i) for n, i in enumerate(order)]
    rows = [word(SXU.PSUM_ACCUMULATE_ROW, src=i, dst=2) for i in order]
    out = [word(SXU.PSUM_READ), word(SXU.STORE, vmem=5), HALT]
    done = run([*loads, *adds, *rows, *out], vmem=flat(tiles), vmem_outputs=[5]).vmem[0]
    want = tiles.sum(0).reshape(4, 4)
    want[2] += tiles[:, :4].sum(0)
    assert np.array_equal(done, wrapped(want))


def test_clearing_all_is_clearing_each() -> None:
    program = [
        word(SXU.PSUM_CLEAR_ALL),
        *[w for b in range(8) for w in (word(SXU.PSUM_READ, vmem=b), word(SXU.STORE, vmem=b))],
    ]
    done = run([*program, HALT], vmem_outputs=range(8))
    assert not any(tile.any() for tile in done.vmem)
    assert int(done.spent[0]) == 9


@given(x=st.lists(INT32, min_size=16, max_size=16))
@settings(max_examples=30, deadline=None)
def test_sign_laws(x: list[int]) -> None:
    program = [word(SXU.LOAD), vpu(VPU.SIGN, 1, 0), vpu(VPU.SIGN, 2, 1), word(SXU.VNEG, dst=3), vpu(VPU.SIGN, 3, 3),
               vpu(VPU.MUL, 4, 1, 0), word(SXU.VABS, dst=5), vpu(VPU.PACKED_I8_SIGN, 6, 0),
               vpu(VPU.PACKED_I8_SIGN, 7, 6)]  # fmt: skip
    program += [word(SXU.STORE, vmem=i, src=i) for i in range(1, 8)]
    tiles = run([*program, HALT], vmem={0: x}, vmem_outputs=range(1, 8)).vmem
    sign, again, of_negated, product, magnitude, packed, packed_again = (t.reshape(-1).astype(np.int64) for t in tiles)
    assert set(sign) <= {-1, 0, 1}
    assert np.array_equal(sign, again)
    assert np.array_equal(packed, packed_again)
    least = np.array(x) == -(2**31)
    assert np.array_equal(of_negated[~least], -sign[~least])
    assert (product[~least] >= 0).all()
    assert np.array_equal(product, magnitude)
    assert np.array_equal(sign, np.sign(x))


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_background_equals_blocking(seed: int) -> None:
    """Dispatch and collect give every later reader the same values; dispatch alone leaves the vregs as they were."""
    rng = np.random.default_rng(seed)
    tiles = rng.integers(-(2**31), 2**31, (4, 16))
    body: Words = []
    for _ in range(6):
        code, d, a, b = VPU(int(rng.integers(86))), *(int(x) for x in rng.integers(0, 6, 3))
        body.append(vpu(code, d, a, b))
        if rng.random() < 0.4:
            body.append(word(SXU.TRANSPOSE, src=d, dst=(d + 1) % 6))
        if rng.random() < 0.3:
            body.append(word(SXU.LOAD, vmem=int(rng.integers(4)), dst=d))

    def ending(background: bool) -> tuple[list[np.ndarray], np.ndarray]:
        ops = [[int(SXU.VPU_BG), *w[1:]] if background and w[0] == SXU.VPU else w for w in body]
        loads = [word(SXU.LOAD, vmem=i, dst=i) for i in range(4)]
        stores = [word(SXU.STORE, vmem=4 + i, src=i) for i in range(6)]
        done = run([*loads, vpu(VPU.COPY, 5, 0), *ops, *stores, HALT], vmem=flat(tiles), vmem_outputs=range(4, 10))
        return done.vmem, done.core.v[16]

    (blocking, result), (behind, result_behind) = ending(False), ending(True)
    assert all(np.array_equal(x, y) for x, y in zip(blocking, behind))
    assert np.array_equal(result, result_behind)
    alone = run([word(SXU.VFILL, dst=1, wbase=7), vpu(VPU.EXP2, 1, 0, background=True), HALT])
    assert (alone.core.v[1] == 7).all()


@pytest.mark.parametrize("value", [0, 1])
def test_predicates(value: int) -> None:
    for zero in (True, False):
        for skip in (SXU.SKIP_IF_PRED, SXU.SKIP_IF_NOT_PRED):
            program = [word(SXU.VFILL, wbase=value), word(SXU.SET_PRED_IF_ZERO if zero else SXU.SET_PRED_NE_ZERO),
                       word(skip), word(SXU.VFILL, dst=1, wbase=5), word(SXU.SKIP_IF_PRED),
                       word(SXU.VFILL, dst=2, wbase=6), HALT]  # fmt: skip
            v = run(program).core.v
            taken = ((value == 0) == zero) == (skip == SXU.SKIP_IF_PRED)
            assert (v[1, 0], v[2, 0]) == (0 if taken else 5, 6)  # and the first skip left the predicate 0


@pytest.mark.parametrize("counts", [(3,), (2, 5), (4, 1, 3), (2, 2, 2, 2), (255,)])
def test_nested_loops_multiply(counts: tuple[int, ...]) -> None:
    body = [vpu(VPU.ADD, 0, 0, 1), word(SXU.LOAD_LOOP_DEPTH, dst=2)]
    cost = 3 + 2
    program = body
    for n in reversed(counts):
        program = [word(SXU.LOOP_BEGIN, tlen=n), *program, word(SXU.LOOP_END)]
        cost = 2 + n * (cost + 2)
    done = run([word(SXU.VFILL, dst=1, wbase=1), *program, HALT])
    assert done.core.v[0, 0] == np.prod(counts)
    assert done.core.v[2, 0] == len(counts)
    assert done.execute_cycles == 2 + cost + 1


@pytest.mark.parametrize("n", MACHINES)
def test_moves(n: int) -> None:
    x = np.arange(n * n).reshape(n, n) * 7 - 3

    def moved(*ops: list[int]) -> np.ndarray:
        program = [word(SXU.LOAD), *ops, word(SXU.STORE, vmem=1), HALT]
        return run(program, MACHINES[n], vmem={0: list(x.reshape(-1))}, vmem_outputs=[1]).vmem[0]

    assert np.array_equal(moved(word(SXU.TRANSPOSE)), x.T)
    assert np.array_equal(moved(word(SXU.TRANSPOSE), word(SXU.TRANSPOSE)), x)
    for a in range(n):
        assert np.array_equal(moved(word(SXU.BROADCAST, src2=a)), moved(word(SXU.BROADCAST_COL, src2=a)))
        assert np.array_equal(moved(word(SXU.BROADCAST, src2=a)), np.repeat(x[:, [a]], n, 1))
        assert np.array_equal(moved(word(SXU.BROADCAST_ROW, src2=a)), np.repeat(x[[a]], n, 0))
        assert (moved(word(SXU.BROADCAST_SCALAR, src2=a * n + n - 1 - a)) == x[a, n - 1 - a]).all()
        for b in range(n):
            two = moved(word(SXU.ROTATE, src2=a), word(SXU.ROTATE, src2=b))
            assert np.array_equal(two, moved(word(SXU.ROTATE, src2=(a + b) % n)))
            assert np.array_equal(two, np.roll(x, -(a + b), 1))


def requantised(results: list[int], scale: int, shift: int) -> list[int]:
    """One dispatch per result, by weights that make it; results within int8 * int8 * 4 rows."""
    out: list[int] = []
    for x in results:
        # 127 * 127 * vectors reaches far enough for the pins; the remainder goes to a second row.
        w = np.zeros((1, 4, 4), int)
        a = np.zeros((1, 4), int)
        a[0] = [127, 1, 0, 0]
        q = max(-128, min(127, x // 127))
        w[0, 0, 0], w[0, 1, 0] = q, x - 127 * q
        mul = [(scale >> 8 * i) & 255 for i in range(4)]
        config = word(SXU.SET_REQUANT_CONFIG, wbase=mul[0], abase=mul[1], tlen=mul[2], vmem=mul[3], vpu=shift)
        program = [config, word(SXU.DISPATCH_MXU_REQUANT, tlen=1, vmem=5), word(SXU.WAIT_MXU), HALT]
        out.append(int(run(program, wmem=flat(w), amem=flat(a), amem_outputs=[5]).amem[0][0]))
    return out


def test_requantisation_pins() -> None:
    assert requantised([5, -5, 3, -3, 1000, -1000], 1, 1) == [3, -2, 2, -1, 127, -128]
    assert requantised([100, -100], 3, 4) == [19, -19]
    assert requantised([-7], 1, 2) == [-2]
    assert requantised([1000], 2**31 - 1, 31) == [127]


@given(x=st.integers(-15000, 15000), scale=INT32, shift=st.integers(1, 31))
@settings(max_examples=30, deadline=None)
def test_requantisation_rounds_half_up(x: int, scale: int, shift: int) -> None:
    want = max(-128, min(127, (2 * x * scale + 2**shift) // 2 ** (shift + 1)))
    assert requantised([x], scale, shift) == [want]


@pytest.mark.parametrize("code", [VPU.ADD, VPU.SUB, VPU.MUL, VPU.MAX, VPU.MIN, VPU.IPAIR_ROTATE, VPU.FADD, VPU.COPY])
@pytest.mark.parametrize("to_vmem", [0, 1])
def test_op_46_is_a_dispatch_and_a_vpu_op(code: VPU, to_vmem: int) -> None:
    rng = np.random.default_rng(int(code))
    w, a, x = int8(rng, 1, 4, 4), int8(rng, 1, 4), rng.integers(-1000, 1000, (1, 16))
    items: dict[str, Any] = {"vmem": flat(x), "wmem": flat(w), "amem": flat(a), "vmem_outputs": [2]}
    fused = word(SXU.MXU_VPU_EPILOGUE, tlen=1, vpu=code, src=1, dst=3, vmem=2, src2=to_vmem)
    program = [word(SXU.LOAD, dst=1), fused, *([] if to_vmem else [word(SXU.STORE, vmem=2, src=3)]), HALT]
    one = run(program, **items)
    same = code if code in (VPU.ADD, VPU.SUB, VPU.MUL, VPU.MAX, VPU.MIN, VPU.IPAIR_ROTATE) else VPU.COPY
    steps = [word(SXU.LOAD, dst=1), word(SXU.MXU, tlen=1), word(SXU.LOAD_MXU_RESULT), vpu(same, 3, 0, 1)]
    two = run([*steps, word(SXU.STORE, vmem=2, src=3), HALT], **items)
    assert np.array_equal(one.vmem[0][0], two.vmem[0][0])
    assert not one.vmem[0][1:].any()


@given(seed=SEEDS, flags=st.integers(0, 15))
@settings(max_examples=30, deadline=None)
def test_epilogue(seed: int, flags: int) -> None:
    rng = np.random.default_rng(seed)
    w, a, bias = int8(rng, 1, 4, 4), int8(rng, 2, 4), rng.integers(-(2**31), 2**31, (1, 16))
    program = [
        word(SXU.LOAD, dst=1),
        word(SXU.MXU_EPILOGUE, tlen=2, src=1, dst=3, vpu=flags),
        word(SXU.STORE, vmem=1, src=3),
    ]
    if flags & 4:
        program += [word(SXU.LOAD_EPILOGUE_STAT, dst=4), word(SXU.STORE, vmem=2, src=4)]
    outputs = [1, 2] if flags & 4 else [1]
    tiles = run([*program, HALT], vmem=flat(bias), wmem=flat(w), amem=flat(a), vmem_outputs=outputs).vmem
    want = a.sum(0)[:, None] * w[0]
    if flags & 1:
        want = wrapped(want + bias[0][:4])
    if flags & 2:
        want = np.maximum(want, 0)
    assert np.array_equal(tiles[0], want)
    if flags & 4:
        stat = tiles[1][:, 0].view(np.uint32).astype(object) + (tiles[1][:, 1].astype(object) * 2**32)
        exact = want.astype(object)
        sums = (exact * exact if flags & 8 else exact).sum(1)
        assert list(stat) == [(int(x) + 2**63) % 2**64 - 2**63 for x in sums]  # an int64, which four squares can pass
        assert not tiles[1][:, 2:].any()


def test_reading_the_cycle_adds_two() -> None:
    rng = np.random.default_rng(4)
    body = [word(SXU.LOAD), vpu(VPU.ADD, 1, 0, 0), word(SXU.MXU, tlen=1), word(SXU.WAIT_MXU), word(SXU.STORE, vmem=1)]
    items: dict[str, Any] = {"vmem": flat(rng.integers(0, 9, (1, 16))), "wmem": flat(int8(rng, 1, 4, 4)),
                             "amem": flat(int8(rng, 1, 4)), "vmem_outputs": [1]}  # fmt: skip
    plain = run([*body, HALT], **items)
    for at in (0, 1, 2, 4, 5):
        timed = run([*body[:at], word(SXU.READ_CYCLE, dst=9), *body[at:], HALT], **items)
        assert timed.cycles == plain.cycles + 4
        assert timed.execute_cycles == plain.execute_cycles + 2
