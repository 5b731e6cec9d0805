"""`course run 8.2 --mine`: the plug-in libcourse_mine.so has the learner's files, libcourse_own.so the
repository's, and one process can load both."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import built_by
from course_lib.build import Build
from course_lib.own_programs import MINE, OWN, OwnPrograms

PLUGIN = """template <class T> void launch_first(T* out);
void launch_second(float* out);
extern "C" __attribute__((visibility("default"))) const char* name() { return COURSE_OWN_NAME; }
extern "C" __attribute__((visibility("default"))) float sum() {
  float first = 0, second = 0;
  launch_first(&first), launch_second(&second);
  return first + second;
}
"""
# A launcher that is a template, as most are, one that is none, and one that the plug-in does not call.
FIRST = """inline float shared() { static float value = 1; return value; }
template <class T> void launch_first(T* out) { *out = shared(); }
template void launch_first<float>(float* out);
"""
SECOND = """inline float shared() { static float value = 1; return value; }
void launch_second(float* out) { *out = 9 + shared(); }
"""
UNUSED = """inline float shared() { static float value = 1; return value; }
void launch_unused(float* out) { *out = shared(); }
"""
VERSIONS = Path("stage1_vector/01_sum/versions")


@pytest.fixture
def build(tmp_path: Path, monkeypatch) -> Build:
    """A plug-in of three versions, compiled as CMake does it, and a ninja that knows the commands."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None or shutil.which("nm") is None or shutil.which("ar") is None:
        pytest.skip("no C++ compiler here")
    root, made = tmp_path / "course", tmp_path / "build" / "cpu"
    texts = {"own/plugin.cpp": PLUGIN, VERSIONS / "first.hip": FIRST, VERSIONS / "second.hip": SECOND,
             VERSIONS / "unused.hip": UNUSED}
    commands = []
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        made_object = f"CMakeFiles/{name}.o"
        (made / made_object).parent.mkdir(parents=True, exist_ok=True)
        definition = '-DCOURSE_OWN_NAME=\\"own\\" -fvisibility=hidden ' if "own" in str(name) else ""
        commands.append(f"{compiler} {definition}-x c++ -fPIC -MD -MT {made_object} -MF {made_object}.d "
                        f"-o {made_object} -c {root / name}")
    objects = " ".join(f"CMakeFiles/{name}.o" for name in list(texts)[1:])
    commands += [f": && ar qc libstep_sum.a {objects} && :",
                 f": && {compiler} -shared -Wl,--exclude-libs,ALL -o {OWN} CMakeFiles/own/plugin.cpp.o  "
                 "libstep_sum.a && :"]
    (made / OWN).parent.mkdir()
    return built_by(commands, root, made, tmp_path, monkeypatch)


def planned(build: Build, files: dict[str, str]) -> tuple[list[str], list[str]]:
    """The files that the plug-in takes of a learner's, and the commands that make it, which have run."""
    mine = build.folder.parent / "mine"
    for name, text in files.items():
        (mine / VERSIONS).mkdir(parents=True, exist_ok=True)
        (mine / VERSIONS / name).write_text(text)
    programs = OwnPrograms(build, mine, [VERSIONS / name for name in files], build.folder.parent / "cpu-mine")
    taken = [path.name for path in programs.add_plugin()]
    commands = [re.search("words = (.*)", rule)[1] for rule in programs._rules.values()]
    for command in commands:
        words = command.replace("$$", "$")
        for made in re.findall(r"-o (\S+)", words):
            (build.folder / made).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["sh", "-c", words], cwd=build.folder, check=True)
    return taken, commands


def answers(path: Path) -> tuple[bytes, float]:
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    library.name.restype, library.sum.restype = ctypes.c_char_p, ctypes.c_float
    return library.name(), library.sum()


@pytest.mark.parametrize(("name", "text", "total"), [("first.hip", FIRST.replace("*out = ", "*out = 100 + "), 111),
                                                     ("second.hip", SECOND.replace("9", "200"), 202)])
def test_both_plugins_stand_beside_each_other(build: Build, name: str, text: str, total: float):
    taken, commands = planned(build, {name: text, "unused.hip": UNUSED})
    assert taken == [name]
    assert len(commands) == 3  # this file, the table's, and the plug-in: nothing else is made anew
    assert answers(build.folder / OWN) == (b"own", 11)
    assert answers(build.folder / MINE) == (b"mine", total)
    assert answers(build.folder / OWN) == (b"own", 11)


def test_what_the_plugin_does_not_call_makes_none_and_an_old_one_goes(build: Build):
    (build.folder / MINE).write_text("of yesterday")
    assert planned(build, {"unused.hip": UNUSED}) == ([], [])
    assert not (build.folder / MINE).exists()
