"""The images of containers/ and the devcontainer, as far as can be told without Docker: .github/workflows/containers.yml
builds them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from course_lib import commands, packages, place

IMAGES = sorted((ROOT / "containers").glob("*.Dockerfile"))
NAMES = ROOT / "scripts" / "package_names.sh"


def instructions(image: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, in order, each in one line."""
    text = re.sub(r"^#.*\n", "", image.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", "")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


def of_kind(image: Path, kind: str) -> list[str]:
    return [rest for word, rest in instructions(image) if word == kind]


def test_there_are_three():
    assert [image.stem for image in IMAGES] == ["cpu", "cuda", "rocm"]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_base_images_are_pinned(image: Path):
    stages: set[str] = set()
    for line in of_kind(image, "FROM"):
        name, *rest = line.split()
        if name not in stages:
            _, colon, tag = name.partition(":")
            assert colon and re.search(r"\d+\.\d+\.\d+|\d{8}|@sha256:", tag), f"{name} is not pinned"
        stages |= set(rest[1:])
    assert stages <= {"tools"}


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_packages_are_named_in_one_list(image: Path):
    groups = packages.read_packages(ROOT / "scripts" / "packages.txt")
    installs = re.findall(r"apt-get install ([^&|]*)", " && ".join(of_kind(image, "RUN")))
    assert len(installs) == 1
    found = re.fullmatch(r"-y --no-install-recommends \$\(/tmp/packages/package_names\.sh ([a-z ]+)\)", installs[0].strip())
    assert found, f"'{installs[0]}' names packages itself"
    assert {"base", "cpu", "container"} == set(found[1].split()) <= set(groups)
    text = image.read_text(encoding="utf-8")
    known = {name for names in groups.values() for name in names} - {"cmake", "g++", "python3", "git"}
    assert not [name for name in known if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_what_is_copied_and_run_is_there(image: Path):
    for line in of_kind(image, "COPY"):
        *sources, _ = [word for word in line.split() if not word.startswith("--")]
        assert all((ROOT / source).exists() for source in sources), line
    assert json.loads(of_kind(image, "ENTRYPOINT")[-1]) == ["scripts/course"]


def test_what_the_images_do_is_understood():
    """Their default commands, and those of their comments, are the course's own."""
    for image in IMAGES:
        options = commands._parse(json.loads(of_kind(image, "CMD")[-1]), "")
        assert options.no_setup and not options.steps
        assert options.backend == {"cpu": "auto", "cuda": "cuda", "rocm": "hip"}[image.stem]
        run = [line for line in image.read_text(encoding="utf-8").splitlines()
               if re.search(rf"course-{image.stem} (start|watch)", line)]
        assert all(commands._parse(line.rpartition(f"course-{image.stem} ")[2].split(), "") for line in run)
        assert f"docker build -t course-{image.stem} -f containers/{image.name} ." in image.read_text(encoding="utf-8")


def test_an_image_that_was_built_elsewhere_runs_here():
    [build] = [line for line in of_kind(ROOT / "containers" / "cpu.Dockerfile", "RUN") if "cmake --preset" in line]
    preset = re.search(r"cmake --preset (\S+) (.*?)&&", build)
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
    assert preset[1] in {one["name"] for one in presets} and "-DCOURSE_NATIVE=OFF" in preset[2].split()
    for option in re.findall(r"-D(\w+)=", preset[2]):
        assert any(f"({option} " in (ROOT / file).read_text(encoding="utf-8")
                   for file in ("CMakeLists.txt", "cmake/targets.cmake")), option


def test_what_is_made_here_stays_out_of_the_images():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {"build", ".venv", "workspace", "data", ".git"} <= set(ignored)
    assert not {"scripts", "containers", "results"} & set(ignored)


def test_the_devcontainer_has_the_tools_alone():
    folder = ROOT / ".devcontainer"
    contents = json.loads((folder / "devcontainer.json").read_text(encoding="utf-8"))
    image = (folder / contents["build"]["dockerfile"]).resolve()
    assert image == ROOT / "containers" / "cpu.Dockerfile" and (folder / contents["build"]["context"]).resolve() == ROOT
    assert f"AS {contents['build']['target']}" in "\n".join(of_kind(image, "FROM"))
    assert any(f" {contents['remoteUser']}" in line for line in of_kind(image, "RUN") if "useradd" in line)
    assert commands._parse(contents["postCreateCommand"].split()[1:], "")


def test_the_workflow_builds_every_image_and_looks_at_the_table():
    text = (ROOT / ".github" / "workflows" / "containers.yml").read_text(encoding="utf-8")
    assert "-f containers/cpu.Dockerfile ." in text and "docker run --rm course-cpu | tee table.txt" in text
    [others] = re.findall(r"image: \[(.*)\]", text)
    assert sorted(["cpu", *others.split(", ")]) == [image.stem for image in IMAGES]
    assert place.CONTAINER.split(" && ")[0] in (ROOT / "containers" / "cpu.Dockerfile").read_text(encoding="utf-8")


def test_the_shell_reads_the_list_as_python_does():
    for group, names in packages.read_packages(ROOT / "scripts" / "packages.txt").items():
        assert subprocess.run([NAMES, group], capture_output=True, text=True, check=True).stdout.split() == names
    done = subprocess.run([NAMES, "base", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == "package_names.sh: packages.txt has no group 'nothing'\n"
