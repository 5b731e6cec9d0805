"""`scripts/course run --save-results`: what this device has reached, as files of results/<device>/ that its owner can
contribute."""

from __future__ import annotations

import os
import re
from pathlib import Path

from . import bench, bench_file, results, slower
from .terminal import say, warn


def device_folder(device: tuple[str, str], folder: Path) -> Path:
    """Where `folder`, results/, has or will have the results of a device, which is its name and its backend: one
    that has some already keeps its folder. A new one is named by the letters and digits of the device's name."""
    for one in slower.device_folders(folder):
        if slower.device_of(bench_file.load_for_user(one)[0]) == device:
            return one
    name = re.sub("[^a-z0-9]+", "-", re.sub(r"\((?:r|tm)\)", "", device[0].lower())).strip("-")[:80] or "device"
    name = name if device[1] != "cpu" or name.startswith("cpu") else f"cpu-{name}"
    is_taken = any((folder / name).glob("*.json"))  # another backend of the same device
    return folder / (f"{name}-{device[1]}" if is_taken else name)


def save(reports: list[dict], folder: Path) -> None:
    """Writes the reports of programs that passed, by the writer of `course bench --save`. A file that holds more,
    the times of PyTorch, JAX or NumPy, is left as it is."""
    if not reports:
        warn("--save-results: no program passed, so nothing is saved")
        return
    for report in reports:
        report["environment"] = bench.environment_of(report["device"], {})
    run = bench_file.of_reports(reports)
    target = device_folder(slower.device_of(run), folder)
    kept = [report["program"] for report in reports if _is_of_bench(target / f"{report['program']}.json")]
    run["reports"] = [report for report in run["reports"] if report["program"] not in kept]
    left_out = [*bench_file.save_reports(run, target), *kept]
    shown = min(str(target), os.path.relpath(target), key=len)
    say(f"results of {len(reports) - len(left_out)} programs are in {shown}: CONTRIBUTING.md says how to hand them in")
    if kept:
        say(f"  as they were: {', '.join(kept)}, measured beside other libraries by `scripts/course bench`", "yellow")


def _is_of_bench(file: Path) -> bool:
    """Whether a file holds what libraries took that only `course bench` runs."""
    if not file.is_file():
        return False
    environment = results.load(file).get("environment", {})
    return any(environment.get(key) for key in results.LIBRARIES)
