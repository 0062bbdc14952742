"""The compiled decoder gives what the Python decoder gives, for every declared format."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.isa import Format
from kohakuaccel.isa.kernels import extract
from kohakutpu.isa import cluster, control, flit, vector

FORMATS = [cluster.CLUSTER, vector.IMEM, vector.DESC, vector.DIMENSION, vector.WORDS.formats["VLD"], flit.HEADER]
FORMATS += [vector.WORDS.formats["VFMA"], flit.DATA, flit.CONTROL_REPLY, control.COMMAND, control.NODE]


@pytest.mark.parametrize("fmt", FORMATS, ids=[f.name for f in FORMATS])
def test_extract_equals_decode(fmt: Format) -> None:
    rng = np.random.default_rng(7)
    words = rng.integers(0, 1 << 64, (200, fmt.words), np.uint64)
    for word in range(fmt.words):
        mask = np.uint64(fmt.constant_mask >> (64 * word) & 0xFFFF_FFFF_FFFF_FFFF)
        want = np.uint64(fmt.constant >> (64 * word) & 0xFFFF_FFFF_FFFF_FFFF)
        words[:, word] = words[:, word] & ~mask | want
        if fmt.width < 64:
            words[:, word] &= np.uint64((1 << fmt.width) - 1)
    table = fmt.extraction()
    assert table.dtype == np.int64
    rows = fmt.decode_table(words)
    out = np.full(len(fmt.fields), -1, np.int64)
    for encoded, row in zip(words, rows):
        extract(encoded, table, out)
        assert out.tolist() == row.tolist()


def test_negative_offsets_come_out_negative() -> None:
    fmt = vector.WORDS.formats["VST"]
    out = np.zeros(len(fmt.fields), np.int64)
    extract(np.array([0xAAAE3FFF], np.uint64), fmt.extraction(), out)
    assert dict(zip(fmt.names, out.tolist())) == {"dtype": 2, "ad": 5, "vd": 7, "off": -1}
