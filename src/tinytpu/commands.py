"""What the `kohaku` command asks of this machine package.

Every answer is a line or two over the parts that decide it; nothing is computed here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.machine import Machine

if TYPE_CHECKING:
    from kohakuaccel.image import Image
    from kohakuaccel.sim import Timeline
    from tinytpu.kernels import Assembled, Lowered, ProgramKernel

DEFAULT_MACHINE = "tinytpu_4x4"


def peak(machine: Machine) -> str:
    """Matmul peak: every PE multiplies and adds once a cycle (datasheet 1)."""
    macs = len(machine.units_of("CORE")) * machine.params.rows * machine.params.columns
    return f"{macs:,} MAC/cycle of int8"


def use(machine: Machine) -> None:
    """Make `machine` the one that is meant where nobody names one."""
    from tinytpu.machines.choice import use

    use(machine)


def stats() -> Mapping[str, object]:
    """What the tinygrad device has counted; empty when it was not used."""
    counting: Any = sys.modules.get("tinytpu.tinygrad.counting")
    if counting is None or not counting.report().device_kernels:
        return {}
    report = counting.report()
    return {"device kernels": report.device_kernels, "host kernels": report.host_kernels, **vars(report.took)}


def timed(call: Callable[[], None], name: str) -> Timeline:
    """Make the call; the modelled timeline of every program that it ran, one after the other."""
    from tinytpu.machines.choice import chosen
    from tinytpu.recording import recording
    from tinytpu.trace.whole import table, usages, whole

    with recording() as played:
        call()
    timeline = whole(played, name, chosen())
    if played:
        print(f"\n{table(usages(played))}")
    return timeline


def opened(path: Path) -> ProgramKernel:
    """A TASM or bundle file, as a kernel without operands."""
    from tinytpu.kernels import opened

    return opened(path)


def plan_text(plan: Lowered | Assembled, limit: int | None = None) -> str:
    """The programs of a plan as TASM; at most `limit` lines of each."""
    return plan.listing(limit)


def smoke(machine: Machine) -> tuple[bool, str]:
    """Two activations times an int8 weight tile, the rows gathered in a PSUM bucket: values and cycles are known."""
    from tinytpu import runner
    from tinytpu.asm import assemble

    rows, columns = machine.params.rows, machine.params.columns
    weights = [[(3 * k - 5 * n) % 19 - 9 for n in range(columns)] for k in range(rows)]
    inputs = [[(7 * m + 2 * k) % 23 - 11 for k in range(rows)] for m in range(2)]
    text = ["WMEM[0] = " + " ".join(str(w) for row in weights for w in row)]
    text += [f"AMEM[{m}] = " + " ".join(map(str, row)) for m, row in enumerate(inputs)]
    text.append("PSUM_CLEAR PSUM[0]")
    text += [f"MXU WMEM[0], AMEM[{m}], tiles=1, psum_write=PSUM[0], psum_row={m}" for m in range(2)]
    text += ["WAIT_MXU", "PSUM_READ v0, PSUM[0]", "STORE VMEM[0], v0", "HALT", "OUTPUT_VMEM VMEM[0]", "END"]
    done = runner.run(assemble("\n".join(text), machine), machine)
    want = [[sum(a * weights[k][n] for k, a in enumerate(row)) for n in range(columns)] for row in inputs]
    instructions = 2 + (rows + 5) * 2 + 2 + 3 + 2 + 1  # clear, two dispatches and the wait, read, store, halt
    records = len(text) - 1
    good = done.vmem[0][:2].tolist() == want and done.cycles == 2 * records + instructions + 4 + 1
    return good, f"2x{rows} @ {rows}x{columns} of int8 in {done.cycles} cycles"


def image_text(image: Image, limit: int | None = None) -> NoReturn:
    """Refused: this machine's programs are bundles."""
    raise Unsupported(
        "an image is of a machine that has them", where="kohaku disasm", hint="name a .tasm or bundle file"
    )
