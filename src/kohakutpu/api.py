"""The tensor level: `from kohakutpu import api as ktpu`.

Says what to compute and controls the device (`sync`, `empty_cache`, `stats`); it knows no tile, unit, address
or byte order. Every operator is a kernel of `kohakutpu.kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike

from kohakuaccel.diagnostics import Refusal
from kohakutpu import broadcasting, conversion, operators, storage
from kohakutpu.callers import at_users_line
from kohakutpu.conversion import Overflow
from kohakutpu.operators import matmul
from kohakutpu.tensor import Axis, Tensor, as_tensor, current_device

if TYPE_CHECKING:
    from kohakuaccel.machine import Machine
    from kohakuaccel.sim import Timeline
    from kohakutpu.auto import Substitution
    from kohakutpu.device import Device
    from kohakutpu.lazy import Jitted, Recording

__all__ = [
    "Tensor",
    "abs",
    "add",
    "device",
    "div",
    "empty_cache",
    "exp",
    "exp2",
    "full",
    "gelu",
    "graph",
    "jit",
    "layernorm",
    "log",
    "log2",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mul",
    "mxfp7",
    "nonfinite",
    "ones",
    "relu",
    "reset_stats",
    "rmsnorm",
    "rsqrt",
    "sigmoid",
    "silu",
    "softmax",
    "sqrt",
    "stats",
    "sub",
    "sum",
    "sync",
    "tensor",
    "time",
    "use",
    "zeros",
]

Sizes = int | Sequence[int]
P = ParamSpec("P")
R = TypeVar("R")


# Making tensors


def tensor(
    data: Any, dtype: DTypeLike | None = None, *, overflow: Overflow = "refuse", device: Device | None = None
) -> Tensor:
    """A snapshot of `data`: numpy arrays of any strides, lists, scalars, or a Tensor (as it is, unless dtype
    says otherwise). Values are stored as FP16, under dtype="float32" as FP32.

    Each value is rounded once, to nearest with ties to even, integers included; NaN and Inf enter. A finite
    value that rounds beyond 65504 is refused unless overflow is "saturate" (+-65504) or "inf". `.numpy()`
    returns dtype (float16 or float32); by default float32 for float32 data and float16 for everything else,
    stored as FP16 either way.
    """
    return as_tensor(data, dtype=dtype, overflow=overflow, device=device)


@at_users_line
def full(
    shape: Sizes,
    value: float,
    dtype: DTypeLike = np.float16,
    *,
    overflow: Overflow = "refuse",
    device: Device | None = None,
) -> Tensor:
    """Every element `value`, converted as `tensor` converts it."""
    sizes = broadcasting.as_shape((shape,), "full")
    if -1 in sizes:
        raise Refusal("a shape is made of integers of at least 0", where="full", got=sizes)
    if not conversion.is_scalar(value):
        raise Refusal("a tensor is filled with one number", where="full", got=repr(value))
    shown = conversion.asked_dtype(dtype)
    if shown == conversion.SINGLE:
        number = conversion.to_single(value, overflow=overflow, where="full")
    else:
        number, _ = conversion.to_half(value, overflow=overflow, where="full")
    host = np.broadcast_to(number, sizes)
    held = storage.Storage(device if device is not None else current_device(), host.size, host=host)
    return Tensor(held, sizes, shown)


def zeros(shape: Sizes, dtype: DTypeLike = np.float16, *, device: Device | None = None) -> Tensor:
    """Every element 0."""
    return full(shape, 0.0, dtype, device=device)


def ones(shape: Sizes, dtype: DTypeLike = np.float16, *, device: Device | None = None) -> Tensor:
    """Every element 1."""
    return full(shape, 1.0, dtype, device=device)


def mxfp7(q: Any, scales: Any = None, *, device: Device | None = None) -> Tensor:
    """A matmul operand that is quantised already: integers in [-63, 63] (..., rows, K), scale bytes per block of 32.

    See `kohakutpu.split.mxfp7`.
    """
    from kohakutpu.split import mxfp7

    return mxfp7(q, scales, device=device)


# Device control


def device(machine: Machine | str | None = None) -> Device:
    """The device that new tensors live on, or a new device for `machine` (a Machine, preset name or TOML
    path)."""
    if machine is None:
        return current_device()
    from kohakutpu.device import Device

    return Device(machine)


def use(machine: Machine | Device | str) -> Device:
    """Make `machine` (or a device) the home of tensors made from now on; returns the device."""
    from kohakutpu import device as devices

    return devices.use(machine)


def sync(device: Device | None = None) -> None:
    """Wait until everything asked of the device is done."""
    (device or current_device()).sync()


def empty_cache(device: Device | None = None) -> int:
    """Drop device copies that can be rebuilt and are not pinned; the bytes given up. No value is lost."""
    chosen = device or current_device()
    freed = storage.evict(chosen)
    chosen.empty_cache()
    return freed


def stats(device: Device | None = None) -> dict[str, Any]:
    """What the device did since `reset_stats` (dispatches, rounds, flits, bytes, relayouts, saturations, ...)
    and what tensors hold in its memory now."""
    chosen = device or current_device()
    return {**chosen.stats(), **storage.resident(chosen)}


def reset_stats(device: Device | None = None) -> None:
    """Set the counters to zero."""
    (device or current_device()).reset_stats()


@contextmanager
def nonfinite(policy: Literal["raise", "count"], device: Device | None = None) -> Generator[None]:
    """What the matmul quantiser does with NaN and Inf inside the block (datasheet 2.2).

    "raise" (the default everywhere): Fault 0x10. "count": Inf reads as 65536, NaN as (1024+f)*64, and
    `stats()["nonfinite"]` counts the elements.
    """
    if policy not in ("raise", "count"):
        raise Refusal("a non-finite policy is raise or count", where="nonfinite", got=repr(policy))
    chosen = device or current_device()
    before = chosen.nonfinite
    chosen.nonfinite = policy
    try:
        yield
    finally:
        chosen.nonfinite = before


def time(fn: Callable[..., R], *args: Any, device: Device | None = None, **kwargs: Any) -> tuple[R, Timeline]:
    """(fn(*args, **kwargs), the Timeline of everything it ran on the device): modelled time, never measured.

    device: by default that of the first tensor among the arguments, in lists, tuples and dicts too; without one, the
    current device.
    `timeline.cycles` and `.seconds` are the device's; the host link is in `.host`, apart. See docs/clock.md.
    """
    from kohakutpu.sim.session import timed

    name = getattr(fn, "__name__", type(fn).__name__)
    return timed(device or _device_of((args, kwargs)) or current_device(), lambda: fn(*args, **kwargs), name)


def _device_of(value: object) -> Device | None:
    """The device of the first tensor in a value."""
    if isinstance(value, Tensor):
        return value.device
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((device for part in inner if (device := _device_of(part)) is not None), None)


# Programs as one graph


def graph(
    *, host: str = "allow", substitutions: Sequence[Substitution] | None = None, device: Device | None = None
) -> AbstractContextManager[Recording]:
    """`with ktpu.graph():` what is asked of tensors inside runs at the end of the block, compiled as one program.

    host: "refuse" refuses a program with steps of the host. substitutions: the kernels that may stand for parts of the
    program; `()` for none, by default those that are registered. See docs/lazy.md.
    """
    from kohakutpu import lazy

    return lazy.graph(host=host, substitutions=substitutions, device=device)


@overload
def jit(fn: Callable[P, R], /) -> Jitted[P, R]: ...
@overload
def jit(
    *, host: str = "allow", substitutions: Sequence[Substitution] | None = None, search: int = 0
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    host: str = "allow",
    substitutions: Sequence[Substitution] | None = None,
    search: int = 0,
) -> Any:
    """Decorator: the function is traced once per kind of arguments, compiled as one program, and replayed.

    `fn.plan(*args)` is what runs, `fn.lower(*args)` the graph. host, substitutions: as for `graph`. search: so many
    tiles of every product are timed and the fastest is kept. See docs/lazy.md.
    """
    from kohakutpu import lazy

    made = lazy.jit(host=host, substitutions=substitutions, search=search)
    return made if fn is None else made(fn)


# The methods of Tensor as functions


def _one(x: Any) -> Tensor:
    return as_tensor(x)


def add(a: Any, b: Any) -> Tensor:
    """a + b."""
    return operators.binary("add", *_operands(a, b))


def sub(a: Any, b: Any) -> Tensor:
    """a - b."""
    return operators.binary("sub", *_operands(a, b))


def mul(a: Any, b: Any) -> Tensor:
    """a * b."""
    return operators.binary("mul", *_operands(a, b))


def div(a: Any, b: Any) -> Tensor:
    """a / b."""
    return operators.binary("div", *_operands(a, b))


def maximum(a: Any, b: Any) -> Tensor:
    """Elementwise `a < b ? b : a`; see `Tensor.maximum`."""
    return operators.binary("maximum", *_operands(a, b))


def minimum(a: Any, b: Any) -> Tensor:
    """Elementwise `a > b ? b : a`; see `Tensor.minimum`."""
    return operators.binary("minimum", *_operands(a, b))


def _operands(a: Any, b: Any) -> tuple[Any, Any]:
    """Two scalars have no kernel: the first becomes a tensor."""
    return (as_tensor(a), b) if conversion.is_scalar(a) and conversion.is_scalar(b) else (a, b)


def silu(x: Any) -> Tensor:
    """x * sigmoid(x)."""
    return _one(x).silu()


def gelu(x: Any) -> Tensor:
    """The kernel library's GELU."""
    return _one(x).gelu()


def relu(x: Any) -> Tensor:
    """max(x, 0)."""
    return _one(x).relu()


def sigmoid(x: Any) -> Tensor:
    """1 / (1 + e^-x)."""
    return _one(x).sigmoid()


def exp(x: Any) -> Tensor:
    """e^x."""
    return _one(x).exp()


def exp2(x: Any) -> Tensor:
    """2^x."""
    return _one(x).exp2()


def log(x: Any) -> Tensor:
    """Natural logarithm."""
    return _one(x).log()


def log2(x: Any) -> Tensor:
    """Logarithm to base 2."""
    return _one(x).log2()


def sqrt(x: Any) -> Tensor:
    """Square root."""
    return _one(x).sqrt()


def rsqrt(x: Any) -> Tensor:
    """1 / square root."""
    return _one(x).rsqrt()


def abs(x: Any) -> Tensor:
    """Magnitude."""
    return _one(x).abs()


def softmax(x: Any, axis: int = -1) -> Tensor:
    """e^(x - max) / sum along `axis`."""
    return _one(x).softmax(axis)


def rmsnorm(x: Any, w: Any, eps: float = 1e-6) -> Tensor:
    """See `Tensor.rmsnorm`."""
    return _one(x).rmsnorm(w, eps)


def layernorm(x: Any, w: Any, b: Any, eps: float = 1e-5) -> Tensor:
    """See `Tensor.layernorm`."""
    return _one(x).layernorm(w, b, eps)


def sum(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Sum over `axis`, all axes by default."""
    return _one(x).sum(axis, keepdims)


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest value over `axis`."""
    return _one(x).max(axis, keepdims)


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Smallest value over `axis`."""
    return _one(x).min(axis, keepdims)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Mean over `axis`."""
    return _one(x).mean(axis, keepdims)
