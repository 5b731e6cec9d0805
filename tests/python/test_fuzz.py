"""scripts/fuzz.py with stand-ins for the targets: what it prints, what it keeps, and when it fails; and the
corpora of tests/fuzz/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import fuzz as front_end
import pytest
from conftest import ROOT

SOURCES = ROOT / "tests/fuzz"
TARGETS = sorted(path.stem for path in SOURCES.iterdir() if path.suffix in (".cpp", ".hip"))

GOOD = """#!/bin/sh
echo "$@" >&2
echo "#10	INITED cov: 12 ft: 3" >&2
echo "#2000	DONE   cov: 34 ft: 5" >&2
echo "stat::number_of_executed_units: 2000" >&2
"""
BAD = """#!/bin/sh
for argument; do case $argument in -artifact_prefix=*) prefix=${argument#*=} ;; esac; done
echo input >"${prefix}crash-1"
echo "#7	NEW    cov: 12 ft: 3" >&2
echo "FINDING: does not hold: 1 is 2" >&2
echo "Test unit written to ${prefix}crash-1" >&2
exit 77
"""


@pytest.fixture
def tree(tmp_path):
    """A copy of what the script needs, with stand-ins that find nothing."""
    for name in ("scripts", "tests/fuzz/corpus/npy", "build/cpu-fuzz/fuzz"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "scripts/fuzz.py").write_text((ROOT / "scripts/fuzz.py").read_text())
    (tmp_path / "scripts/course_lib").symlink_to(ROOT / "scripts/course_lib")
    for target in ("npy", "sales"):
        (tmp_path / f"tests/fuzz/{target}.cpp").touch()
        stand_in(tmp_path, target, GOOD)
    return tmp_path


def stand_in(tree: Path, target: str, text: str) -> None:
    path = tree / "build/cpu-fuzz/fuzz" / target
    path.write_text(text)
    path.chmod(0o755)


def fuzz(tree: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(tree / "scripts/fuzz.py"), *arguments], capture_output=True,
                          text=True, timeout=60, check=False, env=os.environ | environment)


def test_a_line_for_each_target_and_one_for_all(tree):
    done = fuzz(tree, "--seconds", "1")
    assert done.returncode == 0, done.stderr
    npy, sales, last = done.stdout.splitlines()
    assert npy.split()[:5] == ["npy", "2,000", "runs", "34", "branches"]
    assert sales.startswith("sales ")
    assert last == "2 targets, 4,000 runs, no finding"


def test_a_finding_fails_and_its_input_is_named(tree):
    stand_in(tree, "sales", BAD)
    done = fuzz(tree, FUZZ_SECONDS="1")
    assert done.returncode == 1
    assert "7 runs" in done.stdout
    assert "FINDING: build/fuzz/sales-crash-1" in done.stdout
    assert "    FINDING: does not hold: 1 is 2" in done.stdout
    assert done.stdout.splitlines()[-1] == "2 targets, 2,007 runs, findings in sales"
    assert (tree / "build/fuzz/sales-crash-1").read_text() == "input\n"


def test_all_processors_share_the_runs_of_a_target(tree):
    done = fuzz(tree, "--runs", "4001", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[:2]] == [["npy", "4,000"], ["sales", "4,000"]]
    assert (tree / "build/fuzz/npy.0.log").is_file() and (tree / "build/fuzz/npy.1.log").is_file()
    assert "runs=2001" in (tree / "build/fuzz/npy.0.log").read_text()
    assert "runs=2000" in (tree / "build/fuzz/npy.1.log").read_text()


def test_a_finding_of_one_process_is_the_targets(tree):
    stand_in(tree, "npy", GOOD + "mkdir ../once 2>/dev/null || exit 77\n")
    done = fuzz(tree, "npy", "--runs", "4000", "--jobs", "2")
    assert done.returncode == 1
    assert re.match(r"npy +4,000 runs .* FINDING: build/fuzz/npy\.[01]\.log\n", done.stdout)


def test_a_target_that_cannot_start_is_a_finding(tree):
    stand_in(tree, "npy", "#!/bin/sh\nexit 1\n")
    done = fuzz(tree, "npy", "--runs", "1")
    assert done.returncode == 1
    assert "FINDING: build/fuzz/npy.log" in done.stdout


@pytest.mark.parametrize("arguments, said", [
    (["none"], "there is no target 'none'"), (["--seconds", "0"], "at least 1"),
    (["--runs", "-1"], "at least 1"), (["--jobs", "0"], "at least 1"), (["--build", "no"], "is not built"),
])
def test_what_cannot_be_asked_for(tree, arguments, said):
    done = fuzz(tree, *arguments)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]


def test_fuzz_seconds_is_a_number(tree):
    done = fuzz(tree, FUZZ_SECONDS="1m")
    assert done.returncode == 2
    assert "FUZZ_SECONDS='1m'" in done.stderr


def test_every_target_has_inputs_to_begin_with():
    assert sorted(path.name for path in (SOURCES / "corpus").iterdir()) == TARGETS
    assert set(front_end.LARGEST_INPUT_OF) <= {*TARGETS}
    for target in TARGETS:
        inputs = list((SOURCES / "corpus" / target).iterdir())
        most = front_end.LARGEST_INPUT_OF.get(target, front_end.LARGEST_INPUT)
        assert inputs and all(path.stat().st_size <= most for path in inputs), target
        # libFuzzer writes into the first folder that it is given, under such names.
        assert not [path for path in inputs if re.fullmatch(r"[0-9a-f]{40}", path.name)], target
    assert {path.stem for path in SOURCES.glob("*.dict")} <= {*TARGETS}
