"""`course list`: the steps, with what the learner has reached on this machine."""

from __future__ import annotations

import argparse
import json

from .. import backend, exercises, results, steps, terminal
from ..errors import OK
from ..terminal import Column, say
from ..workspace import Progress, Workspace
from .setting_up import ROOT

HELP = "the steps of the course"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def command(options: argparse.Namespace) -> int:
    """The roadmap: every step with what the learner has reached on this machine."""
    present = {step.name: step for step in steps.discover(ROOT)}
    progress = Progress(Workspace(ROOT))
    choice = None
    entries = []
    for row in steps.roadmap(ROOT):
        step = present.get(row.name)
        entry = {"step": row.number, "program": row.name, "lesson": row.summary, "path": "",
                 "state": "planned", "ms": None, "of_limit": None, "of_vendor": None, "medal": None,
                 "device": None}
        if step:
            has = exercises.has_exercises(step)
            entry["path"] = str(step.folder.relative_to(ROOT))
            entry["state"] = progress.state(step) if has else "no exercise"
            devices = progress.steps.get(step.number, {}).get("devices", {})
            wanted = options.backend
            if devices and wanted == "auto":
                choice = choice or backend.choose(backend.detect(), "auto")
                wanted = choice.backend
            here = {name: figures for name, figures in devices.items()
                    if name.startswith(f"{wanted}:")}
            if here:
                device, figures = min(here.items(), key=lambda item: item[1].get("ms") or 0)
                entry.update({key: figures.get(key) for key in
                              ("ms", "of_limit", "of_vendor", "medal")}, device=device)
                if device.startswith("cpu:"):
                    entry["medal"] = None  # older checks gave some: times on a CPU are no measure
        entries.append(entry)
    entries.sort(key=lambda entry: results.place_of(entry["step"]))
    if options.json:
        terminal.show(json.dumps(entries, indent=1, ensure_ascii=False))
        return OK
    columns = [Column("step"), Column("program"), Column("lesson", flexible=True), Column("state"),
               Column("best", right=True), Column("of limit", right=True, optional=True),
               Column("of vendor", right=True, optional=True), Column("medal", optional=True)]
    rows = [[e["step"], e["program"], e["lesson"], e["state"], results.format_ms(e["ms"]),
             results.format_share(e["of_limit"]), results.format_share(e["of_vendor"]),
             e["medal"] or "-"] for e in entries]
    header, *lines = terminal.format_table(columns, rows, terminal.width())
    say(header, "bold")
    styles = {"planned": "dim", "passed": "green", "in progress": "yellow"}
    for entry, line in zip(entries, lines):
        say(line, styles.get(entry["state"], ""))
    return OK
