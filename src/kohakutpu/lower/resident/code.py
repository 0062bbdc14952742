"""Vector core routines over a row tile in sub-tile order: 4 * gm rows at once, one register per sub-tile column.

A register holds, for every row group g, the 4 x 4 sub-tile (g, h); a number per row lies in the 4 lanes of its row. So
a row reduction is a running operation over h and two swaps of neighbouring lanes, and a row's elements reach the order
of an entry by transposing 4 registers as 4 x 4 matrices of lane groups. The four predicates hold the lane masks. It
decides registers and words; it must not know steps, units' order or memory addresses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakutpu.isa import vector as isa
from kohakutpu.layouts import LANES, WORD_ELEMENTS, ceil_div
from kohakutpu.lower.body import LEAVES, Node
from kohakutpu.lower.resident.ops import ENTRY_WORDS, QUAD, Held, NotResident, Out, Rows
from kohakutpu.lower.resident.values import COMBINE, IDENTITY, live
from kohakutpu.lower.vector_code import SEL_K, SEL_V, Operand, VectorCode
from kohakutpu.lower.vector_stream import Dims, VectorStream, linear

FP32 = int(isa.DTYPE.FP32)
ZERO, ONE = Operand(SEL_K, 0), Operand(SEL_K, 1)
# Predicates: lanes 8-15; lanes 4-7 and 12-15; the odd lanes; lanes 2 and 3 of each four.
LOWER_ROWS, ODD_ROWS, ODD_LANES, UPPER_LANES = range(4)
_MASKS = {LOWER_ROWS: (16, 8), ODD_ROWS: (8, 4), ODD_LANES: (2, 1), UPPER_LANES: (4, 2)}  # period, first set lane


class Program:
    """Routines for one core, whose entries go to one cluster. Raises Refusal or NotResident when they do not fit."""

    def __init__(
        self, machine: Machine, source: SourceLine, gm: int, scratch: int, cluster: Unit, routines: Sequence[Rows]
    ) -> None:
        self.machine, self.gm, self.cluster = machine, gm, cluster
        self.code = VectorCode(machine, source)
        self.descriptors: list[tuple[Dims, int]] = []  # dimensions and base; base -1: set for every RUN
        self._numbers: dict[object, int] = {}
        self._vl = WORD_ELEMENTS * gm
        self._loading: NDArray[np.int64] | None = None
        self.entries: dict[tuple[object, ...], int] = {}
        for rows in routines:
            self.entries[rows.signature()] = self.code.begin(self._vl)
            self._routine(rows)
            self.code.emit("VHALT")
        for number in (16, 8, 4, 2, 1):  # lengths and distances of the masks, which the prologue loads first
            self.code.immediate(number)
        self.prologue = self.code.prologue(self._vl, lambda: self._masks(scratch))
        self.code.check_size()

    def descriptor(self, key: object, dims: Dims, base: int) -> int:
        """The number of a descriptor with this shape, made on first use."""
        if key not in self._numbers:
            if len(self.descriptors) == self.machine.params.descs:
                raise NotResident(f"a core's routines walk in more than {self.machine.params.descs} ways")
            self._numbers[key] = len(self.descriptors)
            self.descriptors.append((dims, base))
        return self._numbers[key]

    def load(self, stream: VectorStream) -> None:
        """Program memory, descriptors and the prologue."""
        stream.program(self.code.words)
        for number, (dims, base) in enumerate(self.descriptors):
            stream.shape(number, dims)
            stream.base(number, -1, max(base, 0))
        stream.run(self.prologue)

    def loading(self, core: Unit) -> NDArray[np.int64]:
        """The rows that load it into its core, the same array every time."""
        if self._loading is None:
            stream = VectorStream(self.machine, core, -1)
            self.load(stream)
            self._loading = stream.finish().rows
        return self._loading

    def out_descriptor(self, out: Out) -> int:
        """The descriptor of an output's drain; its base is the tile's address."""
        layout = out.layout
        return self.descriptor(("out", out.buffer), linear(layout.gm * layout.gn), -1)

    # masks

    def _masks(self, scratch: int) -> None:
        """The predicates: a pattern of lanes by vector length and rotation, in every chunk by a walk that stays."""
        code = self.code
        stay = self.descriptor("stay", ((0, self.gm),), scratch)
        mask, turned = code.take(), code.take()
        for predicate, (period, low) in _MASKS.items():
            code.set_vl(WORD_ELEMENTS)
            code.move(mask, ZERO)
            code.set_vl(low)
            code.move(mask, ONE)
            code.set_vl(WORD_ELEMENTS)
            step = WORD_ELEMENTS // 2
            while step >= period:
                code.rotate(turned, mask, step)
                code.alu("VADD", mask, Operand(SEL_V, mask), c=Operand(SEL_V, turned))
                step //= 2
            code.store(mask, 0, stay)
            code.set_vl(self._vl)
            code.load(mask, 0, stay)
            code.emit("VCMPEQ", sa=SEL_V, va=mask, sb=SEL_K, vb=0, sc=SEL_K, vc=0, vd=0, pr=predicate, pm=0)
        code.give(mask)
        code.give(turned)

    def _where(self, predicate: int, vd: int, a: Operand, clear: bool = False) -> None:
        """vd = a in the lanes of a mask, or in the others."""
        self.code.emit(
            "VMOV", sa=a.selector, va=a.register, sb=SEL_K, vb=0, sc=SEL_K, vc=0, vd=vd, pr=predicate, pm=1 + clear
        )

    def _tail(self, register: int, lanes: int, fill: Operand) -> None:
        """`fill` in the lanes of every row from `lanes` (1 to 3) on."""
        if lanes < 3:
            self._where(UPPER_LANES, register, fill)
        if lanes == 1:
            self._where(ODD_LANES, register, fill)
        if lanes == 3:
            last = self.code.take()
            self.code.move(last, fill)
            self._where(UPPER_LANES, last, Operand(SEL_V, register), clear=True)
            self._where(ODD_LANES, last, Operand(SEL_V, register), clear=True)
            self.code.move(register, Operand(SEL_V, last))
            self.code.give(last)

    # L1

    def _load(self, vd: int, held: Held, h: int) -> None:
        if held.wide:
            ad = self.descriptor(2 * held.columns, ((2 * held.columns, self.gm),), 0)
            self.code.emit("VLD", dtype=FP32, ad=ad, vd=vd, off=held.word + 2 * h)
            return
        stride = held.columns if held.kind == "tile" else 1
        self.code.load(vd, held.word + h, self.descriptor(stride, ((stride, self.gm),), 0))

    def _store(self, vs: int, held: Held, h: int) -> None:
        if held.wide:
            ad = self.descriptor(2 * held.columns, ((2 * held.columns, self.gm),), 0)
            self.code.emit("VST", dtype=FP32, ad=ad, vd=vs, off=held.word + 2 * h)
            return
        stride = held.columns if held.kind == "tile" else 1
        self.code.store(vs, held.word + h, self.descriptor(stride, ((stride, self.gm),), 0))

    def _store_lanes(self, registers: Sequence[int], held: Held, q: int) -> None:
        """Rows 0..3 of every group, 16 elements of a row in a register, as half an entry's words."""
        stride = ENTRY_WORDS * held.chunk
        ad = self.descriptor(stride, ((stride, self.gm),), 0)
        chunk, block = divmod(q // 2, held.chunk)
        first = held.word + ENTRY_WORDS * (chunk * self.gm * held.chunk + block) + q % 2
        for i, register in enumerate(registers):
            self.code.store(register, first + 2 * i, ad)

    # arithmetic

    def _routine(self, rows: Rows) -> None:
        """Passes over the columns, one per level of reductions, each with what it can store already."""
        nodes, order = rows.body.nodes, live(rows.body, [n for n, _ in rows.results])
        depth: dict[int, int] = {}
        for n in order:
            inner = max((depth[a] for a in nodes[n].args), default=0) if nodes[n].op not in LEAVES else 0
            depth[n] = inner + (nodes[n].op == "reduce")
        numbers: dict[int, int] = {}
        for n in order:
            if nodes[n].op == "number":
                numbers[n] = self.code.take()
                self._load(numbers[n], rows.operands[nodes[n].args[0]], 0)
        for level in range(max(depth.values(), default=0) + 1):
            for n in order:
                if nodes[n].per_row and depth[n] == level and nodes[n].op not in ("const", "reduce", "number"):
                    args = [self._operand(a, nodes, numbers) for a in nodes[n].args]
                    numbers[n] = self.code.take()
                    self.code.operation(nodes[n].op, numbers[n], args)
            reductions = [n for n in order if nodes[n].op == "reduce" and depth[n] == level + 1]
            results = [(n, t) for n, t in rows.results if not _row_target(t) and depth[n] == level]
            if reductions or results:
                numbers.update(self._columns(rows, reductions, results, numbers))
        for n, target in rows.results:
            if _row_target(target):
                assert isinstance(target, Held)
                register = self._register(n, nodes, numbers)
                self._store(register, target, 0)
                if n not in numbers:
                    self.code.give(register)
        for register in numbers.values():
            self.code.give(register)
        for _, target in rows.results:
            self._drain(target)

    def _operand(self, n: int, nodes: Sequence[Node], registers: dict[int, int]) -> Operand:
        return self.code.constant(nodes[n].number) if nodes[n].op == "const" else Operand(SEL_V, registers[n])

    def _register(self, n: int, nodes: Sequence[Node], numbers: dict[int, int]) -> int:
        """The register of a number per row; a constant gets one."""
        if n in numbers:
            return numbers[n]
        register = self.code.take()
        self.code.move(register, self.code.constant(nodes[n].number))
        return register

    def _drain(self, target: Held | Out) -> None:
        if isinstance(target, Out):
            self.code.drain(self.out_descriptor(target), target.staged.word)
        elif target.kind == "entries":
            mesh = self.machine.meshes[self.cluster.mesh]
            record = isa.node_record(4 * target.entry, ack=(mesh.agent_x, mesh.agent_y))
            ad = self.descriptor(("record", target.entry), ((0, target.words),), record)
            where = {"dst_x": self.cluster.x, "dst_y": self.cluster.y, "buf": 0, "word": target.word}
            self.code.emit("VDRAIN_NODE", quant=1, ack=1, ad=ad, **where)

    def _columns(
        self, rows: Rows, reductions: Sequence[int], results: Sequence[tuple[int, Held | Out]], numbers: dict[int, int]
    ) -> dict[int, int]:
        """One pass over the sub-tile columns; returns the registers of the finished reductions."""
        packs = any(isinstance(t, Held) and t.kind == "entries" for _, t in results)
        for width in (QUAD,) if packs else (QUAD, 2, 1):
            mark = self.code.mark()
            try:
                return self._pass(rows, reductions, results, numbers, width)
            except Refusal as refusal:
                if width == 1 or packs:
                    raise NotResident(str(refusal), rows.source) from refusal
                self.code.rewind(mark)
        raise AssertionError

    def _pass(
        self,
        rows: Rows,
        reductions: Sequence[int],
        results: Sequence[tuple[int, Held | Out]],
        numbers: dict[int, int],
        width: int,
    ) -> dict[int, int]:
        code, nodes = self.code, rows.body.nodes
        count, rest = ceil_div(rows.cols, LANES), rows.cols % LANES
        wanted = list(dict.fromkeys([nodes[n].args[0] for n in reductions] + [n for n, _ in results]))
        total = {n: code.take() for n in reductions}
        for first in range(0, count, width):
            columns = list(range(first, min(first + width, count)))
            found = self._evaluate(rows, [n for n in wanted if not nodes[n].per_row], columns, numbers)
            cut = rest if rest and columns[-1] == count - 1 else 0
            for n in reductions:
                self._accumulate(nodes[n], total[n], [found[nodes[n].args[0], h] for h in columns], first == 0, cut)
            for n, target in results:
                self._keep(n, target, rows, columns, found, numbers, cut)
            for register in set(found.values()):
                code.give(register)
        for _, target in results:
            if isinstance(target, Held) and target.kind == "entries":
                self._pad(target, ceil_div(count, QUAD))
        for n in reductions:
            self._finish(COMBINE[nodes[n].text], total[n])
        return total

    def _evaluate(
        self, rows: Rows, wanted: Sequence[int], columns: Sequence[int], numbers: dict[int, int]
    ) -> dict[tuple[int, int], int]:
        """(node, column) -> register of the wanted values; node after node over all columns, loads first."""
        code, nodes = self.code, rows.body.nodes
        order = [n for n in rows.body.needed_beyond(wanted, ()) if not nodes[n].per_row]
        order.sort(key=lambda n: (nodes[n].op != "input", n))
        last = {a: n for n in order if nodes[n].op != "input" for a in nodes[n].args}
        held: dict[tuple[int, int], int] = {}
        for n in order:
            node = nodes[n]
            for h in columns:
                if node.op == "input":
                    held[n, h] = code.take()
                    self._load(held[n, h], rows.operands[node.args[0]], h)
                    continue
                args = [
                    self._operand(a, nodes, numbers) if nodes[a].per_row else Operand(SEL_V, held[a, h])
                    for a in node.args
                ]
                for a in set(node.args):
                    if not nodes[a].per_row and last[a] == n and a not in wanted:
                        code.give(held.pop((a, h)))
                held[n, h] = code.take()
                code.operation(node.op, held[n, h], args)
        return held

    def _accumulate(self, node: Node, total: int, parts: Sequence[int], fresh: bool, cut: int) -> None:
        code = self.code
        for k, part in enumerate(parts):
            value = part
            if cut and k == len(parts) - 1:
                value = code.take()
                code.move(value, Operand(SEL_V, part))
                self._tail(value, cut, code.constant(IDENTITY[node.text]))
            if fresh and k == 0:
                code.move(total, Operand(SEL_V, value))
            else:
                code.operation(COMBINE[node.text], total, [Operand(SEL_V, total), Operand(SEL_V, value)])
            if value != part:
                code.give(value)

    def _finish(self, op: str, total: int) -> None:
        """Every lane of a row has the row's total: with its neighbour, then with the other pair."""
        code = self.code
        here, there = code.take(), code.take()
        for step, mask in ((1, ODD_LANES), (2, UPPER_LANES)):
            code.rotate(here, total, step)
            code.rotate(there, total, WORD_ELEMENTS - step)
            self._where(mask, here, Operand(SEL_V, there))
            code.operation(op, total, [Operand(SEL_V, total), Operand(SEL_V, here)])
        code.give(here)
        code.give(there)

    # stores

    def _keep(
        self,
        n: int,
        target: Held | Out,
        rows: Rows,
        columns: Sequence[int],
        found: dict[tuple[int, int], int],
        numbers: dict[int, int],
        cut: int,
    ) -> None:
        """Store one result's columns; entries come last of all that use a value, because they turn it in place."""
        code, node = self.code, rows.body.nodes[n]
        held = target.staged if isinstance(target, Out) else target
        if held.kind == "entries":
            self._entries(held, [self._column(n, rows, h, found, numbers) for h in columns], columns[0] // QUAD, cut)
            return
        one = self._register(n, rows.body.nodes, numbers) if node.per_row else -1
        for h in columns:
            register = one if node.per_row else found[n, h]
            if node.op == "input":
                code.move(register, Operand(SEL_V, register))
            self._store(register, held, h)
        if node.per_row and n not in numbers:
            code.give(one)

    def _column(self, n: int, rows: Rows, h: int, found: dict[tuple[int, int], int], numbers: dict[int, int]) -> int:
        """A register with column h of a result that may be turned in place; it is given back with `found`."""
        if rows.body.nodes[n].per_row:
            found[n, h] = self.code.take()
            source = self._operand(n, rows.body.nodes, numbers)
            self.code.move(found[n, h], source)
        elif rows.body.nodes[n].op == "input":
            self.code.move(found[n, h], Operand(SEL_V, found[n, h]))
        return found[n, h]

    def _entries(self, held: Held, columns: list[int], q: int, cut: int) -> None:
        """Up to 4 sub-tile columns as 16 elements of each row: a transpose of 4 x 4 groups of lanes, in two swaps."""
        code = self.code
        if cut:
            self._tail(columns[-1], cut, ZERO)
        empty = [code.take() for _ in range(QUAD - len(columns))]
        for register in empty:
            code.move(register, ZERO)
        x = [*columns, *empty]
        turned = [code.take() for _ in range(QUAD)]
        for distance, mask, pairs in ((8, LOWER_ROWS, ((0, 2), (1, 3))), (4, ODD_ROWS, ((0, 1), (2, 3)))):
            for k, (a, b) in enumerate(pairs):
                code.rotate(turned[2 * k], x[b], WORD_ELEMENTS - distance)
                code.rotate(turned[2 * k + 1], x[a], distance)
            for k, (a, b) in enumerate(pairs):
                self._where(mask, x[a], Operand(SEL_V, turned[2 * k]))
                self._where(mask, x[b], Operand(SEL_V, turned[2 * k + 1]), clear=True)
        self._store_lanes(x, held, q)
        for register in (*turned, *empty):
            code.give(register)

    def _pad(self, held: Held, used: int) -> None:
        """Zeros in the rest of the last chunk's entries: MXFP7 blocks and products see no padding."""
        if used == 2 * held.blocks:
            return
        zero = self.code.take()
        self.code.move(zero, ZERO)
        for q in range(used, 2 * held.blocks):
            self._store_lanes([zero] * LANES, held, q)
        self.code.give(zero)


def _row_target(target: Held | Out) -> bool:
    return isinstance(target, Held) and target.kind == "row"
