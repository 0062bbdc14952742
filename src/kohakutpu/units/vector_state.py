"""Where the vector cores keep what they hold: one named tuple of arrays over all cores of a machine.

Decides the shapes, the reset values (datasheet 6.1) and which cost of the machine description is read where; it
must not know instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.machine import Machine, Unit

LANES = 16  # elements of a chunk, of a 256-bit FP16 word
VLMAX = 128
REGS = 16
IMEM = 512  # program words
L1 = 512  # 256-bit words
DESCRIPTORS = 8
WALK = 256  # addresses one VFILL or VDRAIN may make

# Rows of `bits` per core. A scalar or constant is kept as a row of 128 copies, so every operand is a row.
ROW_S = 16
ROW_K = 32
ROW_RESULT = 36  # two rows: results, chain stages and tree levels alternate between them
ROW_CLEAN = 38  # three rows: operands freed of words with exponent 0 and a mantissa
ROW_SEED = 41  # four rows: coefficients and table positions of the seed functions
ROWS = 45

# Columns of `core`.
VL, MODE, BAD_BURST = range(3)

# Columns of `place`: mesh of the core; how its port answers single-word reads, in cycles.
MESH, ONE_WAY, FIRST_WORD, WORD_PERIOD = range(4)

# States of an L1 word.
NEVER, WRITTEN, PENDING = 0, 1, 2

# Columns of `descriptor`: base, four strides, four bounds (0 already read as 1).
BASE, STRIDE, BOUND = 0, 1, 5

# Entries of `option`: what revision 2 adds (1 where the machine has it), and the policy for non-finite operands.
QUANTISER, WIDE_INBOX, COUNT_NONFINITE = range(3)

COSTS = (
    "alu_extra", "chain_stage", "dependence", "vld_fp16", "vld_fp32", "vst_fp16", "vst_fp32", "vmove",
    "mem_extra", "empty_pipeline", "vred", "vred_setmode", "vset", "vseti", "vbar", "vhalt", "vfill_base",
    "vfill_word", "vdrain_base", "vdrain_word", "vdrain_entry", "run_fetch", "vc_slot",
)  # fmt: skip
"""Columns of `cost`: timings of the machine description (datasheet 8.3), by their names there."""

(C_ALU, C_STAGE, C_DEPENDENCE, C_VLD16, C_VLD32, C_VST16, C_VST32, C_MOVE, C_MEM, C_EMPTY, C_VRED, C_VRED_TAIL,
 C_SET, C_SETI, C_BAR, C_HALT, C_FILL, C_FILL_WORD, C_DRAIN, C_DRAIN_WORD, C_DRAIN_ENTRY, C_FETCH,
 C_SLOT) = range(len(COSTS))  # fmt: skip


class Vectors(NamedTuple):
    """The state of all vector cores, unit by unit in the machine's order; U is their number.

    Reset values are the datasheet's (6.1). Counters are cumulative over the state's life.
    """

    bits: NDArray[np.uint32]  # [U * ROWS, 128] rows in E8M15 register form: V, S, K, then scratch
    real: NDArray[np.float32]  # the same memory as values
    odd: NDArray[np.uint8]  # [U, 16] the V register may hold words with exponent 0 and a mantissa
    scalar: NDArray[np.int64]  # [U, 16] S registers, 24-bit codes as written
    constant: NDArray[np.int64]  # [U, 4] K registers, 24-bit codes as written
    predicate: NDArray[np.uint8]  # [U * 4, 128] 0 or 1
    half: NDArray[np.uint16]  # [U * 512 * 16] L1 as binary16
    single: NDArray[np.uint32]  # [U * 512 * 8] the same memory as binary32
    wide: NDArray[np.uint64]  # [U * 512 * 4] the same memory as 64-bit words
    filled: NDArray[np.uint8]  # [U * 512] NEVER, WRITTEN or PENDING (targeted by an outstanding VFILL)
    word: NDArray[np.int64]  # [U * 512] program memory as written
    imem: NDArray[np.int64]  # [U * 512, columns] the same words decoded (vector_decode)
    descriptor: NDArray[np.int64]  # [U * 8, 9]
    core: NDArray[np.int64]  # [U, 3] VL, mode, a bad burst to report
    place: NDArray[np.int64]  # [U, 4]
    cost: NDArray[np.int64]  # [len(COSTS)]
    option: NDArray[np.int64]  # [3] QUANTISER, WIDE_INBOX, COUNT_NONFINITE
    wrote: NDArray[np.int64]  # [U, 20] last beat that wrote each V and P register, within the current RUN
    walk: NDArray[np.int64]  # [U, 256] scratch: addresses of a descriptor walk
    passing: NDArray[np.uint16]  # [U, 128] scratch: binary16 codes of VCVT
    retired: NDArray[np.int64]  # [U] instructions retired
    busy: NDArray[np.int64]  # [U] busy cycles
    kernel: NDArray[np.int64]  # [U] cycles of the last RUN, its result word
    saturated: NDArray[np.int64]  # [U] sat_store (2.8)
    nonfinite: NDArray[np.int64]  # [U] non-finite operands of the drain quantiser
    lanes: NDArray[np.int8]  # [4, 32] scratch: the quantised lanes of an entry; their scales; the entry's image
    scales: NDArray[np.uint8]  # [4]
    image: NDArray[np.int8]  # [128]
    octets: NDArray[np.uint64]  # [16] the same memory


def _answers(machine: Machine, unit: Unit) -> tuple[int, int, int]:
    """Cycles to reach the port, from a read's arrival there to its word, and between words of a queue.

    Datasheet 8.1: a single-word read takes L + 3. Two of them overlap by a cycle: the next address goes out
    while the last word is handed over, which is what makes a RUN of VFILL 64, VBAR, VHALT take 806 at L = 10.
    """
    timing, port = machine.timing, machine.port_of(unit)
    routers = machine.meshes[unit.mesh].hops((unit.x, unit.y), (port.x, port.y))
    one_way = timing.router_latency * routers + timing.endpoint_out + timing.endpoint_in
    first = timing.L + timing.read_word
    return one_way, first, first - 1


def reset_vectors(n: int) -> Vectors:
    """Reset state of n vector cores that cost nothing and belong to mesh 0."""
    # Imported here because the decoder is compiled and importing this module must stay cheap.
    from kohakutpu.units.vector_decode import COLUMNS, reset_word

    bits = np.zeros((n * ROWS, VLMAX), np.uint32)
    wide = np.zeros(n * L1 * 4, np.uint64)
    constant = np.tile(np.array([0, 0x3F8000, 0xBF8000, 0], np.int64), (n, 1))
    for k in range(4):
        bits[ROW_K + k :: ROWS] = constant[:1, k : k + 1].astype(np.uint32) << 8
    descriptor = np.zeros((n * DESCRIPTORS, 9), np.int64)
    descriptor[:, BOUND:] = 1
    core = np.zeros((n, 3), np.int64)
    core[:, VL] = VLMAX
    image = np.zeros(128, np.int8)

    def counter() -> NDArray[np.int64]:
        return np.zeros(n, np.int64)

    return Vectors(
        bits=bits,
        real=bits.view(np.float32),
        odd=np.zeros((n, REGS), np.uint8),
        scalar=np.zeros((n, 16), np.int64),
        constant=constant,
        predicate=np.zeros((n * 4, VLMAX), np.uint8),
        half=wide.view(np.uint16),
        single=wide.view(np.uint32),
        wide=wide,
        filled=np.zeros(n * L1, np.uint8),
        word=np.zeros(n * IMEM, np.int64),
        imem=np.tile(reset_word(), (n * IMEM, 1)).reshape(n * IMEM, COLUMNS),
        descriptor=descriptor,
        core=core,
        place=np.zeros((n, 4), np.int64),
        cost=np.zeros(len(COSTS), np.int64),
        option=np.zeros(3, np.int64),
        wrote=np.zeros((n, REGS + 4), np.int64),
        walk=np.zeros((n, WALK), np.int64),
        passing=np.zeros((n, VLMAX), np.uint16),
        retired=counter(),
        busy=counter(),
        kernel=counter(),
        saturated=counter(),
        nonfinite=counter(),
        lanes=np.zeros((4, 32), np.int8),
        scales=np.zeros(4, np.uint8),
        image=image,
        octets=image.view(np.uint64),
    )


def make_vectors(machine: Machine) -> Vectors:
    """Reset state of the machine's vector cores (none is fine). Raises Unsupported for other geometries."""
    fixed = {"vlanes": LANES, "vlmax": VLMAX, "vregs": REGS, "sregs": 16, "pregs": 4, "kregs": 4}
    fixed |= {"descs": DESCRIPTORS, "dims": 4, "imem": IMEM, "vl1": L1, "walk_max": WALK}
    for name, value in fixed.items():
        if machine.params[name] != value:
            raise Unsupported(
                f"the vector core model has {name} = {value}",
                where=f"machine {machine.name}",
                got=machine.params[name],
                hint="leave the parameter at its default",
            )
    units = machine.units_of("VC")
    vectors = reset_vectors(len(units))
    for u, unit in enumerate(units):
        vectors.place[u] = unit.mesh, *_answers(machine, unit)
    vectors.cost[:] = [machine.timing[name] for name in COSTS]
    vectors.option[:] = machine.features.r2_vc_quant, machine.features.r2_acc_to_vc, 0
    return vectors
