"""scripts/course: packages of the distribution, and which backend a machine gets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Machine
from course_lib import backend, packages
from course_lib.errors import CourseError


# ---- Packages ----------------------------------------------------------------------------------


def test_package_list(tmp_path: Path):
    path = tmp_path / "packages.txt"
    path.write_text("# comment\n\nbase: cmake  g++ # why\nbase: python3\nempty:\nhip: hipcc\n")
    assert packages.read_packages(path) == {
        "base": ["cmake", "g++", "python3"], "empty": [], "hip": ["hipcc"]}
    path.write_text("base: cmake\ncmake g++\n")
    with pytest.raises(ValueError, match=r"packages.txt:2: expected 'group: package package'"):
        packages.read_packages(path)


def test_the_package_list_of_the_course():
    groups = packages.read_packages(ROOT / "scripts" / "packages.txt")
    assert {"cmake", "ninja-build", "g++", "python3-venv"} <= set(groups["base"])
    assert {"cpu", "hip"} <= set(groups)


def test_only_what_is_missing_is_installed(machine: Machine):
    machine.installed("cmake")
    done = machine.course("run", "1.1")
    assert done.returncode == 0, done.stderr
    assert "installing ninja-build libboost-context-dev\n" in done.stdout
    install = [call for call in machine.calls() if call.startswith("apt-get") and "install" in call]
    assert len(install) == 1
    assert install[0].endswith("install --no-install-recommends ninja-build libboost-context-dev")


def test_nothing_is_installed_where_nothing_is_missing(machine: Machine):
    assert machine.course("run", "1.1").returncode == 0
    assert not [call for call in machine.calls() if call.startswith(("apt-get", "sudo"))]


def test_how_root_is_reached(machine: Machine, monkeypatch):
    monkeypatch.setenv("PATH", str(machine.fakes))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert packages.privilege() == []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "stdin", open(os.devnull))
    assert packages.privilege() == ["sudo", "-n"]
    machine.fake("sudo", "exit 1")  # wants a password, and there is nobody to ask
    assert packages.privilege() is None
    machine.remove("sudo")
    assert packages.privilege() is None
    command = packages.apt_command(["install", "cmake"], ["sudo", "-n"])
    assert command[:5] == ["sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    assert command[-2:] == ["install", "cmake"]


def test_without_root_the_command_is_shown(machine: Machine, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(machine.fakes))
    monkeypatch.setattr(packages, "privilege", lambda: None)
    machine.installed()
    packages.install(["cmake", "ninja-build"], tmp_path / "log")  # the tools are there: goes on
    line = "not root and no sudo: ask for `sudo apt-get install cmake ninja-build`"
    assert capsys.readouterr().err == f"course: {line}; going on with what is there\n"
    machine.remove("c++")
    with pytest.raises(CourseError, match=r"^a C\+\+17 compiler not found, and not root"):
        packages.install(["cmake", "ninja-build"], tmp_path / "log")


def test_no_network(machine: Machine):
    machine.installed("cmake")
    machine.fake_apt("Err:1 Temporary failure resolving 'mirror'")
    done = machine.course("run", "1.1")
    assert done.returncode == 3
    assert done.stderr == (
        "course: apt-get could not install the packages (no network): run `sudo apt-get install "
        "ninja-build libboost-context-dev` once that is solved, then the same command again\n"
    )
    assert not [call for call in machine.calls() if call.startswith("cmake --preset")]


def test_an_interrupted_dpkg_is_taken_up_again(machine: Machine):
    machine.installed("cmake")
    machine.fake("dpkg", 'touch "$FAKES/configured"')
    machine.fake("apt-get", """case "$*" in *install*)
        [ -e "$FAKES/configured" ] && exit 0
        echo "E: dpkg was interrupted, run 'dpkg --configure -a'"; exit 100 ;;
        esac""")
    assert machine.course("run", "1.1").returncode == 0
    assert "dpkg --configure -a" in machine.calls()


def test_another_distribution(machine: Machine):
    machine.remove("apt-get", "dpkg-query")
    done = machine.course("run", "1.1")
    names = "cmake ninja-build libboost-context-dev"
    line = f"no apt-get here: the course needs, by their Debian names, {names}"
    assert done.returncode == 0
    assert done.stderr == f"course: {line}; going on with what is there\n"
    machine.remove("c++", "ninja")
    done = machine.course("run", "1.1")
    assert done.returncode == 3
    assert done.stderr == f"course: ninja, a C++17 compiler not found, and {line}\n"


# ---- Backends ----------------------------------------------------------------------------------

NVIDIA_SMI = 'echo "GPU 0: Example GPU (UUID: GPU-1)"'
ROCMINFO = """
echo "Agent 1"; echo "  Name:           A Processor"; echo "  Marketing Name: A Processor"
echo "Agent 2"; echo "  Name:           gfx1030"; echo "  Marketing Name: Example Radeon"
"""


@pytest.fixture
def hermetic(machine: Machine, monkeypatch):
    """Only the stand-ins count: no toolkit of the machine that runs the tests."""
    monkeypatch.setenv("PATH", str(machine.fakes))
    for variable in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HIP_PATH"):
        monkeypatch.delenv(variable, raising=False)
    for folders in ("CUDA_FOLDERS", "ROCM_FOLDERS"):
        monkeypatch.setattr(backend, folders, ())
    monkeypatch.setattr(backend, "WSL_FOLDER", "/nowhere")
    monkeypatch.setattr(backend, "_amd_devices_of_kernel", lambda nodes: [])
    return machine


@pytest.mark.parametrize(
    ("fakes", "chosen", "reason"),
    [
        ({}, "cpu", "no NVIDIA or AMD GPU was found"),
        ({"nvcc": ""}, "cpu", "nvcc found, but no GPU that a driver answers for"),
        ({"nvidia-smi": NVIDIA_SMI}, "cpu", "Example GPU is here, but no nvcc"),
        ({"nvidia-smi": "echo no driver; exit 9", "nvcc": ""}, "cpu", "nvcc found, but no GPU"),
        ({"nvidia-smi": NVIDIA_SMI, "nvcc": ""}, "cuda", "Example GPU and nvcc"),
        ({"rocminfo": ROCMINFO}, "cpu", "Example Radeon (gfx1030) is here, but no hipcc"),
        ({"rocminfo": ROCMINFO, "hipcc": ""}, "hip", "Example Radeon (gfx1030) and hipcc"),
        ({"rocminfo": "exit 1", "hipcc": ""}, "cpu", "hipcc found, but no GPU"),
    ],
)
def test_the_backend_needs_device_and_toolkit(hermetic: Machine, fakes, chosen, reason):
    for name, body in fakes.items():
        hermetic.fake(name, body)
    choice = backend.choose(backend.detect())
    assert choice.backend == chosen
    assert choice.reason.startswith(reason)


def test_a_backend_that_is_asked_for_is_taken(hermetic: Machine):
    assert backend.choose(backend.detect(), "hip").backend == "hip"


def test_amd_devices_without_rocminfo(tmp_path: Path):
    for node, version in ((0, 0), (1, 90010), (2, 100300)):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"gfx_target_version {version}\n")
    assert backend._amd_devices_of_kernel(tmp_path) == ["gfx90a", "gfx1030"]
