"""scripts/course: steps, packages, backends, set-up, and every way in which these go wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import ROOT, Machine
from course_lib import process, python_env, results, steps
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
    assert f" -n {min(process.cpu_count(), 8)} --dist loadfile --max-worker-restart 0 " in calls[pytest_call]
    assert "--output-on-failure" in calls[ctest]
    assert f"-DPython3_EXECUTABLE={machine.root}/.venv/bin/python3" in "\n".join(calls)


def test_pytest_alone_runs_one_test_after_the_other(machine: Machine):
    machine.fake("python3", 'case "$*" in *xdist*) exit 1 ;; esac', machine.root / ".venv" / "bin")
    assert machine.course("test", "--no-setup").returncode == 0
    pytest_call = next(call for call in machine.calls() if call.startswith("python3 -m pytest"))
    assert " -n " not in pytest_call


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
