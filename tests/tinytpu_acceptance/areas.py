"""The datasheet's list of areas (12): how many checks each has to have, and where its checks are.

Decides what belongs to an area; what a check does is its table's or its test's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tinytpu_acceptance import (
    arithmetic,
    array_bundles,
    dumps,
    epilogues,
    formats,
    functions,
    logic,
    movement,
    products,
    random_programs,
    reductions,
    refusals,
    reproducers,
    unary,
    vector_bundles,
)
from tinytpu_acceptance.table import Table

TABLES: tuple[Table, ...] = tuple(
    rows
    for module in (arithmetic, unary, logic, reductions, movement, functions, products, array_bundles, vector_bundles,
                   refusals, reproducers, dumps, epilogues, formats,
                   random_programs)
    for rows in module.TABLES
)  # fmt: skip


@dataclass(frozen=True)
class Area:
    """key: what tables call it. floor: checks that the datasheet asks for. tests: test functions outside of the tables
    whose cases are checks of this area, as `file::function`, a file of tests/tinytpu."""

    key: str
    title: str
    floor: int
    tests: tuple[str, ...] = ()

    def tables(self) -> Iterator[Table]:
        return (rows for rows in TABLES if rows.area == self.key)


def _in(file: str, *functions: str) -> tuple[str, ...]:
    return tuple(f"{file}::{name}" for name in functions)


AREAS: tuple[Area, ...] = (
    Area("int arithmetic", "int32 add, sub, mul, min, max", 114),
    Area("float arithmetic", "float32 add, sub, mul, min, max", 97),
    Area("int reductions", "reductions of integers and flags", 157, _in("lower/test_numbers.py",
        "test_folds_of_words")),
    Area("float reductions", "reductions of float32", 30, _in("lower/test_numbers.py", "test_folds_of_reals")),
    Area("bits", "bitwise and shift", 52),
    Area("int compare", "comparisons of integers", 28),
    Area("float compare", "comparisons of float32", 33),
    Area("relu", "relu", 30),
    Area("int abs", "abs of int32", 23),
    Area("float abs", "abs of float32", 28),
    Area("neg", "neg", 24),
    Area("where", "where", 24),
    Area("clip", "clip", 10),
    Area("int division", "integer division and remainder", 22),
    Area("float division", "float division, reciprocal", 20),
    Area("casts", "casts", 23),
    Area("broadcasts", "broadcasts", 13),
    Area("movement", "movement", 21, _in("lower/test_plans.py", "test_movement_is_data")),
    Area("fills", "constant fills", 7),
    Area("chains", "fused chains", 8),
    Area("functions", "transcendental functions, activations", 62, _in("lower/test_numbers.py",
        "test_functions_of_reals")),
    Area("GEMM", "GEMM", 33, _in("lower/test_products.py", "test_cycles_of_the_list", "test_any_size")),
    Area("dump", "lowering dump", 21, _in("tinygrad/test_tinytpu_dump.py", "*")),
    Area("refusals", "refusals", 16, _in("lower/test_numbers.py",
        "test_what_lanes_cannot_hold_is_refused_when_it_is_compiled")),
    Area("sweeps", "sweeps over methods", 2),
    Area("tiling", "tiling inference", 5),
    Area("results", "result parsing, run errors", 8, _in("test_results.py", "*")),
    Area("bundles", "instruction-level bundles", 65),
    Area("op 46", "residual fusion, op 46", 10, _in("units/test_laws.py", "test_op_46_is_a_dispatch_and_a_vpu_op")),
    Area("assembler", "assembler", 144, _in("asm/test_assembler.py", "*") + _in("asm/test_refusals.py", "*")
         + _in("asm/test_round_trips.py", "*") + _in("isa/test_golden_words.py", "*") + _in("bundle/test_bundle.py",
             "*")),
    Area("end to end", "end to end", 75, _in("models/test_digits.py", "*") + _in("lower/test_plans.py", "test_softmax",
         "test_what_follows_a_fold_shares_its_program")),
    Area("tools", "tools", 28, _in("trace/test_trace.py", "*") + _in("trace/test_profile.py", "*") + _in("test_cli.py",
        "*")
         + _in("programs/test_kernels.py", "*") + _in("test_examples.py", "*")),
    Area("silent bugs", "silent bugs of section 13", 26),
    Area("cycles", "published cycles (10.7, 14)", 11, _in("units/test_published_cycles.py", "*")
         + _in("lower/test_plans.py", "test_cycles_of_the_list", "test_sums_of_any_size")),
    Area("formats", "float16, bfloat16, words of 64 bits", 0),
    Area("random programs", "random programs through tinygrad and as words", 0,
         _in("units/test_differential.py", "*")),
    Area("faults", "errors at run time (9)", 9, _in("units/test_refusals.py", "*")),
)  # fmt: skip
"""The last five are the datasheet's sections 13, 10 and 9, and what section 12 says to add."""

LAWS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("output-stationary mode is a product", _in("units/test_laws.py", "test_output_stationary_is_a_product",
        "test_output_stationary_is_the_staircase")),
    2: ("weight-stationary mode; no residue", _in("units/test_laws.py", "test_weight_stationary",
        "test_accumulation_composes")),
    3: ("accumulation composes; weights of 0", _in("units/test_laws.py", "test_accumulation_composes",
        "test_zero_weights_change_nothing", "test_accumulators_wrap")),
    4: ("PSUM is a sum in any order", _in("units/test_laws.py", "test_psum_is_a_sum_in_any_order",
        "test_clearing_all_is_clearing_each")),
    5: ("sign laws", _in("units/test_laws.py", "test_sign_laws") + _in("acceptance/test_laws.py",
        "test_signs_of_bytes")),
    6: ("VPU_BG and its collection are VPU", _in("units/test_laws.py", "test_background_equals_blocking")),
    7: ("predicates", _in("units/test_laws.py", "test_predicates")),
    8: ("loops multiply", _in("units/test_laws.py", "test_nested_loops_multiply")),
    9: ("moves invert and compose", _in("units/test_laws.py", "test_moves")),
    10: ("requantisation", _in("units/test_laws.py",
        "test_requantisation_rounds_half_up") + _in("acceptance/test_laws.py",
            "test_requantisation_is_monotone_and_bounded")),
    11: ("op 46, op 42, rotates, counts, saturation", _in("units/test_laws.py",
        "test_op_46_is_a_dispatch_and_a_vpu_op", "test_epilogue") + _in("acceptance/test_laws.py",
            "test_column_sums_of_op_42_are_the_results",
                "test_rotates_are_each_others_inverse") + _in("units/test_vpu.py", "test_every_operation")),
    12: ("round trips of bundles", _in("asm/test_round_trips.py", "*")),
    13: ("cycles of random programs; READ_CYCLE", _in("units/test_differential.py", "test_random_programs",
        "test_many_random_programs") + _in("units/test_laws.py",
            "test_reading_the_cycle_adds_two") + _in("acceptance/test_laws.py", "test_reading_the_cycle_anywhere")),
    14: ("floats are numpy's; inline functions", _in("units/test_vpu.py", "test_floats_equal_numpy",
        "test_inline_steps_equal_the_serial_unit") + _in("acceptance/test_laws.py",
            "test_the_inline_sine_is_the_units")),
}  # fmt: skip
"""The datasheet's properties (17), by number: what each says, and the tests that hold it."""
