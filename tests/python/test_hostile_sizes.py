"""Hostile values for --size and the numeric options: exit 0 or 2, one line, and within 2 s.

Reads the programs of COURSE_BUILD_DIR (default build/cpu). HOSTILE_SIZES is how many values of --size
each program gets (default: one each, and those that once crashed); HOSTILE_SEED is the seed
(default: from the commit, so that a rerun asks the same and the next commit asks something else).
"""

from __future__ import annotations

import os
import random
import re
import resource
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COURSE_BUILD_DIR") or ROOT / "build" / "cpu")
COUNT = int(os.environ.get("HOSTILE_SIZES", "1"))
SECONDS = 2
MEMORY = 4 << 30  # of addresses: a size that slips through harms nobody
LARGE = ["2147483647", "2147483648", "4294967296", "2^61", "2^62", "2^63", "18446744073709551615",
         "18446744073709551616", "18446744073709551617"]
WRONG = ["", "0", "-1", "x", "1e3", "\u0661\u0662", "9" * 5000, " ", "1 ", "\t7", "0x10",
         "2^64", "1.5", "\x1b[31m"]
ONCE = [("attention", "--size", "2x2^63x65x24"), ("transformer_block", "--size", "2^32x2^32x24x3"),
        ("train_shakespeare", "--size", "1x2x24x24x2^61"), ("dense_backward", "--size", "2^63x2^63x2^63"),
        ("train_sales", "--size", "2^40"), ("train_shakespeare", "--steps", "1000000000"),
        ("vector_add", "--seed", "\x1b[31m"), ("vector_add", "--repeat", "2^31")]


def programs() -> list[Path]:
    return sorted(path for path in BUILD.glob("stage*/*")
                  if path.is_file() and os.access(path, os.X_OK) and not path.name.endswith("_test"))


def seed() -> str:
    given = os.environ.get("HOSTILE_SEED")
    if given:
        return given
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or "1"


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(program: Path, *arguments: str) -> str:
    """What is wrong with the answer; empty: nothing."""
    try:
        done = subprocess.run([program, "--quick", "--no-limits", *arguments], capture_output=True,
                              text=True, errors="replace", preexec_fn=limit, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} s"
    lines = done.stderr.splitlines()
    if done.returncode == 0 or (done.returncode == 2 and len(lines) == 1 and "\x1b" not in done.stderr):
        return ""
    return f"exit code {done.returncode}: {done.stderr[-200:]!r}"


def usual(program: Path) -> list[str]:
    """The dimensions of --quick; empty: the program has none."""
    text = subprocess.run([program, "--help"], capture_output=True, text=True).stdout
    found = re.search(r"([0-9x^]+)\s+with\s+--quick", text.partition("--size")[2].partition("--seed")[0])
    return found[1].split("x") if found else []


def hostile(chosen: random.Random, dimensions: list[str]) -> str:
    values = list(dimensions)
    kind = chosen.randrange(6)
    if kind == 0:
        return chosen.choice(WRONG)
    if kind == 1:
        return "x".join(values[1:]) if chosen.random() < 0.5 else "x".join([*values, "3"])
    for place in chosen.sample(range(len(values)), chosen.randint(1, len(values))):
        values[place] = chosen.choice(LARGE if kind > 2 else LARGE + WRONG + ["1"])
    return "x".join(values)


@pytest.mark.parametrize("name, option, value", ONCE)
def test_what_once_crashed_is_refused(name: str, option: str, value: str) -> None:
    found = [program for program in programs() if program.name == name]
    if not found:
        pytest.skip(f"{name} is not built")
    assert run(found[0], option, value) == ""


@pytest.mark.skipif(not programs(), reason="no program is built")
def test_hostile_sizes() -> None:
    start = seed()
    print(f"HOSTILE_SEED={start} HOSTILE_SIZES={COUNT}")
    asked, bad = 0, []
    for program in programs():
        dimensions = usual(program)
        if not dimensions:
            continue
        chosen = random.Random(f"{start} {program.name}")
        for _ in range(COUNT):
            value = hostile(chosen, dimensions)
            asked += 1
            wrong = run(program, "--size", value)
            if wrong:
                bad.append(f"{program.name} --size {value[:60]!r}: {wrong}")
    print(f"{asked} values, {len(bad)} wrong answers")
    assert not bad, f"HOSTILE_SEED={start}\n" + "\n".join(bad)


def test_help_into_a_full_disk_fails_in_one_line() -> None:
    found = programs()
    if not found or not Path("/dev/full").exists():
        pytest.skip("no program is built, or no /dev/full")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([found[0], "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1


def test_a_wrong_order_is_one_line() -> None:
    found = [program for program in programs() if program.name == "vector_add"]
    if not found:
        pytest.skip("vector_add is not built")
    done = subprocess.run([found[0], "--quick"], env={**os.environ, "HIP_CPU_ORDER": "x"},
                          capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
