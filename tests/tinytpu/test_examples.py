"""The sample programs run to their HALT, with the results and cycles that their comments promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tinytpu import machines, runner

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "tinytpu"
M = machines.load()


def outputs(name: str) -> tuple[list[np.ndarray], int]:
    done = runner.run(runner.read(FOLDER / f"{name}.tasm", M), M)
    return [tile.reshape(-1) for tile in done.vmem], done.cycles


def test_gemm() -> None:
    (product,), cycles = outputs("gemm")
    assert product.tolist() == [1, 2, 3, 4, 7, 6, 8, 8, 2, -16, -13, -24, 509, 506, 506, 504]
    assert cycles == 77


def test_exp2() -> None:
    (inline, unit), _ = outputs("exp2")
    assert inline.tolist() == unit.tolist()
    x = np.array([0, 1, -1, 0.5, -0.5, 1.5, 3, 3.7, -3.7, -5, 10, 0.1, 7.25, -20, 64, 127.5], np.float32)
    np.testing.assert_allclose(inline.view(np.float32), np.exp2(x), rtol=3.1e-2)
    golden = {3: 0x3FB70164, 7: 0x41517CD5, 8: 0x3D9BBEA9, 15: 0x7F370164}  # of 0.5, 3.7, -3.7, 127.5: datasheet 6
    assert {lane: int(inline[lane]) for lane in golden} == golden


def test_power() -> None:
    (result,), _ = outputs("power")
    assert result.tolist() == [-(3**5)] * 16


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.tasm")), ids=lambda path: path.stem)
def test_nothing_is_remarked(path: Path) -> None:
    assert [remark for remark in runner.run(runner.read(path, M), M).remarks if "WAIT" not in remark.what] == []
