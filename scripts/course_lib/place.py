"""Where the course runs beside a plain Linux machine: in WSL 2, on a Mac, and who may use the GPU's device file."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import amd
from .backend import Hardware

ENGINES = ("docker", "podman")
CONTAINER = "docker build -t course-cpu -f containers/cpu.Dockerfile . && docker run --rm course-cpu"


@dataclass(frozen=True)
class Place:
    """What tells one kind of machine from another."""

    system: str  # "Linux", "Darwin"
    is_wsl: bool = False
    has_dxg: bool = False  # WSL 2 shows a GPU of Windows
    kfd: str = ""  # AMD's device file: "open", "closed" to this user, or "" where there is none
    engine: str = ""  # that runs containers

    @property
    def name(self) -> str:
        return "WSL 2" if self.is_wsl else {"Darwin": "macOS"}.get(self.system, self.system)


def here(root: Path = Path("/")) -> Place:
    """`root` is where /proc and /dev are looked for."""
    try:
        release = (root / "proc/sys/kernel/osrelease").read_text(encoding="utf-8").lower()
    except OSError:
        release = ""
    kfd = root / "dev/kfd"
    access = "" if not kfd.exists() else "open" if os.access(kfd, os.R_OK | os.W_OK) else "closed"
    return Place(platform.system(), "microsoft" in release, (root / "dev/dxg").exists(), access,
                 next(filter(shutil.which, ENGINES), ""))


def needs_linux(place: Place) -> str:
    """Why nothing can be built here, and what can be done; "" on Linux. The CPU backend reads /proc and catches
    faults as Linux reports them; CUDA and ROCm have no Mac."""
    if place.system == "Linux":
        return ""
    way = f"`{CONTAINER.replace('docker', place.engine)}`" if place.engine else (
        f"install {' or '.join(ENGINES)}, then `{CONTAINER}`")
    return f"the course needs Linux, and this is {place.name}: in a container it runs on its CPU backend: {way}"


def gpu_advice(hardware: Hardware, place: Place) -> list[str]:
    """What stands between this machine's GPU and the course, beside the toolkit."""
    lines = []
    if place.kfd == "closed":
        lines.append("this user may not open /dev/kfd, without which no program reaches an AMD GPU: "
                     "`sudo usermod -aG render,video $USER`, then log in again")
    if place.is_wsl and not hardware.nvidia and not hardware.amd:
        lines.append("NVIDIA in WSL 2: install NVIDIA's driver in Windows, never one for Linux in here, and in here "
                     "CUDA's toolkit alone (package cuda-toolkit, https://docs.nvidia.com/cuda/wsl-user-guide)")
        products = "; ".join(chip.names for chip in amd.chips() if chip.wsl)
        lines.append(f"AMD in WSL 2: AMD lists {products}. They need Windows 11 with AMD's driver, and in here ROCm 7.2, "
                     "librocdxg (https://github.com/ROCm/librocdxg) and HSA_ENABLE_DXG_DETECTION=1")
        if not place.has_dxg:
            lines.append("WSL 2 shows no GPU of Windows here: there is no /dev/dxg; `wsl --update` in Windows brings it")
    return lines
