"""Run tinygrad's own tests on a device of ours and print a table, a row a file.

    python scripts/upstream_tinygrad.py path/to/tinygrad/checkout [files ...] [--device TINYTPU] [--failures] [--counts]

The tests are upstream's and are not shipped here: give a checkout of the version that the devices work with
(its folders test, extra and examples; the installed tinygrad is what is tested). They need torch, hypothesis, z3-solver
and, for what they compute on the CPU device, clang. Without files, the device-generic ones below run.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

# fmt: off
BACKEND = (
    "ops", "dtype", "dtype_alu", "tensor", "nn", "setitem", "optim", "edgecases", "const_folding", "arange",
    "randomness", "transcendental", "rangeify", "symbolic_ops", "tensor_variable", "encodings",
    "softmax_fusion", "stunning", "call", "to_numpy", "jit", "symbolic_jit", "graph", "subbuffer", "pickle",
    "multitensor", "custom_kernel",
)
UNIT = (
    "assign", "multitensor", "function", "indexing", "jit", "jit_footguns", "dtype_weak", "call",
    "invalid_tensor", "gradient", "dtype_spec", "randomness", "conv", "realize_is_realize", "callify",
    "setitem_schedule", "tensor_data", "linalg", "hashing", "allreduce", "winograd",
)
# fmt: on
DEVICES = {"KTPU": "kohakutpu.tinygrad", "TINYTPU": "tinytpu.tinygrad"}
"""By name: the package that registers it and counts its kernels."""
COUNTS = """
import atexit, {package} as device, pathlib

def written():
    report = device.report()
    pathlib.Path({out!r}).write_text(str(report))

atexit.register(written)
"""
"""A module that pytest loads: it registers a device, and leaves its counts when Python ends."""
FILES = (
    "test_tiny.py",
    *(f"backend/test_{name}.py" for name in BACKEND),
    *(f"unit/test_{name}.py" for name in UNIT),
)
"""The files of tiers 1 and 2: what a device is responsible for."""


def main() -> int:
    """Run, print; 1 where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*", help="below test/, as backend/test_ops.py")
    parser.add_argument("--device", default="KTPU", choices=DEVICES)
    parser.add_argument("--matmul", default="split", choices=("split", "mxfp7"), help="numerics of KTPU")
    parser.add_argument("--dev", default="", help="what DEV is; the device's name where it is not given")
    parser.add_argument("--counts", action="store_true", help="what ran where, of each file")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds a file")
    parser.add_argument("--failures", action="store_true", help="name failed tests with their first line")
    parser.add_argument("--slow", action="store_true", help="with the tests that upstream itself marks slow")
    parser.add_argument("-k", default="", help="pytest's selection")
    args = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as where:
        for name in ("test", "extra", "examples", "conftest.py", "pyproject.toml"):
            if (args.checkout / name).exists():
                os.symlink((args.checkout / name).resolve(), Path(where) / name)
        print("| file | passed | failed | skipped | s | CPU s |\n|---|---|---|---|---|---|", flush=True)
        for file in args.files or FILES:
            row = run(file, Path(where), args)
            rows.append(row)
            print(row.line, flush=True)
            if args.failures:
                print("".join(f"    {line}\n" for line in row.failures), end="", flush=True)
            if args.counts:
                print("".join(f"    {line}\n" for line in row.ran.splitlines()), end="", flush=True)
    total = {key: sum(row.counts[key] for row in rows) for key in ("passed", "failed", "skipped")}
    print(Row("all", total, sum(row.seconds for row in rows), sum(row.cpu for row in rows), []).line)
    return 1 if total["failed"] else 0


@dataclass
class Row:
    """One file: counts by outcome, seconds on the clock and of processors (the same on a loaded machine), failures."""

    file: str
    counts: dict[str, int]
    seconds: float
    cpu: float
    failures: list[str]
    ran: str = ""
    """The device's report."""

    @property
    def line(self) -> str:
        """As a row of the table."""
        numbers = " | ".join(str(self.counts[key]) for key in ("passed", "failed", "skipped"))
        return f"| {self.file} | {numbers} | {self.seconds:.0f} | {self.cpu:.0f} |"


def spent() -> float:
    """Processor seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(file: str, where: Path, args: argparse.Namespace) -> Row:
    """One file in a process of its own."""
    out, ran = where / "result.xml", where / "counts.txt"
    for old in (out, ran):
        old.unlink(missing_ok=True)
    (where / "device_and_counts.py").write_text(COUNTS.format(package=DEVICES[args.device], out=str(ran)))
    env = {
        **os.environ,
        "DEV": args.dev or args.device,
        "KTPU_MATMUL": args.matmul,
        f"{args.device}_JOIN": "off",  # they count kernels
        "PARALLEL": "0",
        "CACHELEVEL": "0",
        "TEST_TIMEOUT": str(args.timeout),
    }
    if args.slow:
        env["RUN_SLOW"] = "1"
    else:
        env["SKIP_SLOW_TEST"] = "1"
    command = [sys.executable, "-m", "pytest", "-p", "device_and_counts", "-q", f"test/{file}", f"--junitxml={out}"]
    if args.k:
        command += ["-k", args.k]
    start, before = time.perf_counter(), spent()
    try:
        done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, timeout=args.timeout)
        tail = done.stdout[-400:]
    except subprocess.TimeoutExpired:
        tail = f"stopped after {args.timeout} s"
    seconds = time.perf_counter() - start
    if not out.exists():
        return Row(file, {"passed": 0, "failed": 1, "skipped": 0}, seconds, spent() - before, [tail])
    report = ran.read_text() if ran.exists() else ""
    return Row(file, counted(out), seconds, spent() - before, failures(out), report)


def counted(out: Path) -> dict[str, int]:
    """Tests by outcome."""
    suite = next(ET.parse(out).getroot().iter("testsuite"))
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return {"passed": total - skipped - failed, "failed": failed, "skipped": skipped}


def failures(out: Path) -> list[str]:
    """Failed tests with the last line of what they said."""
    found: list[str] = []
    for case in ET.parse(out).getroot().iter("testcase"):
        for kind in ("failure", "error"):
            for one in case.iter(kind):
                message = (one.get("message") or "").strip().splitlines()
                found.append(f"{case.get('name')}: {message[0][:160] if message else kind}")
    return found


if __name__ == "__main__":
    sys.exit(main())
