"""scripts/check_builtins.py: functions that two files share and that read the threadIdx of one of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import check_builtins
import pytest

HEADER = """
struct uint3 { unsigned x, y, z; };
[[maybe_unused]] static thread_local uint3 threadIdx;

template <class Visit>
__attribute__((always_inline)) inline void visit(Visit visit) { visit(1); visit(2); }

__attribute__((always_inline)) inline void store(unsigned* out, unsigned n) {
%s
}
"""
INSIDE = "  visit([&](unsigned i) { out[i] = threadIdx.x; });"
OUTSIDE = "  const unsigned t = threadIdx.x;\n  visit([&](unsigned i) { out[i] = t; });"
IN_PLACE = "  for (unsigned i = threadIdx.x; i < n; i += 256) out[i] = i;"


@pytest.fixture
def compiled(tmp_path: Path):
    """Compiles two files that use store() with this body, and returns the folder of their objects."""
    def compile_both(body: str) -> Path:
        (tmp_path / "store.h").write_text(HEADER % body)
        for name in ("one", "two"):
            source = tmp_path / f"{name}.cpp"
            source.write_text(f'#include "store.h"\nvoid {name}(unsigned* out) {{ store(out, 1000); }}\n')
            subprocess.run(["g++", "-O0", "-c", str(source), "-o", str(tmp_path / f"{name}.hip.o")], check=True)
        return tmp_path
    return compile_both


@pytest.mark.parametrize("body", [OUTSIDE, IN_PLACE])
def test_what_reads_its_own_files_variables_is_right(compiled, body: str, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check_builtins.py", str(compiled(body))])
    assert check_builtins.main() == 0
    assert capsys.readouterr().out == "2 object files, 0 functions that may read another file's threadIdx\n"


def test_a_lambda_of_a_header_that_reads_them_is_named(compiled, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check_builtins.py", str(compiled(INSIDE))])
    assert check_builtins.main() == 1
    one, two, end = capsys.readouterr().out.splitlines()
    assert one.startswith("one.hip.o: store(unsigned int*, unsigned int)::{lambda"), one
    assert two.startswith("two.hip.o: store(unsigned int*, unsigned int)::{lambda"), two
    assert end == "2 object files, 2 functions that may read another file's threadIdx"


def test_a_folder_without_kernels_is_no_build(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check_builtins.py", str(tmp_path)])
    assert check_builtins.main() == 2
    assert "holds no object file of a kernel" in capsys.readouterr().err
