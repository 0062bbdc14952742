"""A TinyTPU core stepped cycle by cycle: sequencer, array controller, background write-back (datasheet 3, 7, 9, 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tinytpu_rig.lanes import UNARY, Tile, clamp, latency, operate, transposed
from tinytpu_rig.softfloat import wrap

Word = Sequence[int]
P_OPS = {1, 2, 3, 8, 9, 10, 11, 12, 13, 15, 16, 20, 22, 32, 34, 35, 37, 39, 41}
C_OPS = {4, 23, 24, 25, 33, 42, 44, 45, 46}
D_OPS = {5, 6, 26, 43}
WRITES_BLINDLY = {6, 14, 17, 18, 26, 27, 30, 31, 36, 43}


class Stopped(Exception):
    """A refusal: the name of its rule and the program address."""

    def __init__(self, rule: str, pc: int) -> None:
        self.rule, self.pc = rule, pc
        super().__init__(f"{rule} at {pc}")


@dataclass
class Background:
    ready: int
    dst: int


@dataclass
class Dispatch:
    """What the array has in flight: when it is done and what it writes in the cycle before."""

    done: int
    bucket: int | None = None
    row: int = 0
    add: bool = False
    slot: int | None = None
    values: list[int] = field(default_factory=list[int])


class Core:
    """One core with its memories; `run` steps it to its HALT."""

    def __init__(self, size: int = 4, vregs: int = 16, buckets: int = 8, depth: int = 4, limit: int = 50000) -> None:
        self.n, self.limit, self.depth = size, limit, depth
        self.v: list[Tile] = [self.zero() for _ in range(vregs)]
        self.vmem: dict[int, Tile] = {}
        self.wmem: dict[int, Tile] = {}
        self.amem: dict[int, list[int]] = {}
        self.psum: list[list[list[int] | None]] = [[None] * size for _ in range(buckets)]
        self.acc, self.matrix = self.zero(), self.zero()
        self.results: list[int] | None = None
        self.stat: list[int] | None = None
        self.vpu: Tile | None = None
        self.xlu: Tile | None = None
        self.pred = False
        self.loops: list[list[int]] = []
        self.scale = self.shift = 0
        self.bg: Background | None = None
        self.flying: Dispatch | None = None
        self.done = 0
        self.cycle = 0

    def zero(self) -> Tile:
        return [[0] * self.n for _ in range(self.n)]

    def row0(self, row: Sequence[int]) -> Tile:
        return [list(row), *self.zero()[1:]]

    def fill(self, *rows: Mapping[int, Sequence[int]]) -> None:
        """Load VMEM, WMEM and AMEM from flat items."""
        vmem, wmem, amem = rows
        for memory, items in ((self.vmem, vmem), (self.wmem, wmem)):
            for at, flat in items.items():
                memory[at] = [list(flat[r * self.n : (r + 1) * self.n]) for r in range(self.n)]
        self.amem.update({at: list(flat) for at, flat in amem.items()})

    # the array

    def busy(self) -> bool:
        return self.cycle < self.done

    def drain(self) -> None:
        """In the cycle before a dispatch is done: its late writes."""
        job = self.flying
        if job is None or self.cycle != job.done - 1:
            return
        if job.slot is not None:
            self.amem[job.slot] = job.values
        elif job.bucket is not None:
            old = self.psum[job.bucket][job.row] if job.add else None
            self.psum[job.bucket][job.row] = [wrap(x + y) for x, y in zip(job.values, old or [0] * self.n)]

    def dispatch(self, w: Word, pc: int) -> None:
        op, _, dst, src, _, src2, wbase, abase, tlen = w
        n, outputs = self.n, op in (25, 33)
        if wbase not in self.wmem:
            raise Stopped("WMEM_UNWRITTEN", pc)
        if any(abase + t not in self.amem for t in range(tlen)):
            raise Stopped("AMEM_UNWRITTEN", pc)
        if op == 4 and src2 == 2 and self.psum[dst][src] is None:
            raise Stopped("PSUM_UNWRITTEN", pc)
        if op == 45 and self.shift == 0:
            raise Stopped("SHIFT", pc)
        if op not in (23, 33):
            self.acc = self.zero()
        a, weight = [self.amem[abase + t] for t in range(tlen)], self.wmem[wbase]
        for r in range(n):
            for c in range(n):
                if outputs:
                    gain = sum(a[k][r] * weight[k][c] for k in range(tlen))
                else:
                    gain = sum(x[r] for x in a) * weight[r][c]
                self.acc[r][c] = wrap(self.acc[r][c] + gain)
        self.matrix = [list(row) for row in self.acc]
        self.results = [wrap(sum(column)) for column in transposed(self.matrix)]
        if op in (4, 42, 45, 46):
            self.acc = self.zero()
        self.stat = None
        self.done = self.cycle + (2 * tlen + 2 * n + 3 if outputs else tlen + n + 4)
        self.flying = Dispatch(self.done)
        if op == 4 and src2:
            self.flying = Dispatch(self.done, dst, src, src2 == 2, None, self.results)
        if op == 45:
            half = 2 ** (self.shift - 1)
            values = [clamp((x * self.scale + half) // 2**self.shift, 8) for x in self.results]
            self.flying = Dispatch(self.done, slot=w[1], values=values)

    def epilogue(self, w: Word) -> None:
        op, vmem, dst, src, code, src2 = w[:6]
        if op == 42:
            tile = [list(row) for row in self.matrix]
            if code & 1:
                tile = [[wrap(x + b) for x, b in zip(row, self.v[src][0])] for row in tile]
            if code & 2:
                tile = [[max(x, 0) for x in row] for row in tile]
            if code & 4:
                self.stat = [sum(x * x if code & 8 else x for x in row) for row in tile]
        else:
            assert self.results is not None
            known = code in (0, 7, 1, 3, 12, 85)
            other = self.row0(self.v[src][0])
            tile = operate(code if known else 28, self.row0(self.results), other, self.zero())
            tile = self.row0(tile[0])
        if (code & 16 if op == 42 else src2 & 1) != 0:
            self.vmem[vmem] = tile
        else:
            self.v[dst] = tile

    # the sequencer

    def stages(self, w: Word) -> int:
        """EXEC cycles of an instruction without stalls."""
        op = w[0]
        if op == 2:
            return 1 + latency(w[4], self.n**2)
        return {0: 2, 8: 3, 17: 2, 38: len(self.psum), 42: 3, 46: 3}.get(op, 1)

    def waits(self, w: Word, stage: int, pc: int) -> bool:
        op = w[0]
        if stage == 0:
            if op in D_OPS and self.results is None:
                raise Stopped("NOTHING_DISPATCHED", pc)
            return (op in C_OPS | D_OPS and self.busy()) or (op in P_OPS and self.bg is not None)
        if op in (42, 46) and stage == 1:
            return self.busy()
        return op == 0 and self.bg is not None

    def hazards(self, w: Word, pc: int) -> None:
        """What may not happen while something is in flight, at the first EXEC."""
        op, vmem, dst, src, code, src2 = w[:6]
        if self.bg is not None:
            blocking = op == 46 or op == 42
            reads = op == 46 or (op == 42 and code & 1)
            to_vreg = blocking and not (code & 16 if op == 42 else src2 & 1)
            if reads and src == self.bg.dst:
                raise Stopped("BACKGROUND_READ", pc)
            if (op in WRITES_BLINDLY or to_vreg) and dst == self.bg.dst:
                raise Stopped("BACKGROUND_WRITE", pc)
        job = self.flying
        touches = op == 38 or (op in (15, 16, 17, 18, 19, 22) and job is not None and vmem == job.bucket)
        if touches and job and job.bucket is not None and self.busy():
            raise Stopped("PSUM_HAZARD", pc)

    def run(self, program: Sequence[Word], first: int) -> int:
        """Execute from cycle `first` on; returns the cycle of HALT's FETCH."""
        self.cycle, pc = first, 0
        while True:
            if self.cycle > self.limit:
                raise Stopped("TIMEOUT", pc)
            if pc >= len(program):
                raise Stopped("END_OF_PROGRAM", pc)
            w = program[pc]
            if w[0] == 7:
                return self.cycle
            self.tick()
            stage, after = 0, pc + 1
            while stage < self.stages(w):
                interruptible = not (w[0] == 0 and stage == 0)
                if self.bg is not None and self.cycle >= self.bg.ready and interruptible:
                    assert self.vpu is not None
                    self.v[self.bg.dst] = [list(row) for row in self.vpu]
                    self.bg = None
                elif not self.waits(w, stage, pc):
                    if stage == 0:
                        self.hazards(w, pc)
                    after = self.act(w, stage, pc, after)
                    stage += 1
                self.tick()
            pc = after

    def tick(self) -> None:
        self.drain()
        self.cycle += 1

    def act(self, w: Word, stage: int, pc: int, after: int) -> int:
        """One EXEC cycle of an instruction; returns where the program goes on."""
        op, vmem, dst, src, code, src2, wbase, _abase, tlen = w
        last = stage == self.stages(w) - 1
        if op in (2, 41):
            if stage == 0:
                if code == 27 and self.vpu is None:
                    raise Stopped("NO_VPU_RESULT", pc)
                b = self.v[src] if code in UNARY else self.v[src2]
                self.vpu = operate(code, self.v[src], b, self.vpu or self.zero())
                if op == 41:
                    self.bg = Background(self.cycle + latency(code, self.n**2), dst)
            if op == 2 and last:
                self.v[dst] = self.copy(self.vpu)
        elif op in (42, 46):
            if stage == 0:
                self.dispatch(w, pc)
            elif last:
                self.epilogue(w)
        elif op in (4, 23, 25, 33, 45):
            self.dispatch(w, pc)
        elif op in (3, 9, 10, 11, 12, 37):
            self.xlu = self.moved(op, self.v[src], src2)
            self.v[dst] = self.copy(self.xlu)
        elif op == 8 and last:
            yes, no = self.v[src2], self.v[wbase]
            self.vpu = [[y if c else x for c, y, x in zip(*rows)] for rows in zip(self.v[src], yes, no)]
            self.v[dst] = self.copy(self.vpu)
        elif op == 0 and last:
            if vmem not in self.vmem:
                raise Stopped("VMEM_UNWRITTEN", pc)
            self.v[dst] = self.copy(self.vmem[vmem])
        elif op == 1:
            self.vmem[vmem] = self.copy(self.v[src])
        elif op in (21, 40):
            after = pc + (2 if self.pred == (op == 21) else 1)
            self.pred = False
        elif op == 28:
            if len(self.loops) == self.depth:
                raise Stopped("LOOPS_FULL", pc)
            self.loops.append([tlen, pc + 1])
        elif op == 29:
            if not self.loops:
                raise Stopped("NO_LOOP", pc)
            if self.loops[-1][0] > 1:
                self.loops[-1][0] -= 1
                after = self.loops[-1][1]
            else:
                self.loops.pop()
        elif op in range(15, 20) or op in (22, 38):
            self.bucket(w, stage, pc)
        else:
            self.simple(w, pc)
        return after

    def bucket(self, w: Word, stage: int, pc: int) -> None:
        op, vmem, dst, src = w[:4]
        if op == 38:
            self.psum[stage] = [list(row) for row in self.zero()]
            return
        if stage:
            return
        rows = self.psum[vmem]
        used = {16: range(self.n), 17: range(self.n), 18: [src], 22: [dst]}.get(op, [])
        if any(rows[r] is None for r in used):
            raise Stopped("PSUM_UNWRITTEN", pc)
        held = [row or [0] * self.n for row in rows]
        v = self.v[src] if op in (15, 16, 22) else self.zero()
        if op in (15, 19):
            self.psum[vmem] = [list(row) for row in v]
        elif op == 16:
            self.psum[vmem] = [[wrap(x + y) for x, y in zip(*pair)] for pair in zip(held, v)]
        elif op == 22:
            rows[dst] = [wrap(x + y) for x, y in zip(held[dst], v[0])]
        else:
            self.v[dst] = self.copy(held) if op == 17 else self.row0(held[src])

    def simple(self, w: Word, pc: int) -> None:
        op, vmem, dst, src, code, _, wbase, abase, tlen = w
        tile: Tile | None = None
        if op in (13, 14):
            tile = self.vpu if op == 13 else self.xlu
            if tile is None:
                raise Stopped("NO_VPU_RESULT" if op == 13 else "NO_XLU_RESULT", pc)
        elif op in (20, 39):
            self.pred = (self.v[src][0][0] == 0) == (op == 20)
        elif op == 6:
            tile = self.row0(self.results or [])
        elif op == 26:
            tile = self.row0(self.matrix[src])
        elif op in (27, 36):
            tile = self.row0([self.cycle if op == 27 else len(self.loops), *self.zero()[0][1:]])
        elif op in (30, 31):
            x = (wbase % 256 ^ 128) - 128 if op == 31 else 0
            tile = [[x] * self.n for _ in range(self.n)]
        elif op in (32, 34, 35):
            tile = [[{32: x, 34: wrap(-x), 35: wrap(abs(x))}[op] for x in row] for row in self.v[src]]
        elif op == 43:
            if self.stat is None:
                raise Stopped("NO_STATISTICS", pc)
            tile = [[wrap(x), wrap(x >> 32), *[0] * (self.n - 2)] for x in self.stat]
        elif op == 24:
            self.acc = self.zero()
        elif op == 44:
            self.scale, self.shift = wrap(wbase | abase << 8 | tlen << 16 | vmem << 24), code & 31
        if tile is not None:
            self.v[dst] = self.copy(tile)

    def moved(self, op: int, t: Tile, pick: int) -> Tile:
        n = self.n
        if op == 9:
            return [[t[pick // n][pick % n]] * n for _ in range(n)]
        if op == 10:
            return [list(t[pick]) for _ in range(n)]
        if op == 12:
            return transposed(t)
        if op == 37:
            return [row[pick:] + row[:pick] for row in t]
        return [[row[pick]] * n for row in t]

    @staticmethod
    def copy(t: Tile | None) -> Tile:
        assert t is not None
        return [list(row) for row in t]
