"""Kernels of the kernel language, called with tinygrad's Tensors.

Decides how such a kernel is named in a program, so that another run finds the same one, and how its operands and
results pass between tinygrad's buffers and the device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kohakuaccel.diagnostics import Refusal
from kohakutpu.lang.kernel import Kernel

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor

    from kohakuaccel.frontends.tinygrad.own import Gradient

FORMATS = {"half": "FP16", "float": "FP32"}
SIMPLE = (bool, int, float, str, type(None))
"""Knobs that a program can hold."""


def custom(
    kernel: Kernel, *, grad: Gradient | None = None, reference: Callable[..., Tensor] | None = None
) -> Callable[..., Any]:
    """A kernel as a function of tinygrad's Tensors: `custom(kernels.flash_attention)(q, k, v, causal=True)`.

    Operands in the order of the kernel's In ports (optional ones by name), float16 or float32, knobs as keywords. It
    returns a Tensor, or a tuple where the kernel has several outputs. Results are float32 where an operand is.

    grad(gradient of the output, *operands): one gradient per operand, or None. reference(*operands, **knobs): the
    same function in tinygrad's words, whose own gradient is taken instead. With neither, backward refuses.

    The kernel has to be a name of a module: a program holds that name. The machine's numbers are those of the kernel;
    `numerics` has no say. Raises Refusal for operands that the device cannot take.
    """
    home = _home(kernel)
    if grad is not None and reference is not None:
        raise Refusal("a gradient is given once", where=f"kernel {kernel.__name__}", got="grad and reference")

    def call(*operands: Tensor, **options: Any) -> Any:
        from kohakuaccel.frontends.tinygrad.own import launched

        named, knobs = _sorted(kernel, options)
        given = [*operands, *named.values()]
        outputs = _outputs(kernel, [tuple(int(n) for n in t.shape) for t in operands], named, knobs)
        dtype = _dtype(kernel, given)
        record: dict[str, Any] = {**home, "operands": len(operands), "named": list(named), "knobs": knobs}
        record["shapes"] = [list(shape) for shape in outputs] + [[int(n) for n in t.shape] for t in given]
        record["formats"] = [FORMATS[t] for t in (*(dtype.name for _ in outputs), *(t.dtype.name for t in given))]
        slope = grad if reference is None else _through(reference, list(named), len(operands), knobs)
        made = launched(kernel.__name__, record, [(shape, dtype) for shape in outputs], given, slope)
        return made[0] if len(made) == 1 else tuple(made)

    call.__name__ = kernel.__name__
    call.__doc__ = kernel.__doc__
    return call


def _home(kernel: Kernel) -> dict[str, str]:
    """Where the kernel is found again: a module, a name in it, and what its code was."""
    module = import_module(kernel.__module__)
    for name in (kernel.__name__, *vars(module)):
        if getattr(module, name, None) is kernel:
            return {"module": module.__name__, "name": name, "code": _code(kernel)}
    raise Refusal(
        "a kernel that tinygrad calls is a name of its module, by which programs find it",
        where=f"kernel {kernel.__name__}",
        got=f"no name of {module.__name__}",
        hint="define it at the top of a module, or bind it there: flash = flash_attention.preset(...)",
    )


def _code(kernel: Kernel) -> str:
    code = kernel.fn.__code__
    text = repr((code.co_code, code.co_names, [c for c in code.co_consts if isinstance(c, SIMPLE)], kernel.knobs))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sorted(kernel: Kernel, options: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Keywords that are operands, in the order of the ports, and knobs."""
    named = {name: options[name] for name in kernel.operands if options.get(name) is not None}
    knobs = {name: value for name, value in options.items() if name not in kernel.operands}
    for name, value in knobs.items():
        if not isinstance(value, SIMPLE):
            raise Refusal(
                "a knob in a tinygrad program is a number, a truth value or a text",
                where=f"kernel {kernel.__name__}, knob {name}",
                got=type(value).__name__,
                hint="bind it in the module: kernel.preset(name, knob=value)",
            )
    return named, knobs


def _outputs(
    kernel: Kernel, shapes: Sequence[tuple[int, ...]], named: Mapping[str, Tensor], knobs: Mapping[str, Any]
) -> list[tuple[int, ...]]:
    from kohakutpu.lower.binding import bind

    trace = kernel.trace(*named, **knobs)
    bound = bind(trace, [*shapes, *(tuple(int(n) for n in t.shape) for t in named.values())])
    return [shape for port, shape in zip(trace.ports, bound.shapes) if port.direction == "out"]


def _dtype(kernel: Kernel, operands: Sequence[Tensor]) -> Any:
    from tinygrad.dtype import dtypes

    for n, t in enumerate(operands):
        if t.dtype not in (dtypes.half, dtypes.float):
            raise Refusal(
                "a kernel's operands are float16 or float32",
                where=f"kernel {kernel.__name__}, operand {n}",
                got=t.dtype,
                hint="cast it: x.half()",
            )
    return dtypes.float if any(t.dtype is dtypes.float for t in operands) else dtypes.half


def _through(reference: Callable[..., Tensor], named: Sequence[str], positional: int, knobs: Mapping[str, Any]) -> Any:
    """A gradient function: that of the reference."""

    def slope(gradient: Tensor, *operands: Tensor) -> list[Tensor]:
        given = [t.detach() for t in operands]
        y = reference(*given[:positional], **dict(zip(named, given[positional:])), **knobs)
        return y.gradient(*given, gradient=gradient.cast(y.dtype))

    return slope


class Call:
    """A kernel that a program names, found again."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        module, name = record["module"], record["name"]
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            found = None
        if not isinstance(found, Kernel) or _code(found) != record["code"]:
            raise Refusal(
                "a program's kernel is found where it was",
                where=f"{module}.{name}",
                got="another kernel" if isinstance(found, Kernel) else "no kernel",
                hint="import it from a module that both runs have; capture the program again after a change",
            )
        self.kernel = found
        self.shapes = [tuple(shape) for shape in record["shapes"]]
        self.formats: list[str] = record["formats"]
        self.operands, self.named, self.knobs = int(record["operands"]), record["named"], record["knobs"]
        self.outputs = len(self.shapes) - self.operands - len(self.named)

    def __call__(self, given: Sequence[Any]) -> list[Any]:
        """Results of tensors of the device."""
        named = dict(zip(self.named, given[self.operands :]))
        made = self.kernel(*given[: self.operands], **named, **self.knobs)
        return list(made) if isinstance(made, tuple) else [made]
