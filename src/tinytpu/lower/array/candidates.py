"""The cuts of a product that are worth counting.

Decides how many tiles and K-tiles a program may have by the sizes of memories. It must not know expressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kohakuaccel.machine import Machine
from tinytpu.lower.array.blocks import Matrix
from tinytpu.lower.array.cut import Cut, Ints
from tinytpu.lower.array.jobs import Jobs, Leaving

FEW = 4
"""Rows that are worth a dispatch, or a program, of their own."""


def cuts(place: Ints, depth: int, machine: Machine, *, added: bool, plain: bool) -> Iterator[Cut]:
    """place: int64[batch, m, n]. added: whether something is added to the sums first. plain: whether the sums are the
    only output."""
    for cut in _plain_cuts(place, depth, machine, plain):
        yield cut
        if (added or cut.terms < cut.ktiles) and not getattr(cut, "outer", False) and _bucket(cut):
            yield replace(cut, preload=True)  # pyright: ignore[reportArgumentType] - both kinds are dataclasses


def _bucket(cut: Cut) -> bool:
    return not isinstance(cut, Jobs) or cut.leaving == "gathered"


def _plain_cuts(place: Ints, depth: int, machine: Machine, plain: bool) -> Iterator[Cut]:
    if depth == 1:
        yield from _matrices(place, 1, machine, stationary=True, outer=True)
    for stationary in (False, True):
        yield from _matrices(place, depth, machine, stationary=stationary)
    batch, m, n = place.shape
    edge = machine.params.rows
    count = batch * m * -(-n // edge)
    if m % edge or batch > 1:
        yield from _jobs(place, depth, machine, "gathered")
    if count <= FEW:
        yield from _jobs(place, depth, machine, "alone")
        if plain:
            yield from _jobs(place, depth, machine, "output")


def _matrices(place: Ints, depth: int, machine: Machine, *, stationary: bool, outer: bool = False) -> Iterator[Matrix]:
    """All K-tiles in a program where they can be, then as many tiles as fit."""
    p = machine.params
    edge = p.rows
    _, m, n = place.shape
    ktiles = -(-depth // edge)
    rows, columns = -(-m // edge), -(-n // edge)
    vectors = min(edge, depth) if stationary else min(edge, m)
    terms = min(ktiles, p.amem_vectors // vectors, p.wmem_tiles)
    if not terms:
        return
    # An even share of the K-tiles for every program.
    terms = -(-ktiles // -(-ktiles // terms))
    words = (terms + 2 * edge + 3) if stationary else terms * min(edge, m) + 3
    words = 3 if outer else words
    tall = min(rows, p.amem_vectors // (vectors * terms))
    wide = min(columns, p.wmem_tiles // terms)
    most = max(1, min((p.program_words - 1) // words, p.max_outputs))
    if not stationary and p.psum_buckets < 2:
        most = 1  # a tile is read while the next one gathers in another bucket
    for a, b in {
        (min(tall, max(1, most // wide)), min(wide, most)),
        (min(tall, most), min(wide, max(1, most // tall))),
    }:
        yield Matrix(edge, place, depth, a, b, terms, stationary, outer=outer)


def _jobs(place: Ints, depth: int, machine: Machine, leaving: Leaving) -> Iterator[Jobs]:
    """As many tiles as fit."""
    p = machine.params
    batch, m, n = place.shape
    edge = p.rows
    ktiles = -(-depth // edge)
    count = batch * m * -(-n // edge)
    held = min(edge, count) if leaving == "gathered" else 1
    least = min(p.amem_vectors, p.wmem_tiles) // held
    terms = -(-ktiles // -(-ktiles // min(ktiles, max(1, least))))
    if leaving == "output" and terms < ktiles:
        return
    most = 1 if leaving == "output" else max(1, min((p.program_words - 1) // (terms * held + 3), p.max_outputs))
    if leaving == "gathered" and p.psum_buckets < 2:
        most = 1
    most = min(most, -(-count // held))
    while True:
        cut = Jobs(edge, place, depth, most, terms, leaving)
        rows, columns = cut.most()
        if rows * terms <= p.amem_vectors and columns * terms <= p.wmem_tiles:
            yield cut
            return
        if most == 1:
            return
        most = min(most - 1, max(1, most * min(p.amem_vectors // terms, p.wmem_tiles // terms) // max(rows, columns)))
