"""Bundles of the vector side: moves, background operations, loops, predicates, vregs, packed bytes, bits, floats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinytpu_acceptance.bundle import bundle, lines, tile
from tinytpu_acceptance.table import Check, Table, table

Words = NDArray[np.int64]
RNG = np.random.default_rng(43)
X: Words = RNG.integers(-(2**31), 2**31, (2, 4, 4))
Y: Words = RNG.integers(-99, 100, (2, 4, 4))
DATA = lines("VMEM", 0, [*X, *Y])
LOAD = "LOAD v1, VMEM[0]\nLOAD v2, VMEM[1]"
SMALL = "LOAD v1, VMEM[2]\nLOAD v2, VMEM[3]"
OUT = "STORE VMEM[9], v3"
HEAD = f"{DATA}\n{LOAD}\n"
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def moves() -> Iterator[Check]:
    x = X[0]
    for lane in range(4):
        want = np.repeat(x[:, [lane]], 4, 1)
        yield bundle(f"BROADCAST of lane {lane}", f"{HEAD}BROADCAST v3 = LANE(v1, lane={lane})\n{OUT}", vmem={9: want})
        yield bundle(f"BROADCAST_COL {lane}", f"{HEAD}BROADCAST_COL v3 = COL(v1, col={lane})\n{OUT}", vmem={9: want})
        yield bundle(f"BROADCAST_ROW {lane}", f"{HEAD}BROADCAST_ROW v3 = ROW(v1, row={lane})\n{OUT}",
                     vmem={9: np.repeat(x[[lane]], 4, 0)})  # fmt: skip
        yield bundle(f"ROTATE by {lane}", f"{HEAD}ROTATE v3, v1, amount={lane}\n{OUT}", vmem={9: np.roll(x, -lane, 1)})
    for r, c in ((0, 0), (1, 3), (3, 2)):
        yield bundle(f"BROADCAST_SCALAR [{r},{c}]", f"{HEAD}BROADCAST_SCALAR v3 = v1[{r},{c}]\n{OUT}",
                     vmem={9: np.full((4, 4), x[r, c])})  # fmt: skip
    yield bundle("TRANSPOSE", f"{HEAD}TRANSPOSE v3, v1\n{OUT}", vmem={9: x.T}, cycles=2 * 10 + 3 * 2 + 4 + 1 + 5)
    yield bundle("TRANSPOSE twice", f"{HEAD}TRANSPOSE v3, v1\nTRANSPOSE v3, v3\n{OUT}", vmem={9: x})
    yield bundle("moves in a row never wait", f"{HEAD}TRANSPOSE v3, v1\nROTATE v3, v3, amount=1\nBROADCAST_ROW v3 = "
                 f"ROW(v3, row=2)\n{OUT}", vmem={9: np.repeat(np.roll(x.T, -1, 1)[[2]], 4, 0)},
                 cycles=2 * 12 + 3 * 2 + 3 * 2 + 2 + 1 + 4 + 1)  # fmt: skip


def background() -> Iterator[Check]:
    add = X[0] + X[1]
    yield bundle("a dispatch is collected", f"{HEAD}VPU_BG v3 = ADD(v1, v2)\n{OUT}", vmem={9: add},
                 cycles=2 * 10 + 3 * 2 + 3 + 2 + 1 + 4 + 1)  # fmt: skip
    yield bundle("a chain of dependent ones", f"{HEAD}VPU_BG v3 = ADD(v1, v2)\nVPU_BG v3 = XOR(v3, v1)\nVPU_BG v3 = "
                 f"SUB(v3, v2)\n{OUT}", vmem={9: (add.astype(np.int32) ^ X[0]) - X[1]})  # fmt: skip
    zero = np.zeros((4, 4), np.float32)
    yield bundle("a long one runs behind moves", f"{HEAD}VZERO v5\nVPU_BG v3 = EXP2(v5)\nVFILL v4, imm=3\nVFILL v6, "
                 f"imm=4\nSTORE VMEM[10], v4\n{OUT}", vmem={9: np.exp2(zero), 10: np.full((4, 4), 3)})  # fmt: skip
    yield bundle("it leaves its result in the result register", f"{HEAD}VPU_BG v4 = ADD(v1, v2)\nLOAD_VPU_RESULT v3\n"
                 f"{OUT}", vmem={9: add})  # fmt: skip


def loops() -> Iterator[Check]:
    one = f"{DATA}\nVFILL v1, imm=1\nVZERO v3\n"
    for counts in ((1,), (3,), (255,), (2, 3), (3, 4, 5), (2, 3, 2, 2)):
        depth, cost = len(counts), 3
        for n in reversed(counts):
            cost = 2 + n * (cost + 2)
        text = "".join(f"LOOP_BEGIN count={n}\n" for n in counts) + "VPU v3 = ADD(v3, v1)\n" + "LOOP_END\n" * depth
        records = 4 + 2 + 1 + 2 * depth + 1 + 1 + 1
        yield bundle(f"nested {depth} deep, {'x'.join(map(str, counts))}", f"{one}{text}{OUT}",
                     vmem={9: np.full((4, 4), np.prod(counts))},
                     cycles=2 * records + 4 + cost + 2 + 1 + 4 + 1)  # fmt: skip
    seen = "LOOP_BEGIN count=2\nLOOP_BEGIN count=3\nLOAD_LOOP_DEPTH v3\nLOOP_END\nLOOP_END\n"
    yield bundle("the depth inside", f"{DATA}\n{seen}{OUT}", vmem={9: [2, 0, 0, 0]})
    yield bundle("the depth behind", f"{DATA}\n{seen}LOAD_LOOP_DEPTH v3\n{OUT}", vmem={9: [0, 0, 0, 0]})
    two = "LOOP_BEGIN count=4\nVPU v3 = ADD(v3, v1)\nLOOP_END\nLOOP_BEGIN count=5\nVPU v3 = ADD(v3, v1)\nLOOP_END\n"
    yield bundle("one after the other", f"{one}{two}{OUT}", vmem={9: np.full((4, 4), 9)})
    doubled = (
        f"{DATA}\n{LOAD}\nVMOV v3, v1\nLOOP_BEGIN count=7\nVPU v3 = ADD(v3, v3)\nVPU v3 = XOR(v3, v2)\nLOOP_END\n{OUT}"
    )
    value = X[0].astype(np.int32)
    for _ in range(7):
        value = (value + value) ^ X[1].astype(np.int32)
    yield bundle("a body of two", doubled, vmem={9: value})


def predicates() -> Iterator[Check]:
    for value in (0, 5, -1):
        for test in ("IF_ZERO", "NE_ZERO"):
            for skip in ("IF_PRED", "IF_NOT_PRED"):
                pred = (value == 0) == (test == "IF_ZERO")
                stays = 7 if pred == (skip == "IF_PRED") else 8
                text = (
                    f"VFILL v1, imm={value}\nVFILL v3, imm=7\nSET_PRED_{test} v1\nSKIP_{skip} AFTER\nVFILL v3, imm=8\n"
                )
                yield bundle(f"{test} of {value}, SKIP_{skip}", f"{DATA}\n{text}AFTER: {OUT}",
                             vmem={9: np.full((4, 4), stays)},
                             cycles=2 * 12 + (5 if stays == 8 else 4) * 2 + 2 + 1 + 4 + 1)  # fmt: skip
    again = "VZERO v1\nSET_PRED_IF_ZERO v1\nSKIP_IF_PRED\nHALT\nSKIP_IF_PRED\nVFILL v3, imm=8\n"
    yield bundle("a skip leaves the predicate 0", f"{DATA}\n{again}{OUT}", vmem={9: np.full((4, 4), 8)})
    corner = np.zeros((4, 4), int)
    corner[1:, :], corner[0, 1:] = 9, 9
    only = f"{tile('VMEM', 5, corner)}\nLOAD v1, VMEM[5]\nVFILL v3, imm=1\n"
    only += "SET_PRED_IF_ZERO v1\nSKIP_IF_PRED\nVFILL v3, imm=2\n"
    yield bundle("only the first element counts", f"{only}{OUT}", vmem={9: np.ones((4, 4), int)})


def vregs() -> Iterator[Check]:
    yield bundle("VZERO", f"{HEAD}VMOV v3, v1\nVZERO v3\n{OUT}", vmem={9: np.zeros((4, 4), int)})
    for imm in (-128, -1, 0, 127):
        yield bundle(f"VFILL {imm}", f"{HEAD}VFILL v3, imm={imm}\n{OUT}", vmem={9: np.full((4, 4), imm)})
    yield bundle("VMOV", f"{HEAD}VMOV v3, v2\n{OUT}", vmem={9: X[1]})
    ends = np.array([[INT_MIN, INT_MAX, 0, -1], *X[0, 1:]])
    edge = f"{tile('VMEM', 5, ends)}\nLOAD v1, VMEM[5]\n"
    yield bundle("VNEG", f"{edge}VNEG v3, v1\n{OUT}", vmem={9: -ends})
    yield bundle("VABS", f"{edge}VABS v3, v1\n{OUT}", vmem={9: np.abs(ends)})
    yield bundle("SELECT", f"{DATA}\n{SMALL}\nVPU v4 = CMPLT(v1, v2)\nSELECT v3 = SELECT(v4, v1, v2)\n{OUT}",
                 vmem={9: np.minimum(Y[0], Y[1])})  # fmt: skip
    yield bundle("SELECT leaves its result in the result register", f"{DATA}\n{SMALL}\nSELECT v4 = SELECT(v1, v1, v2)\n"
                 f"LOAD_VPU_RESULT v3\n{OUT}", vmem={9: np.where(Y[0] != 0, Y[0], Y[1])})  # fmt: skip
    yield bundle("LOAD_VPU_RESULT", f"{HEAD}VPU v4 = SUB(v1, v2)\nLOAD_VPU_RESULT v3\n{OUT}", vmem={9: X[0] - X[1]})
    yield bundle("LOAD_XLU_RESULT", f"{HEAD}TRANSPOSE v4, v1\nLOAD_XLU_RESULT v3\n{OUT}", vmem={9: X[0].T})
    yield bundle("the vector unit's SELECT keeps its result", f"{DATA}\n{SMALL}\nVPU v4 = CMPLT(v1, v2)\n"
                 f"VPU v5 = COPY(v2)\nVPU v3 = SELECT(v4, v1)\n{OUT}", vmem={9: np.minimum(Y[0], Y[1])})  # fmt: skip
    records, before = 4 + 7, 2 * 3
    at = np.array([2 * records + 4 + before, 0, 0, 0])
    yield bundle("READ_CYCLE", f"{DATA}\n{LOAD}\nREAD_CYCLE v3\n{OUT}\nVZERO v7", vmem={9: at})
    yield bundle("a vreg never written is 0", f"{DATA}\n{OUT}", vmem={9: np.zeros((4, 4), int)})


def as_bytes(words: Words) -> NDArray[np.int64]:
    return words.astype(np.int32).reshape(-1).view(np.int8).astype(np.int64)


def as_words(values: NDArray[np.int64]) -> NDArray[np.int32]:
    return values.astype(np.int8).view(np.int32)


Two = Callable[[Any, Any], Any]
PACKED: dict[str, Two] = {
    "ADD": lambda a, b: np.clip(a + b, -128, 127), "SUB": lambda a, b: np.clip(a - b, -128, 127), "MAX": np.maximum,
    "MIN": np.minimum, "CMPLT": lambda a, b: -(a < b).astype(int), "CMPEQ": lambda a, b: -(a == b).astype(int),
    "MUL_LOW": lambda a, b: a * b, "MUL_HIGH": lambda a, b: (a * b) >> 8,
    "ABS_DIFF": lambda a, b: np.minimum(abs(np.clip(a - b, -128, 127)), 127), "NEG": lambda a, _: np.minimum(-a, 127),
    "ABS": lambda a, _: np.minimum(abs(a), 127), "RELU": lambda a, _: np.maximum(a, 0), "SIGN": lambda a, _: np.sign(a),
}  # fmt: skip
PINNED = {"ADD": (0x7F80FF01, 0x01FF0101, 0x7F800002), "SUB": (0x8000017F, 0x010180FF, 0x80FF7F7F),
          "MUL_LOW": (0x807F0503, 0x807FFB02, 0x0001E706), "MUL_HIGH": (0x807F0503, 0x807FFB02, 0x403FFF00),
          "CMPLT": (0x80000105, 0x7F000104, 0xFF000000), "CMPEQ": (0x80000105, 0x7F000104, 0x00FFFF00),
          "ABS_DIFF": (0x80000105, 0x7F000504, 0x7F000401), "NEG": (0x807FFF01, 0, 0x7F8101FF),
          "ABS": (0x807FFF01, 0, 0x7F7F0101), "RELU": (0x807FFF01, 0, 0x007F0001)}  # fmt: skip
UNARY = ("NEG", "ABS", "RELU", "SIGN")


def operation(name: str, a: Any, b: Any, want: Any, unary: bool, label: str = "") -> Check:
    data = f"{tile('VMEM', 0, a)}\n{tile('VMEM', 1, b)}\n{LOAD}\n"
    operands = "v1" if unary else "v1, v2"
    return bundle(f"{name}{label}", f"{data}VPU v3 = {name}({operands})\n{OUT}", vmem={9: want})


def signed(pattern: int) -> int:
    return pattern - (1 << 32) if pattern >> 31 else pattern


def packed() -> Iterator[Check]:
    a, b = as_bytes(X[0]), as_bytes(X[1])
    a[:8], b[:8] = [-128, -128, 127, 127, 0, -128, 5, -1], [-128, 127, 127, -128, -128, 0, 5, 1]
    for name, exact in PACKED.items():
        want = as_words(np.asarray(exact(a, b)))
        yield operation(f"PACKED_I8_{name}", as_words(a), as_words(b), want, name in UNARY)
    for name, (x, y, z) in PINNED.items():
        first, second, want = (np.full(16, signed(p)) for p in (x, y, z))
        yield operation(f"PACKED_I8_{name}", first, second, want, name in UNARY, ", as pinned")


def low(x: Any) -> int:
    return int(x) & 0xFFFFFFFF


BITS: dict[str, Callable[[int, int], int]] = {
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "MAX": max, "MIN": min,
    "AND": lambda a, b: a & b, "OR": lambda a, b: a | b, "XOR": lambda a, b: a ^ b, "NOT": lambda a, _: ~a,
    "SHL": lambda a, b: a << (b & 31), "SHR": lambda a, b: low(a) >> (b & 31), "CMPLT": lambda a, b: a < b,
    "CMPNE": lambda a, b: a != b, "CMPEQ": lambda a, b: a == b, "RELU": lambda a, _: max(a, 0),
    "DIV": lambda a, b: 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "SIGN": lambda a, _: (a > 0) - (a < 0), "CLZ": lambda a, _: 32 - low(a).bit_length(),
    "CTZ": lambda a, _: 32 if a == 0 else (low(a) & -low(a)).bit_length() - 1,
    "POPCOUNT": lambda a, _: low(a).bit_count(),
    "BYTE_REVERSE": lambda a, _: int.from_bytes(low(a).to_bytes(4, "big"), "little"),
    "SAT_ADD_I32": lambda a, b: max(INT_MIN, min(INT_MAX, a + b)),
    "SAT_SUB_I32": lambda a, b: max(INT_MIN, min(INT_MAX, a - b)),
    "ABS_DIFF_I32": lambda a, b: min(INT_MAX, abs(a - b)),
    "ROTL": lambda a, b: low(a) << (b & 31) | low(a) >> (-b & 31),
    "ROTR": lambda a, b: low(a) >> (b & 31) | low(a) << (-b & 31),
    "MIN_U32": lambda a, b: min(low(a), low(b)), "MAX_U32": lambda a, b: max(low(a), low(b)),
}  # fmt: skip
ONE = ("NOT", "RELU", "SIGN", "CLZ", "CTZ", "POPCOUNT", "BYTE_REVERSE")
EDGES = [
    (INT_MIN, -1),
    (INT_MIN, INT_MAX),
    (INT_MAX, 1),
    (INT_MAX, INT_MIN),
    (0, 0),
    (7, 0),
    (-7, 2),
    (-8, 33),
    (-1, 28),
]


def bit_operations() -> Iterator[Check]:
    rest = [(int(x), int(y)) for x, y in zip(X[0].reshape(-1)[:7], Y[0].reshape(-1))]
    pairs = EDGES + rest
    for name, exact in BITS.items():
        want = [exact(a, b) for a, b in pairs]
        yield operation(name, [a for a, _ in pairs], [b for _, b in pairs], want, name in ONE)
    folds: dict[str, Callable[[Any, int], Any]] = {"SUM": np.sum, "MAX": np.max, "MIN": np.min, "MUL": np.prod}
    tiles = {"SUM": X[0], "MAX": X[0], "MIN": X[0], "MUL": Y[0] % 7 - 3}
    for kind, fold in folds.items():
        x = tiles[kind]
        for way, axis in (("", 1), ("_COL", 0)):
            want = np.broadcast_to(np.expand_dims(fold(x, axis), axis), (4, 4))
            yield operation(f"{kind}_REDUCE{way}", x, x, want, True)
        yield operation(f"{kind}_REDUCE_TILE", x, x, np.full((4, 4), fold(x.reshape(-1), 0)), True)
    tie = np.array([[3, 9, 9, 3], [INT_MIN, INT_MAX, INT_MIN, INT_MAX], [5, 5, 5, 5], [4, 3, 2, 1]])
    for name, best in (("ARGMIN", np.argmin), ("ARGMAX", np.argmax)):
        yield operation(name, tie, tie, np.repeat(best(tie, 1)[:, None], 4, 1), True)
    yield operation("IPAIR_ROTATE", [1, 2, 3, 4] * 4, [3, 4, 5, 6] * 4, [-5, 10, -9, 38] * 4, False)


def patterns(*values: int) -> NDArray[np.int32]:
    return np.resize(np.array(values, np.uint32), 16).view(np.int32)


def floats() -> Iterator[Check]:
    f = RNG.normal(size=(2, 16)).astype(np.float32) * np.float32(100)
    f[0, :6], f[1, :6] = [0.0, -0.0, 1e-40, 3e38, np.inf, -1e-45], [-0.0, -0.0, -1e-40, 3e38, 1.0, 2.0]
    with np.errstate(all="ignore"):
        sums = {"FADD": f[0] + f[1], "FSUB": f[0] - f[1], "FMUL": f[0] * f[1]}
    for name, want in sums.items():
        yield operation(name, f[0], f[1], want, False)
    yield operation("FCMPLT", f[0], f[1], f[0] < f[1], False)
    yield operation("FMAX", f[0], f[1], np.where(f[0] >= f[1], f[0], f[1]), False)
    yield operation("FMIN", f[0], f[1], np.where(f[0] <= f[1], f[0], f[1]), False)
    yield operation("FABS", f[0], f[1], np.abs(f[0]), True)
    sign = np.where(f[0] == 0, np.float32(0), np.sign(f[0])).astype(np.float32)
    yield operation("FSIGN", f[0], f[1], sign, True)
    nan, inf = 0x7FC00000, 0x7F800000
    yield operation("FADD", patterns(inf, nan, 0x7F800001, 0xFFC00005), patterns(0xFF800000, inf, 0x3F800000, nan),
                    patterns(nan, nan, 0x7FC00001, 0xFFC00005), False, " of NaN and Inf")  # fmt: skip
    yield operation("FMUL", patterns(inf, 0, nan, inf), patterns(0, 0xFF800000, inf, 0xBF800000),
                    patterns(nan, nan, nan, 0xFF800000), False, " of NaN and Inf")  # fmt: skip
    yield operation("FMAX", patterns(nan, 0x3F800000, nan, 0x80000000), patterns(0x3F800000, nan, 0x7F800001, 0),
                    patterns(0x3F800000, nan, 0x7F800001, 0x80000000), False, " of NaN")  # fmt: skip
    yield operation("FSIGN", patterns(nan, 0xFFC00000, 0x80000000, 1), patterns(0),
                    patterns(0x3F800000, 0xBF800000, 0, 0x3F800000), True, " of NaN")  # fmt: skip
    golden = {"EXP2": (0x3F89B899, 0x3F31FD37, 0x40370164, 0x51517CD5 - 0x10000000),
              "LOG2": (0xC0528AC6, 0xBF800000, 0x3F1E809D, 0x3FF1F934),
              "SIN": (0x3DCC75C6, 0xBEF57E5D, 0x3F7F5925, 0xBF07A7DD),
              "COS": (0x3F7EBACA, 0x3F60CFBC, 0x3D90A220, 0x3F948F64),
              "FRECIP": (0x411FFFFF, 0xC0000000, 0x3F2AAAAA, 0x3E8A60DD)}  # fmt: skip
    for name, want in golden.items():
        yield operation(
            name, patterns(0x3DCCCCCD, 0xBF000000, 0x3FC00000, 0x406CCCCD), patterns(0), patterns(*want), True
        )
    yield operation("I2F", [16777219, INT_MAX, INT_MIN, -7] * 4, [0] * 16,
                    patterns(0x4B800001, 0x4EFFFFFF, 0xCF000000, 0xC0E00000), True)  # fmt: skip
    yield operation("F2I", patterns(0x4F000000, 0x4F32D05E, 0x7149F2CA, 0xBFFFFFFF), patterns(0),
                    [INT_MIN, -1294967296, -1624465408, -1] * 4, True)  # fmt: skip
    yield operation("PAIR_ROTATE", np.array([1, 2, 3, 4] * 4, np.float32), patterns(0x3F60A940, 0x3EF57744),
                    patterns(0xBDA67020, 0x400F0388, 0x3F370D38, 0x409E5AFD), False)  # fmt: skip
    big = np.zeros((4, 4), np.float32)
    big[0] = [1e8, 1, -1e8, 1]
    yield operation("FSUM_REDUCE", big, big, np.zeros((4, 4), np.float32), True, " is a tree")
    yield operation("FSUM_REDUCE_TILE", big, big, np.ones((4, 4), np.float32), True, " runs on")
    down = np.zeros((4, 4), np.float32)
    down[0] = 1
    yield operation(
        "FSUM_REDUCE_COL", big.T.copy(), big, np.repeat(down[:1], 4, 0) * [1, 0, 0, 0] + 0.0, True, " runs down"
    )


TABLES: tuple[Table, ...] = (
    table("bundles", "moves across lanes", moves()),
    table("bundles", "background operations", background()),
    table("bundles", "loops", loops()),
    table("bundles", "predicates", predicates()),
    table("bundles", "vregs", vregs()),
    table("bundles", "packed bytes", packed()),
    table("bundles", "integers and bits", bit_operations()),
    table("bundles", "floats", floats()),
)
