"""What ran where: kernels on a device and steps of the host, by reason.

Decides how these are counted and shown for every machine; what a kernel took on its machine, each adds itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Steps:
    """Counts since the last reset. seconds: simulated, of timed devices. reasons: of host steps."""

    device_kernels: int = 0
    seconds: float = 0.0
    host_kernels: int = 0
    host_bytes: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """How often the host stepped in, and why."""
    parted: Counter[str] = field(default_factory=Counter)
    """How often kernels that could have been one ran one by one, and why."""
    names: dict[str, str] = field(default_factory=dict)
    """A kernel of each reason."""

    def host(self, reason: str, name: str, nbytes: int) -> None:
        """Count a step of the host."""
        self.host_kernels += 1
        self.host_bytes += nbytes
        self.reasons[reason] += 1
        self.names.setdefault(reason, name)

    def apart(self, name: str, parts: int, reason: str) -> None:
        """Count a group of kernels that ran one by one."""
        self.parted[reason] += 1
        self.names.setdefault(reason, f"{name} of {parts}")

    def head(self, kernels: int) -> list[str]:
        """The first lines: how many kernels, where, in what simulated time."""
        lines = [f"{kernels} kernels: {self.device_kernels} on the device, {self.host_kernels} steps of the host"]
        if self.seconds:
            without = ", without the steps of the host" if self.host_kernels else ""
            lines.append(f"  simulated time {self.seconds * 1e6:.1f} us{without}")
        return lines

    def tail(self) -> list[str]:
        """The last lines: what the host did, and what was not joined, with reasons."""
        lines = [f"  the host read and wrote {self.host_bytes} bytes"] if self.host_kernels else []
        lines += [f"  {count:6} host: {why} (first {self.names[why]})" for why, count in self.reasons.most_common()]
        return lines + [
            f"  {count:6} not joined: {why} (first {self.names[why]})" for why, count in self.parted.most_common()
        ]
