"""Bundles of the array: dispatches that clear or accumulate, both stationary modes, PSUM, epilogues, requantisation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tinytpu_acceptance.bundle import bundle, lines, tile
from tinytpu_acceptance.table import Check, Table, table

Ints = NDArray[np.int64]
RNG = np.random.default_rng(42)
W: Ints = RNG.integers(-128, 128, (3, 4, 4))
A: Ints = RNG.integers(-128, 128, (8, 4))
X: Ints = RNG.integers(-(10**6), 10**6, (2, 4, 4))
DATA = "\n".join([lines("WMEM", 0, list(W)), lines("AMEM", 0, list(A)), lines("VMEM", 0, list(X))])
RESULT = "LOAD_MXU_RESULT v0\nSTORE VMEM[9], v0"
MATRIX = "\n".join(f"LOAD_MXU_MATRIX_ROW v{r}, row={r}\nSTORE VMEM[{9 + r}], v{r}" for r in range(4))


def rows(matrix: Ints) -> dict[int, Ints]:
    return {9 + r: matrix[r] for r in range(4)}


def ws(w: int, *vectors: int) -> Ints:
    """The array's matrix after a weight-stationary dispatch."""
    return A[list(vectors)].sum(0)[:, None] * W[w]


def dispatches() -> Iterator[Check]:
    yield bundle("MXU is a vector times the weights", f"{DATA}\nMXU WMEM[0], AMEM[3], tiles=1\n{RESULT}",
                 vmem={9: A[3] @ W[0]}, cycles=2 * 18 + 14 + 1 + 4)  # fmt: skip
    yield bundle("MXU sums its vectors", f"{DATA}\nMXU WMEM[1], AMEM[2], tiles=5\n{RESULT}",
                 vmem={9: A[2:7].sum(0) @ W[1]})  # fmt: skip
    yield bundle("MXU leaves no sums behind", f"{DATA}\nMXU WMEM[0], AMEM[0], tiles=2\nMXU_ACCUMULATE WMEM[1], "
                 f"AMEM[2], tiles=1\n{RESULT}", vmem={9: A[2] @ W[1]})  # fmt: skip
    yield bundle("MXU_ACCUMULATE adds to what is there", f"{DATA}\nMXU_CLEAR\nMXU_ACCUMULATE WMEM[0], AMEM[0], tiles=1"
                 f"\nMXU_ACCUMULATE WMEM[1], AMEM[1], tiles=2\n{MATRIX}",
                 vmem=rows(ws(0, 0) + ws(1, 1, 2)))  # fmt: skip
    yield bundle("MXU_CLEAR forgets the sums", f"{DATA}\nMXU_ACCUMULATE WMEM[0], AMEM[0], tiles=1\nMXU_CLEAR\n"
                 f"MXU_ACCUMULATE WMEM[1], AMEM[1], tiles=1\n{MATRIX}", vmem=rows(ws(1, 1)))  # fmt: skip
    yield bundle("MXU_CLEAR keeps what was latched", f"{DATA}\nMXU WMEM[0], AMEM[0], tiles=1\nMXU_CLEAR\n{RESULT}",
                 vmem={9: A[0] @ W[0]})  # fmt: skip
    for k in range(1, 5):
        yield bundle(f"MXU_OS of depth {k} is a product", f"{DATA}\nMXU_OS WMEM[0], AMEM[1], k={k}\n{MATRIX}",
                     vmem=rows(A[1 : 1 + k].T @ W[0][:k]))  # fmt: skip
    deep = "MXU_OS WMEM[0], AMEM[0], k=4\nMXU_OS_ACCUMULATE WMEM[1], AMEM[4], k=4"
    yield bundle("MXU_OS_ACCUMULATE goes on along K", f"{DATA}\n{deep}\n{MATRIX}",
                 vmem=rows(A[:4].T @ W[0] + A[4:].T @ W[1]))  # fmt: skip
    yield bundle("MXU_OS_ACCUMULATE of unequal depths", f"{DATA}\nMXU_OS WMEM[2], AMEM[0], k=3\nMXU_OS_ACCUMULATE "
                 f"WMEM[1], AMEM[3], k=1\n{MATRIX}", vmem=rows(A[:3].T @ W[2][:3] + A[3:4].T @ W[1][:1]))  # fmt: skip
    yield bundle("MXU_OS clears first, not last", f"{DATA}\nMXU_ACCUMULATE WMEM[1], AMEM[0], tiles=1\nMXU_OS WMEM[0], "
                 f"AMEM[0], k=4\nMXU_ACCUMULATE WMEM[2], AMEM[5], tiles=1\n{MATRIX}",
                 vmem=rows(A[:4].T @ W[0] + ws(2, 5)))  # fmt: skip
    yield bundle("mxu_result is the last drain's", f"{DATA}\nMXU WMEM[0], AMEM[0], tiles=1\nMXU WMEM[1], AMEM[4], "
                 "tiles=1", sums=A[4] @ W[1])  # fmt: skip
    yield bundle("the column sums of an output-stationary product", f"{DATA}\nMXU_OS WMEM[0], AMEM[0], k=4\n{RESULT}",
                 vmem={9: (A[:4].T @ W[0]).sum(0)})  # fmt: skip


def buckets() -> Iterator[Check]:
    read = "PSUM_READ v4, PSUM[5]\nSTORE VMEM[9], v4"
    gathered = "\n".join(f"MXU WMEM[0], AMEM[{r}], tiles=1, psum_write=PSUM[5], psum_row={r}" for r in range(4))
    yield bundle("rows of a product in a bucket", f"{DATA}\n{gathered}\nWAIT_MXU\n{read}", vmem={9: A[:4] @ W[0]},
                 cycles=2 * 22 + 44 + 4 + 1)  # fmt: skip
    added = "\n".join(f"MXU WMEM[1], AMEM[{4 + r}], tiles=1, psum_acc=PSUM[5], psum_row={r}" for r in range(4))
    yield bundle("a second product on top", f"{DATA}\n{gathered}\n{added}\nWAIT_MXU\n{read}",
                 vmem={9: A[:4] @ W[0] + A[4:] @ W[1]})  # fmt: skip
    bias = "LOAD v1, VMEM[0]\nPSUM_WRITE PSUM[5], v1"
    yield bundle(
        "a bias in the bucket first", f"{DATA}\n{bias}\n{added}\nWAIT_MXU\n{read}", vmem={9: X[0] + A[4:] @ W[1]}
    )
    two = "LOAD v1, VMEM[0]\nLOAD v2, VMEM[1]\nPSUM_WRITE PSUM[5], v1\n"
    yield bundle("PSUM_ACCUMULATE", f"{DATA}\n{two}PSUM_ACCUMULATE PSUM[5], v2\n{read}", vmem={9: X[0] + X[1]})
    row = X[0].copy()
    row[2] += X[1][0]
    yield bundle("PSUM_ACCUMULATE_ROW adds row 0 to a row",
                 f"{DATA}\n{two}PSUM_ACCUMULATE_ROW PSUM[5], v2, row=2\n{read}", vmem={9: row})  # fmt: skip
    yield bundle(
        "PSUM_READ_ROW", f"{DATA}\n{two}PSUM_READ_ROW v4, PSUM[5], row=3\nSTORE VMEM[9], v4", vmem={9: X[0][3]}
    )
    yield bundle("buckets do not touch each other", f"{DATA}\n{two}PSUM_WRITE PSUM[6], v2\nPSUM_CLEAR PSUM[6]\n{read}",
                 vmem={9: X[0]})  # fmt: skip
    yield bundle("PSUM_CLEAR", f"{DATA}\n{two}PSUM_CLEAR PSUM[5]\n{read}", vmem={9: np.zeros((4, 4), int)})
    yield bundle("PSUM_CLEAR_ALL", f"{DATA}\n{two}PSUM_CLEAR_ALL\nPSUM_ACCUMULATE PSUM[5], v2\n{read}", vmem={9: X[1]})
    most = tile("VMEM", 2, np.full((4, 4), 2**31 - 1))
    wraps = "LOAD v1, VMEM[2]\nPSUM_WRITE PSUM[5], v1\nPSUM_ACCUMULATE PSUM[5], v1\n"
    yield bundle("a bucket wraps", f"{DATA}\n{most}\n{wraps}{read}", vmem={9: np.full((4, 4), -2)})


def epilogues() -> Iterator[Check]:
    """Op 42: it works on the matrix of the elements, not on the product."""
    bias, plain = X[0][0], ws(0, 1, 2)
    load, out = "LOAD v1, VMEM[0]", "STORE VMEM[9], v3"
    call = "MXU_EPILOGUE v3 = GEMM(WMEM[0], AMEM[1], tiles=2)"
    yield bundle("a plain tile", f"{DATA}\n{call} DST_VREG\n{out}", vmem={9: plain}, cycles=2 * 17 + 13 + 2 + 1 + 4 + 1)
    yield bundle("its column sums are the results", f"{DATA}\n{call} DST_VREG\nVPU v3 = SUM_REDUCE_COL(v3)\n{out}\n"
                 "LOAD_MXU_RESULT v4\nSTORE VMEM[10], v4",
                 vmem={9: np.tile(plain.sum(0), (4, 1)), 10: plain.sum(0)})  # fmt: skip
    yield bundle("a bias by column", f"{DATA}\n{load}\n{call} BIAS=v1 DST_VREG\n{out}", vmem={9: plain + bias})
    yield bundle("a relu", f"{DATA}\n{call} RELU DST_VREG\n{out}", vmem={9: np.maximum(plain, 0)})
    yield bundle("a bias, then a relu", f"{DATA}\n{load}\n{call} BIAS=v1 RELU DST_VREG\n{out}",
                 vmem={9: np.maximum(plain + bias, 0)})  # fmt: skip
    yield bundle("to VMEM", f"{DATA}\nMXU_EPILOGUE v0 = GEMM(WMEM[0], AMEM[1], tiles=2) DST_VMEM[9]", vmem={9: plain})
    for square in (False, True):
        for relu in (False, True):
            kept = np.maximum(plain, 0) if relu else plain
            stat = (kept * kept if square else kept).sum(1)
            words = np.zeros((4, 4), np.int64)
            words[:, 0], words[:, 1] = stat & 0xFFFFFFFF, stat >> 32
            flags = ("RELU " if relu else "") + ("REDUCE_SUMSQ" if square else "REDUCE_SUM")
            yield bundle(
                f"row {flags}", f"{DATA}\n{call} {flags} DST_VREG\nLOAD_EPILOGUE_STAT v3\n{out}", vmem={9: words}
            )
    ones, column = np.tile(W[1][0], (4, 1)), RNG.integers(-128, 128, 4)
    outer = f"{tile('WMEM', 5, ones)}\n{tile('AMEM', 9, column)}\n{DATA}\n{load}\n"
    yield bundle("an outer product with bias and relu", f"{outer}MXU_EPILOGUE v3 = GEMM(WMEM[5], AMEM[9], tiles=1) "
                 f"BIAS=v1 RELU DST_VREG\n{out}",
                 vmem={9: np.maximum(np.outer(column, W[1][0]) + bias, 0)})  # fmt: skip
    weights = np.array([[1, 2, 0, 0], [3, 4, 0, 0], [0] * 4, [0] * 4])
    data = f"{tile('WMEM', 0, weights)}\n{tile('AMEM', 0, [1, -1, 0, 0])}\n"
    yield bundle("it is no epilogue of a product", f"{data}MXU_EPILOGUE v3 = GEMM(WMEM[0], AMEM[0], tiles=1) RELU "
                 f"DST_VREG\n{out}", vmem={9: [1, 2, 0, 0]})  # fmt: skip


def requantised(x: Ints | list[int], mul: int, shift: int) -> list[int]:
    """Half up, in Python's integers."""
    return [max(-128, min(127, (2 * int(v) * mul + (1 << shift)) >> (shift + 1))) for v in x]


def diagonal(values: list[int]) -> str:
    """Weights and a vector whose product is `values`, each within 127 * 128 + 127."""
    w = np.zeros((4, 4), int)
    w[0] = [max(-128, min(127, v // 127)) for v in values]
    w[1] = [v - 127 * q for v, q in zip(values, w[0])]
    return f"{tile('WMEM', 0, w)}\n{tile('AMEM', 0, [127, 1, 0, 0])}\n"


def requantisation() -> Iterator[Check]:
    def row(name: str, values: list[int], mul: int, shift: int, want: list[int] | None = None) -> Check:
        text = f"{diagonal(values)}SET_REQUANT_CONFIG scale_mul={mul} scale_shift={shift}\n"
        text += "DISPATCH_MXU_REQUANT WMEM[0] AMEM[0] tiles=1 ASRAM[7]\nWAIT_MXU"
        expected = requantised(values, mul, shift)
        assert want in (None, expected)
        return bundle(name, text, amem={7: expected})

    yield row("rounds half up", [5, -5, 3, -3], 1, 1, [3, -2, 2, -1])
    yield row("saturates", [1000, -1000, 254, -257], 1, 1, [127, -128, 127, -128])
    yield row("scales", [100, -100, 8, -8], 3, 4, [19, -19, 2, -1])
    yield row("a shift of 2", [-7, -6, -5, 6], 1, 2, [-2, -1, -1, 2])
    yield row("a negative factor", [1000, -1000, 16, -16], -3, 5)
    yield row("the largest factor", [16000, -16000, 1, -1], 2**31 - 1, 31)
    yield row("the least factor", [16000, -16000, 1, -1], -(2**31), 31)
    yield row("a factor of 0", [16000, -16000, 1, -1], 0, 3, [0, 0, 0, 0])
    first = "\n".join(f"DISPATCH_MXU_REQUANT WMEM[0] AMEM[{r}] tiles=1 ASRAM[{16 + r}]" for r in range(4))
    second = "\n".join(f"MXU WMEM[1], AMEM[{16 + r}], tiles=1, psum_write=PSUM[0], psum_row={r}" for r in range(4))
    hidden = np.array([requantised(v, 77, 15) for v in A[:4] @ W[0]])
    config = "SET_REQUANT_CONFIG scale_mul=77 scale_shift=15"
    yield bundle("two layers in one bundle", f"{DATA}\n{config}\n{first}\n{second}\n"
                 "WAIT_MXU\nPSUM_READ v0, PSUM[0]\nSTORE VMEM[9], v0", vmem={9: hidden @ W[1]})  # fmt: skip


def fused() -> Iterator[Check]:
    """Op 46: a dispatch and an operation on its row."""
    product, other = A[3] @ W[0], X[0][0]
    even, odd, c, s = product[::2], product[1::2], other[::2], other[1::2]
    turned = np.stack([even * c - odd * s, even * s + odd * c], 1).reshape(-1)
    results = {"ADD": product + other, "SUB": product - other, "MUL": product * other,
               "MAX": np.maximum(product, other), "MIN": np.minimum(product, other), "IPAIR_ROTATE": turned,
               "COPY": product, "XOR": product}  # fmt: skip
    for op, want in results.items():
        call = f"GEMM(WMEM[0], AMEM[3], tiles=1) SRC2=v1 OP={op}"
        yield bundle(f"{op} to a vreg", f"{DATA}\nLOAD v1, VMEM[0]\nMXU_VPU_EPILOGUE v3 = {call} DST_VREG\n"
                     "STORE VMEM[9], v3", vmem={9: want})  # fmt: skip
        yield bundle(f"{op} to VMEM", f"{DATA}\nLOAD v1, VMEM[0]\nMXU_VPU_EPILOGUE v0 = {call} DST_VMEM[9]",
                     vmem={9: want})  # fmt: skip


TABLES: tuple[Table, ...] = (
    table("bundles", "dispatches of the array", dispatches()),
    table("bundles", "PSUM", buckets()),
    table("bundles", "op 42", epilogues()),
    table("bundles", "requantisation", requantisation()),
    table("op 46", "op 46", fused()),
)
