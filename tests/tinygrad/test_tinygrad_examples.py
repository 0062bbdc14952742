"""The examples under examples/tinygrad, with few steps."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from tinygrad.helpers import Context

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "tinygrad"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name))


@pytest.mark.slow
def test_a_transformer_block() -> None:
    assert 0 < example("01_transformer.py")["main"]() < 0.05


@pytest.mark.slow
def test_a_perceptron_learns_and_its_last_step_is_clocked() -> None:
    with Context(DEV="KTPU"):
        accuracy, losses, step = example("10_digits_mlp.py")["train"](31, timed=True)
    assert losses[-1] < 0.7 * losses[0]
    assert accuracy > 0.5
    assert 0 < step.seconds < 0.1
    assert step.host_kernels > 0
