"""Encoders for tests, field by field from the datasheet's tables 4.1, 5.1, 6.1, 6.2 and 7.

They check nothing: a test may write any bits. They must not use the declarations of the packages under test.
"""

from __future__ import annotations

from collections.abc import Sequence

CLUSTER_LAYOUT: dict[str, tuple[int, int]] = {
    "op": (255, 252),
    "n": (217, 202),
    "sel": (201, 201),
    "acc": (200, 200),
    "gm": (199, 192),
    "gn": (191, 184),
    "nk": (183, 176),
    "anchor": (175, 168),
    "peers": (167, 144),
    "npeer": (143, 142),
    "preq": (141, 141),
    "eoff": (140, 133),
    "aoff": (132, 125),
    "boff": (124, 117),
    "emit": (116, 116),
    "fuse": (115, 115),
    "abank": (114, 114),
    "bbank": (113, 113),
    "fbank": (112, 112),
    "dnode": (111, 111),
    "dst_x": (110, 107),
    "dst_y": (106, 103),
    "dbuf": (102, 95),
    "dflags": (94, 87),
    "dack_y": (86, 83),
    "dack_x": (82, 79),
    "dmesh": (78, 77),
    "dfin": (76, 69),
    "tsel": (62, 62),
    "tag": (61, 54),
    "desc": (53, 53),
    "dsel": (52, 51),
}


def cluster(op: int, addr: int = 0, **fields: int) -> int:
    """A cluster payload; nk defaults to 1 and anchor to 40."""
    payload = (addr & ((1 << 34) - 1)) << 218 | (addr >> 34) << 63
    for name, value in {"op": op, "nk": 1, "anchor": 40, **fields}.items():
        hi, lo = CLUSTER_LAYOUT[name]
        assert 0 <= value < 1 << (hi - lo + 1), (name, value)
        payload |= value << lo
    return payload


def fill(addr: int, n: int, sel: int, **fields: int) -> int:
    return cluster(1, addr, n=n, sel=sel, **fields)


def gemm(gm: int, gn: int, nk: int, **fields: int) -> int:
    return cluster(2, gm=gm, gn=gn, nk=nk, **fields)


def drain(addr: int, n: int, **fields: int) -> int:
    return cluster(3, addr, n=n, **fields)


def tdesc(index: int, field: int, value: int) -> int:
    """TDESC (10): `value` is the field's 128 bits."""
    return 4 << 252 | index << 250 | field << 247 | (value & ((1 << 128) - 1)) << 119


def walk_base(index: int, base: int, ndim: int) -> int:
    return tdesc(index, 0, base | ndim << 40)


def walk_dim(index: int, d: int, count: int, stride: int, axis: int = 0, astep: int = 0) -> int:
    return tdesc(index, 1 + d, count | (stride & 0xFFFFFFFF) << 16 | axis << 48 | (astep & 0xFFFF) << 50)


def walk_axes(index: int, first: tuple[int, int], extent: tuple[int, int]) -> int:
    low = [first[0] & 0xFFFF, extent[0], first[1] & 0xFFFF, extent[1]]
    return tdesc(index, 7, sum(v << 16 * i for i, v in enumerate(low)))


# --- vector words (6.2) ---


def alu(
    op: int,
    vd: int = 0,
    va: int = 0,
    vb: int = 0,
    vc: int = 0,
    sa: int = 0,
    sb: int = 0,
    sc: int = 0,
    pr: int = 0,
    pm: int = 0,
) -> int:
    word = op << 27 | sa << 25 | sb << 23 | sc << 21
    return word | vd << 17 | va << 13 | vb << 9 | vc << 5 | pr << 3 | pm << 1


def mem(op: int, ad: int, off: int, dtype: int = 0, vd: int = 0) -> int:
    return op << 27 | dtype << 24 | ad << 21 | vd << 17 | (off & 0x3FFF)


def vld(vd: int, ad: int, off: int = 0, dtype: int = 1) -> int:
    return mem(0x14, ad, off, dtype, vd)


def vst(vd: int, ad: int, off: int = 0, dtype: int = 1) -> int:
    return mem(0x15, ad, off, dtype, vd)


def vfill(ad: int, off: int) -> int:
    return mem(0x1D, ad, off)


def vdrain(ad: int, off: int) -> int:
    return mem(0x1E, ad, off)


def vdrain_node(ad: int, first: int, x: int, y: int, buf: int = 0, ack: int = 0, quant: int = 0) -> int:
    return 0x1E << 27 | quant << 26 | ack << 25 | 1 << 24 | ad << 21 | x << 17 | y << 13 | buf << 9 | first


def vcvt(vd: int, va: int, dtype: int = 1) -> int:
    return 0x12 << 27 | dtype << 24 | vd << 17 | va << 13


def vred(sd: int, kind: int, va: int = 0, vb: int = 0, pr: int = 0) -> int:
    return 0x13 << 27 | sd << 17 | va << 13 | vb << 9 | kind << 5 | pr << 3


def vbcast(vd: int, va: int, selector: int) -> int:
    return 0x16 << 27 | selector << 25 | vd << 17 | va << 13


def vshuf(vd: int, va: int, s: int) -> int:
    return 0x17 << 27 | vd << 17 | va << 13 | s << 9


def vsetvl(s: int) -> int:
    return 0x18 << 27 | s << 13


def vsetmode(mode: int) -> int:
    return 0x19 << 27 | mode << 13


def vseti(s: int, value: int) -> list[int]:
    return [0x1A << 27 | s << 17, value]


def vseti_k3(value: int) -> list[int]:
    return [0x1A << 27 | 3 << 25, value]


def vloop(s: int, body: int) -> int:
    return 0x1B << 27 | s << 13 | body << 9


VBAR = 0x1C << 27
VHALT = 0x1F << 27

# --- envelopes (6.1) ---


def imem(addr: int, word: int) -> int:
    return 1 << 252 | addr << 243 | word


def desc(ad: int, fld: int, value: int) -> int:
    return 2 << 252 | ad << 249 | fld << 246 | (value & ((1 << 34) - 1)) << 212 | (value >> 34) << 63


def dim(ad: int, d: int, stride: int, bound: int) -> int:
    return desc(ad, 1 + d, (stride & 0x3FFFF) << 16 | bound)


def run(pc: int) -> int:
    return 3 << 252 | pc << 243


Descriptors = dict[int, tuple[int, list[tuple[int, int]]]]  # ad -> base, [(stride, bound)..]


def vector_program(words: Sequence[int], at: int = 0, descs: Descriptors | None = None) -> list[int]:
    """Envelopes that load `words` at `at` and the descriptors {ad: (base, [(stride, bound)..])}, then RUN."""
    out = [imem(at + i, w) for i, w in enumerate(words)]
    for ad, (base, dims) in (descs or {}).items():
        out.append(desc(ad, 0, base))
        out += [dim(ad, d, *dims[d]) if d < len(dims) else dim(ad, d, 0, 1) for d in range(4)]
    return [*out, run(at)]


# --- a round (4.1, 7) ---

AGENT = 0x1000_0000


def control(mesh: int, offset: int) -> int:
    return mesh << 32 | offset


def memory(mesh: int, address: int) -> int:
    return (mesh + 1) << 40 | address


def quads(values: Sequence[int]) -> bytes:
    return b"".join(v.to_bytes(8, "little") for v in values)


def stage_flit(payload: int, txn: int, last: bool, kind: int = 5) -> list[int]:
    """The five 64-bit words of a flit, CU_INST by default; the dispatcher fills in the coordinates."""
    flit = kind << 268 | (txn & 0xFF) << 260 | int(last) << 259 | payload
    return [flit >> 64 * i & ((1 << 64) - 1) for i in range(5)]


def data_descriptor(buf: int, offset: int, count: int, flags: int = 0, ack: tuple[int, int] = (0, 0)) -> int:
    """A CU_DATA descriptor's payload for `count` data flits; ack is (x, y)."""
    return buf << 248 | offset << 232 | (count - 1) << 224 | flags << 216 | ack[1] << 212 | ack[0] << 208


class Host:
    """Makes the writes of rounds; it keeps each node's signal count to know what to poll for."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, int, int], int] = {}
        self.writes: list[tuple[int, bytes]] = []

    def store(self, mesh: int, address: int, data: bytes) -> None:
        self.writes.append((memory(mesh, address), data))

    def round(
        self,
        mesh: int,
        programs: Sequence[tuple[tuple[int, int], Sequence[int]]],
        acks: dict[tuple[int, int], int] | None = None,
        credits: int = 31,
        first: Sequence[tuple[int, int]] = (),
    ) -> None:
        """One round on one mesh: ((x, y), payloads) programs and expected DATA_RECEIVED counts.

        Nodes in `first` are awaited for their acknowledgements before they are kicked (7.3).
        """
        acks = acks or {}
        agent = control(mesh, AGENT)
        staged: list[int] = []
        commands: list[tuple[int, int, int, int]] = [(1, agent + 0x60, credits, 0)]
        expected: dict[tuple[int, int], int] = dict(acks)

        def poll(xy: tuple[int, int], signals: int) -> None:
            total = self.counts.get((mesh, *xy), 0) + signals
            node = agent + 0x1000 + 8 * (xy[1] << 4 | xy[0])
            commands.append((2, node, (total & 0xFFFF) << 8 | 1, 0x00FFFF01))

        for xy, payloads in programs:
            base = len(staged) // 5
            for i, payload in enumerate(payloads):
                staged += stage_flit(payload, i, i == len(payloads) - 1)
            commands.append((2, agent + 0x58, 0, 1))
            if xy in first:
                poll(xy, acks.get(xy, 0))
            for offset, value in ((0x40, xy[1] << 4 | xy[0]), (0x68, base), (0x48, len(payloads)), (0x50, 1)):
                commands.append((1, agent + offset, value, 0))
            expected[xy] = expected.get(xy, 0) + len(payloads)
        for xy, signals in expected.items():
            poll(xy, signals)
            self.counts[mesh, *xy] = self.counts.get((mesh, *xy), 0) + signals
        commands.append((3, 0, 0, 0))
        assert len(staged) <= 5 * 128
        assert len(commands) <= 128
        self.writes.append((control(mesh, AGENT + 0x2000), quads(staged)))
        self.writes.append((control(mesh, 0x1000), quads([v for command in commands for v in command])))
        self.writes.append((control(mesh, 0), quads([1])))
