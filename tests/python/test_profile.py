"""scripts/course profile: what the profilers write, how it is told, and what stops it.

The profilers' output here is made up: nothing was counted.
"""

from __future__ import annotations

import json

import pytest
from conftest import ROOT, Machine
from course_lib import profile
from course_lib.backend import Hardware
from course_lib.errors import CourseError

HEADER = ('"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
          '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"')


def ncu_lines(number: int, kernel: str, **values: str) -> list[str]:
    names = {"time": "gpu__time_duration.sum", "read": "dram__bytes_read.sum",
             "written": "dram__bytes_write.sum",
             "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
             "matrix": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
             "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
             "loads": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
             "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
             "stores": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
             "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
             "rounds": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"}
    start = (f'"{number}","7","vector_add","127.0.0.1","{kernel}","1","7","(256, 1, 1)",'
             '"(64, 1, 1)","0","9.0","Command line profiler metrics"')
    return [f'{start},"{names[key]}","unit","{value}"' for key, value in values.items()]


NCU = "\n".join([
    "==PROF== Connected to process 7 (/a course/build/cuda/vector_add)",
    "==PROF== Profiling \"add\" - 0: 0%....50%....100% - 4 passes",
    HEADER,
    *ncu_lines(0, "void add<(bool)1>(Product, float (*)(int))", time="2,000,000",
               read="2,147,483,648", written="1,073,741,824", occupancy="87.5", matrix="0",
               load_sectors="640", loads="160", store_sectors="640", stores="20", conflicts="30",
               rounds="40"),
    *ncu_lines(1, "tiny(int)", time="5,000", read="1,000", written="n/a", matrix=""),
    *ncu_lines(2, "void add<(bool)1>(Product, float (*)(int))", time="4,000,000",
               read="2,147,483,648", written="1,073,741,824", occupancy="88.5"),
])


def test_what_ncu_prints_is_read_and_grouped():
    kernels = profile.grouped(profile.parse_ncu(NCU))
    assert [(kernel.name, kernel.launches) for kernel in kernels] == [("add<(bool)1>", 2), ("tiny", 1)]
    assert kernels[0].counters == pytest.approx({
        "time": 3e6, "read": 2147483648, "written": 1073741824, "occupancy": 88, "matrix": 0,
        "load": 4, "store": 32, "conflicts": 75})
    assert kernels[1].counters == {"time": 5000, "read": 1000}  # what was not counted is not there
    assert profile.parse_ncu("==ERROR== nothing") == []


ROCPROFV3 = """"Correlation_Id","Dispatch_Id","Kernel_Name","Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"
1,1,"add(float*, float const*) [clone .kd]","FETCH_SIZE",2048,1000,3000
1,1,"add(float*, float const*) [clone .kd]","WRITE_SIZE",1024,1000,3000
2,2,"add(float*, float const*) [clone .kd]","FETCH_SIZE",4096,5000,9000
"""
ROCPROF = """"Index","KernelName","DurationNs","FETCH_SIZE","LDSBankConflict"
0,"add(float*, float const*) [clone .kd]",2000,2048.0,12.5
"""


def test_what_rocprof_writes_is_read():
    (kernel,) = profile.grouped(profile.parse_rocprof(ROCPROFV3))
    assert (kernel.name, kernel.launches) == ("add", 2)
    assert kernel.counters == {"time": 3000, "read": 3072 * 1024, "written": 1024 * 1024}
    (kernel,) = profile.grouped(profile.parse_rocprof(ROCPROF))
    assert kernel.counters == {"time": 2000, "read": 2048 * 1024, "conflicts": 12.5}


def test_kernels_are_found_in_the_steps_headers():
    names = profile.kernel_names(ROOT)
    assert {"transpose_naive", "gemm_naive", "gemm_tiled"} <= set(names)
    assert not {"fill_uniform", "GPU_LAUNCH_BOUNDS", "__launch_bounds__", "void"} & set(names)


@pytest.mark.parametrize(
    ("hardware", "wanted", "line"),
    [
        (Hardware(), "auto", "counters are read on a GPU, by ncu (NVIDIA's package nsight-compute)"),
        (Hardware(nvidia=["GPU"]), "auto", "ncu is not here: NVIDIA's package nsight-compute"),
        (Hardware(), "cuda", "ncu is not here"),
        (Hardware(amd=["GPU (gfx90a)"]), "auto", "neither rocprofv3 nor rocprof is here: AMD's"),
        (Hardware(nvidia=["GPU"]), "cpu", "counters are read on a GPU"),
    ],
)
def test_without_a_profiler_the_package_is_named(hardware, wanted, line, monkeypatch):
    monkeypatch.setattr(profile, "find_program", lambda *_: None)
    with pytest.raises(CourseError) as error:
        profile.find(hardware, wanted)
    assert str(error.value).startswith(line) and error.value.code == 2


def test_rocprof_s_matrix_counter_is_for_gpus_that_have_matrix_units(monkeypatch):
    monkeypatch.setattr(profile, "find_program", lambda name, _: f"/opt/{name}")
    for device, has in (("gfx90a", True), ("gfx942", True), ("gfx1030", False), ("gfx906", False)):
        tool = profile.find(Hardware(amd=[f"Example ({device})"]), "auto")
        assert (tool.name, tool.has_matrix_units) == ("rocprofv3", has)


# ---- The command -------------------------------------------------------------------------------

# An ncu that writes what it was given to write, and then runs the program.
NCU_STAND_IN = """
while [ "$1" != --log-file ]; do shift; done
cp "$FAKES/ncu.csv" "$2"
while [ "${1#/}" = "$1" ] || [ ! -x "$1" ]; do shift; done
case "$FAKE_NCU" in fails) echo "==ERROR== The application returned an error code (1)"; exit 1 ;; esac
"$@"
"""


@pytest.fixture
def gpu(machine: Machine, report: dict) -> Machine:
    """A machine with an NVIDIA GPU, ncu, and a build that is there."""
    machine.fake("nvidia-smi", 'echo "GPU 0: Example GPU (UUID: 1)"')
    machine.fake("ncu", NCU_STAND_IN)
    (machine.fakes / "ncu.csv").write_text(NCU, encoding="utf-8")
    report["tables"][0]["rows"][1]["ms"] = 2.0  # 1.5 TB/s: 3 GB
    (machine.fakes / "report.json").write_text(json.dumps(report), encoding="utf-8")
    program = machine.root / "built" / "stage1_vector" / "vector_add"
    machine.fake("vector_add", """
if [ "$1" = --list ]; then echo "naive       one thread per element"; exit 0; fi
while [ "$1" != --json ]; do shift; done
cp "$FAKES/report.json" "$2"
""", program.parent)
    (machine.root / "stage1_vector/01_vector_add/vector_add.h").write_text(
        "static __global__ void __launch_bounds__(f(1) * 2)\n    add(Product p) {}\n"
        "template <int n>\n__global__ void tiny(int) {}\n")
    return machine


def test_counters_are_told_with_what_they_mean(gpu: Machine):
    done = gpu.course("profile", "1.1", "--version", "naive", "--build", "built", "--size", "2^20")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "1.1 vector_add, naive: it must move 3.00 GB at least" in lines
    assert "add<(bool)1>   2 launches, 3.00 ms each" in lines
    assert lines.index("add<(bool)1>   2 launches, 3.00 ms each") < lines.index(
        "tiny   1 launch, 5.00 us each")
    told = {line.split("  ")[1].strip(): line for line in lines if line.startswith("  ")}
    assert "3.22 GB   2.15 GB read, 1.07 GB written" in next(
        line for line in lines if line.startswith("  memory"))
    assert "88%" in told["occupancy"] and "75.0%" in told["bank conflicts"]
    assert "4.0 sectors" in told["load"] and "32.0 sectors" in told["store"]
    (call,) = [call for call in gpu.calls() if call.startswith("ncu")]
    assert "regex:^(.*::)?(add|tiny)(<.*)?$" in call and "--launch-count 12" in call
    assert call.split("vector_add ")[1].startswith(
        "--version naive --repeat 1 --no-limits --json ") and call.endswith("--size 2^20")
    assert not [call for call in gpu.calls() if call.startswith("cmake")]  # nothing was built


def test_one_kernel_is_held_against_what_it_must_move(gpu: Machine):
    only = "\n".join(line for line in NCU.splitlines() if '"tiny' not in line)
    (gpu.fakes / "ncu.csv").write_text(only, encoding="utf-8")
    done = gpu.course("profile", "1.1", "--version", "naive", "--build", "built")
    assert "1.07 GB written, 1.07 times what it must" in done.stdout


def test_what_stops_a_profile_is_one_line(gpu: Machine):
    def line_of(*arguments: str) -> tuple[int, str]:
        done = gpu.course("profile", *(arguments or ("1.1", "--version", "naive", "--build", "built")))
        return done.returncode, done.stderr

    assert line_of("1.1", "--version", "none", "--build", "built")[1].startswith(
        "course: vector_add has no version 'none': see `")
    code, line = line_of("1.2", "--version", "naive", "--build", "built")
    assert code == 2 and line.endswith("build it, or name the build with --build\n")
    assert line_of("stage1", "--version", "naive") == (
        2, "course: 'stage1' is 2 steps: name one\n")
    (gpu.fakes / "ncu.csv").write_text(
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
        "Performance Counters", encoding="utf-8")
    code, line = line_of()
    assert code == 3 and "(ERR_NVGPUCTRPERM): run the same with sudo" in line
    (gpu.fakes / "ncu.csv").write_text("==WARNING== No kernels were profiled.\n", encoding="utf-8")
    assert line_of() == (
        1, "course: ncu saw no kernel of vector_add: does this version run here?\n")
    gpu.variables["FAKE_NCU"] = "fails"
    code, line = line_of()
    assert code == 1 and line == (
        "course: ncu failed: The application returned an error code (1)\n")


def test_without_a_gpu_nothing_is_set_up(machine: Machine):
    done = machine.course("profile", "1.1", "--version", "naive")
    assert done.returncode == 2 and done.stderr.startswith("course: counters are read on a GPU")
    assert not [call for call in machine.calls() if call.startswith("cmake")]
