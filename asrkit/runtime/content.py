"""Hash the content of a function, so that the hash changes when the function is edited.

The hash covers code, constants, defaults, the closure, and recursively the globals that the code
names: functions, classes, tables, patterns. Functions of Python's library and of installed
packages count by name and the package's version, except those of the function's own package. Other
objects are decomposed as pickle would do it; nothing is ever unpickled.
"""

import builtins
import copyreg
import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from asrkit.errors import UserError, printable, reason, shown

MAX_PARTS = 1_000_000
ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
# Two equal values of these types may be one object or two, depending on how Python loaded the code.
SHARED_BY_CHANCE = (tuple, frozenset, CodeType)
NATIVE = (
    BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType,
    GetSetDescriptorType, MemberDescriptorType, ClassMethodDescriptorType,
)  # fmt: skip
OF_NO_EFFECT = {  # attributes of a class that do not change what it computes
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__",
    "__static_attributes__", "_abc_impl",
}  # fmt: skip
OWN = "asrkit"
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
IMPORTS = ("IMPORT_NAME",)


class UnknownContentError(UserError):
    """A function whose content cannot be compared."""


def content_of(function: Callable[..., Any]) -> str:
    """Return the SHA-256 of a function's content, or of its text attribute `identity`.

    Raises:
        UnknownContentError: for a function with a part whose content cannot be read.
    """
    own = getattr(function, "identity", None)
    parts = _Parts(_package(getattr(function, "__module__", None) or type(function).__module__))
    if isinstance(own, str):
        parts.put("identity", name_of(function), own)
        return parts.digest.hexdigest()
    try:
        parts.add(function)
    except (RecursionError, UnknownContentError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UnknownContentError(
            f"the content of {printable(name_of(function))} cannot be compared: {why}; add an "
            "attribute identity to it, a text that changes whenever its results do"
        ) from None
    return parts.digest.hexdigest()


def name_of(function: Callable[..., Any]) -> str:
    """Return the module and the name of a function."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return name if module is None else f"{module}:{name}"


class _Parts:
    """A digest to which the parts of a value are added.

    Args:
        package: package whose functions are decomposed, besides asrkit's and those not installed.
    """

    def __init__(self, package: str) -> None:
        self.package, self.digest, self.count = package, hashlib.sha256(), 0
        self.numbers: dict[int, int] = {}  # numbers of the added objects, by id
        self.kept: list[Any] = []  # the same objects: Python reuses the id of a deleted object
        self.modules: dict[str, set[str]] = {}  # added names of each module
        self.trail: list[str] = []  # names that lead to the part being added

    def put(self, *texts: str) -> None:
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            self.digest.update(len(data).to_bytes(8, "little") + data)

    def refuse(self, problem: str) -> None:
        where = ".".join(self.trail)
        raise UnknownContentError(f"{printable(where)}: {problem}" if where else problem)

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        self.trail.append(name)
        yield
        self.trail.pop()

    def add(self, value: Any, names: Sequence[str] = ()) -> None:
        """Add a value; for a module, add its attributes of these names."""
        if type(value) in ATOMS:
            self.put(type(value).__name__, repr(value))
            return
        if isinstance(value, ModuleType):
            self.add_module(value, names)
            return
        self.count += 1
        if self.count > MAX_PARTS:
            self.refuse(f"it has more than {MAX_PARTS} parts")
        if type(value) not in SHARED_BY_CHANCE:
            if id(value) in self.numbers:
                self.put("again", str(self.numbers[id(value)]))
                return
            self.numbers[id(value)] = len(self.kept)
            self.kept.append(value)
        self.put(type(value).__module__, type(value).__qualname__)
        self.add_parts(value)

    def add_parts(self, value: Any) -> None:
        if isinstance(value, CodeType):
            self.add_code(value)
        elif isinstance(value, FunctionType):
            self.add_function(value)
        elif isinstance(value, type):
            self.add_class(value)
        elif isinstance(value, MethodType):
            self.add_all(value.__func__, value.__self__)
        elif isinstance(value, NATIVE):
            owner = getattr(value, "__self__", None)
            self.put(value.__qualname__, str(getattr(value, "__module__", None)))
            if owner is not None and not isinstance(owner, ModuleType):
                self.add(owner)
        elif isinstance(value, CellType):
            try:
                contents = value.cell_contents
            except ValueError:  # the cell is empty
                return
            self.add(contents)
        elif type(value) in (list, tuple):
            self.put(str(len(value)))
            self.add_all(*value)
        elif type(value) is dict:
            self.put(str(len(value)))
            for key, each in value.items():
                with self.named(shown(key, 30)):
                    self.add_all(key, each)
        elif type(value) in (set, frozenset):
            self.put(*sorted(map(self.alone, value)))
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__)
        elif isinstance(value, property):
            self.add_all(value.fget, value.fset, value.fdel)
        elif isinstance(value, torch.Tensor):
            data = value.detach().cpu().contiguous()
            self.put(str(data.dtype), str(tuple(data.shape)))
            self.digest.update(data.flatten().view(torch.uint8).numpy().tobytes())
        elif hasattr(value, "__wrapped__"):  # a function under functools.cache
            self.add(value.__wrapped__)
        else:
            self.add_object(value)

    def add_all(self, *values: Any) -> None:
        for value in values:
            self.add(value)

    def alone(self, value: Any) -> str:
        """Return the hash of a value alone, by which the items of a set are sorted."""
        parts = _Parts(self.package)
        parts.trail = self.trail
        parts.add(value)
        return parts.digest.hexdigest()

    def add_code(self, code: CodeType) -> None:
        self.put(
            code.co_code.hex(), getattr(code, "co_exceptiontable", b"").hex(),
            repr([code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]),
            repr([code.co_flags, code.co_argcount, code.co_kwonlyargcount]),
        )  # fmt: skip
        self.add_all(*code.co_consts)

    def add_function(self, function: FunctionType) -> None:
        if self.is_library(function.__module__):
            self.put(function.__qualname__, *_release(function.__module__))
            return
        with self.named(function.__name__):
            self.add_all(function.__code__, function.__defaults__, function.__kwdefaults__)
            self.add(vars(function))
            for name, cell in zip(
                function.__code__.co_freevars, function.__closure__ or (), strict=True
            ):
                with self.named(name):
                    self.add(cell)
            for name in sorted(_names(function.__code__, IMPORTS)):
                self.add_file(name)
            names = sorted(_names(function.__code__))
            for name in sorted(_names(function.__code__, GLOBALS)):
                if name in function.__globals__:
                    with self.named(name):
                        self.put(name)
                        self.add(function.__globals__[name], names)

    def add_file(self, module: str) -> None:
        """Add the source of a module that a function imports when called."""
        self.put("import", module)
        if self.is_library(module):
            self.put(*_release(module))
            return
        spec = None
        with suppress(Exception):  # the user's package may raise any exception
            spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            with suppress(OSError):
                self.digest.update(Path(spec.origin).read_bytes())

    def add_class(self, kind: type) -> None:
        self.put(kind.__module__, kind.__qualname__)
        if self.is_library(kind.__module__):
            self.put(*_release(kind.__module__))
            return
        with self.named(kind.__name__):
            self.add_all(*kind.__bases__)
            for name, value in sorted(vars(kind).items()):
                if name not in OF_NO_EFFECT:
                    with self.named(name):
                        self.put(name)
                        self.add(value)

    def add_module(self, module: ModuleType, names: Sequence[str]) -> None:
        self.put("module", module.__name__)
        if self.is_library(module.__name__):
            self.put(*_release(module.__name__))
            return
        known = self.modules.setdefault(module.__name__, set())
        for name in names:
            if name in vars(module) and name not in known:
                known.add(name)
                with self.named(name):
                    self.put(name)
                    self.add(vars(module)[name], names)

    def add_object(self, value: Any) -> None:
        try:
            taken_apart = copyreg.dispatch_table.get(type(value))
            found: Any = value.__reduce_ex__(2) if taken_apart is None else taken_apart(value)
        except Exception as error:  # __reduce__ may raise any exception
            self.refuse(reason(error))
        if isinstance(found, str):
            self.put(found)
            return
        for part in found:  # class, arguments, state, items of a list and of a dict
            self.add(list(part) if _is_items(part) else part)

    def is_library(self, module: str | None) -> bool:
        """Return whether a module is Python's or installed, and not of the function's package."""
        package = _package(module)
        if package in sys.stdlib_module_names:
            return True
        if package in (self.package, OWN):
            return False
        file = getattr(sys.modules.get(package), "__file__", None)
        return file is not None and bool({"site-packages", "dist-packages"} & {*Path(file).parts})


def _is_items(part: Any) -> bool:
    """Return whether this is an iterator over the items of a list or a dict."""
    return isinstance(part, Iterator) and type(part).__module__ == builtins.__name__


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


@functools.cache
def _release(module: str) -> tuple[str, ...]:
    """Return the module, and the version of an installed package."""
    package = _package(module)
    if package not in sys.stdlib_module_names:
        with suppress(importlib.metadata.PackageNotFoundError, ValueError):
            return module, importlib.metadata.version(package)
    return (module, str(getattr(sys.modules.get(package), "__version__", "")))


def _names(code: CodeType, operations: Sequence[str] = ()) -> set[str]:
    """Return the names that code and its inner functions use, in these operations or in any."""
    found = {*code.co_names}
    if operations:
        found = {str(i.argval) for i in dis.get_instructions(code) if i.opname in operations}
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return found.union(*(_names(each, operations) for each in inner))
