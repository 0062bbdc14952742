"""Faults and simulator errors: who, which instruction, what text; memory survives and the next run is clean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Fault
from kohakutpu.isa import cluster, flit, vector
from kohakutpu.isa import control as reg
from kohakutpu.units import agent_state, errors, state

Make = Callable[..., Any]
GOOD = cluster.assemble(
    """
    FILL addr=0x0 n=1 sel=A
    FILL addr=0x100 n=1 sel=B
    GEMM gm=1 gn=1 nk=1
    DRAIN addr=0x4000 n=1
    """
)


def ready(h: Any) -> None:
    """Two operand entries of 15, which MXFP7 holds exactly: every result element is 15 * 15 * 32."""
    h.system.write(reg.memory_bus(0, 0), np.full(256, 15, np.float16))


def program(words: list[int], *descriptors: tuple[int, int, int]) -> NDArray[np.uint64]:
    """A vector program: its words, its descriptor writes and one RUN."""
    rows = [(vector.ENV_IMEM, i, 0, w) for i, w in enumerate(words)]
    rows += [(vector.ENV_DESC, ad, fld, value) for ad, fld, value in descriptors]
    rows.append((vector.ENV_RUN, 0, 0, 0))
    return vector.encode_envelopes(np.array(rows, np.int64))


def test_a_nonfinite_operand_faults_and_names_everything(host: Make) -> None:
    h = host()
    ready(h)
    bad = np.full(128, 15, np.float16)
    bad[3] = np.inf
    h.system.write(reg.memory_bus(0, 0x100), bad)
    before = h.system.read(reg.memory_bus(0, 0), 512)
    with pytest.raises(Fault) as caught:
        h.run(("MG(1,1)", GOOD))
    fault = caught.value
    assert (fault.unit, fault.index, fault.code) == ("MG(1,1)", 1, 0x10)
    assert fault.disassembly == "FILL addr=0x100 n=1 sel=B"
    assert str(fault) == (
        "MG(1,1), instruction 1 (FILL addr=0x100 n=1 sel=B): a non-finite operand at the quantiser; got fault 0x10. "
        "MXFP7 has no NaN or Inf; check the operands, or count them with nonfinite='count' (datasheet 2.2)"
    )
    assert np.array_equal(h.system.read(reg.memory_bus(0, 0), 512), before)
    assert h.system.fault_count == 1
    # The units start clean, and counting is a policy.
    h.system.nonfinite = "count"
    h.run(("MG(1,1)", GOOD))
    assert h.control_value("MG(1,1)", flit.NUM_INDEX)[0] & 0xFFFFFFFF == 2  # seen by both runs
    assert h.system.read(reg.memory_bus(0, 0x4000), 32).view(np.float16)[5] == 7200


def test_a_signalled_fault_lets_the_machine_go_on(host: Make) -> None:
    h = host(faults="signal")
    ready(h)
    bad = cluster.assemble("FILL addr=0x0 n=1 sel=A")
    bad[0, 3] |= np.uint64(14 << 60)  # opcode 15
    h.run(("MG(1,1)", np.concatenate([bad, GOOD])))
    assert h.node("MG(1,1)")["count"] == 5
    h.run(("MG(1,1)", np.concatenate([GOOD, bad])))
    assert h.node("MG(1,1)") == {"code": flit.FAULT, "arg": 0x12, "count": 10, "valid": 1}
    # Five sent, three completed: neither a fault nor the last instruction returns a credit.
    assert h.get(reg.PROG_CRED) == 32 - 5 + 4
    h.system.faults = "raise"
    with pytest.raises(Fault, match=r"MG\(1,1\), instruction 4 \(\.payload f0.*an unknown opcode; got fault 0x12"):
        h.run(("MG(1,1)", np.concatenate([GOOD, bad])))


def test_a_simulator_error_keeps_memory_and_names_the_rule(host: Make) -> None:
    h = host()
    with pytest.raises(Fault) as caught:
        h.run(("MG(2,1)", GOOD))
    fault = caught.value
    assert (fault.unit, fault.index, fault.code) == ("MG(2,1)", 0, None)
    assert "memory that nobody wrote is read: byte 0x0 of mesh 0. Upload the operand first" in str(fault)
    ready(h)
    h.run(("MG(2,1)", GOOD))
    assert h.system.read(reg.memory_bus(0, 0x4000), 32).view(np.float16)[0] == 7200


def test_a_vector_fault_shows_the_word(host: Make) -> None:
    h = host()
    words = vector.assemble("VSETI S0,0x430100\nVSETVL S0\nVHALT")
    with pytest.raises(Fault) as caught:
        h.run(("VC(1,0)", program(words)))
    fault = caught.value
    assert (fault.unit, fault.index, fault.code) == ("VC(1,0)", 4, 7)
    assert fault.disassembly == "RUN 0, pc 2: VSETVL S0"
    assert "F_VL: a vector length of 0 or above 128" in str(fault)


def test_a_vector_program_that_runs_off_its_memory(host: Make) -> None:
    h = host()
    rows = np.array([[vector.ENV_IMEM, 511, 0, vector.assemble("VBAR")[0]], [vector.ENV_RUN, 511, 0, 0]], np.int64)
    with pytest.raises(Fault, match=r"VC\(2,0\), instruction 1 \(RUN 511.*past its last word, number 511"):
        h.run(("VC(2,0)", vector.encode_envelopes(rows)))


def test_indexes_count_from_the_kick(host: Make) -> None:
    h = host()
    ready(h)
    h.run(("MG(1,1)", GOOD))
    with pytest.raises(Fault) as caught:
        h.run(("MG(2,1)", GOOD), ("MG(1,1)", np.concatenate([GOOD[:3], cluster.assemble("DRAIN addr=0x4000 n=2")])))
    assert (caught.value.unit, caught.value.index) == ("MG(1,1)", 3)


def test_every_code_has_a_text() -> None:
    codes = {v for k, v in vars(state).items() if k.startswith("E_")}
    codes |= {v for k, v in vars(agent_state).items() if k.startswith("E_")}
    assert codes <= set(errors.ERRORS)
    for code in codes:
        message = errors.error(code, [1, 2, 3, 4])
        assert message.rule
        assert message.hint
    waits = {v for k, v in vars(state).items() if k.startswith("W_")}
    assert waits == set(errors.WAITS)
    assert all(errors.wait(code, [1, 2]) for code in waits)
    assert {int(code) for code in vector.FAULT} <= set(errors.FAULTS["VC"])
    assert {cluster.FAULT_NONFINITE, cluster.FAULT_CUDATA, cluster.FAULT_OPCODE} == set(errors.FAULTS["MG"])
    assert "does not list" in errors.fault("MG", 0x77).rule
    assert "error 99" in errors.error(99, [1]).rule
    assert "wait reason 99" in errors.wait(99, [1])
