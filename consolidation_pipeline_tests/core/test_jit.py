"""Functions compiled by numba: cached code, and the decision to use them."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from consolidation_pipeline.core import jit
from consolidation_pipeline.core.jit import COMPILING, LOADING, STARTING, JitFunction

PROGRAM = """
import sys
from consolidation_pipeline.core.jit import JitFunction, jit

def add(a, b):
    return a + b

ADD = JitFunction(lambda: jit(add))
print(ADD.is_loaded, "numba" in sys.modules, ADD.is_kept, ADD.folder is not None, end=" ")
ADD.function(1, 2)
print(ADD.is_loaded, ADD.is_kept)
"""
PROCESSOR = ("triple", "cpu", "features")


def add_in_new_process(folder: Path, **environment: str) -> str:
    """Return the output of a new process about a function, before and after its call."""
    (folder / "adding.py").write_text(PROGRAM)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "kept")} | environment
    command = [sys.executable, str(folder / "adding.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_machine_code_is_cached_for_next_process(tmp_path):
    assert add_in_new_process(tmp_path) == "False False False True True True"
    assert add_in_new_process(tmp_path) == "False False True True True True"


@pytest.mark.slow
def test_code_of_other_processor_is_not_reused(tmp_path):
    add_in_new_process(tmp_path)
    output = add_in_new_process(tmp_path, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert output == "False False False True True True"


@pytest.mark.slow
def test_compiled_code_works_without_cache_folder(tmp_path):
    output = add_in_new_process(tmp_path, NUMBA_CACHE_LOCATOR_CLASSES="IPythonCacheLocator")
    assert output == "False False False False True False"


@pytest.mark.slow
def test_changed_source_invalidates_cached_code(tmp_path, monkeypatch):
    add_in_new_process(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", PROGRAM.replace("a + b", "b + a"))
    assert add_in_new_process(tmp_path) == "False False False True True True"


def test_disabled_compiler_falls_back_to_python(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", PROGRAM.replace(", ADD.folder is not None", ""))
    assert add_in_new_process(tmp_path, NUMBA_DISABLE_JIT="1") == "False False False False False"


def make_function(state: str) -> JitFunction:
    """Return a function whose numba objects look "loaded", "kept" on disk or "cold"."""
    index = {("signature", PROCESSOR): "file"} if state == "kept" else {}
    dispatcher = SimpleNamespace(
        signatures=["signature"] if state == "loaded" else [],
        targetctx=SimpleNamespace(codegen=lambda: SimpleNamespace(magic_tuple=lambda: PROCESSOR)),
        _cache=SimpleNamespace(_cache_file=SimpleNamespace(_load_index=lambda: index)),
    )
    function = JitFunction(lambda: dispatcher)
    if state == "loaded":
        assert function.function is dispatcher
    return function


@pytest.fixture(autouse=True)
def _reset_numba_start(monkeypatch):
    monkeypatch.setattr(JitFunction, "_has_started", False)


SMALL, MIDDLE, LARGE = STARTING / 2, STARTING + COMPILING / 2, 2 * (STARTING + COMPILING)


@pytest.mark.parametrize(
    ("state", "paying"), [("loaded", [SMALL, MIDDLE, LARGE]), ("kept", [MIDDLE, LARGE]), ("cold", [LARGE])]
)
def test_function_pays_if_savings_exceed_cost(state, paying):
    assert [saved for saved in (SMALL, MIDDLE, LARGE) if make_function(state).pays(saved)] == paying


def test_loaded_function_without_savings_does_not_pay():
    assert not make_function("loaded").pays(0.0)


def test_small_calls_pay_together():
    function = make_function("cold")
    assert [function.pays(COMPILING) for _ in range(3)] == [False, True, True]


def test_second_function_does_not_pay_startup():
    between = (LOADING + STARTING) / 2
    assert not make_function("kept").pays(between)
    assert make_function("kept").pays(MIDDLE)
    assert make_function("kept").pays(between)


def test_small_calls_do_not_import_numba():
    def build() -> None:
        raise AssertionError("numba was imported")

    assert not JitFunction(build).pays(SMALL)


def test_unreadable_cache_index_counts_as_cold():
    function = JitFunction(lambda: SimpleNamespace(signatures=[]))
    assert not function.is_kept
    assert not function.pays(MIDDLE)


def test_jit_costs_are_in_order():
    assert 0.0 < jit.LOADING < jit.STARTING < jit.COMPILING
