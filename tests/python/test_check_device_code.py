"""check_device_code.py, and what the configuration chooses: each gets something good, then the same broken."""

import struct
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, run_script, write


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


def cuda_program(images, flags=0, symbols=("__device_stub__f",)):
    entries = b""
    for number, suffix, kernels in images:
        image = elf(190, [(f".text.{kernel}", b"code") for kernel in kernels])
        all_flags = 0x11 | flags | (0x100000 if suffix else 0)
        entries += struct.pack("<HHIQ", 2, 0x101, 64, len(image))
        entries += struct.pack("<IIIIIIQQQ", 0, 0, 0, number, 0, 0, all_flags, 0, 0) + image
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
    return elf(62, [(".nv_fatbin", fatbin)], symbols)


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
    return run_script("check_device_code.py", folder, *architectures)


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
        (elf(62, symbols=["_Z17__device_stub__f"]), ["sm_75"], "no section .nv_fatbin"),
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


@pytest.mark.parametrize(
    "program, architecture",
    [
        (elf(62, symbols=["hipMalloc"]), "gfx90a"),
        (elf(62, symbols=["cudaMalloc"]), "sm_75"),
        (cuda_program([(75, "", [])], symbols=["cudaMalloc"]), "sm_75"),
    ],
)
def test_a_program_that_launches_nothing_needs_no_device_code(tmp_path, program, architecture):
    answer = device_code(tmp_path, program, architecture)
    assert answer.returncode == 0 and "launches no kernel" in answer.stdout


def test_a_build_without_programs_fails(tmp_path):
    answer = run_script("check_device_code.py", tmp_path, "sm_75")
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
def test_amd_devices_are_read_from_the_kernel_driver(tmp_path, monkeypatch, properties, expected):
    monkeypatch.delenv("HSA_OVERRIDE_GFX_VERSION", raising=False)
    assert hip_devices(tmp_path, properties) == expected


@pytest.mark.parametrize("override, expected", [("10.3.0", "gfx1030"), ("9.0.12", "gfx90c"), ("new", "gfx1035")])
def test_amd_devices_are_what_the_runtime_takes_them_for(tmp_path, monkeypatch, override, expected):
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", override)
    assert hip_devices(tmp_path, {"1": "gfx_target_version 100305\n"}) == expected
    assert hip_devices(tmp_path / "none", {"0": "gfx_target_version 0\n"}) == ""


def hip_devices(tmp_path: Path, properties: dict[str, str]) -> str:
    """What CMake finds where the kernel's driver lists these nodes."""
    for node, text in properties.items():
        write(tmp_path, f"nodes/{node}/properties", text)
    script = tmp_path / "detect.cmake"
    script.write_text(
        f'include("{ROOT}/cmake/detect.cmake")\n'
        f'find_hip_devices(found NODES "{tmp_path}/nodes" DEVICE "{tmp_path}")\n'
        'message("found=${found}")\n'
    )
    answer = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=True)
    return answer.stderr.strip().removeprefix("found=")


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
