"""Which hardware and which toolkits are here, and the backend that follows from them."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from . import amd, process

BACKENDS = ("cpu", "cuda", "hip")
CUDA_FOLDERS = ("/usr/local/cuda",)  # where NVIDIA's packages put nvcc, often outside PATH
ROCM_FOLDERS = ("/opt/rocm",)
WSL_FOLDER = "/usr/lib/wsl/lib"  # where Windows' driver shows nvidia-smi


@dataclass(frozen=True)
class Hardware:
    nvidia: list[str] = field(default_factory=list)  # names of the GPUs that a driver answers for
    amd: list[str] = field(default_factory=list)
    nvcc: str | None = None  # paths of the compilers
    hipcc: str | None = None
    hip_targets: frozenset[str] = frozenset()  # that hipcc has code for; none where nothing tells, or has to


@dataclass(frozen=True)
class Choice:
    backend: str
    reason: str
    advice: str = ""  # what would bring a better one


def find_program(name: str, folders: tuple[str, ...]) -> str | None:
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def cuda_folders() -> tuple[str, ...]:
    """Where the programs of NVIDIA's toolkit are looked for."""
    chosen = [os.environ[v] for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    return tuple(f"{folder}/bin" for folder in (*chosen, *CUDA_FOLDERS))


def detect() -> Hardware:
    rocm = [f"{os.environ[v]}/bin" for v in ("ROCM_PATH", "HIP_PATH") if os.environ.get(v)]
    rocm += [f"{folder}/bin" for folder in ROCM_FOLDERS]
    hipcc = find_program("hipcc", tuple(rocm))
    devices = amd_devices(find_program("rocminfo", tuple(rocm)))
    roots = {Path(hipcc).resolve().parents[1], Path(hipcc).parents[1]} if hipcc and devices else set()
    return Hardware(
        nvidia_devices(find_program("nvidia-smi", (WSL_FOLDER,))),
        devices,
        find_program("nvcc", cuda_folders()),
        hipcc,
        amd.toolkit_targets(roots),
    )


def nvidia_devices(nvidia_smi: str | None) -> list[str]:
    answer = process.output([nvidia_smi, "-L"]) if nvidia_smi else None
    return re.findall(r"^GPU \d+: (.*?) \(UUID", answer or "", re.MULTILINE)


def amd_devices(rocminfo: str | None) -> list[str]:
    """GPU agents by rocminfo; without it, by what the kernel driver shows."""
    answer = process.output([rocminfo]) if rocminfo else None
    if answer is None:
        return _amd_devices_of_kernel(Path("/sys/class/kfd/kfd/topology/nodes"))
    agents = re.split(r"^Agent \d+", answer, flags=re.MULTILINE)[1:]
    names = []
    for agent in agents:
        target = re.search(r"^\s*Name:\s+(gfx\w+)", agent, re.MULTILINE)
        marketing = re.search(r"^\s*Marketing Name:[ \t]+(\S.*?)\s*$", agent, re.MULTILINE)
        if target:
            names.append(f"{marketing[1]} ({target[1]})" if marketing else target[1])
    return names


def _amd_devices_of_kernel(nodes: Path) -> list[str]:
    names = []
    for properties in sorted(nodes.glob("*/properties")):
        try:
            version = re.search(r"^gfx_target_version (\d+)", properties.read_text(), re.MULTILINE)
        except OSError:  # a node that this process may not see
            continue
        if version and int(version[1]) > 0:  # 0: the processor's own node
            number = int(version[1])
            names.append(overridden() or amd.target_of_version(number // 10000, number // 100 % 100, number % 100))
    return names


def overridden() -> str:
    """What the runtime takes every AMD device for; "" without HSA_OVERRIDE_GFX_VERSION."""
    version = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", os.environ.get("HSA_OVERRIDE_GFX_VERSION", ""))
    return amd.target_of_version(*map(int, version.groups())) if version else ""


def amd_advice(hardware: Hardware) -> str:
    """What to do where no AMD device that is here has code by the toolkit that is here, or by the distribution's;
    "" where one has, and where nothing tells."""
    if hardware.hipcc and not hardware.hip_targets:
        return ""
    lines = [amd.advice(amd.target_of(device), hardware.hip_targets, amd.distribution()) for device in hardware.amd]
    return "" if "" in lines else next(iter(lines), "")


def choose(hardware: Hardware, wanted: str = "auto") -> Choice:
    """The backend for this machine. A GPU needs both its device and its toolkit, else it is `cpu`.

    `wanted` other than "auto" is taken as it is: a program then says itself what it lacks.
    """
    if wanted != "auto":
        return Choice(wanted, f"asked for with --backend {wanted}")
    if hardware.nvidia and hardware.nvcc:
        return Choice("cuda", f"{hardware.nvidia[0]} and nvcc ({hardware.nvcc}) are here")
    lacking = amd_advice(hardware)
    if hardware.amd and hardware.hipcc and lacking:
        return Choice("cpu", f"{hardware.amd[0]} is here, but hipcc ({hardware.hipcc}) has no code for it", lacking)
    if hardware.amd and hardware.hipcc:
        return Choice("hip", f"{hardware.amd[0]} and hipcc ({hardware.hipcc}) are here")
    if hardware.nvidia:
        return Choice(
            "cpu",
            f"{hardware.nvidia[0]} is here, but no nvcc",
            "install NVIDIA's CUDA toolkit 12 or newer to use it "
            "(https://developer.nvidia.com/cuda-downloads)",
        )
    if hardware.amd:
        return Choice(
            "cpu",
            f"{hardware.amd[0]} is here, but no hipcc",
            lacking or "install HIP to use it (Debian, Ubuntu: `sudo apt-get install hipcc`)",
        )
    toolkits = [name for name, path in (("nvcc", hardware.nvcc), ("hipcc", hardware.hipcc)) if path]
    if toolkits:
        found = " and ".join(toolkits)
        return Choice("cpu", f"{found} found, but no GPU that a driver answers for")
    return Choice("cpu", "no NVIDIA or AMD GPU was found")
