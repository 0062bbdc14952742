"""Two machines in one process: the same program and the same bits, dealt to different units.

kohaku run examples/kohakutpu/03_machines.py
"""

import numpy as np

from kohakutpu import api as ktpu


def main() -> None:
    rng = np.random.default_rng(2)
    X, W = rng.standard_normal((128, 256)), rng.standard_normal((64, 256)) / 16
    results = {}
    for name in ("mini", "ship_3x2"):
        device = ktpu.device(name)  # a tensor lives on one device, and so does what is computed from it
        x, w = ktpu.tensor(X, device=device), ktpu.tensor(W, device=device)
        results[name] = (x @ w).silu().numpy()
        machine, cost = device.machine, ktpu.stats(device)
        units = ", ".join(f"{len(machine.units_of(kind))} {kind}" for kind in machine.kinds)
        print(f"{name:9} {units:12} {cost['rounds']} rounds, {sum(cost['flits'].values())} instructions")
    print("the same bits:", np.array_equal(results["mini"], results["ship_3x2"]))

    small = ktpu.use("mini")  # from here on the home of new tensors
    print("new tensors live on", ktpu.zeros((2, 2)).device.machine.name)
    print(f"its peak is {small.machine.params.macs_per_cycle} multiply-accumulates per cycle")


if __name__ == "__main__":
    main()
