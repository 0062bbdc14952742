"""Profiles: every cycle of a run is accounted for, by instruction, address, label and cause."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tinytpu import cli, machines
from tinytpu.asm import assemble
from tinytpu.runner import run
from tinytpu.trace import Profile, profile

M = machines.load()
PROGRAM = """
WMEM[0] = 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
AMEM[0] = 1 2 3 4
VZERO v1
LOOP_BEGIN count=3
BODY:
VPU v2 = COS(v1)
VPU v1 = FADD(v1, v2)
LOOP_END BODY
PRODUCT:
MXU WMEM[0], AMEM[0], tiles=1
MXU WMEM[0], AMEM[0], tiles=1
LOAD_MXU_RESULT v3
MXU_VPU_EPILOGUE v4 = GEMM(WMEM[0], AMEM[0], tiles=1) SRC2=v3 OP=ADD DST_VREG
VPU_BG v5 = EXP2(v1)
TAIL: FINISH: HALT
END
""".replace("TAIL: FINISH:", "TAIL:\nFINISH:")


def made(text: str = PROGRAM) -> Profile:
    bundle = assemble(text, M)
    return profile(run(bundle, M, log=True), bundle.labels)


def test_every_cycle_is_accounted_for() -> None:
    found = made()
    execute = found.cycles["execute"]
    assert found.cycles["load"] == 2 * 13 + 3
    assert sum(cycles for _, cycles in found.instructions.values()) == execute
    assert sum(cycles for *_, cycles in found.hottest) == execute
    assert sum(found.regions.values()) == execute


def test_instructions_addresses_and_regions() -> None:
    found = made()
    assert found.instructions["VPU COS"] == (3, 3 * (82 + 2))
    assert found.instructions["VPU FADD"] == (3, 3 * 3)
    assert next(iter(found.instructions)) == "VPU COS"
    assert found.hottest[0] == (2, "VPU v2 = COS(v1)", 3, 252)
    assert list(found.regions) == ["", "BODY", "PRODUCT", "TAIL, FINISH"]
    assert found.regions["BODY"] == 3 * (84 + 3 + 2)
    assert found.regions["TAIL, FINISH"] == 1


def test_bubbles_and_units() -> None:
    """C: the second dispatch EXECs at the first one's Done, 9 cycles behind its EXEC instead of 2; the blocking one
    finds the array done. D: LOAD_MXU_RESULT waits for Done likewise (datasheet 10.2)."""
    found = made()
    assert found.bubbles == {
        "fetch": 1 + 1 + 3 * 3 + 6,
        "a background write-back (P)": 0,
        "the MXU idle (C)": 7,
        "the MXU done (D)": 7,
        "a VPU operation": 3 * 81,
        "a blocking dispatch": 9,
    }
    assert found.operations["COS"] == (3, 246)
    assert found.operations["EXP2"] == (1, 114)
    assert found.array == {"read weights and activations": 6, "feed": 12, "settle": 3, "drain": 3}
    assert found.units["MXU"] == 12


def test_the_text_shows_shares_and_only_the_hottest() -> None:
    text = made().text(top=2)
    assert "pc   2, 3 x VPU v2 = COS(v1)" in text
    assert text.count("pc ") == 2
    assert "regions" in text
    assert "regions" not in made("HALT\nEND").text()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.tasm"
    path.write_text(PROGRAM)
    for words, check in (([], lambda out: "MXU phases" in out), (["--json"], lambda out: json.loads(out)["cycles"])):
        monkeypatch.setattr(sys, "argv", ["tinytpu", "profile", str(path), *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert left.value.code == 0
        assert check(capsys.readouterr().out)
