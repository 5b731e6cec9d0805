"""scripts/course: steps, packages, backends, set-up, and every way in which these go wrong."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from conftest import ROOT, Machine
from course_lib import backend, packages, python_env, results, steps, terminal
from course_lib.errors import CourseError

# ---- Steps -------------------------------------------------------------------------------------


def test_steps_are_found_in_their_folders(machine: Machine):
    (machine.root / "stage1_vector" / "03_dot").mkdir()  # no program in it yet
    (machine.root / "stage1_vector" / "notes").mkdir()
    found = steps.discover(machine.root)
    assert [(s.number, s.name) for s in found] == [
        ("0.1", "hello_gpu"), ("1.1", "vector_add"), ("1.2", "axpy")]


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("1.1", ["vector_add"]),
        ("vector_add", ["vector_add"]),
        ("01_vector_add", ["vector_add"]),
        ("1", ["vector_add", "axpy"]),
        ("stage1", ["vector_add", "axpy"]),
        ("stage1_vector", ["vector_add", "axpy"]),
        ("stage1_vector/02_axpy/", ["axpy"]),
        ("./stage1_vector/02_axpy/axpy.h", ["axpy"]),
    ],
)
def test_a_step_is_named_in_many_ways(machine: Machine, monkeypatch, word, names):
    monkeypatch.chdir(machine.root)
    found = steps.discover(machine.root)
    assert [s.name for s in steps.resolve(machine.root, found, [word])] == names


def test_no_word_means_all_steps_and_several_keep_the_order(machine: Machine):
    found = steps.discover(machine.root)
    assert steps.resolve(machine.root, found, []) == found
    chosen = steps.resolve(machine.root, found, ["axpy", "0.1", "stage0", "axpy"])
    assert [s.name for s in chosen] == ["hello_gpu", "axpy"]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("vector_ad", "unknown step 'vector_ad': did you mean vector_add (1.1)?"),
        ("xyzzy", "unknown step 'xyzzy': see `scripts/course list`"),
        ("2.3", "step 2.3 (gemm) is planned and not there yet"),
        ("/etc", "unknown step '/etc': see `scripts/course list`"),
    ],
)
def test_an_unknown_step_is_one_line_and_exit_code_2(machine: Machine, word, line):
    done = machine.course("run", word)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"course: {line}\n")
    assert machine.calls() == []  # nothing was set up or built


def test_the_roadmap_in_the_readme_names_every_step():
    rows = {row.name: row for row in steps.roadmap(ROOT)}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for step in steps.discover(ROOT):
        assert rows[step.name].number == step.number
        link = f"[`{step.name}`]({step.folder.relative_to(ROOT)}/)"
        assert link in readme, f"README.md has no row with {link}"
    for name, row in rows.items():
        if "planned" in next(line for line in readme.splitlines() if f"`{name}`" in line):
            assert name not in {step.name for step in steps.discover(ROOT)}


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


# ---- Building and running ----------------------------------------------------------------------


def test_run_prints_every_table_and_the_summary(machine: Machine):
    done = machine.course("run")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("hello_gpu", "vector_add", "axpy"):
        assert f"{name} prints its table" in done.stdout
    lines = done.stdout.splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("step"))
    assert lines[header].split("  ")[0] == "step"
    row = lines[header + 2].split()
    assert row[:3] == ["1.1", "vector_add", "vectorised"]
    for cell in ("800 us", "4.10 TB/s", "98%", "102% of cuBLAS", "3.0e-08", "ok"):
        assert cell in lines[header + 2]
    assert lines[-1].startswith("steps: 3   time: ")
    assert "\033" not in done.stdout  # no terminal: no colours, no moving lines


def test_run_builds_only_what_it_runs(machine: Machine):
    assert machine.course("run", "1.1").returncode == 0
    build = next(call for call in machine.calls() if call.startswith("cmake --build"))
    assert build.endswith("--target vector_add")


def test_a_programs_own_options_stand_behind_two_dashes(machine: Machine):
    machine.fake("program", '[ "$1" = --help ] && exit 0\n' + machine.PROGRAM)
    text = " ".join(machine.course("run", "1.1", "--help").stdout.split())
    assert text.endswith("`scripts/course run dot -- --help` shows what dot itself takes, such as "
                         "--version and --size.")
    assert machine.calls() == []  # nothing is built for it
    done = machine.course("run", "1.1", "--", "--help")
    assert done.returncode == 0 and "steps: 1" not in done.stdout  # no result, no table of results
    calls = machine.calls()
    assert [call for call in calls if call.startswith(("cmake --build", "program"))][1:] == ["program --help"]
    machine.course("run", "1.1", "--quick", "--", "--version", "naive", "--size", "2^10")
    assert machine.calls()[-1].endswith("results/vector_add.json --quick --version naive --size 2^10")
    done = machine.course("list", "--", "--help")
    assert done.returncode == 2 and "only `course run` passes what is behind -- on" in done.stderr


def test_a_long_training_shows_one_version_on_the_cpu_backend(machine: Machine):
    (machine.root / "stage6_cnn" / "04_train_cnn").mkdir(parents=True)
    (machine.root / "stage6_cnn" / "04_train_cnn" / "train_cnn.cpp").touch()
    machine.fake("cmake", machine.CMAKE.replace("stage1_vector/axpy;", "stage1_vector/axpy stage6_cnn/train_cnn;"))
    machine.fake("program", machine.PROGRAM.replace('naive       one', 'graph  steps\\nnaive  one'))
    line = "this is graph alone; `scripts/course run 6.4 --all` runs every one"
    for arguments, alone in ((("6.4",), True), (("6.4", "--all"), False), (("6.4", "--quick"), False),
                             (("1.1",), False), (("6.4", "--backend", "cuda"), False)):
        before = len(machine.calls())
        done = machine.course("run", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        calls = [call for call in machine.calls()[before:] if call.startswith("program --json")]
        assert len(calls) == 1 and calls[0].endswith("--version graph") == alone, calls
        assert (line in done.stdout) == alone
    machine.fake("program", machine.PROGRAM)  # a version that is called otherwise now: all are run
    assert "alone" not in machine.course("run", "6.4").stdout


def test_the_long_trainings_have_the_version_that_is_shown():
    found = {step.name: step for step in steps.discover(ROOT)}
    for name, version in steps.LONG_TRAININGS.items():
        texts = [path.read_text(encoding="utf-8") for path in found[name].folder.glob("*.h")]
        assert any(f'{{"{version}"' in text for text in texts), f"{name} has no version {version}"


@pytest.mark.parametrize(("code", "verdict", "end"), [(1, "FAIL", 1), (3, "no device", 3),
                                                      (2, "FAIL (exit 2)", 1)])
def test_one_program_that_fails_does_not_stop_the_others(machine: Machine, code, verdict, end):
    machine.variables.update(FAKE_FAILING="vector_add", FAKE_CODE=str(code))
    done = machine.course("run", "stage1")
    assert done.returncode == end
    assert "axpy prints its table" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("1.1   vector_add"))
    assert row.endswith(verdict)


def test_a_program_that_dies_is_reported_by_its_signal():
    assert results.Outcome("1.1", "vector_add", -signal.SIGSEGV).verdict == "FAIL (signal 11)"


def test_results_are_kept_where_asked(machine: Machine, tmp_path: Path):
    machine.variables["FAKE_FAILING"] = "axpy"
    done = machine.course("run", "stage1", "--json-dir", "kept/here", cwd=tmp_path)
    assert done.returncode == 1
    kept = tmp_path / "kept" / "here"
    assert [path.name for path in kept.iterdir()] == ["vector_add.json"]  # no result of a failure
    assert results.load(kept / "vector_add.json")["program"] == "vector_add"
    done = machine.course("run", "--quick", "--json-dir", "kept")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_build_error_shows_the_compilers_words(machine: Machine):
    machine.variables["FAKE_BUILD_ERROR"] = "vector_add.h:3: error: expected ';'"
    done = machine.course("run", "1.1")
    assert done.returncode == 1
    assert "vector_add.h:3: error: expected ';'" in done.stdout
    assert done.stderr.startswith("course: the cpu build failed: see above and ")
    assert done.stderr.count("\n") == 1


def test_a_full_disk(machine: Machine):
    machine.variables["FAKE_BUILD_ERROR"] = "fatal error: error writing: No space left on device"
    done = machine.course("run", "1.1")
    assert done.returncode == 3
    assert "is full: free some space, or set COURSE_BUILD_DIR" in done.stderr


def test_the_build_folder_can_be_elsewhere(machine: Machine, tmp_path: Path):
    machine.variables["COURSE_BUILD_DIR"] = str(tmp_path / "else where")
    assert machine.course("run", "1.1").returncode == 0
    assert (tmp_path / "else where" / "cpu" / "results" / "vector_add.json").is_file()
    assert not (machine.root / "build").exists()


def test_a_build_folder_that_cannot_be_written(machine: Machine):
    machine.variables["COURSE_BUILD_DIR"] = "/proc/course-build"
    done = machine.course("run", "1.1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("course: cannot write to /proc/course-build (")
    assert "set COURSE_BUILD_DIR to a folder that can be written" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_checkout(machine: Machine):
    machine.root.chmod(0o555)
    done = machine.course("run", "1.1")
    machine.root.chmod(0o755)
    assert done.returncode == 2
    line = f"course: cannot write to {machine.root}/build (Permission denied)"
    assert done.stderr.startswith(line)


def test_a_moved_or_half_configured_tree_is_configured_afresh(machine: Machine):
    assert machine.course("run", "1.1").returncode == 0
    assert machine.course("run", "1.1").returncode == 0
    (machine.root / "build" / "cpu" / "CMakeCache.txt").write_text(
        "CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n"
    )
    assert machine.course("run", "1.1").returncode == 0
    configured = [call for call in machine.calls() if call.startswith("cmake --preset")]
    assert [call.endswith("--fresh") for call in configured] == [True, False, True]


def test_an_old_cmake_is_helped_out_from_pypi(machine: Machine):
    machine.variables["FAKE_CMAKE"] = "3.22.1"
    machine.fake_venv()
    machine.variables["FAKE_PIP_ERROR"] = "NewConnectionError: [Errno -3] name resolution"
    done = machine.course("run", "1.1")
    assert done.returncode == 3
    assert "CMake 3.22 here, and 3.24 is needed: taking it from PyPI" in done.stdout
    assert "course: pip could not install cmake>=3.24 (no network): see " in done.stderr
    del machine.variables["FAKE_PIP_ERROR"]
    assert machine.course("run", "1.1").returncode == 0
    assert (machine.root / ".venv" / "course-cmake.stamp").read_text() == "cmake>=3.24"


# ---- Tests -------------------------------------------------------------------------------------


def test_test_runs_ctest_and_then_pytest(machine: Machine):
    machine.fake_venv()
    done = machine.course("test")
    assert (done.returncode, done.stderr) == (0, "")
    assert "100% tests passed" in done.stdout
    calls = machine.calls()
    ctest = next(i for i, call in enumerate(calls) if call.startswith("ctest "))
    pytest_call = next(i for i, call in enumerate(calls) if call.startswith("python3 -m pytest"))
    assert ctest < pytest_call
    assert "--output-on-failure" in calls[ctest]
    assert f"-DPython3_EXECUTABLE={machine.root}/.venv/bin/python3" in "\n".join(calls)


def test_test_of_one_step_is_only_that_step(machine: Machine):
    machine.fake_venv()
    assert machine.course("test", "1.1").returncode == 0
    calls = machine.calls()
    assert any(call.endswith(r"-R ^(vector_add)(_test)?(\.|$)") for call in calls)
    assert any(call.endswith("--target vector_add vector_add_test") for call in calls)
    assert not [call for call in calls if "-m pytest" in call]


def test_a_failing_test_fails(machine: Machine):
    machine.fake_venv()
    machine.variables["FAKE_CTEST"] = "8"
    assert machine.course("test").returncode == 1


def test_without_pypi_ctest_runs_and_the_exit_code_says_so(machine: Machine):
    machine.fake_venv()
    machine.variables["FAKE_PIP_ERROR"] = "NewConnectionError: [Errno -3] name resolution"
    done = machine.course("test")
    assert done.returncode == 3
    assert "100% tests passed" in done.stdout
    assert "(no network)" in done.stderr
    assert "The tests that need NumPy are skipped." in done.stderr
    assert not [call for call in machine.calls() if "-m pytest" in call]


def test_an_interrupted_set_up_is_taken_up_again(machine: Machine, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("FAKE_PIP_ERROR", "killed")
    machine.fake_venv()
    environment = python_env.PythonEnvironment(machine.root / ".venv", tmp_path / "log")
    with pytest.raises(CourseError):
        environment.require("requirements", ["numpy>=1.24"])
    assert not environment.has("requirements", ["numpy>=1.24"])
    monkeypatch.delenv("FAKE_PIP_ERROR")
    environment.require("requirements", ["numpy>=1.24"])
    assert environment.has("requirements", ["numpy>=1.24"])
    assert not environment.has("requirements", ["numpy>=2"])  # changed requirements count


# ---- Bench and profile, as a whole -------------------------------------------------------------


def with_a_gpu(machine: Machine) -> None:
    machine.fake("nvidia-smi", 'echo "GPU 0: Example GPU (UUID: GPU-1)"')
    machine.fake("nvcc", "")
    # The program of these commands takes --json at any place.
    machine.fake("program", 'case "$1" in --list) echo "naive  one thread per element"; exit 0 ;; esac\n'
                 'while [ $# -gt 0 ]; do [ "$1" = --json ] && cp "$FAKES/report.json" "$2"; shift; done\n'
                 "exit 0")


@pytest.mark.parametrize("more", [(), ("--no-setup",)], ids=["set up", "as it is"])
def test_bench_sets_up_builds_and_measures(machine: Machine, more):
    with_a_gpu(machine)
    if not more:
        machine.installed()
    done = machine.course("bench", "1.1", "--peers", "none", "--rounds", "1", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "" and "vectorised" in done.stdout
    calls = "\n".join(machine.calls())
    assert "cmake --preset cuda" in calls and "--target vector_add" in calls
    assert ("apt-get" in calls) == (not more)
    written = json.loads((machine.root / "build" / "cuda" / "bench" / "bench.json").read_text())
    assert [report["program"] for report in written["reports"]] == ["vector_add"]


@pytest.mark.parametrize("more", [(), ("--no-setup",)], ids=["set up", "as it is"])
def test_profile_sets_up_builds_and_asks_the_profiler(machine: Machine, more):
    with_a_gpu(machine)
    machine.fake("ncu", "echo '==ERROR== ERR_NVGPUCTRPERM'; exit 1")
    done = machine.course("profile", "1.1", "--version", "naive", *more)
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2, 3), done.stderr
    calls = machine.calls()
    assert any(call.startswith("cmake --build") for call in calls), done.stdout + done.stderr
    assert any(call.startswith("ncu ") for call in calls), done.stdout + done.stderr
    assert ("backend cuda: ncu counts there" in done.stdout) == (not more)


def test_profile_without_a_profiler_is_one_line(machine: Machine):
    done = machine.course("profile", "1.1", "--version", "naive")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


# ---- Ctrl-C ------------------------------------------------------------------------------------


def running_in(group: int) -> list[str]:
    """The processes of a process group that still run; one that only waits to be reaped does not."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it has ended in the meantime
        if int(its_group) == group and state not in "ZX":
            found.append(stat.parent.name)
    return found


@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "only course"])
def test_control_c_ends_cleanly(machine: Machine, whole_group: bool, tmp_path: Path):
    machine.variables["FAKE_SLEEP"] = "1"
    with subprocess.Popen(
        machine.command("run", "1.1", "--json-dir", str(tmp_path / "kept")), text=True,
        env=machine.environment(), cwd=machine.root, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:
        for line in process.stdout:
            if "prints its table" in line:
                break
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "course: interrupted; the same command takes up where this one stopped\n"
    assert list((tmp_path / "kept").iterdir()) == []
    deadline = time.monotonic() + 10
    while running_in(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running_in(process.pid) == []  # nothing of it runs on


# ---- What is printed ---------------------------------------------------------------------------


def test_list(machine: Machine):
    entries = json.loads(machine.course("list", "--json").stdout)
    assert [(e["step"], e["state"]) for e in entries] == [
        ("0.1", "no exercise"), ("1.1", "no exercise"), ("1.2", "no exercise"), ("2.3", "planned")]
    assert entries[1] == {
        "step": "1.1", "program": "vector_add", "lesson": "adding vectors",
        "path": "stage1_vector/01_vector_add", "state": "no exercise", "ms": None, "of_limit": None,
        "of_vendor": None, "medal": None, "device": None}
    text = machine.course("list").stdout
    assert "2.3   gemm        multiplying matrices          planned" in text


def test_list_shows_what_was_reached_on_this_machine(machine: Machine):
    folder = machine.root / "stage1_vector" / "01_vector_add"
    (folder / "versions").mkdir()
    (folder / "versions" / "naive.hip").write_text(
        "// exercise: add (about 1 line)\nint a;\n// end exercise\n")
    (folder / "exercise.toml").write_text(
        '[[exercise]]\nname = "add"\nfile = "versions/naive.hip"\nhints = ["a", "b", "c"]\n')
    best = {"ms": 2.0, "of_limit": 0.5, "of_vendor": None, "medal": "gold"}
    (machine.root / "workspace").mkdir()
    (machine.root / "workspace" / "progress.json").write_text(json.dumps(
        {"schema": 1, "steps": {"1.1": {"state": "passed", "devices": {
            "cpu: this": best, "cuda: another": {**best, "ms": 0.1}}}}}))
    entry = json.loads(machine.course("list", "--json").stdout)[1]
    assert (entry["state"], entry["ms"], entry["device"]) == ("passed", 2.0, "cpu: this")
    assert entry["medal"] is None  # of an older check: the CPU backend has given none since
    text = machine.course("list").stdout
    assert "passed" in text and "2.00 ms" in text and "gold" not in text
    entry = json.loads(machine.course("list", "--json", "--backend", "cuda").stdout)[1]
    assert (entry["ms"], entry["medal"]) == (0.1, "gold")


def test_doctor(machine: Machine):
    done = machine.course("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is missing" in done.stdout
    machine.installed("cmake")
    done = machine.course("doctor")
    assert done.returncode == 3
    assert "sudo apt-get install ninja-build libboost-context-dev" in done.stdout
    assert not [call for call in machine.calls() if call.startswith("apt-get")]  # it only looks


def in_terminal(machine: Machine, columns: int, *arguments: str) -> str:
    """What a command prints into a terminal of this width."""
    try:
        main_end, terminal_end = pty.openpty()
    except OSError as error:  # a bare container may have no /dev/pts
        pytest.skip(f"no terminal to be had: {error}")
    fcntl.ioctl(terminal_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**machine.environment(), "TERM": "xterm"}
    with subprocess.Popen(
        machine.command(*arguments), env=environment, cwd=machine.root, stdin=subprocess.DEVNULL,
        stdout=terminal_end, stderr=terminal_end,
    ) as process:
        os.close(terminal_end)
        text = b""
        while True:
            try:
                chunk = os.read(main_end, 4096)
            except OSError:  # EIO: the other end is closed
                break
            if not chunk:
                break
            text += chunk
    os.close(main_end)
    assert process.returncode == 0, text
    return text.decode()


def test_a_narrow_terminal_and_no_color(machine: Machine):
    wide = in_terminal(machine, 100, "run", "1.1")
    assert "\033[1m" in wide and "\033[K" in wide
    machine.variables["NO_COLOR"] = "1"
    narrow = in_terminal(machine, 60, "run", "1.1")
    assert "\033[1m" not in narrow and "\033[3" not in narrow
    table = narrow[narrow.index("step ") :].splitlines()
    assert all(len(line) <= 60 for line in table)
    assert "vector_add" in table[1] and table[1].endswith("ok")  # what matters most is kept


def test_format_table_keeps_within_the_width():
    columns = [terminal.Column("a"), terminal.Column("text", flexible=True),
               terminal.Column("n", right=True), terminal.Column("more", optional=True)]
    rows = [["1", "a rather long text that may be cut", "12", "optional"]]
    assert terminal.format_table(columns, rows, 1000)[1] == (
        "1  a rather long text that may be cut  12  optional"
    )
    assert terminal.format_table(columns, rows, 30)[1] == "1  a rather lon…  12  optional"
    assert terminal.format_table(columns, rows, 20)[1] == "1  a rather lo…  12"


def test_course_starts_on_a_bare_python(machine: Machine):
    """-S and -E: no site-packages, nothing from the environment."""
    command = machine.command("list")
    bare = [command[0], "-S", "-E", *command[1:]]
    started = time.monotonic()
    done = subprocess.run(bare, env=machine.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["list"], ["list", "--json"]])
def test_what_cannot_be_printed_is_one_line(machine: Machine, words: list[str]):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(machine.command(*words), env=machine.environment(), cwd=machine.root,
                              stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr == "course: the disk is full: free some space and run the same command again\n"


def test_output_may_be_closed(machine: Machine):
    for closed in (">&-", ">&- 2>&-"):
        done = subprocess.run(["/bin/sh", "-c", f'"$@" {closed}', "sh", *machine.command("list")],
                              env=machine.environment(), capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("words", [["run", "\x1b[31m"], ["run", "--backend", "\x1b[31m"], ["\x1b[31m"],
                                   ["run", "a\nb\x9b\u202e"], ["bench", "--merge", "\x1b[31m\r"],
                                   ["progress", "--import", "\x1b]0;title\x07"], ["list", "\x1b[31m"]])
def test_arguments_are_shown_in_one_line_and_steer_no_terminal(machine: Machine, words: list[str]):
    done = machine.course(*words)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("course: ")
    assert "\\x" in done.stderr and done.stderr[:-1].isprintable() and done.stderr[-1] == "\n"


def test_texts_of_files_steer_no_terminal(machine: Machine, report: dict):
    report["tables"][0]["rows"][1]["name"] = "naive\x1b[2J\nnext"
    report["tables"][0]["problem"] = "n=1\x9b\u202e"
    path = machine.root / "report.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    done = machine.course("bench", "--compare", str(path), str(path))
    assert done.returncode == 0
    done = machine.course("bench", "--merge", str(path))
    assert done.returncode == 0 and "n=1\\x9b\\u202e" in done.stdout
    assert all(line.isprintable() for line in done.stdout.splitlines())
    report["quick"] = "\x1b[2J"
    path.write_text(json.dumps(report), encoding="utf-8")
    done = machine.course("bench", "--merge", str(path))
    assert done.returncode == 2 and done.stderr[:-1].isprintable() and "'quick' cannot be" in done.stderr


def test_a_folder_in_place_of_a_file_is_one_line(machine: Machine):
    folder = str(machine.root / "scripts")
    for words in (["progress", "--import", folder], ["progress", "--export", folder],
                  ["bench", "--compare", folder, folder], ["bench", "--merge", folder],
                  ["plot", "--no-setup", "--json", folder], ["report", folder]):
        done = machine.course(*words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, (words, done.stderr)
    machine.variables["COURSE_WORKSPACE"] = str(machine.root / "README.md")
    done = machine.course("list")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
