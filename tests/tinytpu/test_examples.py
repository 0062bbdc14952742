"""The sample programs run to their HALT, with the results and cycles that their comments promise; the examples run."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

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


def example(name: str) -> Any:
    return runpy.run_path(str(FOLDER / f"{name}.py"))["main"]


def test_a_product_in_tasm(capsys: pytest.CaptureFixture[str]) -> None:
    assert example("01_tasm_gemm")() == 113
    assert "113 cycles: load 53, execute 55, output 5" in capsys.readouterr().out


def test_a_layer_as_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert example("02_graph")() <= 2000
    assert "product 1 x 16x24x8 on the array" in capsys.readouterr().out


@pytest.mark.slow
def test_a_convolutional_network_in_tinygrad_s_words(capsys: pytest.CaptureFixture[str]) -> None:
    """The example itself runs the perceptron, as every example is run by the tests of the pages."""
    from tinytpu.models import digits

    assert example("12_quantised_tinygrad")(2, lambda data: digits.convnet(data, epochs=1)) >= 0
    assert "1 on the device, 0 steps of the host" in capsys.readouterr().out
