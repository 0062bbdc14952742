"""How hot loops are compiled: one decorator, one cache rule, one progress line.

Only kernel modules import this one, and they are imported on first use, so importing the package stays cheap.
numba keys its disk cache by the source file of the outermost function alone; a change in a callee or in a
baked-in constant of another module would go unseen. So the cache folder's name is a hash over the kernel
module and everything of ours that it imports: stale machine code cannot be loaded.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core import cgutils, sigutils, types
from numba.core import config as numba_config
from numba.core.extending import _Intrinsic


def _leave_scipy_alone() -> None:
    """Import the part of numba that looks for scipy's BLAS, without scipy: loading that takes a tenth of a warm start.

    numba looks for it again where a function multiplies matrices, so such a function still finds it.
    """
    from numba.np import linalg

    def there() -> None:
        if importlib.util.find_spec("scipy") is None:
            raise ImportError("scipy")

    look = linalg.ensure_blas
    linalg.ensure_blas = there
    try:
        from numba.np import arraymath
    finally:
        linalg.ensure_blas = look
    arraymath.ensure_blas = look  # pyright: ignore[reportPrivateImportUsage] - a name it imported, put in its place


if "numba.np.arraymath" not in sys.modules:
    _leave_scipy_alone()

_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\s+([^\n(]+|\([^)]*\))|import\s+([\w.]+))", re.MULTILINE)
_ROOTS = ("kohakuaccel", "kohakutpu", "tinytpu", "kohakutt")
# Sources are read once per process: code that runs is code that was loaded.
_tops: dict[str, Any] = {}
_texts: dict[str, tuple[bytes, tuple[str, ...]]] = {}
_closures: dict[str, str] = {}


def cache_root() -> Path:
    """Folder that holds compiled kernels: $NUMBA_CACHE_DIR if set, else the user's cache folder."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kohakuaccel"


def _source_of(module: str) -> str | None:
    """The file of a module of ours, found without importing anything: importing a kernel module compiles it."""
    top, *rest = module.split(".")
    if top not in _tops:
        spec = importlib.util.find_spec(top)
        _tops[top] = spec and (spec.submodule_search_locations or spec.origin)
    place = _tops[top]
    if place is None or isinstance(place, str):
        return None if rest else place
    for folder in place:
        base = os.path.join(folder, *rest)
        for file in (f"{base}.py" if rest else "", os.path.join(base, "__init__.py")):
            if file and os.path.isfile(file):
                return file
    return None


def _read(module: str) -> tuple[bytes, tuple[str, ...]]:
    """The text of a module and the names it imports, all of them; nothing where there is no such file."""
    if module not in _texts:
        path = _source_of(module)
        data = Path(path).read_bytes() if path and path.endswith(".py") else b""
        names: list[str] = []
        for found in _IMPORT.finditer(data.decode()):
            base = found.group(1) or found.group(3)
            names.append(base)
            if found.group(1):
                names += [f"{base}.{name}" for name in re.findall(r"\w+", found.group(2))]
        _texts[module] = data, tuple(names)
    return _texts[module]


def source_hash(module: str) -> str:
    """Hash over `module` and every module of ours that it imports, directly or not."""
    if module in _closures:
        return _closures[module]
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:2]}".encode())
    ours = {*_ROOTS, module.split(".")[0]}
    seen: set[str] = set()
    queue = [module]
    while queue:
        name = queue.pop()
        if name not in seen:
            seen.add(name)
            queue += [n for n in _read(name)[1] if n.split(".")[0] in ours]
    for name in sorted(seen):
        data = _read(name)[0]
        if data:
            digest.update(name.encode())
            digest.update(data)
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
            settings: dict[str, Any] = {
                "cache": True,
                "nogil": True,
                "error_model": "numpy",
                "no_cfunc_wrapper": True,  # nobody hands a kernel to C code
            }
            settings.update(options)
            return _general(numba.njit(f, **settings))
        finally:
            numba_config.CACHE_DIR = before  # type: ignore[attr-defined] - numba makes it at run time

    return wrap if fn is None else wrap(fn)


def leaf(fn: Callable[..., Any] | None = None, *, python: bool = False) -> Any:
    """A kernel for other kernels that only borrows the arrays it is given: it counts no references and must not
    allocate.

    numba otherwise counts one up and down per array argument and call, atomically, which costs more than a
    short loop over a register row. `python`: also callable from Python, which costs compile time: unpacking the
    arguments of a small function takes longer to compile than the function.
    """
    options: dict[str, Any] = {"_nrt": False, "no_cpython_wrapper": not python}

    def wrap(f: Callable[..., Any]) -> Any:
        return kernel(f, **options)

    return wrap if fn is None else wrap(fn)


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
    options: dict[str, Any] = {"_nrt": False, "no_cpython_wrapper": not python}
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
        with _without_collection():
            yield False
        return
    from rich.console import Console

    console = Console(stderr=True)
    text = f"compiling {label} (once on this machine, tens of seconds)"
    if console.is_terminal:
        with console.status(text), _without_collection():
            yield True
    else:
        print(text, file=sys.stderr, flush=True)
        with _without_collection():
            yield True
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


@contextmanager
def _without_collection() -> Generator[None]:
    """Compiling and loading make many objects that stay: looking through them for garbage takes a tenth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def compiling_beside(*modules: str) -> Generator[None]:
    """Meanwhile another process imports `modules`: their kernels are in the disk cache when this one needs them.

    numba compiles one function at a time per process. Whatever the other process fails at, this one compiles itself.
    """
    other = _importing(modules) if (os.cpu_count() or 1) > 1 else None
    try:
        yield
    except BaseException:
        if other is not None:
            other.kill()
        raise
    finally:
        if other is not None:
            other.wait()


def _importing(modules: Iterable[str]) -> subprocess.Popen[bytes] | None:
    """A process that imports modules with this one's search path; None where none can be started."""
    path = os.pathsep.join(p for p in sys.path if p)
    try:
        return subprocess.Popen(
            [sys.executable, "-c", f"import gc; gc.disable(); import {', '.join(modules)}"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
