"""The checks of scripts/ must be able to fail: each gets something good, then the same thing broken."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(script, *arguments):
    command = [sys.executable, ROOT / "scripts" / script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# ---- check_structure.py -----------------------------------------------------------------------------

STEP = "stage1_vector/01_vector_add"
HEADER = """#pragma once
#include "common/gpu.h"
// A comment may say % 32 and __shfl_sync.
"""


@pytest.fixture
def project(tmp_path):
    """The smallest project that follows every rule."""
    files = {
        "CMakeLists.txt": f"set(steps\n  {STEP})\n",
        "README.md": f"| step | program |\n|---|---|\n| 1.1 | [`vector_add`]({STEP}) |\n",
        "common/gpu.h": "#pragma once\n",
        f"{STEP}/vector_add.h": HEADER,
        f"{STEP}/vector_add.hip": f'#include "{STEP}/vector_add.h"\n',
        f"{STEP}/vector_add_test.hip": "",
        f"{STEP}/README.md": "",
        "build/headers/a.hip": '#include "common/gpu.h"\n',
        "build/headers/b.hip": f'#include "{STEP}/vector_add.h"\n',
    }
    for name, text in files.items():
        write(tmp_path, name, text)
    return tmp_path


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def structure(project):
    return run("check_structure.py", "--root", project, "--build", project / "build")


def test_a_project_that_follows_the_rules_passes(project):
    answer = structure(project)
    assert answer.returncode == 0, answer.stdout
    assert "1 steps" in answer.stdout and "0 findings" in answer.stdout


@pytest.mark.parametrize("name", ["vector_add.h", "vector_add.hip", "vector_add_test.hip", "README.md"])
def test_a_missing_file_is_found(project, name):
    (project / STEP / name).unlink()
    answer = structure(project)
    assert answer.returncode == 1
    assert f"{STEP}: {name} is missing" in answer.stdout


def test_a_fifth_file_is_found_unless_named_for_hardware_or_instances(project):
    write(project, f"{STEP}/vector_add_sm90.h", "#pragma once\ninline void f() { asm(\"\"); }\n")
    write(project, "build/headers/c.hip", f'#include "{STEP}/vector_add_sm90.h"\n')
    write(project, f"{STEP}/vector_add_instances.hip", f'#include "{STEP}/vector_add.h"\n')
    assert structure(project).returncode == 0
    write(project, f"{STEP}/helpers.txt", "")
    assert "helpers.txt is not one of a step's four files" in structure(project).stdout


def test_a_header_that_the_step_includes_is_part_of_it(project):
    write(project, f"{STEP}/data.h", "#pragma once\n")
    write(project, "build/headers/d.hip", f'#include "{STEP}/data.h"\n')
    assert "data.h is not one of a step's four files" in structure(project).stdout
    header = (project / STEP / "vector_add.h").read_text()
    write(project, f"{STEP}/vector_add.h", header + f'#include "{STEP}/data.h"\n')
    assert "four files" not in structure(project).stdout


def test_a_step_without_a_row_or_without_a_build_is_found(project):
    write(project, "README.md", f"see {STEP}\n")
    write(project, "CMakeLists.txt", "")
    answer = structure(project)
    assert answer.returncode == 1
    assert "README.md: the roadmap has no row" in answer.stdout
    assert f"CMakeLists.txt: {STEP} is not in the list of steps" in answer.stdout


def test_a_row_without_a_step_is_found(project):
    readme = project / "README.md"
    readme.write_text(readme.read_text() + "| 1.2 | [`axpy`](stage1_vector/02_axpy) |\n")
    assert "links stage1_vector/02_axpy, which does not exist" in structure(project).stdout


def test_a_header_that_is_not_compiled_alone_is_found(project):
    (project / "build/headers/b.hip").unlink()
    assert "vector_add.h: is not compiled alone" in structure(project).stdout


@pytest.mark.parametrize(
    "line",
    [
        "int lane = threadIdx.x % 32;",
        "int wave = threadIdx.x / 64u;",
        "int lane = threadIdx.x & 31;",
        "int wave = threadIdx.x >> 5;",
        "constexpr int kWarpSize = 32;",
        "unsigned mask = 0xffffffff;",
        "int lanes = warpSize;",
        "x = __shfl_down_sync(mask, x, 1);",
        "x = __ballot(true);",
        "cudaDeviceSynchronize();",
        "cublasCreate(&handle);",
        'asm volatile("bar.sync 0;");',
        "__builtin_amdgcn_s_barrier();",
        "kernel<<<1, 1>>>();",
        '#include "stage2_matrix/01_transpose/transpose.h"',
        '#include "vector_add.h"',
        '#include "common/missing.h"',
    ],
)
def test_what_a_step_must_not_write_is_found_at_its_line(project, line):
    write(project, f"{STEP}/vector_add.h", HEADER + line + "\n")
    answer = structure(project)
    assert answer.returncode == 1
    assert f"{STEP}/vector_add.h:4: " in answer.stdout


@pytest.mark.parametrize(
    "line",
    [
        "size_t half = n / 2, part = n % 320, high = word >> 32;",
        "int width = properties.warpSize;",
        "int lane = gpu::lane_id();  // not threadIdx.x % 32",
        'const char* text = "n % 32";',
        "float x = 1.0f / 32.0f;",
    ],
)
def test_what_only_looks_forbidden_is_let_through(project, line):
    write(project, f"{STEP}/vector_add.h", HEADER + line + "\n")
    answer = structure(project)
    assert answer.returncode == 0, answer.stdout


def test_common_includes_no_step(project):
    write(project, "common/timer.h", f'#pragma once\n#include "{STEP}/vector_add.h"\n')
    write(project, "build/headers/c.hip", '#include "common/timer.h"\n')
    assert "common/timer.h:2: " in structure(project).stdout


# ---- check_device_code.py ---------------------------------------------------------------------------


def elf(machine, sections=(), symbols=()):
    """A small 64-bit ELF file with the given sections (name, contents) and symbol names."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in symbols)
    table, at = b"", 1
    for name in symbols:
        table += struct.pack("<IBBHQQ", at, 0, 0, 0, 0, 0)
        at += len(name) + 1
    contents = [("", b"", 0, 0), *((name, data, 1, 0) for name, data in sections)]
    contents += [(".strtab", strings, 3, 0), (".symtab", table, 2, len(contents))]
    names = b"".join(name.encode() + b"\0" for name, *_ in contents) + b".shstrtab\0"
    contents.append((".shstrtab", names, 3, 0))
    body, headers, name_at = b"", b"", 0
    for name, data, kind, link in contents:
        headers += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, 64 + len(body), len(data), link, 0, 1, 0)
        name_at += len(name) + 1
        body += data
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 0,
                                                          64 + len(body), 0, 64, 0, 0, 64,
                                                          len(contents), len(contents) - 1)
    return head + body + headers


def cuda_program(images, flags=0):
    entries = b""
    for number, suffix, kernels in images:
        image = elf(190, [(f".text.{kernel}", b"code") for kernel in kernels])
        all_flags = 0x11 | flags | (0x100000 if suffix else 0)
        entries += struct.pack("<HHIQ", 2, 0x101, 64, len(image))
        entries += struct.pack("<IIIIIIQQQ", 0, 0, 0, number, 0, 0, all_flags, 0, 0) + image
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
    return elf(62, [(".nv_fatbin", fatbin)])


def hip_program(images, machine=224):
    targets = [("host-x86_64-unknown-linux--", b"")]
    targets += [(f"hipv4-amdgcn-amd-amdhsa--{a}", elf(machine, [], [f"{k}.kd" for k in kernels]))
                for a, kernels in images]
    size = 32 + sum(24 + len(target) for target, _ in targets)
    table, data = b"", b""
    for target, image in targets:
        table += struct.pack("<QQQ", size + len(data), len(image), len(target)) + target.encode()
        data += image
    bundle = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(targets)) + table + data
    return elf(62, [(".hip_fatbin", bundle)])


def device_code(folder, program, *architectures):
    path = folder / "stage1_vector" / "vector_add"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(program)
    path.chmod(0o755)
    return run("check_device_code.py", folder, *architectures)


def test_complete_programs_pass(tmp_path):
    cuda = cuda_program([(75, "", ["f", "g"]), (90, "a", ["f", "g"])])
    answer = device_code(tmp_path, cuda, "sm_75", "sm_90a")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "2 kernels for sm_75, 2 kernels for sm_90a" in answer.stdout
    hip = hip_program([("gfx90a", ["f", "g"]), ("gfx1030", ["f", "g"])])
    answer = device_code(tmp_path, hip, "gfx90a", "gfx1030")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "1 programs ok, 0 failed" in answer.stdout


@pytest.mark.parametrize(
    "program, architectures, why",
    [
        (cuda_program([(75, "", ["f"])]), ["sm_75", "sm_90a"], "sm_90a lacks 1 of 1 kernels, e.g. f"),
        (cuda_program([(75, "", ["f"]), (90, "", ["f"])]), ["sm_75", "sm_90a"], "sm_90a lacks"),
        (cuda_program([(75, "", ["f", "g"]), (90, "a", ["f"])]), ["sm_75", "sm_90a"], "e.g. g"),
        (cuda_program([(75, "", [])]), ["sm_75"], "no kernel for sm_75"),
        (cuda_program([(75, "", ["f"])], flags=0x8000), ["sm_75"], "-no-compress"),
        (elf(62), ["sm_75"], "no section .nv_fatbin"),
        (elf(62, symbols=["hipLaunchKernel"]), ["gfx90a"], "no section .hip_fatbin"),
        (hip_program([("gfx90a", ["f"])]), ["gfx90a", "gfx1030"], "gfx1030 lacks 1 of 1 kernels"),
        (hip_program([("gfx90a", ["f", "g"]), ("gfx1030", ["g"])]), ["gfx90a", "gfx1030"], "e.g. f"),
        (hip_program([("gfx90a", ["f"])], machine=62), ["gfx90a"], "ELF machine 62"),
        (elf(62, [(".hip_fatbin", b"CCOB" + bytes(60))]), ["gfx90a"], "--no-offload-compress"),
        (elf(62, [(".hip_fatbin", b"__CLANG_OFFLOAD_BUNDLE__\x09")]), ["gfx90a"], "damaged"),
        (b"#!/bin/sh\n", ["gfx90a"], "not a 64-bit"),
    ],
)
def test_missing_device_code_is_found(tmp_path, program, architectures, why):
    answer = device_code(tmp_path, program, *architectures)
    assert answer.returncode == 1
    assert answer.stdout.startswith("FAIL stage1_vector/vector_add: ") and why in answer.stdout


def test_a_program_that_launches_nothing_needs_no_device_code(tmp_path):
    answer = device_code(tmp_path, elf(62, symbols=["hipMalloc"]), "gfx90a")
    assert answer.returncode == 0 and "launches no kernel" in answer.stdout


def test_a_build_without_programs_fails(tmp_path):
    answer = run("check_device_code.py", tmp_path, "sm_75")
    assert answer.returncode == 1 and "no program" in answer.stderr


# ---- What the configuration chooses -----------------------------------------------------------------


@pytest.mark.parametrize(
    "properties, expected",
    [
        ({"0": "gfx_target_version 0\n", "1": "simd_count 440\ngfx_target_version 90010\n"}, "gfx90a"),
        ({"1": "gfx_target_version 100300\n", "2": "gfx_target_version 110000\n"}, "gfx1030;gfx1100"),
        ({"0": "gfx_target_version 0\n"}, ""),
        ({}, ""),
    ],
)
def test_amd_devices_are_read_from_the_kernel_driver(tmp_path, properties, expected):
    for node, text in properties.items():
        write(tmp_path, f"nodes/{node}/properties", text)
    script = tmp_path / "detect.cmake"
    script.write_text(
        f'include("{ROOT}/cmake/detect.cmake")\n'
        f'find_hip_devices(found NODES "{tmp_path}/nodes" DEVICE "{tmp_path}")\n'
        'message("found=${found}")\n'
    )
    answer = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=True)
    assert answer.stderr.strip() == f"found={expected}"


@pytest.mark.parametrize(
    "capabilities, expected",
    [("7.5\n", "75-real"), ("9.0\n9.0\n", "90a-real"), ("8.6\n10.0\n", "86-real;100a-real")],
)
def test_nvidia_devices_are_asked_for_their_capability(tmp_path, capabilities, expected):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\ncat <<END\n" + capabilities + "END\n")
    smi.chmod(0o755)
    script = tmp_path / "detect.cmake"
    script.write_text(f'include("{ROOT}/cmake/detect.cmake")\nfind_cuda_devices(found)\nmessage("found=${{found}}")\n')
    answer = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=True,
                            env={"PATH": f"{tmp_path}:/usr/local/bin:/usr/bin:/bin"})
    assert answer.stderr.strip() == f"found={expected}"
