"""Files that people hand over, changed at random: never a traceback, always exit code 0 or 2 (or 1 with what
`bench --compare` finds worse), and nothing that the learner has reached is lost.

The changes follow from HOSTILE_SEED, which each test prints; by default from the commit, so that a rerun makes
the same and the next commit makes others. HOSTILE_COUNT says how many each test makes: the default takes seconds.

    HOSTILE_SEED=7 HOSTILE_COUNT=20000 python3 -m pytest tests/python/test_hostile_json.py
"""

from __future__ import annotations

import copy
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import mutants
import pytest
import tables
from conftest import REPORT, hostile_seed
from course_lib import commands, exercises, learn, report, steps
from course_lib.commands import plot as plot_command
from course_lib.errors import CourseError
from course_lib.workspace import Progress, Workspace

SEED = hostile_seed()
COUNT = int(os.environ.get("HOSTILE_COUNT") or 100)

DEEP, LONG = "@deep@", "@long@"  # stand for lists in lists and for a number that json.dumps() does not write
VALUES = [None, True, False, 0, 1, 5, -1, 1.5, -0.0, 1e308, -1e308, 5e-324, 1e-30, 1e30, 10 ** 19, 10 ** 30,
          LONG, float("inf"), float("nan"), "", "x", "1", "\ud800", "a" * 300, "\x1b[31m", "\x00", "a\nb",
          "../../x", "a/b.h", "/etc/x.h", "{{runs}}", "</section>", "2^99999x0", "M=2^9999 N=0 K=0 float32",
          "1.1", "7.7", "passed", "2030-01-02\ud80003:04:05", "\u202e", "ok", "copy", [], {}, [[]], [1],
          ["x"], {"": 0}, {"x": {}}, {"a": [{"b": {}}]}, DEEP]
KEYS = ["", "x", "1.1", "99.99", "x.1", "a/b.h", "../b.h", "\ud800", "a" * 300, "\x1b", "schema", "kind",
        "program", "steps", "devices", "error", "PyTorch"]
TEXTS = ["{", "}", "[", "]", '"', ",", ":", "\\", "0", "-", "e", ".", "\n", "\x00", "\ufeff", "null", "NaN",
         "9" * 30, "9" * 5000, "[" * 5000, '{"a":' * 5000, "\\ud800"]


def changed_tree(rng: random.Random, value: object) -> tuple[str, list[tuple]]:
    """The JSON of a value in which one or two places are changed, and these places."""
    whole = [json.loads(json.dumps(value))]  # nothing in it is there twice
    touched = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        places = list(places_of(whole, ()))
        container, key, place = rng.choice(places)
        touched.append(place[1:])
        what = rng.random()
        if what < 0.6:
            container[key] = copy.deepcopy(rng.choice(VALUES))
        elif what < 0.75 and len(place) > 1:
            del container[key]
        elif what < 0.85 and isinstance(container, dict):
            name = rng.choice(KEYS)
            touched.append((*place[1:-1], name))  # what has this name already is replaced
            container[name] = container.pop(key)
        elif what < 0.9 and isinstance(container, list) and len(place) > 1:
            container.append(container[key])
        else:
            container[key] = copy.deepcopy(rng.choice(places)[0])
    text = json.dumps(whole[0]).replace(f'"{DEEP}"', "[" * 3000 + "]" * 3000)
    return text.replace(f'"{LONG}"', "9" * 5000), touched


def places_of(container: list | dict, place: tuple) -> Iterator[tuple]:
    for key, value in container.items() if isinstance(container, dict) else enumerate(container):
        yield container, key, (*place, key)
        if isinstance(value, (dict, list)):
            yield from places_of(value, (*place, key))


def changed_text(rng: random.Random, text: str) -> tuple[bytes, tuple[int, int]]:
    """The text's bytes, changed in one place, and what part of the text that was."""
    data = text.encode()
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice((0, 1, 1, 5, 50)))
    what = rng.random()
    if what < 0.1:
        return data[:begin], (begin, len(data))
    if what < 0.5:
        new = rng.choice(TEXTS).encode()
    elif what < 0.7:
        new = bytes([rng.randrange(256)])
    elif what < 0.8:
        copied = rng.randrange(len(data))
        new = data[copied:copied + 40].replace(b".", b"")  # but no step's number: which one would be right?
    else:
        new = b""
    return data[:begin] + new + data[end:], (begin, end)


def each(value: object) -> Iterator[tuple[int, bytes]]:
    """COUNT changes of a file that holds the value."""
    print(f"HOSTILE_SEED={SEED}")
    text = json.dumps(value, indent=1, sort_keys=True)
    for n in range(COUNT):
        rng = random.Random(f"{SEED} {n}")
        yield n, (changed_tree(rng, value)[0].encode() if rng.random() < 0.7 else changed_text(rng, text)[0])


def outcome(call: Callable[[], object], data: bytes) -> int:
    """The exit code that the call would have; what it refuses it says in one line."""
    try:
        code = call()
    except CourseError as error:
        line, code = str(error), error.code
        assert line and "\n" not in line and len(line) < 500, line
    except Exception as error:
        raise AssertionError(f"HOSTILE_SEED={SEED}: {error!r} of {data[:3000]!r}") from error
    return code if isinstance(code, int) else 0


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """commands.main() sets handlers of its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


# ---- Results -----------------------------------------------------------------------------------

SERIES = {"training": {"columns": ["epoch", "loss", "accuracy"], "rows": [[1, 2.0, 0.5], [2, 1.0, None]]},
          "loss": {"columns": ["epoch", "naive"], "rows": [[1, 2.0], [2, 1.0]]},
          "confusion": {"columns": ["0", "1"], "rows": [[5, 0], [1, 4]]}}
LIBRARIES = {"system": "Linux", "processor": "", "processors": 8, "python": "3.11", "device": "Example GPU",
             "backend": "cuda", "toolkit": "13.0", "torch": "2.11", "torch_toolkit": "13.0", "cudnn": None,
             "numpy": None}
FULL = {**REPORT, "commit": "", "headline": "n=2^28 float32", "dimensions": ["n"], "rounds": 3,
        "environment": LIBRARIES, "series": SERIES, "peer_series": {"PyTorch": {"loss": SERIES["loss"]}}}
MATRICES = {**copy.deepcopy(FULL), "step": "2.3", "program": "gemm", "facts": []}
MATRICES["tables"][0]["problem"] = "NN   M=2^12 N=2^12 K=2^12 float32"
for _row in MATRICES["tables"][0]["rows"]:
    _row.update(rate_unit="operations/s", limit="fma", of_bound=0.5, bytes=1e9, operations=1e12)
RUN = {"schema": 1, "kind": "bench", "date": "2030-01-02T03:04:05Z", "quick": False, "rounds": 3,
       "environment": LIBRARIES, "reports": [FULL, MATRICES],
       "failures": [{"step": "1.2", "program": "axpy", "side": "course", "round": 1, "code": 1, "line": "x"}]}
SET = {"schema": 1, "kind": "bench_set", "runs": [RUN, {**RUN, "environment": {**LIBRARIES, "device": "B"}}]}


@pytest.mark.parametrize("good", [FULL, RUN, SET], ids=["report", "run", "set"])
def test_bench_reads_anything(tmp_path: Path, good: dict, capsys):
    path, other, kept = tmp_path / "x.json", tmp_path / "good.json", tmp_path / "kept"
    other.write_text(json.dumps(RUN))
    codes = set()
    for n, data in each(good):
        path.write_bytes(data)
        words = (["--merge", str(path), "--json", str(tmp_path / "merged.json"), "--save", str(kept)],
                 ["--merge", str(other), str(path)], ["--compare", str(other), str(path)],
                 ["--compare", str(path), str(path)])[n % 4]
        code = outcome(lambda words=words: commands.main(["bench", *words], ""), data)
        out, complaint = capsys.readouterr()
        is_worse = code == 1 and words[0] == "--compare" and "worse than in " in out
        assert code in (0, 2) or is_worse, (SEED, data[:3000])
        assert code == 0 or is_worse or (complaint.count("\n") == 1 and complaint[:-1].isprintable()), complaint
        assert all(line.isprintable() for line in out.splitlines())
        codes.add(code)
    assert {path.name for path in tmp_path.iterdir()} <= {"x.json", "good.json", "merged.json", "kept"}
    assert {0, 2} <= codes


def _draw(jobs: Path, folder: Path) -> None:
    for job in json.loads(jobs.read_text(encoding="utf-8")):
        (folder / f"{job['file']}.svg").write_text(f'<svg width="1pt" height="1pt">{job["identifier"]}</svg>')


@pytest.mark.parametrize("good", [FULL, RUN, SET], ids=["report", "run", "set"])
def test_report_and_plot_read_anything(tmp_path: Path, good: dict):
    path = tmp_path / "x.json"
    codes = set()
    for n, data in each(good):
        path.write_bytes(data)
        code = outcome(lambda: report.write([path], tmp_path / "x.html", _draw), data)
        assert code in (0, 2), (SEED, data[:3000])
        codes.add(code)
        if good is FULL and code == 0:
            assert outcome(lambda: bool(plot_command._has_pictures(path, False)) and 0, data) == 0
    assert codes == {0, 2}


def test_tables_reads_anything(tmp_path: Path, capsys):
    results_of = tmp_path / "results" / "example"
    results_of.mkdir(parents=True)
    readme = "<!-- table: vector_add -->\n<!-- end table -->\n<!-- table: mutants -->\n<!-- end table -->\n"
    counts = {"passing": [{"key": "x"}], "steps": {
        "1.1": {"date": "2030-01-02", "mutants": 9, "uncompiled": 1, "equivalent": 1, "refused": 6}}}
    for n, data in each(counts):
        (tmp_path / "README.md").write_text(readme)
        (results_of / "vector_add.json").write_text(json.dumps(FULL))
        (tmp_path / "results" / "mutants.json").write_bytes(data)
        assert outcome(lambda: tables.main(["--root", str(tmp_path)]), data) in (0, 1)
    (tmp_path / "results" / "mutants.json").write_text(json.dumps(counts))
    (tmp_path / "docs").mkdir()
    vectors = {"onnx": "1.2.3", "missing": {"Abs 13": ["abs"]}, "graphs": ["celu"], "verdicts": {
        "Add 14": {"1.1 vector_add": {"passed": ["add"], "element type": ["add_int8"]}}}}
    for n, data in each(vectors):
        (tmp_path / "docs" / "operators.md").write_text("<!-- table: onnx -->\n<!-- end table -->\n")
        (tmp_path / "results" / "onnx.json").write_bytes(data)
        assert outcome(lambda: tables.main(["--root", str(tmp_path)]), data) in (0, 1)
    (tmp_path / "results" / "onnx.json").write_text(json.dumps(vectors))
    for n, data in each(FULL):
        (results_of / "vector_add.json").write_bytes(data)
        assert outcome(lambda: tables.main(["--root", str(tmp_path)]), data) in (0, 1)
        capsys.readouterr()


def test_verdicts_of_mutants_are_read_whatever_they_hold(tmp_path: Path):
    verdict = {name: "x" for name in ("key", "step", "file", "function", "operator", "before", "after",
                                      "reason", "words")} | {"line": 1, "seconds": 0.5}
    for n, data in each([verdict, {**verdict, "key": "y"}]):
        (tmp_path / "x.json").write_bytes(data)
        assert outcome(lambda: mutants.load_verdicts(tmp_path / "x.json"), data) in (0, 2)


# ---- Progress ----------------------------------------------------------------------------------

DONE = {"state": "passed", "started": "2030-01-02T03:04:05", "passed": "2030-01-02T04:04:05",
        "hints": {"first": 2, "second": 1}, "files": {"versions/a.hip": "0" * 64, "versions/b.hip": "1" * 64},
        "devices": {name: {"ms": 2.0, "date": "2030-01-02T04:04:05", "version": "naive", "of_limit": None,
                           "of_solution": 0.9, "of_vendor": 0.5, "medal": "gold"}
                    for name in ("cpu: A", "cuda: B")}}
BEGUN = {"state": "in progress", "started": "2030-01-02T03:04:05", "hints": {"third": 3}}
REACHED = {"1.1": DONE, "1.2": BEGUN, "2.3": {**DONE, "devices": {}}, "7.7": DONE}


def entries_of(reached: dict) -> Iterator[tuple]:
    """The places of all that a step's record says: of its objects each member."""
    for number, record in reached.items():
        for key, value in record.items():
            if isinstance(value, dict):
                yield from ((number, key, name) for name in value)
            else:
                yield number, key


def at(reached: dict, place: tuple) -> object:
    for key in place:
        reached = reached.get(key, {})
    return reached


def read_back(folder: Path, data: bytes, capsys) -> dict:
    """What a broken progress file is mended to. What is then in the file must need no mending, and the
    file as it was must be kept."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "progress.json").write_bytes(data)
    workspace = Workspace(folder, folder)
    found: list[dict] = []
    assert outcome(lambda: found.append(Progress(workspace).steps), data) == 0
    [reached] = found
    said = capsys.readouterr().err
    assert all(line.isprintable() and line.startswith("course: ") for line in said.splitlines()), said
    kept = [path.read_bytes() for path in folder.glob("*.broken")]
    assert kept == ([data] if said else [])
    assert Progress(workspace).steps == reached and not capsys.readouterr().err
    return reached


def test_progress_loses_no_valid_entry_to_a_wrong_value(tmp_path: Path, capsys):
    print(f"HOSTILE_SEED={SEED}")
    whole = {"schema": 1, "steps": REACHED}
    for n in range(COUNT):
        text, touched = changed_tree(random.Random(f"{SEED} {n}"), whole)
        reached = read_back(tmp_path / "workspace", text.encode(), capsys)
        for place in entries_of(REACHED):
            full = ("steps", *place)
            if not any(full[:len(other)] == other or other[:len(full)] == full for other in touched):
                assert at(reached, place) == at(REACHED, place), (SEED, place, touched, text[:3000])


def test_progress_loses_no_other_step_to_a_broken_text(tmp_path: Path, capsys):
    print(f"HOSTILE_SEED={SEED}")
    text = json.dumps({"schema": 1, "steps": REACHED}, indent=1, sort_keys=True)
    begins = [text.index(f'"{number}"') for number in REACHED]
    for n in range(COUNT):
        data, (begin, end) = changed_text(random.Random(f"{SEED} {n}"), text)
        reached = read_back(tmp_path / "workspace", data, capsys)
        for number, first, last in zip(REACHED, begins, [*begins[1:], len(text)]):
            if end <= first or begin >= last:
                missing = [place for place in entries_of({number: REACHED[number]})
                           if at(reached, place) != at(REACHED, place)]
                assert not missing, (SEED, missing, data)


def test_an_import_loses_nothing(tmp_path: Path, capsys):
    theirs = {"schema": 1, "steps": {**REACHED, "1.2": DONE, "3.1": DONE},
              "files": {"stage1_vector/01_vector_add/versions/naive.hip": "theirs", "a/b.h": "theirs"}}
    codes = set()
    for n, data in each(theirs):
        folder = tmp_path / "workspace" / str(n % 20)
        (folder / "a").mkdir(parents=True, exist_ok=True)
        (folder / "a" / "b.h").write_text("mine")
        (folder / "progress.json").write_text(json.dumps({"schema": 1, "steps": REACHED}))
        (tmp_path / "export").write_bytes(data)
        workspace = Workspace(tmp_path, folder)
        code = outcome(lambda: learn.import_progress(workspace, tmp_path / "export"), data)
        assert code in (0, 2) and (folder / "a" / "b.h").read_text() == "mine"
        codes.add(code)
        capsys.readouterr()
        reached = Progress(workspace).steps
        assert not capsys.readouterr().err, data[:3000]
        for place in entries_of(REACHED):
            before, now = at(REACHED, place), at(reached, place)
            if place[1] == "devices":
                assert now["ms"] <= before["ms"]
            elif place[1] == "hints":
                assert now >= before
            elif place != ("1.2", "state"):  # which may have become "passed"
                assert now == before, (SEED, place, data[:3000])
    assert codes == {0, 2}
    assert [path.name for path in tmp_path.rglob("*.broken")] == []


def test_list_and_progress_show_anything(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path))
    whole = {"schema": 1, "steps": REACHED}
    for n, data in list(each(whole))[::5]:
        (tmp_path / "progress.json").write_bytes(data)
        for words in (["list", "--json", "--backend", "cpu"], ["progress"]):
            assert outcome(lambda words=words: commands.main(words, ""), data) == 0
    capsys.readouterr()


# ---- exercise.toml -----------------------------------------------------------------------------

TOML = """shapes = ["1", "257"]
arguments = []
aligned = true
optimized = false
races = { size = "300" }
[[exercise]]
name = "one"
file = "sum.h"
versions = ["naive"]
owner = { block = "i // 16" }
blank = "return 0;"
hints = ["a", "b", "c"]
[[exercise.mistake]]
name = "one too few"
find = "a + 1"
replace = "a"
"""
TOML_VALUES = ["1", "-1.5", "inf", "true", '"x"', "[]", "[1]", "[[]]", '["x", 1]', "{}", "{ a = 1 }",
               "1979-05-27", "[" * 2000, '"\\u001b"', "''", '"' + "a" * 300 + '"', '"../x"', "{ size = 1 }"]


def test_exercises_are_read_whatever_is_declared(tmp_path: Path):
    print(f"HOSTILE_SEED={SEED}")
    folder = tmp_path / "stage1_vector" / "01_sum"
    folder.mkdir(parents=True)
    (folder / "sum.h").write_text("// exercise: add (about 1 line)\nreturn a + 1;\n// end exercise\n")
    step = steps.Step("1.1", "sum", folder)
    for n in range(COUNT):
        rng = random.Random(f"{SEED} {n}")
        data, _ = changed_text(rng, TOML)
        if rng.random() < 0.6:
            lines = TOML.splitlines()
            line = rng.randrange(len(lines))
            lines[line] = lines[line].split("=")[0] + "= " + rng.choice(TOML_VALUES)
            data = "\n".join(lines).encode()
        (folder / "exercise.toml").write_bytes(data)

        def load() -> None:
            course = exercises.load(step)
            words = (*course.shapes, *course.arguments, *course.versions)
            assert all(isinstance(word, str) for word in words)

        assert outcome(load, data) in (0, 1)
