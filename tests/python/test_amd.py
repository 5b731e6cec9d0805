"""What `course doctor` says of AMD's GPUs, of WSL 2 and of Macs. The outputs of tools in here are made up after
their documentation: none comes from hardware."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT, Machine
from course_lib import amd, backend
from course_lib.backend import Hardware
from course_lib.build import Build
from course_lib.place import Place, gpu_advice, here, needs_linux

BOOKWORM, NOBLE = (amd.distributions()[name][1] for name in ("debian 12", "ubuntu 24.04"))

# A laptop with a Radeon 780M, and WSL 2 with a card: after the examples in ROCm's and librocdxg's documentation.
LAPTOP = """ROCk module is loaded
=====================
HSA Agents
==========
*******
Agent 1
*******
  Name:                    An Example Processor
  Uuid:                    CPU-XX
  Marketing Name:          An Example Processor
  Vendor Name:             CPU
  Device Type:             CPU
*******
Agent 2
*******
  Name:                    gfx1103
  Uuid:                    GPU-XX
  Marketing Name:          AMD Radeon 780M Graphics
  Vendor Name:             AMD
  Device Type:             GPU
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx1103
*** Done ***
"""
WSL = """WSL environment detected.
*******
Agent 1
*******
  Name:                    CPU
  Marketing Name:          CPU
*******
Agent 2
*******
  Name:                    gfx1100
  Marketing Name:          Radeon RX 7900 XTX
  Vendor Name:             AMD
"""


# ---- The table ---------------------------------------------------------------------------------


def test_the_table_is_whole():
    contents = json.loads(amd.TABLE.read_text(encoding="utf-8"))
    targets = [chip.target for chip in amd.chips()]
    assert len(set(targets)) == len(targets) > 20
    for chip in amd.chips():
        assert re.fullmatch("gfx[0-9a-f]{3,4}", chip.target) and chip.names and chip.architecture
        assert chip.rocm in ("supported", "built", "") and isinstance(chip.wsl, bool)
        assert chip.wsl <= (chip.rocm == "supported")
    assert all(source.startswith(("https://", "the files ")) for source in contents["sources"])
    assert {"gfx1030", "gfx90a"} <= BOOKWORM < NOBLE | {"gfx940"} and "gfx1100" in NOBLE - BOOKWORM


def test_the_documentation_shows_the_table():
    text = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    for source in json.loads(amd.TABLE.read_text(encoding="utf-8"))["sources"]:
        for address in re.findall(r"https://[^ ()]+", source):
            assert address in text, address
    rows = {cells[0].strip(" `"): cells for cells in (line.strip("|").split("|") for line in text.splitlines()
                                                    if line.startswith("| `gfx"))}
    assert list(rows) == [chip.target for chip in amd.chips()]
    for chip in amd.chips():
        said = [cell.strip() for cell in rows[chip.target][1:]]
        known = ["yes" if chip.target in targets else "-" for targets in (BOOKWORM, NOBLE)]
        assert said == [chip.names, *known, {"supported": "listed", "built": "built", "": "-"}[chip.rocm],
                        "yes" if chip.wsl else "-"], chip.target


@pytest.mark.parametrize(("folder", "root"), [
    ("opt/rocm/amdgcn/bitcode", "opt/rocm"), ("opt/rocm/lib/llvm/lib/clang/20/lib/amdgcn/bitcode", "opt/rocm"),
    ("usr/lib/x86_64-linux-gnu/amdgcn/bitcode", "usr"), ("usr/lib/llvm-17/lib/clang/17/amdgcn/bitcode", "usr")])
def test_what_a_toolkit_has_code_for_is_seen_by_its_files(tmp_path: Path, folder: str, root: str):
    (tmp_path / folder).mkdir(parents=True)
    for name in ("oclc_isa_version_1030.bc", "oclc_isa_version_90a.bc", "ocml.bc"):
        (tmp_path / folder / name).touch()
    assert amd.toolkit_targets([tmp_path / root]) == {"gfx1030", "gfx90a"}
    assert amd.toolkit_targets([tmp_path / "elsewhere"]) == frozenset()


# ---- What is said of a chip --------------------------------------------------------------------


@pytest.mark.parametrize(("target", "value"), [("gfx1030", "10.3.0"), ("gfx1100", "11.0.0"), ("gfx90c", "9.0.12"),
                                               ("gfx90a", "9.0.10"), ("gfx1151", "11.5.1")])
def test_the_override_names_the_target(target: str, value: str, monkeypatch):
    assert amd.override(target) == value
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", value)
    assert backend.overridden() == target
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "new")
    assert backend.overridden() == ""


NOTHING: frozenset[str] = frozenset()


@pytest.mark.parametrize(("target", "known", "distribution", "words", "silent"), [
    ("gfx1030", BOOKWORM, "debian 12", [], ["."]),
    ("gfx1030", NOTHING, "debian 12", [], ["."]),  # its hipcc will do
    ("gfx1100", NOTHING, "fedora 42", [], ["."]),  # nobody knows
    ("gfx1100", NOTHING, "debian 12", ["Debian 12's HIP 5.2 has no code for gfx1100: install AMD's ROCm",
                                       "or Debian 13's HIP 5.7"], ["HSA_OVERRIDE"]),
    ("gfx1201", NOBLE, "ubuntu 24.04", ["the HIP that is here has no code for gfx1201: install AMD's ROCm"],
     ["HSA_OVERRIDE", "Debian"]),
    ("gfx1152", NOBLE, "ubuntu 24.04", ["install AMD's ROCm", "; else HSA_OVERRIDE_GFX_VERSION=11.5.0", "a gfx1150"],
     ["the only way"]),
    ("gfx90c", frozenset({"gfx900", "gfx906"}), "", ["Debian 12's HIP 5.2 has; else HSA_OVERRIDE_GFX_VERSION=9.0.0"],
     ["install AMD"]),
    ("gfx803", frozenset({"gfx900"}), "", ["no code for gfx803: Debian 12's HIP 5.2 has"], ["HSA_OVERRIDE"]),
    ("gfx1234", NOBLE, "debian 13", ["no code for gfx1234: no other that the course knows of has"], ["HSA_OVERRIDE"]),
])
def test_what_to_do_about_a_chip(target, known, distribution, words, silent):
    line = amd.advice(target, known, distribution)
    for word in words:
        assert word in line, line
    for word in silent:
        assert not re.search(word, line), line


def test_the_override_is_the_only_way_where_no_toolkit_has_code(monkeypatch):
    made_up = tuple(amd.Chip(target, "RDNA 2", "gfx10-3-generic", "an example", "", False)
                    for target in ("gfx1037", "gfx1030"))
    monkeypatch.setattr(amd, "chips", lambda: made_up)
    line = amd.advice("gfx1037", BOOKWORM, "debian 12")
    assert "; the only way is HSA_OVERRIDE_GFX_VERSION=10.3.0, with which it is taken for a gfx1030" in line


@pytest.mark.parametrize(("output", "name", "target"), [
    (LAPTOP, "AMD Radeon 780M Graphics (gfx1103)", "gfx1103"), (WSL, "Radeon RX 7900 XTX (gfx1100)", "gfx1100")])
def test_rocminfo_is_read(machine: Machine, output: str, name: str, target: str):
    rocminfo = machine.fake("rocminfo", f"cat <<'END'\n{output}END")
    (machine.fakes / "cat").symlink_to("/bin/cat")
    assert backend.amd_devices(str(rocminfo)) == [name]
    assert amd.target_of(name) == target


def test_a_toolkit_without_code_for_the_chip_is_not_chosen(monkeypatch):
    monkeypatch.setattr(amd, "distribution", lambda: "debian 12")
    card = "AMD Radeon RX 7900 XTX (gfx1100)"
    choice = backend.choose(Hardware(amd=[card], hipcc="/usr/bin/hipcc", hip_targets=BOOKWORM))
    assert choice.backend == "cpu" and choice.reason == f"{card} is here, but hipcc (/usr/bin/hipcc) has no code for it"
    assert choice.advice.startswith("the HIP that is here has no code for gfx1100: install AMD's ROCm")
    assert backend.choose(Hardware(amd=[card], hipcc="/opt/rocm/bin/hipcc", hip_targets=NOBLE)).backend == "hip"
    assert backend.choose(Hardware(amd=[card], hipcc="/opt/rocm/bin/hipcc")).backend == "hip"  # nothing tells
    mixed = Hardware(amd=[card, "AMD Radeon Graphics (gfx1036)"], hipcc="/usr/bin/hipcc", hip_targets=BOOKWORM)
    assert backend.choose(mixed).backend == "hip"
    assert "Debian 12's HIP 5.2 has no code" in backend.choose(Hardware(amd=[card])).advice


def test_the_build_is_for_the_chips_that_are_here(machine: Machine, monkeypatch):
    monkeypatch.setenv("PATH", str(machine.fakes))
    build = Build(machine.root, machine.root / "build" / "hip", "hip", machine.environment())
    build.folder.parent.mkdir()
    hardware = Hardware(amd=["A (gfx1103)", "B (gfx1201)", "C"], hipcc="/x", hip_targets=NOBLE)
    build.configure(hardware)
    build.configure(Hardware(amd=["B (gfx1201)"], hipcc="/x"))
    build.configure(Hardware())
    calls = [call for call in machine.calls() if call.startswith("cmake --preset")]
    assert [re.findall(r"-DCMAKE_HIP_ARCHITECTURES=(\S+)", call) for call in calls] == [["gfx1103"], ["gfx1201"], []]


# ---- Where it runs -----------------------------------------------------------------------------


def test_wsl_is_seen_and_described(tmp_path: Path):
    assert here(tmp_path) == Place("Linux", engine=here(tmp_path).engine)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.6.87.2-microsoft-standard-WSL2\n")
    (tmp_path / "dev").mkdir()
    place = here(tmp_path)
    assert place.is_wsl and place.name == "WSL 2" and not place.has_dxg and place.kfd == ""
    lines = gpu_advice(Hardware(), place)
    assert [line.split(":")[0] for line in lines] == [
        "NVIDIA in WSL 2", "AMD in WSL 2", "WSL 2 shows no GPU of Windows here"]
    assert "never one for Linux" in lines[0] and "RX 9070" in lines[1] and "RX 6800" not in lines[1]
    (tmp_path / "dev/dxg").touch()
    assert len(gpu_advice(Hardware(), here(tmp_path))) == 2
    assert gpu_advice(Hardware(nvidia=["A card"]), here(tmp_path)) == []


def test_a_device_file_that_is_closed_is_said_to_be(tmp_path: Path, monkeypatch):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert here(tmp_path).kfd == "open" and gpu_advice(Hardware(), here(tmp_path)) == []
    monkeypatch.setattr("os.access", lambda path, mode: False)
    [line] = gpu_advice(Hardware(amd=["A card (gfx1030)"]), here(tmp_path))
    assert "usermod -aG render,video" in line


@pytest.mark.parametrize(("engine", "words"), [
    ("", "install docker or podman, then `docker build -t course-cpu -f containers/cpu.Dockerfile ."),
    ("podman", "on its CPU backend: `podman build -t course-cpu")])
def test_a_mac_is_told_what_it_lacks(engine: str, words: str):
    assert needs_linux(Place("Linux", engine=engine)) == ""
    line = needs_linux(Place("Darwin", engine=engine))
    assert line.startswith("the course needs Linux, and this is macOS") and words in line and "\n" not in line


# Python that runs this takes the machine for a Mac.
MAC = """import os, platform
platform.system = lambda: "Darwin"
platform.machine = lambda: "arm64"
def no_release(): raise OSError("no os-release")
platform.freedesktop_os_release = no_release
del os.sched_getaffinity
"""


def test_doctor_on_a_mac(machine: Machine, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(MAC)
    machine.variables["PYTHONPATH"] = str(tmp_path)
    machine.remove("apt-get", "dpkg-query", "ninja")
    done = machine.course("doctor")
    assert (done.returncode, done.stderr) == (3, "")
    assert "Darwin, arm64" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("missing: the course needs Linux, and this is macOS") and "ninja" in last
    done = machine.course("run", "1.1")
    assert done.returncode == 3 and done.stderr.startswith("course: the course needs Linux, and this is macOS")
    assert not [call for call in machine.calls() if call.startswith("cmake --preset")]


def test_doctor_says_what_it_knows_of_the_chip(machine: Machine, tmp_path: Path):
    machine.fake("rocminfo", f"cat <<'END'\n{LAPTOP}END")
    (machine.fakes / "cat").symlink_to("/bin/cat")
    machine.variables["ROCM_PATH"] = str(tmp_path)  # no toolkit is there
    done = machine.course("doctor")
    assert "AMD Radeon 780M Graphics (gfx1103)" in done.stdout
    assert "gfx1103, RDNA 3: Radeon 740M, 760M, 780M" in done.stdout and "AMD lists it for ROCm 7" in done.stdout
