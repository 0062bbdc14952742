"""Images: their checks, and that what is saved is what is loaded, byte for byte and without pickle."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.image import EncodedProgram, Image, load, save
from kohakutpu import machines


def example() -> Image:
    machine = machines.load("ship_3x2")
    mg, vc = machine.units_of("MG")[1], machine.units_of("VC")[0]
    rng = np.random.default_rng(1)
    first = EncodedProgram(
        mg,
        rng.integers(0, 1 << 63, (7, 4), np.uint64),
        acks=((vc, 3),),
        sources=np.array([0, 0, 1, -1, 1, 1, 0], np.int32),
        passes=np.array([0, 4], np.int64),
    )
    second = EncodedProgram(vc, rng.integers(0, 1 << 63, (2, 4), np.uint64), acks=((mg, np.array([0, 2], np.int64)),))
    return Image(
        "ship_3x2", ((first,), (second, first)), (SourceLine("k.py", 3, "y = a @ b"), SourceLine("k.py", 9)), "k"
    )


def test_save_and_load(tmp_path: Path) -> None:
    image = example()
    save(image, tmp_path / "a.npz")
    back = load(tmp_path / "a.npz")
    assert (back.machine_name, back.name, back.sources) == (image.machine_name, image.name, image.sources)
    assert [len(stage) for stage in back.stages] == [1, 2]
    for got, want in zip(sum(back.stages, ()), sum(image.stages, ()), strict=True):
        assert got.unit == want.unit
        assert np.array_equal(got.payloads, want.payloads)
        assert np.array_equal(got.passes, want.passes)
        assert (got.sources is None) == (want.sources is None)
        if got.sources is not None and want.sources is not None:
            assert np.array_equal(got.sources, want.sources)
        for (unit, count), (unit2, count2) in zip(got.acks, want.acks, strict=True):
            assert unit == unit2
            assert np.array_equal(count, count2)
    assert back.line(back.stages[0][0], 2) == SourceLine("k.py", 9)
    assert back.line(back.stages[0][0], 3) is None
    assert back.flits == 16


def test_equal_images_give_equal_files(tmp_path: Path) -> None:
    save(example(), tmp_path / "a.npz")
    save(load(tmp_path / "a.npz"), tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.savez(tmp_path / "pickled.npz", meta=np.array([{"format": 1}], dtype=object))
    for name in ("text", "other", "pickled"):
        with pytest.raises(Refusal, match="not an image file"):
            load(tmp_path / f"{name}.npz")
    save(example(), tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        entries = {n: archive.read(n) for n in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "new.npz", "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data.replace(b'"version": 1', b'"version": 9'))
    with pytest.raises(Refusal, match=r"another version.*kohaku-image 9.*Compile it again"):
        load(tmp_path / "new.npz")


def test_refusals() -> None:
    machine = machines.load("mini")
    unit = machine.units[0]
    with pytest.raises(Refusal, match=r"payloads are uint64\[n, 4\]"):
        EncodedProgram(unit, np.zeros((3, 5), np.uint64))
    with pytest.raises(Refusal, match="one source per instruction"):
        EncodedProgram(unit, np.zeros((3, 4), np.uint64), sources=np.zeros(2, np.int32))
    with pytest.raises(Refusal, match="one total or one count per instruction"):
        EncodedProgram(unit, np.zeros((3, 4), np.uint64), acks=((unit, np.zeros(2, np.int64)),))
    program = EncodedProgram(unit, np.zeros((1, 4), np.uint64))
    with pytest.raises(Refusal, match=r"one instruction stream per stage.*two of MG\(1,1\)"):
        Image("mini", ((program, program),))
