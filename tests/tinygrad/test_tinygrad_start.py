"""How scripts come to the device: a `.pth` file, workers that compile, searches, clear errors."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from kohakuaccel.diagnostics import DefinitionError
from kohakutpu.tinygrad.engine import machine_of

SOURCES = Path(__file__).resolve().parents[2] / "src"
SCRIPT = "from tinygrad import Device, Tensor; print(Device.DEFAULT, (Tensor([1.0, 2.0]) + 1).tolist())"


def python(place: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python that finds the packages of this one, and the `.pth` files of its own folder."""
    path = os.pathsep.join((str(SOURCES), sysconfig.get_path("purelib")))
    given = {**os.environ, "PYTHONPATH": path, "PARALLEL": "0", **environment}
    return subprocess.run([str(place), *words], capture_output=True, text=True, check=False, env=given)


def test_unknown_machines_are_refused_with_one_like_it_and_all_there_are() -> None:
    with pytest.raises(DefinitionError, match=r"did you mean 'ship_3x2'\?\. The presets are mini, .*, singlemesh_2x2$"):
        machine_of("ship_4x4")
    with pytest.raises(DefinitionError, match="The presets are mini"):
        machine_of("unlike_any,L=3")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "package"), [("KTPU", "kohakutpu.tinygrad"), ("TINYTPU", "tinytpu.tinygrad")])
def test_an_installed_device_needs_no_import(name: str, package: str, tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=True)
    place = tmp_path / "bin" / "python"
    done = python(place, "-m", package, "install")
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout
    done = python(place, "-c", SCRIPT, DEV=name)
    assert done.stdout == f"{name} [2.0, 3.0]\n", done.stderr
    assert python(place, "-m", package, "uninstall").stdout.startswith("removed ")
    assert f"ops_{name.lower()}" in python(place, "-c", SCRIPT, DEV=name).stderr
    assert python(place, "-m", package, "uninstall").stdout == "nothing was installed\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PARALLEL": "2"}, ""),
        ({"BEAM": "1", "DEV": "TIMED+KTPU"}, ""),
        ({"DEBUG": "2", "DEV": "TIMED+KTPU"}, "tm"),
    ],
    ids=["workers", "beam", "debug"],
)
def test_settings_of_tinygrad(environment: dict[str, str], said: str) -> None:
    script = (
        "import kohakutpu.tinygrad; from tinygrad import Tensor; x = Tensor.ones(8, 8).contiguous().realize();"
        "y = (x + 1).relu().realize(); z = (x * 2).sum(0); print((y.sum(0) + z).tolist()[0])"
    )
    done = python(Path(sys.executable), "-c", script, **{"DEV": "KTPU", "CACHELEVEL": "0", **environment})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "32.0"
    assert said in done.stdout
