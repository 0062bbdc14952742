"""A program of the machine in TASM: 4x8 activations times 8x4 weights, output stationary, what each cycle was for.

.venv/bin/python examples/tinytpu/01_tasm_gemm.py
"""

import numpy as np

from tinytpu import machines
from tinytpu.asm import assemble
from tinytpu.runner import run
from tinytpu.trace import profile


def program(a: np.ndarray, w: np.ndarray) -> str:
    """a, w: int8[4, 4k] and int8[4k, 4]. AMEM holds columns of a, a tile of w is 4 rows; sums stay in the array."""
    tiles = len(w) // 4
    lines = [f"WMEM[{k}] = " + " ".join(map(str, w[4 * k : 4 * k + 4].ravel())) for k in range(tiles)]
    lines += [f"AMEM[{k}] = " + " ".join(map(str, a[:, k])) for k in range(len(w))]
    for k in range(tiles):
        lines.append(f"{'MXU_OS_ACCUMULATE' if k else 'product: MXU_OS'} WMEM[{k}], AMEM[{4 * k}], k=4")
    for row in range(4):
        lines += [f"LOAD_MXU_MATRIX_ROW v{row}, row={row}", f"STORE VMEM[{row}], v{row}"]
    return "\n".join([*lines, "HALT", *(f"OUTPUT_VMEM VMEM[{row}]" for row in range(4)), "END"])


def main() -> int:
    """Cycles of the program."""
    rng = np.random.default_rng(0)
    a, w = rng.integers(-128, 128, (4, 8), np.int8), rng.integers(-128, 128, (8, 4), np.int8)
    machine = machines.load()
    bundle = assemble(program(a, w), machine, "gemm.tasm")
    done = run(bundle, machine, log=True)
    found = np.stack([tile[0] for tile in done.vmem])  # a row of the array comes as row 0 of a tile
    assert (found == a.astype(np.int32) @ w).all()
    print(found)
    print(profile(done, bundle.labels).text(top=3))
    return done.cycles


if __name__ == "__main__":
    main()
