"""`scripts/course profile STEP --version V`: the few counters that the steps talk about.

A profiler (ncu on NVIDIA, rocprofv3 or rocprof on AMD) runs the step's program with that version and
reads the hardware's counters. Only kernels that a step defines are looked at: not the
generators of inputs in common/, and not the vendor's library. They are printed by name, the one that
took the most time first; a figure is the mean of a kernel's launches.
"""

from __future__ import annotations

import csv
import io
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import process, results, terminal, work
from .backend import CUDA_FOLDERS, ROCM_FOLDERS, Hardware, find_program
from .errors import FAILED, MISSING, USAGE, CourseError
from .steps import Step
from .terminal import say

# Each launch is replayed for every group of counters: a few launches of each size are enough.
LAUNCHES = 12
NCU_METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
)
NCU_FOLDERS = ("/opt/nvidia/nsight-compute",)  # NVIDIA's packages put ncu into a folder per version
# A line is a pass of its own: these can't all be counted at once.
ROCPROF_PASSES = (("FETCH_SIZE", "WRITE_SIZE"), ("LDSBankConflict",), ("MeanOccupancyPerCU",))
ROCPROF_MATRIX = ("MfmaUtil",)  # where there are matrix units: gfx908, gfx90a, gfx94x, gfx95x
NCU_PACKAGE = ("ncu is not here: NVIDIA's package nsight-compute brings it (it comes with the CUDA "
               "toolkit; Debian and Ubuntu without NVIDIA's repository: nsight-compute of "
               "non-free or multiverse)")
ROCPROF_PACKAGE = ("neither rocprofv3 nor rocprof is here: AMD's packages rocprofiler-sdk and "
                   "rocprofiler bring them")

Counters = dict[str, float]


@dataclass(frozen=True)
class Tool:
    name: str  # ncu, rocprofv3, rocprof
    path: str
    backend: str
    has_matrix_units: bool = True


@dataclass(frozen=True)
class Kernel:
    """What was counted of one kernel: the means over its launches."""

    name: str
    launches: int
    counters: Counters

    @property
    def time(self) -> float:
        """All its launches, in nanoseconds."""
        return self.launches * self.counters.get("time", 0)


def find(hardware: Hardware, wanted: str) -> Tool:
    """The profiler for the GPU that is here, or for the backend that was asked for."""
    if wanted == "hip" or (wanted == "auto" and hardware.amd and not hardware.nvidia):
        for name in ("rocprofv3", "rocprof"):
            path = find_program(name, tuple(f"{folder}/bin" for folder in ROCM_FOLDERS))
            if path:
                matrix = re.search(r"gfx9(08|0a|4\d|5\d)", " ".join(hardware.amd))
                return Tool(name, path, "hip", matrix is not None)
        raise CourseError(ROCPROF_PACKAGE, USAGE)
    if wanted == "cuda" or (wanted == "auto" and hardware.nvidia):
        path = find_program("ncu", tuple(f"{folder}/bin" for folder in CUDA_FOLDERS))
        versions = [str(file.parent) for folder in NCU_FOLDERS for file in Path(folder).glob("*/ncu")]
        path = path or find_program("ncu", tuple(sorted(versions, reverse=True)))
        if path:
            return Tool("ncu", path, "cuda")
        raise CourseError(NCU_PACKAGE, USAGE)
    raise CourseError("counters are read on a GPU, by ncu (NVIDIA's package nsight-compute) or "
                      "rocprofv3 (AMD's rocprofiler-sdk); neither GPU is here", USAGE)


def kernel_names(root: Path) -> list[str]:
    """The kernels that the steps' versions and headers define."""
    names = set()
    for file in [*root.glob("stage*/*/versions/*.hip"), *root.glob("stage*/*/**/*.h")]:
        text = file.read_text(encoding="utf-8")
        for start in re.finditer(r"__global__\s+void\s+", text):
            rest = text[start.end():]
            bounds = re.match(r"(__launch_bounds__|GPU_LAUNCH_BOUNDS)\s*(?=\()", rest)
            if bounds:
                rest = _behind_parenthesis(rest[bounds.end():])
            name = re.match(r"\s*(\w+)", rest)
            if name:
                names.add(name[1])
    return sorted(names)


def _behind_parenthesis(text: str) -> str:
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[i + 1:]
    return ""


# ---- Running a profiler ------------------------------------------------------------------------


def run(tool: Tool, root: Path, step: Step, program: Path, version: str, size: str | None) -> int:
    """Profiles one version of a step and prints its kernels. Returns the exit code."""
    if not program.is_file():
        raise CourseError(f"no program {program}: build it, or name the build with --build", USAGE)
    known = process.output([str(program), "--list"])
    if known is not None and version not in (line.split()[0] for line in known.splitlines()
                                             if line.strip()):
        raise CourseError(f"{step.name} has no version '{version}': see `{program} --list`", USAGE)
    names = kernel_names(root)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [str(program), "--version", version, "--repeat", "1", "--no-limits", "--json",
                   str(folder / "report.json"), *(["--size", size] if size else [])]
        read = _ncu if tool.name == "ncu" else _rocprof
        launches = read(tool, command, names, folder)
        needed = _needed_bytes(folder / "report.json", version)
    kernels = grouped(launches)
    if not kernels:
        raise CourseError(f"{tool.name} saw no kernel of {step.name}: does this version run here?",
                          FAILED)
    describe(step, version, tool, kernels, needed)
    return 0


def _logged(command: list[str], folder: Path) -> str:
    progress = terminal.Progress("profiling")
    environment = {**os.environ, "LC_ALL": "C"}  # numbers with points
    code, text = process.logged(command, folder / "log", progress.update, environment)
    progress.finish()
    return "" if code == 0 else text or f"exit code {code}"


def _ncu(tool: Tool, command: list[str], names: list[str], folder: Path) -> list:
    log = folder / "ncu.csv"
    options = ["--csv", "--print-units", "base", "--log-file", str(log), "--clock-control", "none",
               "--kernel-name-base", "function", "--kernel-name", f"regex:^(.*::)?({'|'.join(names)})(<.*)?$",
               "--launch-count", str(LAUNCHES), "--metrics", ",".join(NCU_METRICS)]
    failed = _logged([tool.path, *options, *command], folder)
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    if "ERR_NVGPUCTRPERM" in text + failed:
        raise CourseError(
            "this driver shows its counters to root alone (ERR_NVGPUCTRPERM): run the same with "
            "sudo, or load the driver's module with NVreg_RestrictProfilingToAdminUsers=0", MISSING)
    launches = parse_ncu(text)
    if failed and not launches:
        lines = [line for line in (text + failed).splitlines() if line.startswith("==ERROR== ")]
        why = lines[0].removeprefix("==ERROR== ") if lines else failed.strip().splitlines()[-1]
        raise CourseError(f"ncu failed: {why}", FAILED, failed)
    return launches


def _rocprof(tool: Tool, command: list[str], names: list[str], folder: Path) -> list:
    passes = [*ROCPROF_PASSES, *([ROCPROF_MATRIX] if tool.has_matrix_units else [])]
    request = folder / "counters.txt"
    request.write_text("".join(f"pmc: {' '.join(one)}\n" for one in passes), encoding="utf-8")
    if tool.name == "rocprofv3":
        options = ["-i", str(request), "-d", str(folder / "out"), "--output-format", "csv", "--"]
    else:
        options = ["-i", str(request), "--timestamp", "on", "-o", str(folder / "out.csv")]
    failed = _logged([tool.path, *options, *command], folder)
    files = sorted([*folder.glob("out/**/*counter_collection.csv"), *folder.glob("out.csv")])
    launches = [launch for file in files
                for launch in parse_rocprof(file.read_text(encoding="utf-8", errors="replace"))]
    if failed and not launches:
        raise CourseError(f"{tool.name} failed: {failed.strip().splitlines()[-1]}", FAILED, failed)
    wanted = re.compile(rf"\b({'|'.join(names)})\b")
    return [launch for launch in launches if wanted.search(launch[0])]


# ---- What a profiler has written ---------------------------------------------------------------


def parse_ncu(text: str) -> list[tuple[str, Counters]]:
    """(kernel, counters) of each launch, from what `ncu --csv` prints: a line for each metric. What
    this device does not count is left out."""
    start = text.find('"ID"')
    if start < 0:
        return []
    launches: dict[str, tuple[str, Counters]] = {}
    for line in csv.DictReader(io.StringIO(text[start:])):
        value = _number(line.get("Metric Value"))
        if line.get("Kernel Name") and value is not None:
            _, counters = launches.setdefault(line["ID"], (line["Kernel Name"], {}))
            counters[line["Metric Name"]] = value
    return [(name, _common_of_ncu(counters)) for name, counters in launches.values()]


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _common_of_ncu(counted: Counters) -> Counters:
    """The names that both vendors' counters get here."""
    get = counted.get
    common = {"time": get("gpu__time_duration.sum"), "read": get("dram__bytes_read.sum"),
              "written": get("dram__bytes_write.sum"),
              "occupancy": get("sm__warps_active.avg.pct_of_peak_sustained_active"),
              "matrix": get("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active")}
    for key, part, whole in (
        ("load", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
         "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"),
        ("store", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
         "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
    ):
        if get(part) is not None and get(whole):
            common[key] = counted[part] / counted[whole]
    conflicts = get("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    rounds = get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    if conflicts is not None and rounds:
        common["conflicts"] = 100 * conflicts / rounds
    return {key: value for key, value in common.items() if value is not None}


def parse_rocprof(text: str) -> list[tuple[str, Counters]]:
    """The same from rocprofv3's counter_collection.csv (a line for each counter) or from rocprof's
    (a line for each launch)."""
    lines = list(csv.DictReader(io.StringIO(text)))
    if lines and "Counter_Name" in lines[0]:
        launches: dict[str, tuple[str, Counters]] = {}
        for line in lines:
            _, counters = launches.setdefault(line["Dispatch_Id"], (line["Kernel_Name"], {}))
            counters[line["Counter_Name"]] = _number(line["Counter_Value"])
            counters["DurationNs"] = int(line["End_Timestamp"]) - int(line["Start_Timestamp"])
        found = list(launches.values())
    else:
        found = [(line.get("KernelName", ""), {key: _number(value) for key, value in line.items()})
                 for line in lines]
    return [(name, _common_of_rocprof(counters)) for name, counters in found]


def _common_of_rocprof(counted: dict) -> Counters:
    common = {}
    for name, key, factor in (("DurationNs", "time", 1), ("FETCH_SIZE", "read", 1024),
                              ("WRITE_SIZE", "written", 1024), ("LDSBankConflict", "conflicts", 1),
                              ("MeanOccupancyPerCU", "waves", 1), ("MfmaUtil", "matrix", 1)):
        if counted.get(name) is not None:
            common[key] = factor * counted[name]
    return common


def grouped(launches: list[tuple[str, Counters]]) -> list[Kernel]:
    """One entry for each kernel, the one that took the most time first."""
    by_name: dict[str, list[Counters]] = {}
    for name, counters in launches:
        by_name.setdefault(_short(name), []).append(counters)
    kernels = []
    for name, counted in by_name.items():
        means = {}
        for key in {key for counters in counted for key in counters}:
            values = [counters[key] for counters in counted if key in counters]
            means[key] = sum(values) / len(values)
        kernels.append(Kernel(name, len(counted), means))
    return sorted(kernels, key=lambda kernel: (-kernel.time, kernel.name))


def _short(name: str) -> str:
    """"void gemm_tiled<16>(Product) [clone .kd]" → "gemm_tiled<16>"."""
    name = re.sub(r"\s*(\[clone.*\]|\.kd)$", "", name.removeprefix("void "))
    return re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)$", "", name).strip() or name


def _needed_bytes(file: Path, version: str) -> float | None:
    """What the version must move at least, by the report that its program has written."""
    try:
        report = results.load(file)
    except ValueError:
        return None
    for table in report["tables"]:
        for row in table["rows"]:
            if row["name"] == version and row["ms"] and row["rate"]:
                if row["rate_unit"] == "B/s":
                    return row["rate"] * row["ms"] / 1e3
                both = work.work_of(report["program"], table, row)
                return both[0] if both else None
        break  # the launches that were counted are those of the first table
    return None


# ---- Telling it --------------------------------------------------------------------------------


def amount(value: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{results.significant(value / factor)} {prefix}B"
    return f"{value:.0f} B"


# Key, name, how its value is written, what it means.
LINES: tuple[tuple[str, str, Callable[[float], str], str], ...] = (
    ("occupancy", "occupancy", lambda v: f"{v:.0f}%",
     "of the waves that a multiprocessor has room for; more of them hide more waiting"),
    ("waves", "occupancy", lambda v: f"{v:.1f} waves",
     "on a compute unit at a time; more of them hide more waiting"),
    ("load", "load", lambda v: f"{v:.1f} sectors",
     "of 32 bytes for each load of a wave: 4 for 32 floats side by side, 16 for 32 float4, 32 where "
     "each is somewhere else"),
    ("store", "store", lambda v: f"{v:.1f} sectors", "the same for each store of a wave"),
    ("conflicts", "bank conflicts", lambda v: f"{v:.1f}%",
     "of the rounds of shared memory were there because two threads of a wave wanted one bank"),
    ("matrix", "matrix units", lambda v: f"{v:.1f}%",
     "of their time in use; 0 where the version multiplies on the ordinary units"),
)


def describe(step: Step, version: str, tool: Tool, kernels: list[Kernel],
             needed: float | None) -> None:
    say()
    must = f": it must move {amount(needed)} at least" if needed else ""
    say(f"{step.number} {step.name}, {version}{must}", "bold")
    for kernel in kernels:
        counters = kernel.counters
        often = f"{kernel.launches} launch" + ("es" if kernel.launches > 1 else "")
        time = f"{results.format_ms(counters['time'] / 1e6)} each" if counters.get("time") else ""
        say()
        say(f"{kernel.name}   {', '.join(filter(None, (often, time)))}", "cyan")
        if "read" in counters or "written" in counters:
            read, written = counters.get("read", 0), counters.get("written", 0)
            _line("memory", amount(read + written), f"{amount(read)} read, {amount(written)} written"
                  + _against(read + written, needed, kernels))
        for key, name, text, meaning in LINES:
            if key in counters:
                _line(name, text(counters[key]), meaning)
    say()
    emptied = ", which empties the caches before each launch" if tool.name == "ncu" else ""
    say(f"counted by {tool.name}{emptied}", "dim")


def _line(name: str, value: str, meaning: str) -> None:
    say(f"  {name:<15} {value:>13}   {meaning}")


def _against(moved: float, needed: float | None, kernels: list[Kernel]) -> str:
    if not needed or len(kernels) > 1:
        return ""
    if moved < 0.95 * needed:
        return ", less than it must: the rest stayed in the cache"
    return f", {moved / needed:.2f} times what it must"
