"""What a device did, counted: every transfer, round, flit, relayout and numeric event since the last reset.

It decides the names under which these are reported. It must not know who counts or what a flit carries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Counters:
    """Cumulative counts of one device. Bytes are those of tensors; control traffic is counted apart.

    transfers: bus transactions of tensor data, both directions. quantised_bytes: of bytes_to_device, those that were
    quantised on their way in.
    dispatches: images run. rounds: control programs started. flits: instructions sent, by opcode name.
    relayouts: tensors whose byte order was changed through the host, `relayout_bytes` in both directions.
    moves: commands done by a memory mover, `moved_bytes` what they wrote, `move_transactions` their bus transactions.
    device_relayouts: stages that changed a byte order on the device.
    host_steps: operations computed by the host instead of the device, `host_step_bytes` what they read and wrote.
    graph_breaks: values that were read while a graph was recorded, each the end of one graph.
    split_products: products of matrices that were computed from parts of their numbers, `split_passes` the products of
    parts that this took, `split_bytes` what the host's arithmetic around them read and wrote.
    saturations, nonfinite: elements, as the units count them. faults: runs that ended in a fault or a hang.
    """

    dispatches: int = 0
    rounds: int = 0
    flits: dict[str, int] = field(default_factory=dict[str, int])
    bytes_to_device: int = 0
    bytes_from_device: int = 0
    transfers: int = 0
    quantised_bytes: int = 0
    control_bytes: int = 0
    relayouts: int = 0
    moves: int = 0
    moved_bytes: int = 0
    move_transactions: int = 0
    device_relayouts: int = 0
    relayout_bytes: int = 0
    host_steps: int = 0
    host_step_bytes: int = 0
    graph_breaks: int = 0
    split_products: int = 0
    split_passes: int = 0
    split_bytes: int = 0
    saturations: int = 0
    nonfinite: int = 0
    faults: int = 0

    def count_flits(self, flits: dict[str, int]) -> None:
        """Add instruction counts by opcode name."""
        for name, number in flits.items():
            self.flits[name] = self.flits.get(name, 0) + number

    def reset(self) -> None:
        """Set every count to zero."""
        self.flits = {}
        for f in fields(self):
            if f.name != "flits":
                setattr(self, f.name, 0)

    def as_dict(self) -> dict[str, object]:
        """A copy as plain values."""
        return {f.name: dict(self.flits) if f.name == "flits" else getattr(self, f.name) for f in fields(self)}
