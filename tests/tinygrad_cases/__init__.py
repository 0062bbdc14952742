"""What tinygrad's Tensor methods compute, by numpy: a table for the operator sweep.

Decides which methods are swept, over which operands, and which are not, with the reason.
"""

from __future__ import annotations

from tinygrad_cases.case import Case
from tinygrad_cases.folds import FOLDS
from tinygrad_cases.maps import MAPS
from tinygrad_cases.shapes import SHAPES

CASES: dict[str, Case] = {**MAPS, **FOLDS, **SHAPES}
"""By method; a variant has a word after a colon."""


def _each(names: str, why: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), why)


ELSEWHERE: dict[str, str] = {
    **_each(
        "device dtype element_size is_floating_point max_numel max_shape nbytes ndim numel shape size uop is_param "
        "is_param_ as_param ufix",
        "answers about a tensor, computes nothing",
    ),
    **_each("alu const const_like usum uprod", "takes operations or nodes, not numbers"),
    **_each("call callify linear_with_vars schedule_linear replace", "tinygrad's own machinery"),
    **_each("invalids empty empty_like", "the values are none"),
    **_each("decode_hevc_frame from_blob from_url", "for other devices, or the network"),
    **_each("image_conv2d image_dot", "for devices with images"),
    **_each("shard shard_ shard_like to_", "test_tinygrad_device: several devices"),
    **_each("backward grad gradient", "test_tinygrad_rules: gradients"),
    **_each("data item tolist numpy realize to detach clone", "moves values; every test"),
    **_each(
        "rand rand_like randn randn_like randint random_bits threefry normal uniform glorot_uniform kaiming_normal "
        "kaiming_uniform scaled_uniform manual_seed multinomial randperm",
        "test_tinygrad_rules: random numbers",
    ),
    "custom_kernel": "test_tinygrad_loops",
    "assign": "test_tinygrad_rules: stores in place",
    **_each("hash keccak", "kernels of thousands of operations; upstream's test_hashing runs them"),
}
"""Methods that are not swept, and why."""

__all__ = ["CASES", "ELSEWHERE", "Case"]
