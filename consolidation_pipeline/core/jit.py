"""Functions that numba compiles, used only if that saves more time than it takes."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

# Seconds of one core (Xeon, 2.8 GHz) to import numba and set up its compiler, once in a process: 0.8 to 1.0, twice that
# without Python's bytecode on disk.
STARTING = 1.0
# To load a compiled function from disk: 0.02 to 0.4.
LOADING = 0.1
# To compile a function: 3.2 to 5.8 for the join's kernel (median of 26 runs 4.8), 3.9 to 6.1 for linkage (of 10, 5.1).
COMPILING = 5.0

_Function = TypeVar("_Function", bound=Callable[..., Any])


def jit(function: _Function, **options: Any) -> _Function:
    """Return ``function`` compiled by numba at its first call, and cached on disk if possible. Imports numba.

    ``options``: further options of ``numba.njit``.
    """
    from numba import njit

    try:
        return cast(_Function, njit(nogil=True, cache=True, **options)(function))
    except RuntimeError:  # numba finds no folder that it may write to
        return cast(_Function, njit(nogil=True, **options)(function))


class JitFunction:
    """A function that numba compiles, or loads from disk, at its first call.

    Args:
        build: Imports numba and returns the function, made by ``jit``. It is called if the function may save time.
    """

    # Numba is started once, by the first of these functions that is used.
    _has_started: ClassVar[bool] = False

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._wanted = 0.0

    @cached_property
    def function(self) -> Any:
        """The function. Imports numba."""
        return self._build()

    @property
    def is_loaded(self) -> bool:
        """True if this process has the machine code."""
        return "function" in self.__dict__ and bool(getattr(self.function, "signatures", ()))

    @property
    def folder(self) -> Path | None:
        """The folder of numba's cache; None if it may not write to any. Imports numba."""
        path = self.function.stats.cache_path
        return None if path is None else Path(path)

    @property
    def is_kept(self) -> bool:
        """True if numba's cache has the machine code for its version, this source and this processor. Imports numba.

        False also if that cannot be found out: numba's index is no public interface.
        """
        try:
            processor = self.function.targetctx.codegen().magic_tuple()
            return any(key[1] == processor for key in self.function._cache._cache_file._load_index())
        except Exception:  # numba has changed: the function counts as not compiled
            return False

    def pays(self, saved: float) -> bool:
        """Return True if a call saves more than it takes to make the function ready.

        Savings that earlier calls in this process missed are added, so that many small calls pay together. Numba is not
        imported before they exceed the time to load the function. ``saved``: seconds by which compiled code is faster.
        """
        self._wanted += saved
        if self.is_loaded:
            return saved > 0.0
        loading = LOADING if JitFunction._has_started else STARTING + LOADING
        if self._wanted <= loading or (self._wanted <= loading + COMPILING and not self.is_kept):
            return False
        JitFunction._has_started = True
        return True
