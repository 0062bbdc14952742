"""Machine descriptions as values: where the units sit, what they hold, which features and costs they have.

It decides what a legal description is and answers questions about one. It must not know any family's
instructions: the names of parameters, features and timings come from the family's own `family.toml`.
"""

from kohakuaccel.machine.describe import Family, load, parse
from kohakuaccel.machine.model import Machine, Memory, Mesh, Port, Unit, Values

__all__ = ["Family", "Machine", "Memory", "Mesh", "Port", "Unit", "Values", "load", "parse"]
