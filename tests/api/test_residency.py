"""Where a tensor's bytes are: uploaded when a kernel asks, kept, dropped, pinned, relayouted and counted."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Fault, OutOfMemory, Refusal
from kohakutpu import storage
from kohakutpu.layouts import DrainedTiles, OperandPack, RowMajor
from kohakutpu.storage import EXPANSIONS_KEPT
from kohakutpu.tensor import Tensor

ROWS = RowMajor.of(6, 20)
TILES = DrainedTiles(6, 20, 1, 2)
PACK = OperandPack(6, 20, 1, 1, preq=True, side="B")


def values(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 8


def test_nothing_is_uploaded_before_a_kernel_asks(bytes_device: Any, hosted: Any) -> None:
    x = hosted(bytes_device, values(6, 20))
    assert x.layouts() == ()
    assert np.array_equal(x.numpy(), values(6, 20))
    assert bytes_device.uploads == []
    assert bytes_device.counters.bytes_from_device == 0


def test_a_layout_is_uploaded_once(bytes_device: Any, hosted: Any) -> None:
    x = hosted(bytes_device, values(6, 20))
    first = x.buffer(ROWS)
    assert x.buffer(ROWS) is first
    x.buffer(PACK)
    assert x.layouts() == (ROWS, PACK)
    assert [side for _, side in bytes_device.uploads] == [None, "B"]
    assert bytes_device.counters.relayouts == 0


def test_later_changes_of_the_source_have_no_effect(bytes_device: Any, hosted: Any) -> None:
    source = np.ones((6, 20), np.float16)
    x = hosted(bytes_device, source)
    source[:] = 5
    out = x.numpy()
    out[:] = 9
    assert np.array_equal(x.numpy(), np.ones((6, 20)))
    assert np.array_equal(ROWS.unpack(bytes_device.download(x.buffer(ROWS))), np.ones(120))


def test_a_computed_value_is_read_in_its_own_layout(bytes_device: Any, computed: Any) -> None:
    y = computed(bytes_device, values(6, 20), TILES)
    assert np.array_equal(y.numpy(), values(6, 20))
    assert bytes_device.counters.bytes_from_device == TILES.nbytes
    y.numpy()
    assert bytes_device.counters.bytes_from_device == TILES.nbytes
    assert bytes_device.counters.relayouts == 0


def test_a_relayout_is_counted_with_both_directions(bytes_device: Any, computed: Any) -> None:
    y = computed(bytes_device, values(6, 20), TILES)
    y.buffer(TILES)
    assert bytes_device.counters.relayouts == 0
    y.buffer(ROWS)
    assert bytes_device.counters.relayouts == 1
    assert bytes_device.counters.relayout_bytes == TILES.nbytes + ROWS.nbytes
    y.buffer(ROWS)
    assert bytes_device.counters.relayouts == 1


def test_reshape_shares_what_is_on_the_device(bytes_device: Any, computed: Any) -> None:
    y = computed(bytes_device, values(6, 32), RowMajor.of(6, 32))
    z = y.reshape(12, -1)
    assert z.shape == (12, 16)
    z.buffer(RowMajor.of(12, 16))
    y.reshape(192).buffer(RowMajor.of(1, 192))
    assert bytes_device.uploads == []
    assert z.layouts() == (RowMajor.of(12, 16),)
    assert np.array_equal(z.numpy(), values(12, 16))


def test_reshape_of_padded_rows_is_a_relayout(bytes_device: Any, computed: Any) -> None:
    y = computed(bytes_device, values(6, 20), ROWS).reshape(20, 6)
    y.buffer(RowMajor.of(20, 6))
    assert bytes_device.counters.relayouts == 1
    assert np.array_equal(
        RowMajor.of(20, 6).unpack(bytes_device.download(y.buffer(RowMajor.of(20, 6)))), y.numpy().ravel()
    )


def test_transposing_moves_nothing_until_it_is_needed(bytes_device: Any, computed: Any) -> None:
    y = computed(bytes_device, values(6, 20), TILES)
    t = y.T
    assert t.shape == (20, 6)
    assert bytes_device.counters.bytes_from_device == 0
    assert np.array_equal(t.numpy(), values(6, 20).T)
    assert bytes_device.counters.relayouts == 0
    t.buffer(RowMajor.of(20, 6))
    assert bytes_device.counters.relayouts == 1


def test_transposing_a_host_value_is_no_relayout(bytes_device: Any, hosted: Any) -> None:
    t = hosted(bytes_device, values(6, 20)).T
    t.buffer(RowMajor.of(20, 6))
    assert bytes_device.counters.relayouts == 0
    assert np.array_equal(
        RowMajor.of(20, 6).unpack(bytes_device.download(t.buffer(RowMajor.of(20, 6)))), t.numpy().ravel()
    )


def test_transposes_follow_numpy(bytes_device: Any, hosted: Any) -> None:
    data = values(2, 3, 4)
    x = hosted(bytes_device, data)
    assert np.array_equal(x.T.numpy(), data.T)
    assert np.array_equal(x.transpose(1, -1, 0).numpy(), data.transpose(1, 2, 0))
    assert np.array_equal(x.transpose((0, 2, 1)).T.numpy(), data.transpose(0, 2, 1).T)
    assert x.reshape(24).T.shape == (24,)
    assert x.reshape(1, 24).T.storage is x.storage
    assert x.reshape(2, 1, 12).transpose(1, 0, 2).storage is x.storage
    for wrong in ((0, 0, 1), (0, 1), (0, 1, 5)):
        with pytest.raises(Refusal):
            x.transpose(*wrong)


def test_eviction_keeps_what_cannot_be_rebuilt(bytes_device: Any, hosted: Any, computed: Any) -> None:
    x, y = hosted(bytes_device, values(6, 20)), computed(bytes_device, values(6, 20), TILES)
    x.buffer(ROWS)
    x.buffer(PACK)
    assert storage.evict(bytes_device) == ROWS.nbytes + PACK.nbytes
    assert (x.layouts(), y.layouts()) == ((), (TILES,))
    assert bytes_device.arena.stats().blocks == 1
    y.numpy()
    assert storage.evict(bytes_device) == TILES.nbytes
    assert np.array_equal(y.numpy(), values(6, 20))
    y.buffer(ROWS)
    assert bytes_device.counters.relayouts == 1


def test_a_device_in_the_same_process_is_left_alone(bytes_device: Any, hosted: Any) -> None:
    other = type(bytes_device)()
    x, y = hosted(bytes_device, values(6, 20)), hosted(other, values(6, 20))
    x.buffer(ROWS)
    y.buffer(ROWS)
    storage.evict(other)
    assert x.layouts()
    assert not y.layouts()


def test_pins(bytes_device: Any, hosted: Any) -> None:
    x = hosted(bytes_device, values(6, 20))
    assert x.pin() is x
    x.buffer(ROWS)
    assert x.pinned
    assert x.reshape(-1).pinned
    assert storage.evict(bytes_device) == 0
    assert storage.resident(bytes_device)["pinned_bytes"] == ROWS.nbytes
    del x
    gc.collect()
    held = storage.resident(bytes_device)
    assert held == {"resident_tensors": 1, "resident_bytes": ROWS.nbytes, "pinned_bytes": ROWS.nbytes}


def test_unpinning_lets_it_go(bytes_device: Any, hosted: Any) -> None:
    x = hosted(bytes_device, values(6, 20)).pin()
    x.buffer(ROWS)
    assert not x.unpin().pinned
    assert storage.evict(bytes_device) == ROWS.nbytes


def test_memory_returns_with_the_tensor(bytes_device: Any, computed: Any) -> None:
    y = computed(bytes_device, values(6, 20), ROWS)
    z = y.reshape(-1)
    del y
    gc.collect()
    assert bytes_device.arena.stats().used
    del z
    gc.collect()
    assert not bytes_device.arena.stats().used


def test_a_full_memory_drops_caches_and_tries_again(hosted: Any, bytes_device: Any) -> None:
    small = type(bytes_device)(size=2048)
    x, y = hosted(small, np.ones(512)), hosted(small, np.ones(1024))
    x.buffer(RowMajor.of(1, 512))
    y.buffer(RowMajor.of(1, 1024))
    assert x.layouts() == ()
    with pytest.raises(OutOfMemory):
        hosted(small, np.ones(2048)).buffer(RowMajor.of(1, 2048))


def test_a_full_memory_keeps_pins_and_buffers_in_use(hosted: Any, bytes_device: Any) -> None:
    small = type(bytes_device)(size=8192)
    x, y = hosted(small, np.ones(512)).pin(), hosted(small, np.full(512, 2.0))
    x.buffer(RowMajor.of(1, 512))
    held = y.buffer(RowMajor.of(1, 512))
    with pytest.raises(OutOfMemory):
        hosted(small, np.ones(512)).buffer(RowMajor.of(1, 512))
    assert small.download(held).view(np.float16)[0] == 2.0


def test_broadcasting_costs_no_host_copy_and_is_kept(bytes_device: Any, hosted: Any, computed: Any) -> None:
    v = hosted(bytes_device, values(20))
    wide = v.broadcast_to((6, 20))
    assert wide.storage.host().strides == (0, 2)
    assert v.broadcast_to((6, 20)).storage is wide.storage
    wide.buffer(TILES)
    assert np.array_equal(TILES.unpack(bytes_device.download(wide.buffer(TILES))).reshape(6, 20), wide.numpy())
    assert bytes_device.counters.relayouts == 0
    c = computed(bytes_device, values(6, 1), RowMajor.of(6, 1)).broadcast_to((6, 20))
    c.buffer(ROWS)
    assert bytes_device.counters.relayouts == 1
    for rows in range(1, 20):
        v.broadcast_to((rows, 20)).buffer(RowMajor.of(rows, 20))
    assert len(v.storage.expansions) == EXPANSIONS_KEPT
    storage.evict(bytes_device)
    assert v.storage.expansions == {}


def test_a_refused_operand_keeps_its_value(bytes_device: Any, hosted: Any) -> None:
    data = values(6, 20)
    data[2, 3] = np.nan
    data[4, 0] = np.inf
    x = hosted(bytes_device, data)
    x.buffer(ROWS)
    with pytest.raises(Fault, match=r"element \[2, 3\].*nan") as refused:
        x.buffer(PACK)
    assert refused.value.code == 0x10
    assert 'ktpu.nonfinite("count")' in str(refused.value)
    assert x.layouts() == (ROWS,)
    assert np.array_equal(x.numpy(), data, equal_nan=True)
    assert bytes_device.arena.stats().blocks == 1  # even while the exception is held


def test_what_was_tolerated_is_not_reused_under_raise(bytes_device: Any, hosted: Any) -> None:
    x = hosted(bytes_device, np.full((6, 20), np.inf))
    bytes_device.nonfinite = "count"
    first = x.buffer(PACK)
    assert x.buffer(PACK) is first
    bytes_device.nonfinite = "raise"
    with pytest.raises(Fault):
        x.buffer(PACK)


def test_a_layout_of_another_size_is_refused(bytes_device: Any, hosted: Any) -> None:
    with pytest.raises(Refusal, match="covers the tensor"):
        hosted(bytes_device, values(6, 20)).buffer(RowMajor.of(6, 21))
    with pytest.raises(Refusal, match="covers the tensor"):
        Tensor.on_device(bytes_device, (6, 21), np.float16, ROWS, bytes_device.alloc(ROWS.nbytes))


def test_repr_reads_nothing(bytes_device: Any, computed: Any, hosted: Any) -> None:
    y = computed(bytes_device, values(6, 20), TILES)
    assert "shape=(6, 20), dtype=float16, bytes: tiles(" in repr(y)
    assert "not computed yet" in repr(y.T)
    assert "host" in repr(hosted(bytes_device, values(2)))
    assert "pinned" in repr(hosted(bytes_device, values(2)).pin())
    assert bytes_device.counters.bytes_from_device == 0
