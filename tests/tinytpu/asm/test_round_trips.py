"""assemble(disassemble(b)) = b and loads(dump(b)) = b, on random bundles (datasheet 17.12)."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import EncodingRefusal
from tinytpu import machines
from tinytpu.asm import assemble, disassemble
from tinytpu.bundle import Bundle, Entry, dump, loads
from tinytpu.bundle.content import MEMORIES
from tinytpu.isa import FIELDS, Record, words
from tinytpu.isa.check import check_row

M = machines.load()
BIG = machines.load("tinytpu_8x8")
WIDTHS = (6, 8, 4, 4, 7, 4, 8, 8, 8)
HALT = Entry(Record.INSTRUCTION, (7, 0, 0, 0, 0, 0, 0, 0, 0))
LOOPS = {21, 28, 29, 40}  # opcodes whose place in the program is checked too

row = st.tuples(*(st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 2**w - 1)) for w in WIDTHS))
legal_op = st.tuples(st.integers(0, 46), *(st.integers(0, 2**w - 1) | st.integers(0, 4) for w in WIDTHS[1:]))


def legal(numbers: tuple[int, ...]) -> bool:
    try:
        check_row(M, list(numbers), "row", None)
    except EncodingRefusal:
        return False
    return numbers[0] not in LOOPS


def record(kind: Record, slots: int, count: int, bits: int) -> st.SearchStrategy[Entry]:
    value = st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return st.builds(
        lambda a, v: Entry(kind, (a, *v)), st.integers(0, slots - 1), st.lists(value, min_size=count, max_size=count)
    )


def bundles(rows: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[Bundle]:
    entry = st.one_of(
        st.builds(lambda r: Entry(Record.INSTRUCTION, r), rows.filter(legal)),
        record(Record.VMEM, 32, 16, 32),
        record(Record.WMEM, 32, 16, 8),
        record(Record.AMEM, 32, 4, 8),
        st.builds(lambda f: Entry(Record.MXU_RESULT, (f,)), st.integers(0, 1)),
        st.builds(
            lambda k, a: Entry(k, (a,)), st.sampled_from((Record.OUTPUT_VMEM, Record.OUTPUT_AMEM)), st.integers(0, 31)
        ),
    )

    def slot(entry: Entry) -> object:
        return (entry.kind, entry.values[0]) if entry.kind in MEMORIES else object()

    return st.lists(entry, max_size=30, unique_by=slot).map(lambda entries: Bundle((*entries, HALT)))


@given(row)
def test_every_word_has_a_text_that_reads_as_the_word(numbers: tuple[int, ...]) -> None:
    assert words.read(M, words.text_of(M, numbers)) == list(numbers)


@given(row)
def test_a_text_other_than_word_is_legal(numbers: tuple[int, ...]) -> None:
    text = words.text_of(M, numbers)
    if not text.startswith(".word") and numbers[7] + numbers[8] <= 32:
        check_row(M, list(numbers), "row", None)


@settings(deadline=None)
@given(bundles(legal_op))
def test_bundles(bundle: Bundle) -> None:
    bundle.check(M)
    assert assemble(disassemble(bundle, M), M) == bundle
    assert loads(dump(bundle), M) == bundle


def test_every_opcode() -> None:
    rng = random.Random(17)
    written: dict[int, int] = dict.fromkeys(range(47), 0)
    for op in written:
        for _ in range(60):
            filled = rng.sample(range(1, 9), rng.randrange(5))
            numbers = [op, *[rng.randrange(min(1 << w, 8)) if c in filled else 0 for c, w in enumerate(WIDTHS)][1:]]
            text = words.text_of(M, numbers)
            assert words.read(M, text) == numbers
            assert words.read(BIG, words.text_of(BIG, numbers)) == numbers
            written[op] += not text.startswith(".word")
    assert sum(written.values()) > 200, written


def test_fields_are_the_datasheets() -> None:
    assert FIELDS == ("op", "vmem", "dst", "src", "vpu", "src2", "wbase", "abase", "tlen")
    assert tuple(f.width for f in words.word_format(M).fields) == WIDTHS
