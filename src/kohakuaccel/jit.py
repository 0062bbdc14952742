"""How hot loops are compiled: one decorator, one cache rule, one progress line.

Only kernel modules import this one, and they are imported on first use, so importing the package stays cheap.
numba keys its disk cache by the source file of the outermost function alone; a change in a callee or in a
baked-in constant of another module would go unseen. So the cache folder's name is a hash over the kernel
module and everything of ours that it imports: stale machine code cannot be loaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core import cgutils, sigutils, types
from numba.core import config as numba_config
from numba.core.extending import _Intrinsic

_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\s+([^\n(]+|\([^)]*\))|import\s+([\w.]+))", re.MULTILINE)
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
    """The file of a module of ours, found without importing anything: importing a kernel module compiles it."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        place = Path(folder).joinpath(*rest)
        for file in (place.with_suffix(".py") if rest else place, place / "__init__.py"):
            if file.is_file():
                return file
    return Path(spec.origin) if spec and spec.origin and not rest else None


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


def _general(dispatcher: Any) -> Any:
    """Make calls from other kernels see plain integers instead of literal ones.

    numba types a constant argument as Literal[int](c) and would compile the callee once per constant.
    """
    template = dispatcher.get_call_template

    def get_call_template(args: Iterable[Any], kws: Mapping[str, Any]) -> Any:
        plain = tuple(types.unliteral(a) for a in args)
        return template(plain, {k: types.unliteral(v) for k, v in kws.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher


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
            return _general(numba.njit(f, **settings))
        finally:
            numba_config.CACHE_DIR = before  # type: ignore[attr-defined] - numba makes it at run time

    return wrap if fn is None else wrap(fn)


def leaf(fn: Callable[..., Any]) -> Any:
    """A kernel that only borrows the arrays it is given: it counts no references and must not allocate.

    numba otherwise counts one up and down per array argument and call, atomically, which costs more than a
    short loop over a register row.
    """
    return kernel(fn, _nrt=False)


# numba's stub file calls the class final; it is an ordinary one, and what is added here is a way to call it.
class _Separate(_Intrinsic):  # pyright: ignore[reportGeneralTypeIssues]
    """A call to a separately compiled function from compiled code; from Python too where it was asked for."""

    dispatcher: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.dispatcher(*args, **kwargs)


def separate(signature: Any, *, python: bool = False) -> Any:
    """A kernel with a fixed numba signature that its callers call instead of taking into themselves.

    numba links what a compiled function calls into it and optimises it all again, at every level of the
    call tree. A large leaf decorated with this is compiled once, when its module is imported (or loaded from
    the disk cache), and reached through a symbol; it is never inlined. Arguments convert to the signature.
    Like a `leaf` it only borrows arrays. `python`: also callable from Python, which costs compile time.
    """
    options: dict[str, Any] = {"_nrt": False}
    if not python:
        options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    arguments, _ = sigutils.normalize_signature(signature)

    def wrap(fn: Callable[..., Any]) -> Any:
        dispatcher = kernel(fn, **options)
        dispatcher.compile(signature)
        compiled = dispatcher.overloads[arguments]
        symbol = f"{fn.__module__}.{fn.__qualname__}"
        binding.add_symbol(symbol, compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))
        resolved = compiled.signature

        def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
            convention = context.call_conv
            form = convention.get_function_type(resolved.return_type, resolved.args)
            callee = cgutils.get_or_insert_function(builder.module, form, symbol)
            status, result = convention.call_function(builder, callee, resolved.return_type, resolved.args, values)
            with cgutils.if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return result

        def define(typingctx: Any, *_: Any) -> Any:
            return resolved, generate

        named = inspect.Parameter("typingctx", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        own = inspect.signature(fn).parameters.values()
        define.__signature__ = inspect.Signature([named, *own])  # type: ignore[attr-defined] - inspect reads it from any function
        call = _Separate(fn.__name__, define)
        call._register()
        call.dispatcher = dispatcher
        call.__doc__ = fn.__doc__
        return call

    return wrap


@contextmanager
def first_call(label: str, module: str) -> Generator[bool]:
    """Around the loading of kernels and their first call: says on stderr that they compile, when they must.

    module: the one whose sources decide whether the cache holds them all. Yields whether it does not.
    """
    marker = cache_root() / f"{module}-{source_hash(module)}" / "compiled"
    if marker.exists():
        yield False
        return
    from rich.console import Console

    console = Console(stderr=True)
    text = f"compiling {label} (once on this machine, tens of seconds)"
    if console.is_terminal:
        with console.status(text):
            yield True
    else:
        print(text, file=sys.stderr, flush=True)
        yield True
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


@contextmanager
def compiling_beside(module: str) -> Generator[None]:
    """Meanwhile another process imports `module`, so that its kernels are in the disk cache when this one needs them.

    numba compiles one function at a time per process. Whatever the other process fails at, this one compiles itself.
    """
    other = _importing(module) if (os.cpu_count() or 1) > 1 else None
    try:
        yield
    except BaseException:
        if other is not None:
            other.kill()
        raise
    finally:
        if other is not None:
            other.wait()


def _importing(module: str) -> subprocess.Popen[bytes] | None:
    """A process that imports a module with this one's search path; None where none can be started."""
    path = os.pathsep.join(p for p in sys.path if p)
    try:
        return subprocess.Popen(
            [sys.executable, "-c", f"import {module}"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
