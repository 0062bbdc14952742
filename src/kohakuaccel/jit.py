"""How hot loops are compiled: one decorator, one cache rule, one progress line.

Only kernel modules import this one, and they are imported on first use, so importing the package stays cheap.
numba keys its disk cache by the source file of the outermost function alone; a change in a callee or in a
baked-in constant of another module would go unseen. So the cache folder's name is a hash over the kernel
module and everything of ours that it imports: stale machine code cannot be loaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core import config as numba_config

_IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+import\s+([^\n(]+|\([^)]*\))|import\s+([\w.]+))", re.MULTILINE
)
_ROOTS = ("kohakuaccel", "kohakutpu", "tinytpu", "kohakutt")
_closures: dict[str, str] = {}


def cache_root() -> Path:
    """Folder that holds compiled kernels: $NUMBA_CACHE_DIR if set, else the user's cache folder."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kohakuaccel"


def _source_of(module: str) -> Path | None:
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if file is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            return None
        file = None if spec is None else spec.origin
    return Path(file) if file else None


def _imports(module: str, root: str, text: str) -> Iterator[str]:
    for found in _IMPORT.finditer(text):
        base = found.group(1) or found.group(3)
        if base.split(".")[0] not in (*_ROOTS, root):
            continue
        yield base
        if found.group(1):
            for name in re.findall(r"\w+", found.group(2)):
                yield f"{base}.{name}"


def source_hash(module: str) -> str:
    """Hash over `module` and every module of ours that it imports, directly or not."""
    if module in _closures:
        return _closures[module]
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:2]}".encode())
    root = module.split(".")[0]
    seen: set[str] = set()
    queue = [module]
    texts: dict[str, bytes] = {}
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        path = _source_of(name)
        if path is None or path.suffix != ".py":
            continue
        data = path.read_bytes()
        texts[name] = data
        queue.extend(_imports(name, root, data.decode()))
    for name in sorted(texts):
        digest.update(name.encode())
        digest.update(texts[name])
    _closures[module] = digest.hexdigest()[:16]
    return _closures[module]


def kernel(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile `fn` with numba: no Python objects, GIL released, cached on disk under a content hash.

    Options go to numba.njit. Division by zero gives Inf or NaN as IEEE says, never an exception.
    """

    def wrap(f: Callable[..., Any]) -> Any:
        folder = cache_root() / f"{f.__module__}-{source_hash(f.__module__)}"
        before = numba_config.CACHE_DIR  # type: ignore[attr-defined] - numba makes it at run time
        numba_config.CACHE_DIR = str(folder)  # type: ignore[attr-defined] - numba makes it at run time
        try:
            folder.mkdir(parents=True, exist_ok=True)
            settings: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
            settings.update(options)
            return numba.njit(f, **settings)
        finally:
            numba_config.CACHE_DIR = before  # type: ignore[attr-defined] - numba makes it at run time

    return wrap if fn is None else wrap(fn)


@contextmanager
def first_call(label: str, module: str) -> Generator[None]:
    """Around the first call into `module`'s kernels: says on stderr that they compile, when they must."""
    marker = cache_root() / f"{module}-{source_hash(module)}" / "compiled"
    if marker.exists():
        yield
        return
    from rich.console import Console

    console = Console(stderr=True)
    text = f"compiling {label} (once on this machine, tens of seconds)"
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        print(text, file=sys.stderr, flush=True)
        yield
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
