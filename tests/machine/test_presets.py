"""Every preset against datasheet 1.1 to 1.3: coordinates, order, ports, memories, parameters, timing."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

from kohakuaccel.diagnostics import DefinitionError
from kohakuaccel.machine import Machine, load
from kohakutpu import machines

MiB, GiB = 1 << 20, 1 << 30


def places(machine: Machine, kind: str, mesh: int) -> list[tuple[int, int]]:
    return [(u.x, u.y) for u in machine.units_of(kind, mesh)]


def ports(machine: Machine, mesh: int) -> list[tuple[int, int]]:
    return [(p.x, p.y) for p in machine.ports_of(mesh)]


def test_the_four_presets_exist() -> None:
    assert machines.names() == ("mini", "multimesh_4", "ship_3x2", "singlemesh_2x2")
    assert machines.load().name == "ship_3x2"


def test_ship_3x2() -> None:
    m = machines.load("ship_3x2")
    assert (m.meshes[0].nx, m.meshes[0].ny) == (2, 3)
    assert places(m, "MG", 0) == [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3)]
    assert places(m, "VC", 0) == [(1, 0), (2, 0), (1, 4), (2, 4)]
    assert ports(m, 0) == [(0, 1), (0, 2), (0, 3)]
    assert [u.port for u in m.units_of("MG")] == [0, 0, 1, 1, 2, 2]
    assert [u.port for u in m.units_of("VC")] == [0, 0, 2, 2]
    assert (m.meshes[0].agent_x, m.meshes[0].agent_y) == (0, 1)
    assert m.memories[0].size == 4 * GiB == 134_217_728 * 32
    assert len(m.units_of("MG")) * m.params.macs_per_cycle == 3072
    assert [u.name for u in m.units[:2]] == ["MG(1,1)", "MG(2,1)"]
    assert [u.index for u in m.units] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]


def test_mini() -> None:
    m = machines.load("mini")
    assert places(m, "MG", 0) == [(1, 1)]
    assert places(m, "VC", 0) == [(1, 0)]
    assert ports(m, 0) == [(0, 1)]
    assert m.memories[0].size == 64 * MiB
    assert (m.params.tiles, m.params.l1_a, m.params.l1_b) == (512, 512, 512)


def test_singlemesh_2x2() -> None:
    m = machines.load("singlemesh_2x2")
    assert (m.meshes[0].nx, m.meshes[0].ny) == (2, 2)
    assert places(m, "MG", 0) == [(1, 1), (1, 2)]
    assert places(m, "VC", 0) == [(1, 0), (2, 0), (1, 3), (2, 3)]
    assert [(u.write_x, u.write_y) for u in m.units_of("MG")] == [(2, 1), (2, 2)]
    assert [(u.write_x, u.write_y) for u in m.units_of("VC")] == places(m, "VC", 0)
    assert m.unit_at(0, 2, 1) is None, "the second endpoint is not a unit"
    assert ports(m, 0) == [(0, 1), (0, 2)]
    assert (m.params.tiles, m.params.l1_a, m.params.l1_b) == (256, 32, 32)
    assert not m.features.quantising_upload
    cap = machines.capacity(m)
    assert (cap.banks_a, cap.banks_b, cap.bank_entries_a, cap.bank_entries_b) == (1, 1, 32, 32)


def test_multimesh_4() -> None:
    m = machines.load("multimesh_4")
    for mesh in (0, 2, 3):
        assert (m.meshes[mesh].nx, m.meshes[mesh].ny) == (2, 2)
        assert places(m, "MG", mesh) == [(1, 0), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3)]
        assert places(m, "VC", mesh) == [(2, 0), (2, 3)]
        assert ports(m, mesh) == [(0, 1), (0, 2)]
        assert [u.port for u in m.units_of("MG", mesh)] == [0, 0, 0, 1, 1, 1]
    assert (m.meshes[1].nx, m.meshes[1].ny) == (2, 1)
    assert places(m, "MG", 1) == [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)]
    assert places(m, "VC", 1) == []
    assert ports(m, 1) == [(0, 1), (3, 1)]
    assert [u.port for u in m.units_of("MG", 1)] == [0, 1, 0, 1, 0, 1]
    assert m.links == ((0, 1), (1, 3), (3, 2))
    assert [mem.size for mem in m.memories] == [4 * GiB] * 4
    assert [(x.agent_x, x.agent_y) for x in m.meshes] == [(0, 1)] * 4
    assert m.units_of("MG")[6].name == "mesh1.MG(1,0)"
    assert len({u.name for u in m.units}) == 30


PARAMS = {
    "lanes": 4, "kblock": 32, "macs_per_cycle": 512, "tiles": 512, "l1_a": 512, "l1_b": 512, "banks": 2,
    "offset_span": 256, "fill_max": 255, "drain_burst": 8, "acc_mw": 14, "acc_count": 1, "reuse_min": 5,
    "vlanes": 16, "vlmax": 128, "vregs": 16, "sregs": 16, "pregs": 4, "kregs": 4, "descs": 8, "dims": 4,
    "imem": 512, "vl1": 512, "walk_max": 256, "vbatch": 8 * 128, "inst_fifo": 32, "recv_fifo": 64,
    "router_fifo": 32, "stage_flits": 128, "ncmd": 128, "poll_ivl": 31, "wr_slots": 16, "clock_mhz": 300,
    "addr_bits": 40, "flit_bits": 288,
}  # fmt: skip


def test_default_parameters_are_datasheet_1_3() -> None:
    assert machines.load("ship_3x2").params.as_dict() == PARAMS


RTL: dict[str, tuple[int, str]] = {
    "router_latency": (4, "R"), "endpoint_out": (1, "R"), "endpoint_in": (2, "R"), "retire_to_accept": (2, "R"),
    "mg_slot": (6, "R"), "vc_slot": (3, "R"), "L": (30, "A"), "L_ideal": (3, "R"), "L_crossing": (10, "R"),
    "entry_preq": (4, "R"), "entry_fp16": (8, "R"), "entry_fp16_extra": (2, "R"), "fill_base": (8, "R"),
    "fill_fp16": (8, "R"), "read_word": (3, "R"), "write_burst": (11, "R"), "write_single": (4, "R"),
    "serial_entry": (0, "R"), "serial_entry_shared": (0, "R"), "upload_in": (8, "A"), "upload_out": (4, "A"),
    "host_bytes": (32, "A"), "host_transaction": (300, "A"), "mover_word": (33, "S"), "link_word": (1, "S"),
    "link_beat_extra": (1, "S"), "link_latency": (8, "A"),
    "sweep_tail": (20, "R"), "sweep_gap": (2, "R"), "accumulator_idle": (31, "R"), "emit_latency": (27, "R"),
    "drain_queue": (112, "R"), "drain_short": (17, "R"), "drain_long": (23, "R"), "drain_word": (2, "R"),
    "drain_burst": (10, "R"),
    "alu_extra": (5, "R"), "chain_stage": (4, "R"), "dependence": (18, "R"), "vld_fp16": (4, "R"),
    "vld_fp32": (8, "R"), "vst_fp16": (3, "R"), "vst_fp32": (4, "R"), "vmove": (3, "R"), "mem_extra": (5, "R"),
    "empty_pipeline": (79, "R"), "vred": (145, "R"), "vred_setmode": (13, "R"), "vset": (4, "R"),
    "vseti": (6, "R"), "vbar": (5, "R"), "vhalt": (5, "R"), "vfill_base": (8, "R"), "vfill_word": (3, "R"),
    "vdrain_base": (10, "R"), "vdrain_word": (3, "R"), "vdrain_entry": (8, "A"), "run_fetch": (4, "R"),
    "ctl_write": (5, "R"), "ctl_poll": (5, "R"), "ctl_poll_retry": (36, "R"), "kick_to_flit": (8, "R"),
    "flit_interval": (5, "R"),
}  # fmt: skip


def test_rtl_timing_is_datasheet_8_with_its_tags() -> None:
    timing = machines.load("ship_3x2").timing
    assert {k: (timing[k], timing.tag(k)) for k in timing} == RTL
    assert all(timing.doc(k) for k in timing)


@pytest.mark.parametrize(
    ("profile", "name", "value"),
    [("ideal", "vld_fp32", 2), ("ideal", "dependence", 14), ("ideal", "vred", 4 * 14), ("ideal", "vset", 1),
     ("baseline", "serial_entry", 37), ("baseline", "serial_entry_shared", 42), ("ideal", "sweep_tail", 20)],
)  # fmt: skip
def test_profiles(profile: str, name: str, value: int) -> None:
    m = machines.load("mini").with_(profile=profile)
    assert m.profile == profile
    assert m.timing[name] == value


def test_capacity_follows_the_bank_plan() -> None:
    m = machines.load("ship_3x2")
    off, on = machines.capacity(m), machines.capacity(m.with_(features={"r2_bank_plan": True}))
    assert (off.banks_a, off.bank_entries_a, off.entries_a, off.tiles) == (1, 256, 512, 512)
    assert (on.banks_a, on.banks_b, on.bank_entries_b) == (2, 2, 256)
    assert machines.version(m) == 4
    assert machines.version(m.with_(features={"r2_bank_plan": True})) == 5


def test_every_r2_option_is_off() -> None:
    for name in machines.names():
        assert not any(machines.load(name).features[flag] for flag in machines.R2_FLAGS)


def test_with_makes_another_machine_and_leaves_this_one() -> None:
    m = machines.load("ship_3x2")
    small = m.with_(name="small", params={"tiles": 64, "inst_fifo": 512}, timing={"L": 3})
    assert (small.name, small.params.tiles, small.timing.L, small.timing.tag("L")) == ("small", 64, 3, "A")
    assert (m.params.tiles, m.timing.L, m.timing.tag("L")) == (512, 30, "A")
    assert small.with_(params={"tiles": 32}).timing.L == 3, "overrides add up"
    assert small.with_(params={"tiles": 32}).timing.tag("write_burst") == "R"
    assert small != m


def test_two_machines_in_one_process() -> None:
    a, b = machines.load("mini"), machines.load("multimesh_4")
    assert machines.capacity(a) is machines.capacity(a)
    assert (len(a.units), len(b.units)) == (2, 30)
    assert a.unit_at(0, 1, 0) == a.units[1]
    assert b.unit_at(1, 1, 0) == b.units_of("MG", 1)[0]


def test_unit_at_knows_empty_places() -> None:
    m = machines.load("ship_3x2")
    assert m.unit_at(0, 0, 0) is None
    assert m.unit_at(0, 0, 1) is None, "a port is not a unit"
    assert m.unit_at(7, 1, 1) is None
    assert m.unit_at(0, 99, 1) is None
    for unit in m.units:
        assert m.unit_at(unit.mesh, unit.x, unit.y) == unit
        assert m.port_of(unit).index == unit.port


def test_hops_of_xy_routing() -> None:
    mesh = machines.load("ship_3x2").meshes[0]
    assert mesh.hops((0, 1), (1, 1)) == 1
    assert mesh.hops((0, 1), (2, 1)) == 2
    assert mesh.hops((0, 1), (2, 4)) == 4


def test_fingerprint_is_stable_across_processes_and_ignores_the_name() -> None:
    m = machines.load("ship_3x2")
    code = "from kohakutpu import machines; print(machines.load('ship_3x2').fingerprint)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == m.fingerprint
    assert m.with_(name="other").fingerprint == m.fingerprint
    changes: list[dict[str, Any]] = [
        {"params": {"tiles": 64}},
        {"features": {"mover": True}},
        {"timing": {"L": 3}},
        {"profile": "ideal"},
    ]
    prints = {m.with_(**c).fingerprint for c in changes} | {machines.load(n).fingerprint for n in machines.names()}
    assert len(prints) == len(changes) + 4


def test_machines_copy_and_pickle() -> None:
    m = machines.load("multimesh_4")
    again = pickle.loads(pickle.dumps(m))
    assert again == m
    assert hash(again) == hash(m)
    assert copy.deepcopy(m).timing.L == m.timing.L


def test_unknown_names_say_what_was_meant() -> None:
    m = machines.load("mini")
    with pytest.raises(AttributeError, match="params has no 'tile'; did you mean 'tiles'"):
        _ = m.params.tile
    with pytest.raises(DefinitionError, match="no machine 'ship_2x3'; did you mean 'ship_3x2'"):
        machines.load("ship_2x3")
    with pytest.raises(DefinitionError, match="no machine 'minni'; did you mean 'mini'"):
        load("minni")
    assert load("mini") == m
