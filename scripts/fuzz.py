#!/usr/bin/env python3
"""Feeds the readers of files, texts and options with inputs that libFuzzer makes up.

    scripts/fuzz.py [TARGET...] [--build build/cpu-fuzz] [--seconds 60 | --runs 10000000] [--jobs N]

The targets are those of tests/fuzz/, built by `cmake --preset cpu-fuzz && cmake --build --preset cpu-fuzz`.
Each runs for so many seconds ($FUZZ_SECONDS, else 60), as many targets at a time as there are processors; or
for so many inputs, which all processors share, one target after the other. It begins with the inputs of
tests/fuzz/corpus/TARGET and of build/fuzz/corpus/TARGET, where it keeps what reaches new code.

Prints a line for each target, and exits 1 if one has a finding: a crash, a sanitizer's report, a property
that does not hold, or an input that takes longer than 5 s or more than 1 GB. The input then lies in
build/fuzz/, and

    build/cpu-fuzz/fuzz/TARGET build/fuzz/TARGET-crash-...

shows the finding again.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from course_lib.arguments import Parser

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tests/fuzz"
OUT = ROOT / "build/fuzz"

# Bytes. Longer inputs are slower and reach nothing else: a name of a file has 255, what printable() does with a
# character depends on no other, and a few hundred bytes hold each option once, or each kind of a wrong line.
LARGEST_INPUT = 4096
LARGEST_INPUT_OF = {"idx": 1024, "npy": 1024, "options": 512, "output_file": 256, "printable": 128,
                    "sales": 1024, "shakespeare_text": 512, "vocabulary": 1024}
SECONDS_PER_INPUT, MEGABYTES = 5, 1024
SECONDS_BETWEEN_LOOKS = 10  # at what other processes have found of the same target
LEAST_RUNS = 1000  # that are worth a process
FINDING_LINES = 16  # of its log

# AddressSanitizer keeps freed memory to see who still uses it: what one input frees is much less than this.
ASAN_OPTIONS = "quarantine_size_mb=16:malloc_context_size=1"


def target_names() -> list[str]:
    return sorted(path.stem for path in SOURCES.iterdir() if path.suffix in (".cpp", ".hip"))


@dataclass
class Result:
    """Of a target, or of one process that has done a part of its runs."""

    target: str
    runs: int
    coverage: int
    begin: float
    end: float
    input: Path | None  # of the finding
    log: Path
    failed: bool


running: set[subprocess.Popen] = set()


def last_number(pattern: str, log: str) -> int:
    found = re.findall(pattern, log)
    return int(found[-1]) if found else 0


def fuzz(target: str, part: str, build: Path, limit: str, work: Path) -> Result:
    """Runs the target until `limit`, an option of libFuzzer's, in a folder of its own. `part` tells processes
    of one target apart."""
    corpus, log = OUT / "corpus" / target, OUT / f"{target}{part}.log"
    corpus.mkdir(parents=True, exist_ok=True)
    folder = work / f"{target}{part}"  # where the target keeps the files that a reader reads
    folder.mkdir()
    command = [str(build / "fuzz" / target), limit,
               f"-max_len={LARGEST_INPUT_OF.get(target, LARGEST_INPUT)}", f"-timeout={SECONDS_PER_INPUT}",
               f"-rss_limit_mb={MEGABYTES}", f"-reload={SECONDS_BETWEEN_LOOKS}",
               f"-artifact_prefix={OUT}/{target}-", "-print_final_stats=1",
               "-close_fd_mask=1"]  # not what --help prints
    command += [str(corpus), str(SOURCES / "corpus" / target)]
    dictionary = SOURCES / f"{target}.dict"
    if dictionary.is_file():
        command.append(f"-dict={dictionary}")
    begin = time.monotonic()
    with log.open("wb") as out:
        environment = os.environ | {"TMPDIR": str(folder), "ASAN_OPTIONS": ASAN_OPTIONS}
        process = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=out)
        running.add(process)
        code = process.wait()
        running.remove(process)
    text = log.read_text(encoding="utf-8", errors="replace")
    kept = re.findall(r"Test unit written to (.+)", text)
    runs = last_number(r"stat::number_of_executed_units: (\d+)", text) or last_number(r"(?m)^#(\d+)\t", text)
    return Result(target, runs, last_number(r"\bcov: (\d+)", text), begin, time.monotonic(),
                  Path(kept[-1]) if kept else None, log, code != 0)


def together(parts: list[Result]) -> Result:
    worst = next((part for part in parts if part.failed), parts[0])
    return Result(worst.target, sum(part.runs for part in parts), max(part.coverage for part in parts),
                  min(part.begin for part in parts), max(part.end for part in parts),
                  worst.input, worst.log, worst.failed)


def limits(given: argparse.Namespace) -> list[str]:
    """What ends the processes of a target, an option of libFuzzer's for each."""
    if not given.runs:
        return [f"-max_total_time={given.seconds}"]
    parts = min(given.jobs, max(1, given.runs // LEAST_RUNS))
    return [f"-runs={given.runs // parts + (part < given.runs % parts)}" for part in range(parts)]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def report(result: Result) -> None:
    line = (f"{result.target:<24}{result.runs:>12,} runs  {result.coverage:>6,} branches"
            f"  {result.end - result.begin:>6.0f} s")
    if not result.failed:
        print(line, flush=True)
        return
    print(f"{line}  FINDING: {shown(result.input or result.log)}", flush=True)
    lines = result.log.read_text(encoding="utf-8", errors="replace").splitlines()
    is_first = re.compile(r"FINDING:|ERROR:|runtime error:|terminate called")
    first = next((number for number, text in enumerate(lines) if is_first.search(text)), -FINDING_LINES)
    print("\n".join(f"    {text}" for text in lines[first:][:FINDING_LINES]), flush=True)


def arguments() -> argparse.Namespace:
    parser = Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(target_names())}; all")
    parser.add_argument("--build", type=Path, default=ROOT / "build/cpu-fuzz", metavar="FOLDER")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--seconds", type=int, metavar="N", help="for each target ($FUZZ_SECONDS, else 60)")
    limit.add_argument("--runs", type=int, metavar="N", help="inputs for each target, however long they take")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="processes at a time (as many as there are processors)")
    given = parser.parse_args()
    if given.seconds is None:
        seconds = os.environ.get("FUZZ_SECONDS") or "60"
        if not seconds.isascii() or not seconds.isdigit():
            parser.error(f"FUZZ_SECONDS={seconds!r} is no number of seconds")
        given.seconds = int(seconds)
    for name in ("seconds", "runs", "jobs"):  # libFuzzer takes 0 for no limit
        if getattr(given, name) is not None and getattr(given, name) < 1:
            parser.error(f"the number of {name} must be at least 1")
    for target in given.targets:
        if target not in target_names():
            parser.error(f"there is no target {target!r}: choose from {', '.join(target_names())}")
    given.targets = given.targets or target_names()
    for target in given.targets:
        program = given.build / "fuzz" / target
        if not program.is_file():
            parser.error(f"{shown(program)} is not built: cmake --build --preset cpu-fuzz")
    return given


def main() -> int:
    given = arguments()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    OUT.mkdir(parents=True, exist_ok=True)
    build, results = given.build.resolve(), []
    with tempfile.TemporaryDirectory(prefix="course-fuzz-", dir=memory) as work, \
            ThreadPoolExecutor(given.jobs) as pool:
        pending: list[list[Future[Result]]] = []
        for target in given.targets:
            all_limits = limits(given)
            pending.append([
                pool.submit(fuzz, target, f".{part}" if len(all_limits) > 1 else "", build, limit, Path(work))
                for part, limit in enumerate(all_limits)])
        try:
            for parts in pending:
                results.append(together([part.result() for part in parts]))
                report(results[-1])
        except KeyboardInterrupt:  # or SIGTERM
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                process.kill()
            return 130
    findings = [result for result in results if result.failed]
    runs = sum(result.runs for result in results)
    print(f"{len(results)} targets, {runs:,} runs,",
          f"findings in {', '.join(f.target for f in findings)}" if findings else "no finding")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
