"""Kernel cycles, the result word of a RUN: the measured points and the rules of datasheet 8.1 and 8.3."""

from __future__ import annotations

import pytest

from kohakutpu import machines
from kohakutpu.units import vector_state as vs
from units_vector.rig import Core

PREAMBLE = "VSETI S0,128\nVSETI S1,0xBFB8AA\nVSETVL S0\nVSETMODE FLAT\n"

COPY = "VMOV v7,v0"
SILU = "VMUL v1,v0,S1\nVEXP2 v2,v1\nVADD v3,v2,K1\nVINV v4,v3\nVMUL v7,v0,v4"
ADDS = "VADD v1,v0,v0\nVADD v7,v0,v0"


def batch(body: str) -> str:
    """1024 FP16 elements: 8 chunks of VL = 128, DRAM to DRAM."""
    chunks = "\n".join(f"VLD v0,A2+{8 * c} FP16\n{body}\nVST v7,A2+{64 + 8 * c} FP16" for c in range(8))
    return f"{PREAMBLE}VFILL A0,0\nVBAR\n{chunks}\nVDRAIN A1,64"


def prepare(core: Core) -> None:
    core.mem.half[: 64 * 16] = 0x3C00
    core.mem.written[:64] = 1
    core.desc(0, 0, (32, 64))
    core.desc(1, 8192, (32, 64))
    core.desc(2, 0, (1, 8))
    # Memory that answers each request after 20 cycles and takes one request per 3 cycles.
    core.vc.place[core.u, vs.ONE_WAY :] = 0, 20, 3


@pytest.mark.parametrize(("body", "cycles"), [(COPY, 1674), (SILU, 2474), (ADDS, 1778)])
def test_measured_points(core: Core, body: str, cycles: int) -> None:
    prepare(core)
    assert core.ok(batch(body)) == cycles
    assert int(core.vc.kernel[0]) == cycles


def test_vfill_run_behind_a_clock_crossing() -> None:
    """VFILL 64, VBAR, VHALT takes 806 at L = 10, its fetch of 4 included, on a core one router away."""
    machine = machines.load("ship_3x2")
    core = Core(machine.with_(timing={"L": machine.timing.L_crossing}))
    core.mem.written[:64] = 1
    core.desc(0, 0, (32, 64))
    before = int(core.vc.busy[0])
    core.write("VFILL A0,0\nVBAR\nVHALT")
    slots = int(core.vc.busy[0]) - before
    assert slots == 3 * machine.timing.vc_slot
    assert core.run() == 0
    assert int(core.note[1]) + machine.timing.run_fetch == 806
    assert int(core.vc.busy[0]) - before - slots == 806


FLAT16 = "VSETI S0,16\nVSETVL S0\n"
TREE = "VSETI S0,128\nVSETVL S0\nVSETMODE TREE\n"
HALT, SETUP = 5, 6 + 4


@pytest.mark.parametrize(
    ("program", "cycles"),
    [
        ("", HALT),
        ("VSETI S3,7", 6 + HALT),
        ("VSETI K3,7", 6 + HALT),
        ("VBAR", 5 + HALT),
        ("VSETMODE D2\nVSETMODE FLAT", 4 + 4 + HALT),
        # One FLAT word of 8 chunks: its pipeline is empty 79 after the last beat, at 8.
        ("VMOV v1,v2", 8 + 79 + HALT),
        # Independent words follow each other after n + 5.
        ("VMOV v1,v2\nVMOV v3,v4", 13 + 8 + 79 + HALT),
        # Reading, overwriting, and reading a predicate wait for the beat 18 after the last one.
        ("VMOV v1,v2\nVMOV v3,v1", 25 + 8 + 79 + HALT),
        ("VMOV v1,v2\nVMOV v1,v3", 25 + 8 + 79 + HALT),
        ("VCMPLT P1,v2,v3\nVMOV v1,v3 ?P1", 25 + 8 + 79 + HALT),
        ("VCMPLT P1,v2,v3\nVMOV v1,v3 ?P2", 13 + 8 + 79 + HALT),
        ("VCMPLT P1,v2,v3\nVCMPLT P1,v3,v2", 25 + 8 + 79 + HALT),
        ("VCMPLT P1,v2,v3\nVRED S1,P1,ANY", 8 + 17 + 4 + 58 + HALT),
        # An unused source does not make a dependence, nor does reading what is only read.
        ("VMOV v0,v2\nVADD v3,v1,v1", 13 + 8 + 79 + HALT),
        (FLAT16 + "VMOV v1,v2\nVMOV v3,v1", SETUP + 1 + 17 + 1 + 79 + HALT),
        # Chains of depth D: 5 + 4(D-1) + nD.
        ("VSETMODE D2\nVMOV v1,v2\n+ VADD v3,C,K1\nVMOV v4,v5\n+ VADD v6,C,K1", 4 + 25 + 4 + 16 + 79 + HALT),
        ("VSETMODE D4\nVMOV v1,v2\n+ VADD v3,C,K1\n+ VADD v3,C,K1\n+ VADD v3,C,K1", 4 + 12 + 32 + 79 + HALT),
        # Empty pipeline before VCVT, VSHUF, VBCAST, VSETMODE; a VRED keeps VSETMODE waiting for 13.
        ("VMOV v1,v2\nVCVT v3,v1 FP16", 87 + 29 + HALT),
        ("VMOV v1,v2\nVSHUF v3,v1,S0", 87 + 29 + HALT),
        ("VMOV v1,v2\nVBCAST v3,S1", 87 + 29 + HALT),
        ("VMOV v1,v2\nVSETMODE D2\nVSETMODE FLAT", 87 + 4 + 4 + HALT),
        (TREE + "VRED S1,v0,SUM\nVSETMODE FLAT", 14 + 153 + 13 + 4 + HALT),
        (TREE + "VRED S1,v0,SUM\nVRED S1,v0,MAX\nVSETMODE FLAT", 14 + 153 * 2 + 13 + 4 + HALT),
        (TREE + "VRED S1,v0,SUMSQ\nVSETMODE FLAT", 14 + 161 + 13 + 4 + HALT),
        (TREE + "VRED S1,v0,EXPSUM->v1\nVSETMODE FLAT", 14 + 161 + 13 + 4 + HALT),
    ],
)
def test_costs(core: Core, program: str, cycles: int) -> None:
    assert core.ok(program) == cycles


def test_loop_costs_its_iterations(core: Core) -> None:
    assert core.ok("VSETI S1,3\nVLOOP S1,2\nVSETI S2,1") == 6 + 4 + 3 * 6 + HALT


def test_memory_words(core: Core) -> None:
    prepare(core)
    core.desc(2, 0, (2, 8))
    core.put(0, core.mem.half[: 64 * 16])
    assert core.ok("VLD v0,A2+0 FP16") == 37 + HALT
    assert core.ok("VLD v0,A2+0 FP32") == 69 + HALT
    assert core.ok("VST v0,A2+0 FP16") == 29 + HALT
    assert core.ok("VST v0,A2+0 FP32") == 37 + HALT
    assert core.ok("VMOV v1,v2\nVLD v0,A2+0 FP16") == 87 + 37 + HALT
    assert core.ok("VMOV v1,v2\nVST v0,A2+0 FP16") == 87 + 29 + HALT
    assert core.ok("VDRAIN A1,0") == 202 + HALT
    # A second VFILL waits for the first, which is complete 218 after it began.
    assert core.ok("VFILL A0,0\nVFILL A0,64") == 218 + 218 + HALT


def test_latency_of_a_port(core: Core) -> None:
    """One word: out, L + 3, back; each further one L + 2. Two routers from VC1 to its port."""
    far = Core(u=1)
    for c, one_way in ((core, 7), (far, 11)):
        for words in (1, 2, 64):
            c.mem.written[:64] = 1
            c.desc(0, 0, (32, words))
            latency = c.machine.timing.L
            assert c.ok("VFILL A0,0\nVBAR") == 9 + 2 * one_way + latency + 3 + (words - 1) * (latency + 2) + 5 + HALT


def test_ideal_profile() -> None:
    core = Core(machines.load("ship_3x2").with_(profile="ideal"))
    assert core.ok("VMOV v1,v2\nVMOV v3,v4") == 8 + 8 + 14 + 1
    assert core.ok("VMOV v1,v2\nVMOV v3,v1") == 8 + 13 + 8 + 14 + 1
    assert core.ok("VSETMODE TREE\nVRED S1,v0,SUM\nVSETMODE FLAT") == 1 + 8 + 56 + 1 + 1
