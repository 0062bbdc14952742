"""The compiled-kernel cache: its key covers everything a kernel was built from, and computing it costs nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from kohakuaccel import jit


def test_the_key_is_computed_without_importing_kernels_or_scipy() -> None:
    code = (
        "import sys; from kohakuaccel.jit import source_hash; source_hash('kohakutpu.units.control');"
        "print([m for m in sys.modules if m.startswith('kohakutpu') or m == 'scipy.linalg']);"
        # What looks for scipy's BLAS is in its place again, for functions that multiply matrices.
        "from numba.np import arraymath, linalg;"
        "print(arraymath.ensure_blas is linalg.ensure_blas, linalg.ensure_blas.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True numba.np.linalg"]


def test_a_changed_constant_in_an_imported_module_changes_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "cachedpkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "constants.py").write_text("A = 1\n")
    (package / "unrelated.py").write_text("B = 1\n")
    (package / "kernels.py").write_text("from cachedpkg.constants import (\n    A,\n)\nimport math\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def key() -> str:
        jit._closures.clear()
        jit._texts.clear()
        return jit.source_hash("cachedpkg.kernels")

    first = key()
    (package / "unrelated.py").write_text("B = 2\n")
    assert key() == first
    (package / "constants.py").write_text("A = 2\n")
    assert key() != first


def test_nothing_is_collected_while_kernels_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for cold in (True, False):
        with jit.first_call("a thing", "json") as compiles:
            assert compiles is cold
            assert not gc.isenabled()
        assert gc.isenabled()
    with pytest.raises(KeyError), jit.first_call("a thing", "json"):
        raise KeyError("passed on")
    assert gc.isenabled()


def test_another_process_compiles_beside_and_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    with jit.compiling_beside("no_such_module_at_all"):
        pass
    with pytest.raises(KeyError), jit.compiling_beside("json"):
        raise KeyError("passed on")
    monkeypatch.setattr(sys, "executable", "no-such-interpreter")
    with jit.compiling_beside("json"):
        pass
