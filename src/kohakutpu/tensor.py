"""The tensor: an immutable value with a shape, a dtype and FP16 or FP32 contents that live where they are needed.

Decides what a user sees of a value and what a kernel can ask of it (`buffer`, `layouts`). Arithmetic is in
`operators`, where values are and how they travel is in `storage`; this file knows neither kernels nor byte
orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kohakuaccel.diagnostics import Fault, Refusal
from kohakutpu import broadcasting as shapes
from kohakutpu import conversion, recording
from kohakutpu.broadcasting import Shape
from kohakutpu.callers import at_users_line
from kohakutpu.conversion import Overflow, Shown
from kohakutpu.layouts import FP16, FP32, Layout, RowMajor, canonical
from kohakutpu.storage import Storage

if TYPE_CHECKING:
    from kohakutpu.device import Buffer, Device

NONFINITE_FAULT = 0x10  # datasheet 5.6: a NaN or Inf met the quantiser
Axis = int | Sequence[int] | None


def _ops():
    # A tensor's methods are words for kernels, which are made of tensors: the one circle in the package, closed at
    # the first call.
    from kohakutpu import operators

    return operators


def current_device() -> Device:
    """The device that new tensors live on: the one chosen with `use`, else the default machine."""
    from kohakutpu import device

    return device.default()


class Tensor:
    """An immutable array of FP16 values on one device, or of FP32 ones where that was asked for. Made by `tensor`,
    `zeros`, ... or returned by a kernel.

    dtype is float16, or float32 for tensors made from float32 data; it says what `.numpy()` returns, `stored` what
    memory holds. Results take the numpy result type of their tensor operands; Python scalars do not count. Operands on
    different devices are refused.
    """

    __slots__ = ("__weakref__", "_dtype", "_shape", "_storage")
    __array_ufunc__ = None  # numpy_array + tensor reaches __radd__ instead of an object array

    def __init__(self, storage: Storage, shape: Shape, dtype: Shown) -> None:
        self._storage = storage
        self._shape = shape
        self._dtype = dtype

    # What it is

    @classmethod
    def on_device(
        cls, device: Device, shape: Sequence[int], dtype: DTypeLike, layout: Layout, buffer: Buffer
    ) -> Tensor:
        """A value that a kernel wrote into `buffer` in `layout`; `shape` is its logical shape."""
        held = tuple(int(n) for n in shape)
        storage = Storage.on_device(device, shapes.size_of(held), layout, buffer)
        return cls(storage, held, conversion.SINGLE if layout.element == FP32 else conversion.asked_dtype(dtype))

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def dtype(self) -> Shown:
        return self._dtype

    @property
    def stored(self) -> Shown:
        """What memory holds of it: float16, or float32 (read and written by vector cores only, which keep 16 bits)."""
        return self._storage.element.dtype

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return self._storage.size

    @property
    def device(self) -> Device:
        return self._storage.device

    @property
    def storage(self) -> Storage:
        """Where the values are; shared by reshapes of one value."""
        return self._storage

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a tensor without axes")
        return self._shape[0]

    def __repr__(self) -> str:
        places = [str(layout) for layout in self.layouts()]
        if self._storage.on_host:
            places.insert(0, "host")
        pinned = ", pinned" if self.pinned else ""
        where = f"{self.device.machine.name}: {' + '.join(places) or 'not computed yet'}"
        stored = "" if self._storage.element == FP16 else " stored"
        return f"Tensor(shape={self._shape}, dtype={self._dtype}{stored}, {where}{pinned})"

    def __bool__(self) -> bool:
        raise Refusal(
            "a tensor has no truth value: asking would read it back unseen",
            where=repr(self),
            hint="read it with .numpy() or .item() and test that",
        )

    def __eq__(self, other: object) -> NoReturn:
        raise Refusal("tensors have no elementwise comparison", where="==", hint="compare .numpy() arrays, or use `is`")

    __hash__ = object.__hash__

    # Out of the device

    def numpy(self) -> NDArray[Any]:
        """A fresh array of the tensor's shape and dtype. The one call that reads back; waits for the
        value."""
        return conversion.from_stored(self._storage.host().reshape(self._shape), self._dtype)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a tensor's array is always a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    @at_users_line
    def item(self) -> float:
        """The value of a tensor with one element as a Python float."""
        if self.size != 1:
            raise Refusal("item() reads a tensor of one element", where="item", got=f"shape {self._shape}")
        return float(self.numpy().reshape(())[()])

    # For kernels

    def buffer(self, layout: Layout) -> Buffer:
        """The value on the device in `layout` (layout.size == size), uploaded or relayouted if it is not
        there yet.

        Fault 0x10 if a NaN or Inf meets the quantising upload; its text names the element.
        """
        try:
            return self._storage.buffer(layout)
        except Fault as fault:
            if fault.code != NONFINITE_FAULT:
                raise
            raise _ops().explain_nonfinite(fault, self) from fault

    def layouts(self) -> tuple[Layout, ...]:
        """Layouts already on the device. Unpadded row-major order is named in the tensor's own rows and
        columns."""
        own = RowMajor.of_shape(self._shape, self._storage.element)
        return tuple(own if canonical(own) == key else key for key in self._storage.layouts)

    def rows_at_hand(self, rows: int, cols: int) -> bool:
        """Whether row order costs no relayout: it is on the device already, or the value never left the
        host."""
        return not self._storage.device_born or (
            canonical(RowMajor.of(rows, cols, self._storage.element)) in self._storage.layouts
        )

    # Residency

    def pin(self) -> Tensor:
        """Keep what is (or will be) on the device resident, even when nothing references it. Returns the
        tensor."""
        self._storage.pin()
        return self

    def unpin(self) -> Tensor:
        """Let `empty_cache` and garbage collection take it again. Returns the tensor."""
        self._storage.unpin()
        return self

    @property
    def pinned(self) -> bool:
        return self._storage.pinned

    # Form: no kernel runs, no value changes

    def astype(self, dtype: DTypeLike) -> Tensor:
        """The same value shown as float16 or float32. What is stored in FP32 and shown as float16 is narrowed by a
        kernel, which counts what saturates."""
        shown = conversion.asked_dtype(dtype)
        if shown == conversion.HALF and self._storage.element == FP32:
            return self.stored_as(shown)
        return Tensor(self._storage, self._shape, shown)

    @at_users_line
    def stored_as(self, dtype: DTypeLike) -> Tensor:
        """The value in memory as float16 or float32, and shown so: a kernel on the vector cores where it is not yet.
        Widening is exact; narrowing rounds once, and counts what saturates."""
        shown = conversion.asked_dtype(dtype)
        if self._storage.element.dtype == shown:
            return Tensor(self._storage, self._shape, shown)
        return _ops().stored_as(self, shown)

    @at_users_line
    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same value under another shape (one -1 allowed); what is on the device is shared."""
        wanted = shapes.as_shape(shape, "reshape")
        return Tensor(self._storage, shapes.resolve_reshape(wanted, self.size), self._dtype)

    @at_users_line
    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """Axes permuted as numpy's transpose: reversed when none are given.

        Free when the order of elements stays; otherwise the value is reordered when somebody needs it: on the
        device for a kernel if only the device has it, else on the host.
        """
        order = tuple(range(self.ndim))[::-1]
        if axes:
            given = shapes.as_shape(axes, "transpose")
            order = tuple(axis + self.ndim if axis < 0 else axis for axis in given)
        if sorted(order) != list(range(self.ndim)):
            raise Refusal("a transpose names every axis once", where="transpose", got=axes, limit=f"{self.ndim} axes")
        shape = tuple(self._shape[axis] for axis in order)
        if shapes.keeps_order(self._shape, order):
            return Tensor(self._storage, shape, self._dtype)
        source, held, dtype = self._storage, self._shape, self._dtype
        recorder = recording.current()
        if recorder is not None and recorder.moves(source):
            return recorder.permuted(self, order)
        if source.on_host and not source.device_born:
            # The host's array is all that the transpose needs, so both forms can be kept for each other's life.
            derived = source.expansions.get(("turned", held, order))
            if derived is None:
                derived = Storage(source.device, source.size, host=source.host().reshape(held).transpose(order))
                source.keep(("turned", held, order), derived)
            return Tensor(derived, shape, dtype)
        derived = Storage(
            source.device,
            source.size,
            derive=lambda: source.host().reshape(held).transpose(order),
            remake=lambda: (
                _ops().moved("permute", Tensor(source, held, dtype), order)
                if source.device_only and source.element == FP16  # FP32 is turned on the host, a counted relayout
                else None
            ),
            device_born=source.device_born,
            element=source.element,
        )
        return Tensor(derived, shape, dtype)

    @property
    def T(self) -> Tensor:
        """Axes reversed: the transpose in two dimensions, the same tensor in one."""
        return self.transpose()

    def broadcast_to(self, shape: Shape) -> Tensor:
        """Stretched to `shape` by numpy's rule, without a host copy; kept with this value for the next use. A
        value that only the device has is stretched there when a kernel needs it."""
        if shapes.broadcast(self._shape, shape, "broadcast_to") != shape:
            raise Refusal("a tensor stretches to a larger shape", where="broadcast_to", got=self._shape, limit=shape)
        source, held, dtype = self._storage, self._shape, self._dtype
        size = shapes.size_of(shape)
        if size == source.size:
            return Tensor(source, shape, dtype)
        recorder = recording.current()
        if recorder is not None and recorder.moves(source):
            return recorder.expanded(self, shape)
        derived = source.expansions.get((held, shape))
        if derived is None:
            derived = Storage(
                source.device,
                size,
                derive=lambda: np.broadcast_to(source.host().reshape(held), shape),
                remake=lambda: (
                    _ops().moved("expand", Tensor(source, held, dtype), shape) if source.device_only else None
                ),
                device_born=source.device_born,
                element=source.element,
            )
            source.keep((held, shape), derived)
        return Tensor(derived, shape, dtype)

    # Arithmetic: kernels of kohakutpu.kernels

    def __matmul__(self, other: Any) -> Tensor:
        return _ops().matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _ops().matmul(other, self)

    def __add__(self, other: Any) -> Tensor:
        return _ops().binary("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _ops().binary("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _ops().binary("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _ops().binary("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _ops().binary("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _ops().binary("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _ops().binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _ops().binary("div", other, self)

    def __neg__(self) -> Tensor:
        return _ops().unary("neg", self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return _ops().unary("abs", self)

    def maximum(self, other: Any) -> Tensor:
        """Elementwise `a < b ? b : a` (datasheet 2.6): a NaN in `other` is dropped, one in self stays."""
        return _ops().binary("maximum", self, other)

    def minimum(self, other: Any) -> Tensor:
        """Elementwise `a > b ? b : a` (datasheet 2.6): a NaN in `other` is dropped, one in self stays."""
        return _ops().binary("minimum", self, other)

    def silu(self) -> Tensor:
        """x * sigmoid(x)."""
        return _ops().unary("silu", self)

    def gelu(self) -> Tensor:
        """The kernel library's GELU."""
        return _ops().unary("gelu", self)

    def relu(self) -> Tensor:
        """max(x, 0)."""
        return _ops().unary("relu", self)

    def sigmoid(self) -> Tensor:
        """1 / (1 + e^-x)."""
        return _ops().unary("sigmoid", self)

    def exp(self) -> Tensor:
        """e^x."""
        return _ops().unary("exp", self)

    def exp2(self) -> Tensor:
        """2^x."""
        return _ops().unary("exp2", self)

    def log(self) -> Tensor:
        """Natural logarithm."""
        return _ops().unary("log", self)

    def log2(self) -> Tensor:
        """Logarithm to base 2."""
        return _ops().unary("log2", self)

    def sqrt(self) -> Tensor:
        """Square root."""
        return _ops().unary("sqrt", self)

    def rsqrt(self) -> Tensor:
        """1 / square root."""
        return _ops().unary("rsqrt", self)

    def recip(self) -> Tensor:
        """1 / x."""
        return _ops().unary("recip", self)

    def abs(self) -> Tensor:
        """Magnitude."""
        return _ops().unary("abs", self)

    def softmax(self, axis: int = -1) -> Tensor:
        """e^(x - max) / sum along `axis`, the last one by default; any other is moved last and back
        (relayouts)."""
        return _ops().softmax(self, axis)

    def rmsnorm(self, w: Any, eps: float = 1e-6) -> Tensor:
        """x / sqrt(mean(x^2) + eps) * w along the last axis; w has its length."""
        return _ops().rmsnorm(self, w, eps)

    def layernorm(self, w: Any, b: Any, eps: float = 1e-5) -> Tensor:
        """(x - mean) / sqrt(var + eps) * w + b along the last axis; w and b have its length."""
        return _ops().layernorm(self, w, b, eps)

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Sum over `axis` (all axes by default); an FP16 value, so totals beyond 65504 saturate and are
        counted."""
        return _ops().reduce("sum", self, axis, keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Largest value over `axis`."""
        return _ops().reduce("max", self, axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Smallest value over `axis`."""
        return _ops().reduce("min", self, axis, keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Mean over `axis`."""
        return _ops().reduce("mean", self, axis, keepdims)


@at_users_line
def as_tensor(
    value: Any,
    *,
    dtype: DTypeLike | None = None,
    overflow: Overflow = "refuse",
    device: Device | None = None,
    where: str = "tensor",
) -> Tensor:
    """`value` as a Tensor: itself if it is one (stored as `dtype` where that is said), else a snapshot taken now.

    See `conversion.to_half` for what is accepted, how it rounds and what is refused. dtype float32 stores the values as
    float32; data of that type alone does not.
    """
    if isinstance(value, Tensor):
        if device is not None and value.device is not device:
            raise Refusal("a tensor stays on its device", where=where, hint="go through .numpy()")
        return value if dtype is None else value.stored_as(dtype)
    wanted = None if dtype is None else conversion.asked_dtype(dtype)
    if wanted == conversion.SINGLE:
        host, shown = conversion.to_single(value, overflow=overflow, where=where), conversion.SINGLE
    else:
        host, shown = conversion.to_half(value, overflow=overflow, where=where)
    storage = Storage(device if device is not None else current_device(), host.size, host=host)
    return Tensor(storage, host.shape, wanted or shown)
