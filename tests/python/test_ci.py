""".ci/run, which installs the packages of the distribution before everything else: with stand-ins for dpkg-query,
apt-get, id and sudo."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from conftest import ROOT, Machine

# Like dpkg's: a line for each name that it knows, and 1 where it does not know one.
DPKG_QUERY = """
code=0
while [ $# -gt 0 ]; do
  case "$1" in
    -W) ;;
    -f) shift ;;
    removed-*) echo config-files ;;
    unknown-*) echo "dpkg-query: no packages found matching $1" >&2; code=1 ;;
    *) echo installed ;;
  esac
  shift
done
exit $code
"""


@pytest.fixture
def packages(machine: Machine):
    """Runs the suite `packages` with a list of packages, as root or not."""
    (machine.root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", machine.root / ".ci" / "run")
    machine.fake("dpkg-query", DPKG_QUERY)

    def run(names: str, user: int = 0) -> subprocess.CompletedProcess:
        groups = f"base: {names}\ncpu:\ncuda:\nhip:\nci: git\n"
        (machine.root / "scripts" / "packages.txt").write_text(groups, encoding="utf-8")
        machine.fake("id", f"echo {user}")
        variables = {**machine.environment(), "PATH": f"{machine.fakes}:{os.environ['PATH']}"}
        return subprocess.run([machine.root / ".ci" / "run", "packages"], env=variables, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=60)

    return run


def apt_calls(machine: Machine) -> list[str]:
    return [call for call in machine.calls() if call.startswith("apt-get")]


@pytest.mark.parametrize("missing", ["unknown-here", "removed-here"])
@pytest.mark.parametrize("user", [0, 1000])
def test_missing_packages_are_installed(machine: Machine, packages, missing: str, user: int):
    done = packages(f"cmake {missing} g++", user)
    assert done.returncode == 0, done.stdout + done.stderr
    update, install = apt_calls(machine)
    assert update.endswith(" update")
    assert install.endswith(f" install --no-install-recommends cmake {missing} g++ git")
    assert [call for call in machine.calls() if call.startswith("sudo")] == (
        [f"sudo {call}" for call in (update, install)] if user else [])


def test_nothing_is_installed_where_nothing_is_missing(machine: Machine, packages):
    done = packages("cmake g++")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not apt_calls(machine)


@pytest.mark.parametrize("failing", ["update", "install"])
def test_an_apt_get_that_fails_is_a_failed_suite(machine: Machine, packages, failing: str):
    machine.fake("apt-get", f'case "$*" in *{failing}*) echo "E: no network"; exit 100 ;; esac')
    done = packages("unknown-here")
    assert done.returncode == 1
    assert "== packages FAILED" in done.stdout
    assert "E: no network" in done.stdout
    assert done.stderr == ""
