"""8.6's generated sources, by the compilers that could be given them while the program runs: `fusion --sources`
writes them in all dialects, and nothing here needs the device that they are for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, absent, build_folder, built

# The name of a group is that of its file: see 06_fusion/listing.cpp.
GROUPS = ("formulas", "gelu", "layouts", "reductions")

# What each compiler is called, and its command but for the two files at its end.
COMPILERS = {
    "cu": (("nvcc",), "-arch=sm_75 --fmad=false -std=c++17 -cubin -o"),
    "hip": (("hipcc",), "--offload-arch=gfx90a --cuda-device-only -include hip/hip_runtime.h -O3 -std=c++17 "
                        "-ffp-contract=off -x hip -c -o"),
    "cl": (("clang", "clang-15", "clang-14"), "-x cl -cl-std=CL1.2 -Xclang -finclude-default-header -target spir64 "
                                              "-O2 -emit-llvm -c -o"),
    "cpp": (("g++",), "-std=c++17 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -shared -fPIC -o"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sources")
    subprocess.run([built("stage8_framework", "fusion"), "--sources", made], check=True)
    return made


def test_every_group_is_there_in_every_dialect(folder: Path):
    assert sorted(path.name for path in folder.iterdir()) == \
        sorted(f"{group}.{suffix}" for group in GROUPS for suffix in COMPILERS)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("suffix", COMPILERS)
def test_a_compiler_takes_it(folder: Path, tmp_path: Path, suffix: str, group: str):
    names, options = COMPILERS[suffix]
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        absent(f"{names[0]} is not installed")
    made = tmp_path / "made"
    answer = subprocess.run([compiler, *options.split(), made, folder / f"{group}.{suffix}"],
                            capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert made.stat().st_size > 0


def test_a_gpu_reduces_in_the_order_of_the_host(folder: Path, tmp_path: Path):
    """The kernels for GPUs run on the CPU backend; generated_reductions.cpp compares."""
    libraries = [build_folder() / f"lib{name}.a" for name in ("gpu_cpu", "course_common")]
    if not all(map(Path.is_file, libraries)):
        pytest.skip("the CPU backend is not built: run scripts/course test first")
    options = ["g++", "-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
    host, program = tmp_path / "libhost.so", tmp_path / "reductions"
    subprocess.run([*options, "-shared", "-fPIC", "-o", host, folder / "reductions.cpp"], check=True)
    subprocess.run([*options, "-DGPU_BACKEND_CPU=1", f"-I{ROOT}", f"-I{folder}", "-o", program,
                    Path(__file__).with_name("generated_reductions.cpp"), *libraries,
                    "-lboost_context", "-lfmt", "-lz", "-ldl"], check=True)
    for wave in ("32", "64"):
        done = subprocess.run([program, host], env={**os.environ, "HIP_CPU_WAVE": wave},
                              capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "36 cases\n"), done.stdout + done.stderr


def test_nvcc_stores_sixteen_bytes_at_a_time(folder: Path, tmp_path: Path):
    """It did not for another form of the same address."""
    if shutil.which("nvcc") is None:
        absent("nvcc is not installed")
    made = tmp_path / "gelu.ptx"
    subprocess.run(["nvcc", "-arch=sm_75", "--fmad=false", "-ptx", "-o", made, folder / "gelu.cu"], check=True)
    assert made.read_text().count("ld.global.nc.v4") == 2
    assert made.read_text().count("st.global.v4") == 1


def test_without_a_compiler_what_needs_none_still_runs(tmp_path: Path):
    answer = subprocess.run([built("stage8_framework", "fusion"), "--quick", "--no-times"],
                            capture_output=True, text=True,
                            env={"PATH": "/nowhere", "COURSE_CACHE_DIR": str(tmp_path)})
    assert answer.returncode == 0, answer.stderr
    if "(cpu backend" not in answer.stdout:
        absent("a GPU's compiler is a library, which is not in PATH")
    rows = [line for line in answer.stdout.splitlines() if "no compiler: g++ is not found" in line]
    assert [line.split()[0] for line in rows] == 4 * ["compiled", "with_reduction"]
    assert answer.stdout.count("ok (bound") > 8


def test_the_readme_shows_what_is_generated(folder: Path):
    readme = (ROOT / "stage8_framework" / "06_fusion" / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"^static __device__ inline void fused_element.*?^}\n", readme, re.MULTILINE | re.DOTALL)
    assert shown and shown[0] in (folder / "gelu.cu").read_text(encoding="utf-8")


def test_a_folder_that_is_not_there_is_one_line(folder: Path):
    answer = subprocess.run([built("stage8_framework", "fusion"), "--sources", folder / "none"],
                            capture_output=True, text=True)
    assert answer.returncode != 0
    assert "none" in answer.stderr and len(answer.stderr.splitlines()) == 1
