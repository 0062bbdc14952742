"""tinyspec's areas (datasheet 15): what is there and what is not, in a few words each."""

from __future__ import annotations

SPEC: tuple[tuple[str, str, str], ...] = (
    (
        "runtime architecture",
        "one plan of programs per kernel, several outputs, values between programs counted; product, bias, relu, "
        "residual and requantisation in one program; every record and result line documented and parsed",
        "memories that stay filled from one bundle to the next",
    ),
    (
        "elementwise",
        "integers, flags and float32; more live values than vregs are spilled; NaN, Inf, subnormals as numpy",
        "",
    ),
    (
        "reductions",
        "any axes, any length, four folds and means, argmin and argmax, what stands around them; softmax, layernorm",
        "",
    ),
    (
        "movement",
        "reshape, slices, permute, pad, flip, cat, repeat, gather by values, of any rank and size, as data plans",
        "scatter of several writes to one place (tinygrad makes sums of it)",
    ),
    (
        "GEMM",
        "any size, deep K, batches of distinct weights, transposed operands, convolutions; weight or output stationary "
        "by cycles; operands beyond int8 and float32 on the vector unit",
        "a float array (the machine has none)",
    ),
    (
        "dtypes",
        "bool, int8 to int64, uint8 to uint64, float32; float16 and bfloat16 as stored; bitcast",
        "float64: refused, or counted steps of the host",
    ),
    (
        "call, tuple, ordering",
        "multi-output kernels; order by tinygrad's schedule; predicates and loops in the model and in TASM",
        "BARRIER, IF, atomics: no kernel that the frontend makes has them",
    ),
    (
        "multi-kernel, memory planning",
        "several programs per kernel, stages that share programs, spill and fill, tensors beyond VMEM",
        "values in VMEM across kernels: they go through host memory, counted",
    ),
    (
        "backend quality",
        "one lowering by structure, no table of shapes; one frontend with the other machines; one executor",
        "",
    ),
    (
        "profiler",
        "strict traces, timeline, Perfetto and HTML, per-unit occupancy, hottest addresses, bubbles by cause, "
        "lowering dump, cycles by kernel",
        "",
    ),
    (
        "multi-device, advanced",
        "cores on a network with collectives, data-parallel GEMM, tensors in shards; random numbers (threefry) on the "
        "machine; training through tinygrad's gradients",
        "tinygrad's all-reduce as a collective: it copies from core to core",
    ),
)
