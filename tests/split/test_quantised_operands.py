"""Tensors of values that are quantised already: the integers reach the clusters as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.device import Device
from kohakutpu.layouts import OperandPack
from kohakutpu.split.kernel import digit_products
from kohakutpu.split.quantised import mxfp7, packed


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("mini")


def test_an_entry_is_packed_as_the_datasheet_shows() -> None:
    """Datasheet 2.3, the check: quantised values of its four lanes, both orders."""
    halves = np.array([[(((32 * lane + k) % 17) - 8) / 4 * (lane + 1) for k in range(32)] for lane in range(4)])
    scales = np.array([[0x79], [0x81], [0x85], [0x89]], np.uint8)
    steps = np.array([2.0 ** ((int(s) >> 3) - 20) * (8 + (int(s) & 7)) / 8 for s in scales[:, 0]])
    q = np.rint(halves / steps[:, None]).astype(np.int8)
    for side, word in (
        ("A", "8f3aadcc9af97964e63ceab7326b4ab1a3b8b32a5b2a7122b64e63ce79818589"),
        ("B", "8ec92959ce561cab1da24b939dabc9562b2d772639e592a47f3aedce79818589"),
    ):
        data = packed(OperandPack(4, 32, 1, 1, preq=True, side=side), q, scales)
        assert data[:32][::-1].tobytes().hex() == word


def test_scales_and_integers_reach_the_clusters(device: Device) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (2, 6, 70)), rng.integers(-3, 4, (2, 5, 70))
    bytes_a = rng.choice(np.array([0x98, 0xA0, 0xA4, 0xA8], np.uint8), (2, 6, 3))
    bytes_b = rng.choice(np.array([0x98, 0xA0, 0xA8], np.uint8), (2, 5, 3))
    step = {0x98: 0.5, 0xA0: 1.0, 0xA4: 1.5, 0xA8: 2.0}
    values = [q * np.repeat(np.vectorize(step.get)(s), 32, axis=-1)[..., :70] for q, s in ((a, bytes_a), (b, bytes_b))]
    wanted = values[0] @ values[1].swapaxes(1, 2)
    left, right = ktpu.mxfp7(a, bytes_a, device=device), ktpu.mxfp7(b, bytes_b, device=device)
    assert np.array_equal(kernels.batched_matmul(left, right).numpy(), wanted.astype(np.float16))
    assert np.array_equal(left.numpy(), values[0])
    assert device.stats()["quantised_bytes"] == 0


def test_integers_are_not_quantised_again(device: Device) -> None:
    """A row whose greatest value is 8 would get a scale of 9/8 from the quantiser, which holds no 8, 3 or 1."""
    q = np.array([[8, 3, 1, 0], [1, 8, -3, 5]])
    eye = np.eye(4, dtype=np.int8)
    assert np.array_equal(kernels.matmul(mxfp7(q, device=device), mxfp7(eye, device=device)).numpy(), q)


def test_other_kernels_see_the_values_in_fp16(device: Device) -> None:
    x = mxfp7(np.array([[63, -2]]), np.array([[0xA4]], np.uint8), device=device)
    assert np.array_equal((x + 1).numpy(), [[95.5, -2]])
    ktpu.empty_cache(device)
    eye = mxfp7(np.eye(2, dtype=np.int8), device=device)
    assert np.array_equal(kernels.matmul(x, eye).numpy(), [[94.5, -3]])


@pytest.mark.parametrize(
    ("q", "scales", "rule"),
    [
        (np.array([[64]]), None, "7-bit integer"),
        (np.array([[-64]]), None, "7-bit integer"),
        (np.ones((2, 2)), None, "integers"),
        (np.ones(3, np.int8), None, "integers"),
        (np.ones((2, 33), np.int8), np.full((2, 1), 0xA0, np.uint8), "a byte per row"),
        (np.ones((2, 3), np.int8), np.full((2, 1), 160), "a byte per row"),
    ],
)
def test_what_is_not_quantised_is_refused(q: Any, scales: Any, rule: str) -> None:
    with pytest.raises(Refusal, match=rule):
        mxfp7(q, scales)


def test_values_beyond_fp16_are_refused_where_they_are_asked_for(device: Device) -> None:
    x = mxfp7(np.array([[63]]), np.array([[0xFF]], np.uint8), device=device)
    with pytest.raises(Refusal, match="in FP16"):
        x.numpy()


def test_machines_without_a_quantising_upload_take_them_where_a_kernel_says_so() -> None:
    device = Device("singlemesh_2x2")
    q = np.array([[8, 3, 1, 0], [1, 8, -3, 5]])
    a, b = mxfp7(q, device=device), mxfp7(np.eye(4, dtype=np.int8), device=device)
    with pytest.raises(Refusal, match=r"quantised operands.*quantised=True"):
        kernels.matmul(a, b)
    products = digit_products(a.reshape(1, 1, 2, 4), b.reshape(1, 1, 4, 4))
    assert np.array_equal(products.numpy()[0, 0], q)
    with pytest.raises(Refusal, match="quantising upload"):
        digit_products(ktpu.tensor(np.ones((1, 1, 2, 4)), device=device), b.reshape(1, 1, 4, 4))
