"""The eleven published kernels as TASM: as published, and as good as we know (datasheet 10.7, 14).

Each is written for the datasheet's machine; values come from a seed, expected results from numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
EDGE = 4
"""Rows and columns of a tile."""


@dataclass(frozen=True)
class Program:
    """TASM, and what it outputs: a tile per output record, or the column sums where `sums` are given."""

    text: str
    tiles: Sequence[Array] = ()
    sums: Array | None = None


Build = Callable[[np.random.Generator], Program]


@dataclass(frozen=True)
class Kernel:
    """work: elements, or multiply-accumulates of a product. published: the count of the program that `plain` builds.
    best: the count of the fewest cycles that we know, built by `good` (by `plain` where that is as good)."""

    name: str
    work: int
    published: int
    plain: Build
    best: int
    good: Build | None = None

    def build(self, *, best: bool, seed: int = 1) -> Program:
        make = self.good if best and self.good is not None else self.plain
        return make(np.random.default_rng(seed))


def _words(values: Array) -> str:
    return " ".join(str(int(value)) for value in values.reshape(-1))


def _text(
    program: Iterable[str],
    *,
    vmem: Sequence[Array] = (),
    wmem: Sequence[Array] = (),
    amem: Sequence[Array] = (),
    outputs: Iterable[int] = (),
    sums: bool = False,
) -> str:
    lines = [f"{name}[{i}] = {_words(x)}" for name, data in (("VMEM", vmem), ("WMEM", wmem), ("AMEM", amem))
             for i, x in enumerate(data)]  # fmt: skip
    lines += [*program, "HALT", *(f"OUTPUT_VMEM VMEM[{slot}]" for slot in outputs)]
    return "\n".join([*lines, *(["OUTPUT_MXU"] if sums else []), "END"]) + "\n"


def _tiles(rng: np.random.Generator, count: int) -> list[Array]:
    return [rng.integers(-1000, 1000, (EDGE, EDGE)) for _ in range(count)]


# elementwise and movement


def add(tiles: int) -> Build:
    """a + b; beyond one tile the outputs overwrite a."""

    def build(rng: np.random.Generator) -> Program:
        data = _tiles(rng, 2 * tiles)
        first = 0 if tiles > 1 else 2 * tiles
        program = [
            line
            for i in range(tiles)
            for line in (
                f"LOAD v0, VMEM[{i}]",
                f"LOAD v1, VMEM[{tiles + i}]",
                "VPU v2 = ADD(v0, v1)",
                f"STORE VMEM[{first + i}], v2",
            )
        ]
        text = _text(program, vmem=data, outputs=range(first, first + tiles))
        return Program(text, [a + b for a, b in zip(data, data[tiles:])])

    return build


def relu(rng: np.random.Generator) -> Program:
    data = _tiles(rng, 4)
    program = [line for i in range(4) for line in (f"LOAD v0, VMEM[{i}]", "VPU v1 = RELU(v0)", f"STORE VMEM[{i}], v1")]
    return Program(_text(program, vmem=data, outputs=range(4)), [np.maximum(x, 0) for x in data])


def reshape(rng: np.random.Generator) -> Program:
    data = _tiles(rng, 4)
    program = [line for i in range(4) for line in (f"LOAD v0, VMEM[{i}]", f"STORE VMEM[{4 + i}], v0")]
    return Program(_text(program, vmem=data, outputs=range(4, 8)), data)


def reshape_in_place(rng: np.random.Generator) -> Program:
    """A reshape moves nothing: the output records name the input's slots."""
    data = _tiles(rng, 4)
    return Program(_text([], vmem=data, outputs=range(4)), data)


# reductions


def total(tiles: int) -> Build:
    """The sum of everything, each tile reduced on its own."""

    def build(rng: np.random.Generator) -> Program:
        data = _tiles(rng, tiles)
        program = ["LOAD v0, VMEM[0]", "VPU v1 = SUM_REDUCE_TILE(v0)"]
        for i in range(1, tiles):
            program += [f"LOAD v0, VMEM[{i}]", "VPU v2 = SUM_REDUCE_TILE(v0)", "VPU v1 = ADD(v1, v2)"]
        program.append(f"STORE VMEM[{tiles}], v1")
        return Program(
            _text(program, vmem=data, outputs=[tiles]), [np.full((EDGE, EDGE), sum(int(x.sum()) for x in data))]
        )

    return build


def total_in_psum(rng: np.random.Generator) -> Program:
    """Tiles are added in a PSUM bucket, which needs no third register operand, and reduced once."""
    data = _tiles(rng, 16)
    program = ["LOAD v0, VMEM[0]", "PSUM_WRITE PSUM[0], v0"]
    for i in range(1, 16):
        program += [f"LOAD v0, VMEM[{i}]", "PSUM_ACCUMULATE PSUM[0], v0"]
    program += ["PSUM_READ v0, PSUM[0]", "VPU v0 = SUM_REDUCE_TILE(v0)", "STORE VMEM[16], v0"]
    return Program(_text(program, vmem=data, outputs=[16]), [np.full((EDGE, EDGE), sum(int(x.sum()) for x in data))])


def band_sums(operation: str, *, once: bool) -> Build:
    """Row or column sums of an 8x8 matrix, in bands of two tiles. once: add the band's tiles, then reduce."""

    def build(rng: np.random.Generator) -> Program:
        rows = operation == "SUM_REDUCE"
        whole = rng.integers(-1000, 1000, (8, 8))
        bands = [whole[4 * i : 4 * i + 4] if rows else whole[:, 4 * i : 4 * i + 4].T for i in range(2)]
        data = [
            band[:, 4 * j : 4 * j + 4] if rows else band[:, 4 * j : 4 * j + 4].T for band in bands for j in range(2)
        ]
        program: list[str] = []
        for i in range(2):
            pair = [f"LOAD v0, VMEM[{2 * i}]", f"LOAD v1, VMEM[{2 * i + 1}]"]
            if once:
                program += [*pair, "VPU v0 = ADD(v0, v1)", f"VPU v0 = {operation}(v0)"]
            else:
                program += [pair[0], f"VPU v2 = {operation}(v0)", pair[1], f"VPU v3 = {operation}(v1)"]
                program.append("VPU v0 = ADD(v2, v3)")
            program.append(f"STORE VMEM[{4 + i}], v0")
        sums = [np.repeat(band.sum(1)[:, None], EDGE, 1) for band in bands]
        return Program(_text(program, vmem=data, outputs=[4, 5]), sums if rows else [x.T for x in sums])

    return build


# products


def _operands(rng: np.random.Generator, m: int, k: int) -> tuple[Array, Array, list[Array]]:
    """A[m, k], W[k, 4], and the weight tiles of W."""
    a, w = rng.integers(-128, 128, (m, k)), rng.integers(-128, 128, (k, EDGE))
    return a, w, [w[i : i + EDGE] for i in range(0, k, EDGE)]


def _first_rows(product: Array) -> list[Array]:
    """Each row of a product as row 0 of a tile."""
    return [np.vstack([row, np.zeros((EDGE - 1, EDGE), np.int64)]) for row in product]


def gemm(m: int, k: int) -> Build:
    """A row and a K-tile at a time: dispatch, wait, read the results, add them up in a register."""

    def build(rng: np.random.Generator) -> Program:
        a, w, tiles = _operands(rng, m, k)
        vectors = [row[i : i + EDGE] for row in a for i in range(0, k, EDGE)]
        program: list[str] = []
        for row in range(m):
            for i in range(len(tiles)):
                vector = row * len(tiles) + i
                program += [f"MXU WMEM[{i}], AMEM[{vector}], tiles=1", "WAIT_MXU", f"LOAD_MXU_RESULT v{i}"]
            if len(tiles) == 2:
                program.append("VPU v0 = ADD(v0, v1)")
            program.append(f"STORE VMEM[{row}], v0")
        text = _text(program, wmem=tiles, amem=vectors, outputs=range(m))
        return Program(text, _first_rows(a @ w))

    return build


def gemm_row(rng: np.random.Generator) -> Program:
    """One row: the column sums of the last drain are output as they are."""
    a, w, tiles = _operands(rng, 1, EDGE)
    return Program(_text(["MXU WMEM[0], AMEM[0], tiles=1"], wmem=tiles, amem=list(a), sums=True), sums=(a @ w)[0])


def gemm_in_psum(rng: np.random.Generator) -> Program:
    """Four rows gathered in a PSUM bucket at their drains: one tile to read and store."""
    a, w, tiles = _operands(rng, EDGE, EDGE)
    program = [f"MXU WMEM[0], AMEM[{i}], tiles=1, psum_write=PSUM[0], psum_row={i}" for i in range(EDGE)]
    program += ["WAIT_MXU", "PSUM_READ v0, PSUM[0]", "STORE VMEM[0], v0"]
    return Program(_text(program, wmem=tiles, amem=list(a), outputs=[0]), [a @ w])


def gemm_stationary(rng: np.random.Generator) -> Program:
    """Output stationary: a dispatch per K-tile for all rows. AMEM holds columns of A."""
    a, w, tiles = _operands(rng, EDGE, 2 * EDGE)
    program = ["MXU_OS WMEM[0], AMEM[0], k=4", "MXU_OS_ACCUMULATE WMEM[1], AMEM[4], k=4"]
    for row in range(EDGE):
        program += [f"LOAD_MXU_MATRIX_ROW v{row}, row={row}", f"STORE VMEM[{row}], v{row}"]
    return Program(_text(program, wmem=tiles, amem=list(a.T), outputs=range(EDGE)), _first_rows(a @ w))


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel("add_16", 16, 33, add(1), 33),
        Kernel("add_256", 256, 423, add(16), 423),
        Kernel("relu_64", 64, 83, relu, 83),
        Kernel("reshape_64", 64, 63, reshape, 27, reshape_in_place),
        Kernel("sum_16", 16, 26, total(1), 26),
        Kernel("sum_256", 256, 281, total(16), 200, total_in_psum),
        Kernel("rowsum_8x8", 64, 79, band_sums("SUM_REDUCE", once=False), 69, band_sums("SUM_REDUCE", once=True)),
        Kernel(
            "colsum_8x8", 64, 79, band_sums("SUM_REDUCE_COL", once=False), 69, band_sums("SUM_REDUCE_COL", once=True)
        ),
        Kernel("gemm_1x4x4", 16, 37, gemm(1, 4), 24, gemm_row),
        Kernel("gemm_4x4x4", 64, 121, gemm(4, 4), 77, gemm_in_psum),
        Kernel("gemm_4x8x4", 128, 227, gemm(4, 8), 113, gemm_stationary),
    )
}
"""By name, in the order of the datasheet's table."""
