"""Runs a step's own tests with what a learner wrote, and puts what they find into words.

compiling.py makes the program. Its cases carry tags of Catch2: those that take long without optimization
([long]), and those that try the tests themselves, files or programs ([harness]), are left to ctest; so are
those that read NumPy's references ([numpy]). A case ends at its first failure, and the next one begins.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from . import check, process

TIMEOUT = 60.0  # seconds of all cases; kernels are stopped by HIP_CPU_TIMEOUT
# Kernels whose blocks work together have as many blocks as there are multiprocessors.
MULTIPROCESSORS = "4"
LEFT_OUT = "~[numpy]~[long]~[harness]~[.]"


@dataclass(frozen=True)
class Failure:
    """A test case that the learner's files fail."""

    case: str
    place: str  # "dot_test.cpp:71"
    words: str  # what is wrong: "1 of 1 elements out of bound; at [0] got 0, want -4, bound 0"
    version: str = ""  # the row of the program's table, where the case names one
    fault: str = ""  # a key of check.FAULT_WORDS; empty: the case itself says no
    message: str = ""  # the program's own words on the fault
    inputs: str = ""  # what was computed: "n = 257, offset = 1"
    only: str = ""  # the setting, where all is well in another one


def run(program: Path, replace: dict[str, str], setting: check.Setting, versions: list[str],
        seconds: float = TIMEOUT) -> list[Failure]:
    """Every case, with these `versions` (none: all), in a setting of the CPU backend, and at most that many
    seconds. A kernel that leaves its buffers spoils the process: the cases that are left run in another
    one. One that does not end is the last."""
    chosen = {"COURSE_VERSIONS": ",".join(versions)} if versions else {}
    few = {"HIP_CPU_BLOCKS": setting.blocks} if setting.blocks else {}
    variables = {**os.environ, **check.ENVIRONMENT, **chosen, **few, "HIP_CPU_WAVE": setting.wave,
                 "HIP_CPU_ORDER": setting.order, "HIP_CPU_GUARD": setting.guard,
                 "HIP_CPU_MULTIPROCESSORS": MULTIPROCESSORS}
    failures: list[Failure] = []
    done: list[str] = []  # cases
    end = time.monotonic() + seconds
    while True:
        left_out = LEFT_OUT + "".join(f'~"{_escaped(case)}"' for case in done)
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            written = Path(folder) / "cases.xml"
            code, _, complaint = process.limited(
                [str(program), left_out, "-r", "xml", "-o", str(written)],
                max(end - time.monotonic(), 1.0), variables, program.parent)
            text = written.read_text(encoding="utf-8", errors="replace") if written.is_file() else ""
        for made, path in replace.items():
            text, complaint = text.replace(made, path), complaint.replace(made, path)
        report = parse(text)
        fault, message = check.last_words(complaint)
        spoilt = next((f for f in report.failures if f.fault == "error" and fault), None)
        if code is None:
            fault, message = "timeout", f"not at its end after {seconds:.0f} s"
        elif code < 0 or (not report.at_its_end and code != 0):
            fault = fault or "crash"
            message = message or (f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}")
        elif not spoilt:
            return failures + report.failures
        last = spoilt.case if spoilt else report.cases[-1] if report.cases else ""
        # What failed behind the fault failed because of it.
        before = report.cases[:report.cases.index(last)] if last in report.cases else []
        own = next((f for f in report.failures if f.case == last), Failure(last, "", ""))
        failures += [f for f in report.failures if f.case in before]
        failures.append(Failure(own.case, own.place, own.words if not spoilt else "", own.version, fault,
                                message.removeprefix("cpu backend: "), own.inputs))
        if fault in check.ENDLESS or not last or last in done or time.monotonic() > end:
            return failures
        done += [*before, last]


def words_of(failure: Failure) -> str:
    """A failure in a line."""
    what = f"the step's test '{failure.case}'" if failure.case else "the step's test"
    what += " stops" if failure.fault else " fails"
    if failure.version:
        what += f" for {failure.version}"
    if failure.inputs:
        what += f" at {failure.inputs}"
    if failure.place:
        what += f" ({failure.place})"
    if failure.only:
        what += f", only with {failure.only}"
    because = failure.message.splitlines()[0] if failure.fault and failure.message else failure.words
    return f"{what}: {because}" if because else what


# ---- What Catch2 reports -----------------------------------------------------------------------

VERSION = re.compile(r'^(?:\w+(?:\.|->))?name := "(.*)"$', re.DOTALL)
WORST = re.compile(r'^worst_element := "(.*)"$', re.DOTALL)
FAILURES = ("Exception", "FatalErrorCondition", "Failure")
DEVICE_ERROR = re.compile(r": hipError\w+ \(")


@dataclass(frozen=True)
class Report:
    cases: list[str]  # in the order in which they began
    failures: list[Failure]  # the first of each case
    at_its_end: bool  # not cut short


def parse(text: str) -> Report:
    """The XML of Catch2, version 2 or 3, as far as it goes."""
    reader = ElementTree.XMLPullParser(("start", "end"))
    cases: list[str] = []
    failures: dict[str, Failure] = {}
    seen: list[str] = []  # the case's variables so far
    at_its_end = in_expression = False
    try:
        reader.feed(text)
        for event, element in reader.read_events():
            if event == "start" and element.tag == "TestCase":
                cases.append(element.get("name", ""))
                seen = []
            elif element.tag == "Expression" and event == "start":
                in_expression = True
            elif event == "end" and element.tag in ("Info", "Warning"):
                seen.append(_plain(element.text))
            elif event == "end" and (element.tag == "Expression"
                                     or element.tag in FAILURES and not in_expression):
                in_expression = False
                if element.get("success") != "true" and cases and cases[-1] not in failures:
                    failures[cases[-1]] = _failure(cases[-1], element, seen)
                seen = []
            elif event == "end" and element.tag in ("Catch", "Catch2TestRun"):
                at_its_end = True
    except ElementTree.ParseError:  # cut short in the middle of a name
        pass
    return Report(cases, list(failures.values()), at_its_end)


def _failure(case: str, element: ElementTree.Element, seen: list[str]) -> Failure:
    version, inputs, words = "", [], []
    for line in seen:
        named, worst = VERSION.match(line), WORST.match(line)
        if named:
            version = version or named[1]
        elif worst:
            words.append(worst[1].replace(" 0 never written;", "", 1).replace("bound, at", "bound; at", 1))
        elif " := " in line:
            name, _, value = line.partition(" := ")
            inputs.append(f"{name} = " + re.sub(r" \(0x[0-9a-f]+\)$", "", value))
        else:
            words.append(line)
    if element.tag == "Expression":
        original, expanded = (_plain(element.findtext(tag)) for tag in ("Original", "Expanded"))
        thrown = _plain(element.findtext("Exception") or element.findtext("FatalErrorCondition"))
        if thrown:
            words.append(f"{original} ends with {thrown}")
        elif original != "required_comparison.ok":
            words.append(f"{original} does not hold"
                         + (f": {expanded}" if expanded not in (original, "false", "true") else ""))
    else:
        words.append(_plain(element.text))
    text = "; ".join(word for word in words if word)
    fault = "error" if DEVICE_ERROR.search(text) else ""
    place = f"{Path(element.get('filename', '')).name}:{element.get('line', '')}"
    return Failure(case, place, text, version, fault, "", ", ".join(inputs))


def _plain(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip()


def _escaped(case: str) -> str:
    """In a filter of Catch2, which takes a comma for its end even in quotes."""
    return re.sub(r'([\\",\[\]])', r"\\\1", case)
