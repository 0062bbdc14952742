"""What the kernel language refuses: each by name, with the user's own line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.lang import Value, dims, grid, stage, sweep
from kohakutpu import lang as L
from kohakutpu.lang import Kernel, kernel
from kohakutpu.lower.plan import Plan
from kohakutpu.machines import load

M, K, N = dims("M, K, N")


def plan(k: Kernel, *shapes: tuple[int, ...], machine: str = "ship_3x2", **knobs: int) -> Plan:
    return k._plan(load(machine), list(shapes), (None,) * len(shapes), knobs)


def refused(k: Kernel, *shapes: tuple[int, ...], match: str, line: str | None = None, **knobs: int) -> Refusal:
    with pytest.raises(Refusal, match=match) as caught:
        plan(k, *shapes, machine="ship_3x2", **knobs)
    if line is not None:
        source = caught.value.source
        assert source is not None
        assert Path(source.file).name == Path(__file__).name
        assert line in source.text
    return caught.value


def test_a_contraction_between_whole_buffers() -> None:
    @kernel
    def whole(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(1)):
            c[i, j] <<= a @ b

    refused(whole, (4, 32), (4, 32), match="states no split", line="a @ b")


def test_an_accumulator_chained_from_a_loop_opened_after_the_tile() -> None:
    @kernel
    def chained(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(1)):
            acc = L.tile(1, 1, 1)
            for _ in sweep(a.chunks32(1)):
                for k in sweep(a.chunks32(1)):
                    acc += a[i, k] @ b[j, k]
            c[i, j] <<= acc

    refused(chained, (4, 32), (4, 32), match="restarts with every pass", line="acc +=")


def test_a_contraction_without_a_sweep() -> None:
    @kernel
    def bare(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(1)):
            acc = L.tile(1, 1, 1)
            acc += a[i, j] @ b[j, i]
            c[i, j] <<= acc

    refused(bare, (4, 32), (4, 32), match="inside a sweep", line="acc +=")


def test_an_output_never_written() -> None:
    @kernel
    def forgetful(x=L.In(...), y=L.Out(...), z=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= x[e]

    assert "z" in str(refused(forgetful, (8,), match="every output is written"))


def test_an_output_written_twice() -> None:
    @kernel
    def twice(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= x[e]
        for e in grid(x.parts()):
            y[e] <<= -x[e]

    refused(twice, (8,), match="exactly once; got written 2 times", line="-x[e]")

    @kernel
    def same_stage(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= x[e]
            y[e] <<= -x[e]

    refused(same_stage, (8,), match="written once", line="-x[e]")


def test_a_stage_that_reads_what_the_kernel_wrote() -> None:
    @kernel
    def stale(x=L.In(...), y=L.Out(...), z=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= x[e]
            z[e] <<= y[e] + 1

    refused(stale, (8,), match="earlier statement of the same stage wrote", line="y[e] + 1")


def test_a_stage_that_stores_nothing() -> None:
    @kernel
    def idle(x=L.In(...), y=L.Out(...)):
        with stage(x.parts()):
            pass
        for e in grid(x.parts()):
            y[e] <<= x[e]

    refused(idle, (8,), match="does no work", line="with stage")


def test_plain_assignment() -> None:
    @kernel
    def assigned(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            y[e] = x[e]

    refused(assigned, (8,), match="<<=, not with =", line="y[e] = x[e]")


def test_control_flow_on_machine_values() -> None:
    @kernel
    def branching(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= x[e] if x[e] else 0.0  # pyright: ignore[reportGeneralTypeIssues]  # the refusal under test

    refused(branching, (8,), match="exists only on the machine")


def test_writing_an_input_and_plain_integer_indices() -> None:
    @kernel
    def backwards(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            x[e] <<= y[e]

    refused(backwards, (8,), match="only an output or a temporary", line="x[e] <<=")

    @kernel
    def named(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= x["e"]  # pyright: ignore[reportArgumentType]  # the refusal under test

    refused(named, (8,), match="indexed by indices", line='x["e"]')


def test_an_index_outside_its_axis_and_a_temporary_never_written() -> None:
    @kernel
    def beyond(x=L.In(M, N), y=L.Out(M, N)):
        for r in grid(x.rows()):
            y[r] <<= x[r + 1]

    error = refused(beyond, (5, 8), match="stays inside its axis", line="x[r + 1]")
    assert (error.got, error.limit) == ("1..5", "0..4")

    @kernel
    def empty(x=L.In(...), y=L.Out(...)):
        t = L.temp(...)
        for e in grid(x.parts()):
            y[e] <<= x[e] + t[e]

    refused(empty, (8,), match="before a stage wrote it", line="t[e]")


def test_interleaved_accumulators_and_sweeps_without_chunks() -> None:
    @kernel
    def interleaved(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(1)):
            one, two = L.tile(1, 1, 1), L.tile(1, 1, 1)
            for k in sweep(a.chunks32(1)):
                one += a[i, k] @ b[j, k]
                two += a[i, k] @ b[j, k]
            c[i, j] <<= one + two

    refused(interleaved, (4, 32), (4, 32), match="one after another", line="two +=")

    @kernel
    def nothing(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(1)):
            acc = L.tile(1, 1, 1)
            for k in sweep(i):
                acc += a[i, k] @ b[j, k]
            c[i, j] <<= acc

    refused(nothing, (8, 64), (4, 64), match="at least one of K's chunks", line="acc +=")


def test_tables_and_regions() -> None:
    @kernel
    def big(x=L.In(...), y=L.Out(...)):
        L.table([1e6])
        for e in grid(x.parts()):
            y[e] <<= x[e]

    refused(big, (8,), match="fit FP16", line="1e6")

    @kernel
    def unfilled(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(1)):
            ra, rb = L.region(1, 1), L.region(1, 1)
            acc = L.tile(1, 1, 1)
            for _ in sweep(a.chunks32(1)):
                acc += ra @ rb
            c[i, j] <<= acc

    refused(unfilled, (4, 32), (4, 32), match="filled into them", line="ra @ rb")

    @kernel
    def narrow(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(2), b.tiles(1)):
            ra, rb = L.region(1, 1), L.region(1, 1)
            acc = L.tile(2, 1, 1)
            for k in sweep(a.chunks32(1)):
                ra <<= a[i, k]
                rb <<= b[j, k]
                acc += ra @ rb
            c[i, j] <<= acc

    refused(narrow, (4, 32), (4, 32), match="as large as what is filled", line="ra <<=")


def test_a_row_reduction_outside_rows_and_of_a_scalar() -> None:
    @kernel
    def flat(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= x[e] - L.row_max(x[e])

    refused(flat, (8,), match="needs rows", line="row_max")

    @kernel
    def again(x=L.In(..., M, N), y=L.Out(..., M)):
        for r in grid(x.rows()):
            y[r] <<= L.row_sum(L.row_max(x[r]))

    refused(again, (8, 8), match="already one number per row", line="row_sum")


def test_capacities_name_value_limit_and_way_out() -> None:
    @kernel
    def matmul(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=1, nk=2):
        for i, j in grid(a.tiles(gm), b.tiles(gn)):
            acc = L.tile(gm, gn, nk)
            for k in sweep(a.chunks32(nk)):
                acc += a[i, k] @ b[j, k]
            c[i, j] <<= acc

    error = refused(matmul, (64, 64), (64, 64), match="tile store", line="L.tile", gm=64, gn=64, nk=1)
    assert (error.got, error.limit) == (4096, 512)
    refused(matmul, (64, 64), (64, 64), match="L1 side A twice", line="L.tile", gm=64, gn=1, nk=4)
    refused(matmul, (64, 64), (64, 64), match="L1 side B twice", line="L.tile", gm=1, gn=256, nk=1)
    # 16,384 resident sub-tiles: a compiler that only asks for L1 would take it
    refused(matmul, (64, 64), (64, 64), match="tile store", gm=128, gn=128, nk=1)
    with pytest.raises(Refusal, match="L1 side A twice"):
        plan(matmul, (64, 64), (64, 64), machine="singlemesh_2x2", gm=16, gn=16, nk=2)
    with pytest.raises(Refusal, match="positive integer"):
        plan(matmul, (64, 64), (64, 64), gm=0)
    with pytest.raises(Refusal, match="knob"):
        plan(matmul, (64, 64), (64, 64), gk=1)


def test_a_tile_that_differs_from_its_grid() -> None:
    @kernel
    def odd(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(2), b.tiles(2)):
            acc = L.tile(2, 4, 1)
            for k in sweep(a.chunks32(1)):
                acc += a[i, k] @ b[j, k]
            c[i, j] <<= acc

    error = refused(odd, (8, 32), (8, 32), match="gn is its grid's", line="L.tile")
    assert (error.got, error.limit) == (4, 2)


def test_operands_indexed_the_wrong_way_round() -> None:
    @kernel
    def swapped(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(1)):
            acc = L.tile(1, 1, 1)
            for k in sweep(a.chunks32(1)):
                acc += a[i, k] @ b[k, j]
            c[i, j] <<= acc

    refused(swapped, (4, 32), (4, 32), match="operand B", line="b[k, j]")


def test_more_operands_than_descriptors() -> None:
    @kernel
    def seven(a=L.In(...), b=L.In(...), c=L.In(...), d=L.In(...), f=L.In(...), g=L.In(...), h=L.In(...), y=L.Out(...)):
        for e in grid(a.parts()):
            y[e] <<= a[e] + b[e] + c[e] + d[e] + f[e] + g[e] + h[e]

    error = refused(seven, *[(8,)] * 7, match="one descriptor")
    assert error.limit == "6 operands"


def test_an_expression_longer_than_the_program_memory_and_deeper_than_the_registers() -> None:
    @kernel
    def long(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            v = x[e]
            for n in range(600):
                v = v + x[e] if n % 2 else v * x[e]
            y[e] <<= v

    assert refused(long, (8,), match="program memory").limit == 512

    @kernel
    def wide(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            powers: list[Value] = [x[e]]
            for _ in range(20):
                powers.append(powers[-1] * x[e])
            total = powers[-1]
            for p in powers:
                total = total * p
            y[e] <<= total

    assert refused(wide, (8,), match="V registers").limit == 16


def test_binding() -> None:
    @kernel
    def pair(a=L.In(..., M, K), b=L.In(N, K), c=L.Out(..., M, N), *, g=1):
        for i, j in grid(a.tiles(g), b.tiles(g)):
            acc = L.tile(g, g, 1)
            for k in sweep(a.chunks32(1)):
                acc += a[i, k] @ b[j, k]
            c[i, j] <<= acc

    assert plan(pair, (2, 3, 5, 40), (7, 40)).buffers[2].shape == (2, 3, 5, 7)
    assert "from a" in str(refused(pair, (5, 40), (7, 41), match="dim K has one value"))
    refused(pair, (40,), (7, 40), match="port's rank")
    refused(pair, (5, 40), match="one tensor per In port")
    with pytest.raises(Refusal, match=r"ports .* as defaults"):

        @kernel
        def wrong(a=3, b=L.Out(M)): ...

    with pytest.raises(Refusal, match="has an output"):

        @kernel
        def silent(a=L.In(M)): ...


def test_tiles_and_stages_outside_a_kernel() -> None:
    with pytest.raises(Refusal, match="inside a kernel"):
        L.tile(1, 1, 1)


def test_unsupported_forms_are_named() -> None:
    @kernel
    def mixed(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.rows()):
            c[i, j] <<= a[i, j]

    with pytest.raises(Unsupported, match="one kind of tiling"):
        plan(mixed, (4, 32), (4, 32))


def test_an_array_in_an_expression() -> None:
    @kernel
    def array(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= L.maximum(x[e], np.zeros(3))  # pyright: ignore[reportArgumentType]  # the refusal under test

    refused(array, (8,), match="values, numbers and sizes", line="np.zeros")
