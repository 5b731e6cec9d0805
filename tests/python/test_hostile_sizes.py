"""Hostile values for --size and every other option: exit 0 or 2, one line, and within 2 s.

Starts the programs of $COURSE_BUILD_DIR/cpu (default build/cpu). HOSTILE_SIZES is how many values of --size
each program gets, and each of its other options (default: one each, and those that once crashed);
HOSTILE_SEED is the seed (default: from the commit, so that a rerun asks the same and the next commit asks
something else):

    HOSTILE_SIZES=200 .venv/bin/python -m pytest -s tests/python/test_hostile_sizes.py
"""

from __future__ import annotations

import os
import random
import re
import resource
import subprocess
from pathlib import Path

import pytest
from conftest import build_folder, hostile_seed

COUNT = int(os.environ.get("HOSTILE_SIZES", "1"))
SECONDS = 2
# With MNIST a program trains on all images where it is asked for more of them: that is no refusal, and takes long.
NO_DATA = {**os.environ, "COURSE_DATA": "/no/such/folder"}
MEMORY = 4 << 30  # of addresses: a size that slips through harms nobody
LARGE = ["2147483647", "2147483648", "4294967296", "2^61", "2^62", "2^63", "18446744073709551615",
         "18446744073709551616", "18446744073709551617"]
WRONG = ["", "0", "-1", "x", "1e3", "\u0661\u0662", "9" * 5000, " ", "1 ", "\t7", "0x10",
         "2^64", "1.5", "\x1b[31m"]
# What no number and no choice may be, and what no file or folder may be, to be read or to be written.
NO_NUMBER = ["", "x", "-1", "nan", "inf", " 1", "1 ", "\t7", "0x10", "9" * 5000, "1e999", "-0.5", "1,5", "1\n2",
             "\u0661\u0662", "\x1b[31m", "\u202e1", "--"]
NO_FILE = ["", ".", "/", "/dev/null", "/dev/zero", "none/none", "/proc/none", "x" * 300, "x" * 5000, "a/\x1b[2J/b"]
OPTION = re.compile(r"^ +(--[a-z-]+) (NUMBER|TEXT|FILE\S*|DIR|\S+[|]\S+|1\.\.8)", re.MULTILINE)
ONCE = [("attention", "--size", "2x2^63x65x24"), ("transformer_block", "--size", "2^32x2^32x24x3"),
        ("train_shakespeare", "--size", "1x2x24x24x2^61"), ("dense_backward", "--size", "2^63x2^63x2^63"),
        ("transformer_block", "--size", "1x2x1024x1"), ("train_shakespeare", "--size", "1x1x1024x8x1"),
        ("train_cnn", "--size", "2^35x2^21"), ("train_mnist", "--size", "2^35x2^21"),
        ("train_sales", "--size", "2^40"), ("train_shakespeare", "--steps", "1000000000"),
        ("vector_add", "--seed", "\x1b[31m"), ("vector_add", "--repeat", "2^31")]


def programs() -> list[Path]:
    return sorted(path for path in build_folder().glob("stage*/*")
                  if path.is_file() and os.access(path, os.X_OK) and not path.name.endswith("_test"))


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(program: Path, *arguments: str, refused: bool = False) -> str:
    """What is wrong with the answer, which must be a refusal where that is asked for; empty: nothing."""
    try:
        done = subprocess.run([program, "--quick", "--no-limits", *arguments], capture_output=True,
                              text=True, errors="replace", preexec_fn=limit, timeout=SECONDS, env=NO_DATA)
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} s"
    is_one_line = done.stderr.endswith("\n") and done.stderr[:-1].isprintable()
    if (done.returncode == 0 and not refused) or (done.returncode == 2 and is_one_line):
        return ""
    return f"exit code {done.returncode}: {done.stderr[-200:]!r}"


def help_of(program: Path) -> str:
    return subprocess.run([program, "--help"], capture_output=True, text=True).stdout


def usual(program: Path) -> tuple[list[str], int]:
    """The dimensions of --quick, none where the program has none, and how many of them are extents: the rest,
    a stride and a padding, take no memory."""
    size = help_of(program).partition("--size")[2].partition("--seed")[0]
    found = re.search(r"([0-9x^]+)\s+with\s+--quick", size)
    values = found[1].split("x") if found else []
    return values, len(values) - 2 * size.split()[0].endswith("xstridexpad") if values else 0


def hostile(chosen: random.Random, dimensions: list[str], extents: int) -> str:
    values = list(dimensions)
    kind = chosen.randrange(7)
    if kind == 0:
        return chosen.choice(WRONG)
    if kind == 1:
        return "x".join(values[1:]) if chosen.random() < 0.5 else "x".join([*values, "3"])
    if kind == 6:  # a product that is just allowed: what a program makes of it must not wrap
        values = ["1"] * len(values)
        in_all, first = chosen.choice((55, 56)), chosen.randint(20, 36)
        exponents = [in_all] if extents == 1 else [first, in_all - first]
        for place, exponent in zip(chosen.sample(range(extents), len(exponents)), exponents):
            values[place] = f"2^{exponent}"
        return "x".join(values)
    for place in chosen.sample(range(len(values)), chosen.randint(1, len(values))):
        values[place] = chosen.choice(LARGE if kind > 2 else LARGE + WRONG)
    return "x".join(values)


def test_what_does_not_end_is_no_answer(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nwhile :; do :; done\n", encoding="utf-8")
    program.chmod(0o755)
    assert run(program) == f"no answer within {SECONDS} s"


@pytest.mark.parametrize("name, option, value", ONCE)
def test_what_once_crashed_is_refused(name: str, option: str, value: str) -> None:
    found = [program for program in programs() if program.name == name]
    if not found:
        pytest.skip(f"{name} is not built")
    assert run(found[0], option, value) == ""


@pytest.mark.skipif(not programs(), reason="no program is built")
def test_hostile_sizes() -> None:
    start = hostile_seed()
    print(f"HOSTILE_SEED={start} HOSTILE_SIZES={COUNT}")
    asked, bad = 0, []
    for program in programs():
        dimensions, extents = usual(program)
        if not dimensions:
            continue
        chosen = random.Random(f"{start} {program.name}")
        for _ in range(COUNT):
            value = hostile(chosen, dimensions, extents)
            asked += 1
            wrong = run(program, "--size", value)
            if wrong:
                bad.append(f"{program.name} --size {value[:60]!r}: {wrong}")
    print(f"{asked} values, {len(bad)} wrong answers")
    assert not bad, f"HOSTILE_SEED={start}\n" + "\n".join(bad)


@pytest.mark.skipif(not programs(), reason="no program is built")
def test_hostile_options(tmp_path: Path) -> None:
    """Each option that takes a value refuses what can't be one, before the program does anything."""
    start, asked, bad = hostile_seed(), 0, []
    for program in programs():
        chosen = random.Random(f"{start} {program.name} options")
        options = OPTION.findall(help_of(program))
        assert options, f"{program.name} --help lists no options that take a value"
        for option, kind in options:
            wrong = NO_FILE if kind.startswith(("FILE", "DIR")) else NO_NUMBER
            if option == "--json":  # it writes to a device or a pipe as it is
                wrong = [value for value in wrong if not value.startswith("/dev/")]
            if option == "--data":  # any folder may be one that has the data
                wrong = [value for value in wrong if value not in (".", "/")]
            if kind == "TEXT":
                wrong = ["", "\x1b[31m", "\xff"]
            for value in chosen.sample(wrong, min(COUNT, len(wrong))):
                with_it = ["--checkpoint", str(tmp_path / "none")] if option == "--generate" else []
                asked += 1
                complaint = run(program, option, value, *with_it, refused=True)
                if complaint:
                    bad.append(f"{program.name} {option} {value[:60]!r}: {complaint}")
    print(f"{asked} values, {len(bad)} wrong answers")
    assert not bad, f"HOSTILE_SEED={start}\n" + "\n".join(bad)


def test_help_into_a_full_disk_fails_in_one_line() -> None:
    found = programs()
    if not found or not Path("/dev/full").exists():
        pytest.skip("no program is built, or no /dev/full")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([found[0], "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("order", ["x", "random:", "random:-1", "random: 1", "random:18446744073709551616"])
def test_a_wrong_order_is_one_line(order: str) -> None:
    found = [program for program in programs() if program.name == "vector_add"]
    if not found:
        pytest.skip("vector_add is not built")
    done = subprocess.run([found[0], "--quick"], env={**os.environ, "HIP_CPU_ORDER": order},
                          capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
