"""Steps, L1 places and slots: what runs side by side, when operands are fetched, and where values lie.

Products stay in order among themselves and so does row arithmetic; a product of one block of the kernel runs beside
whatever it does not depend on. It must not know instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohakuaccel.machine import Machine
from kohakutpu.lower.resident.ops import Chain, Fetched, Held, NotResident, Op, Product, Rows, Slot, Step
from kohakutpu.machines import capacity


def reads(op: Op) -> list[Held]:
    """Values on chip that an operation needs."""
    if isinstance(op, Product):
        return [op.a] if isinstance(op.a, Held) else []
    return list(op.operands)


def writes(op: Op) -> list[Held]:
    """Values on chip that an operation makes."""
    if isinstance(op, Product):
        return [op.dst] if isinstance(op.dst, Held) else []
    return op.targets()


def _before(ops: Sequence[Op]) -> list[set[int]]:
    """For every operation the numbers of those it follows: who wrote what it reads, who used what it overwrites."""
    wrote: dict[int, int] = {}
    used: dict[int, list[int]] = {}
    found: list[set[int]] = []
    for n, op in enumerate(ops):
        mine = {wrote[id(h)] for h in reads(op) if id(h) in wrote}
        for h in writes(op):
            mine |= set(used.get(id(h), []))
            if id(h) in wrote:
                mine.add(wrote[id(h)])
        for h in reads(op):
            used.setdefault(id(h), []).append(n)
        for h in writes(op):
            wrote[id(h)] = n
            used[id(h)] = []
        found.append(mine - {n})
    return found


def steps(chain: Chain) -> list[Step]:
    """The operations grouped: what is in one step runs without waiting for the other kind of unit."""
    ops, before = chain.ops, _before(chain.ops)
    waiting = {kind: [n for n, op in enumerate(ops) if isinstance(op, kind)] for kind in (Product, Rows)}
    done: set[int] = set()
    found: list[Step] = []
    while any(waiting.values()):
        step, taken = Step(), set[int]()
        for queue in waiting.values():
            mine: set[int] = set()
            while queue and before[queue[0]] <= done | mine:
                n = queue.pop(0)
                mine.add(n)
                op = ops[n]
                if isinstance(op, Product):
                    step.products.append(op)
                else:
                    step.rows.append(op)
            taken |= mine
        if not taken:
            raise NotResident("products and row arithmetic wait for each other")
        done |= taken
        found.append(step)
    _fetch(found)
    return found


def _fetch(found: Sequence[Step]) -> None:
    """Put every fill into the latest step without products after the operand's last use, or right before its product.

    An operand that is in its slot already is not fetched again.
    """
    content: dict[int, tuple[object, ...]] = {}
    last: dict[int, int] = {}
    for number, step in enumerate(found):
        for product in step.products:
            for which, operand in (("a", product.a), ("b", product.b)):
                if not isinstance(operand, Fetched):
                    continue
                slot = id(operand.slot)
                key = (operand.buffer, product.count, operand.at.tobytes(), operand.first.tobytes())
                if content.get(slot) != key:
                    idle = [n for n in range(last.get(slot, -1) + 1, number) if not found[n].products]
                    found[idle[-1] if idle else number].fills.append((product, which))
                    content[slot] = key
                last[slot] = number


def place(chain: Chain, found: Sequence[Step], machine: Machine) -> int:
    """Give every value its L1 words and every operand its entries; returns a core's word that nothing else uses.

    Two values share words if no moment needs both. Raises NotResident where they do not fit.
    """
    alive: dict[int, set[int]] = {id(h): set() for h in chain.held}
    written: dict[int, int] = {}
    moment = 0
    for step in found:
        first, count = moment, max(1, len(step.rows))
        for product in step.products:
            if isinstance(product.dst, Held):
                alive[id(product.dst)] |= set(range(first, first + count))
                written[id(product.dst)] = first
        for row in step.rows:
            for h in row.operands:
                alive[id(h)] |= set(range(written.get(id(h), moment), moment + 1))
            for h in row.targets():
                alive[id(h)].add(moment)
                written[id(h)] = moment
            moment += 1
        moment = first + count
    done: list[Held] = []
    for h in sorted(chain.held, key=lambda h: -h.words):
        at = 0
        for other in sorted(done, key=lambda o: o.word):
            if alive[id(other)] & alive[id(h)] and other.word < at + h.words and at < other.word + other.words:
                at = other.word + other.words
        h.word = at
        done.append(h)
    used = max(h.word + h.words for h in chain.held)
    if used + 1 > machine.params.vl1:
        need = ", ".join(f"{h.name} {h.words}" for h in chain.held)
        raise NotResident(f"values take {used + 1} of a core's {machine.params.vl1} L1 words ({need})")
    _entries(chain, machine)
    return used


def _entries(chain: Chain, machine: Machine) -> None:
    cap = capacity(machine)
    at = [0, 0]
    slots: dict[int, Slot] = {}
    for op in chain.ops:
        if isinstance(op, Product):
            slots.update({id(o.slot): o.slot for o in (op.a, op.b) if isinstance(o, Fetched)})
    for slot in slots.values():
        slot.first = at[slot.side]
        at[slot.side] += slot.entries
    for h in chain.held:
        if h.kind == "entries":
            h.entry = at[0]
            at[0] += h.gm * h.blocks
            if h.words > machine.params.walk_max:
                raise NotResident(f"{h.name} is {h.words} words, and a VDRAIN moves {machine.params.walk_max}")
    for side, need, have in (("A", at[0], cap.bank_entries_a), ("B", at[1], cap.bank_entries_b)):
        if need > have:
            raise NotResident(f"operands take {need} entries of side {side}, and a bank holds {have}")


__all__ = ["place", "reads", "steps", "writes"]
