"""Pictures of what the programs have learnt: `scripts/course plot` draws the series of a report.

A program writes numbers for pictures with Report::series; they are the key "series" of its JSON:

    {"spiral_loss": {"columns": ["epoch", "graph", "wave"], "rows": [[50, 1.1, 1.1], ...]}}

How a series is drawn follows from its name, or from the last word of it (spiral_loss: loss):

    loss         the first column across, one curve for each other, on a logarithmic scale
    boundary     x, y, class, probability of a grid of points: the region of each class
    points       x, y, class: drawn onto the boundary of the same name, or alone
    confusion    a square of counts, one row per label, one column per prediction
    worst        label, prediction, confidence, then the pixels of a square image, an image per row
    predictions  what is true and what the model says, a dot per row
    any other    the first column across, a panel for each other one

Each picture goes to FOLDER/<program>_<series>.png. Matplotlib is needed to draw and for nothing
else: this file is also run on its own, by the Python of .venv.

    python scripts/course_lib/plot.py FOLDER FILE...
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

# Told apart by nearly all eyes, and in grey (Okabe and Ito: Color universal design, 2008).
COLORS = ("#0072B2", "#E69F00", "#CC79A7", "#009E73", "#D55E00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLES = ("-", "--", "-.", ":")
DPI = 150


# ---- Series ------------------------------------------------------------------------------------


def series_of(report: dict) -> dict[str, dict]:
    """The series of a report, checked. Raises ValueError that names the first one that is wrong."""
    series = report.get("series", {})
    if not isinstance(series, dict):
        raise ValueError("'series' is not an object")
    for name, one in series.items():
        if not re.fullmatch(r"[\w-]{1,100}", name, re.ASCII):  # it becomes part of a file's name
            raise ValueError(f"series '{json.dumps(name)[1:-1][:60]}': a name is letters, digits, '_' and '-'")
        if not isinstance(one, dict) or not {"columns", "rows"} <= one.keys():
            raise ValueError(f"series '{name}' has no columns and rows")
        columns, rows = one["columns"], one["rows"]
        if not isinstance(columns, list) or not all(isinstance(c, str) for c in columns):
            raise ValueError(f"series '{name}': the columns are not a list of names")
        if not isinstance(rows, list):
            raise ValueError(f"series '{name}': the rows are not a list")
        for i, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != len(columns):
                raise ValueError(f"series '{name}': row {i} has not {len(columns)} values")
            if not all(v is None or isinstance(v, (int, float)) for v in row):
                raise ValueError(f"series '{name}': row {i} holds what is no number")
        draw, needed = _kind_of(name)
        if len(columns) < needed:
            raise ValueError(f"series '{name}' has {len(columns)} columns, {needed} are needed")
        if draw is _draw_confusion and len(rows) != len(columns):
            raise ValueError(f"series '{name}' is no square: {len(rows)} rows, {len(columns)} columns")
        if draw is _draw_images and math.isqrt(len(columns) - 3) ** 2 != len(columns) - 3:
            raise ValueError(f"series '{name}': {len(columns) - 3} pixels are no square image")
    return series


def pictures_of(report: dict) -> list[str]:
    """The names of the series that get a picture of their own."""
    series = series_of(report)
    return [name for name, one in series.items()
            if one["rows"] and not (_word(name) == "points" and _boundary_of(name) in series)]


def _word(name: str) -> str:
    return name.rsplit("_", 1)[-1]


def _boundary_of(points: str) -> str:
    return points[: -len("points")] + "boundary"


def _kind_of(name: str):
    """What draws a series of this name, and the fewest columns that it needs."""
    return {"loss": (_draw_loss, 2), "boundary": (_draw_boundary, 4), "points": (_draw_points, 3),
            "confusion": (_draw_confusion, 1), "worst": (_draw_images, 4),
            "predictions": (_draw_predictions, 2)}.get(_word(name), (_draw_panels, 1))


def _numbers(rows: list[list], column: int) -> list[float]:
    """A column; what is no number (null) as NaN, where Matplotlib leaves a gap."""
    return [math.nan if row[column] is None else float(row[column]) for row in rows]


# ---- Kinds of pictures -------------------------------------------------------------------------
# Each takes (figure, title, series, all series of the report, its name).


def _draw_loss(figure, title, one, _all, _name):
    axes = figure.subplots()
    x = _numbers(one["rows"], 0)
    curves = [_numbers(one["rows"], c) for c in range(1, len(one["columns"]))]
    for c, (label, y) in enumerate(zip(one["columns"][1:], curves)):
        # Curves that coincide are all seen: each is narrower than the one below it.
        axes.plot(x, y, STYLES[c % len(STYLES)], color=COLORS[c % len(COLORS)], label=label,
                  linewidth=1.5 + 0.8 * (len(curves) - 1 - c), marker="o" if len(x) == 1 else None)
    if all(not value <= 0 for curve in curves for value in curve):
        axes.set_yscale("log")
    axes.set(title=title, xlabel=one["columns"][0], ylabel="loss")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend()


def _draw_boundary(figure, title, one, series, name):
    import numpy as np

    x, y, label, probability = (np.array(_numbers(one["rows"], c)) for c in range(4))
    across, up = np.unique(x), np.unique(y)
    column, row = np.searchsorted(across, x), np.searchsorted(up, y)
    # The colour of the class, the paler the less sure the model is.
    colors = np.array([_rgb(COLORS[int(k) % len(COLORS)]) for k in label])
    sure = np.nan_to_num(0.15 + 0.5 * (2 * probability - 1).clip(0, 1))[:, None]
    image = np.ones((len(up), len(across), 3))
    image[row, column] = sure * colors + (1 - sure)
    axes = figure.subplots()
    half_x, half_y = (np.diff(across).mean() / 2 if len(across) > 1 else 0.5,
                      np.diff(up).mean() / 2 if len(up) > 1 else 0.5)
    axes.imshow(image, origin="lower", interpolation="bilinear", aspect="equal",
                extent=(across[0] - half_x, across[-1] + half_x, up[0] - half_y, up[-1] + half_y))
    points = series.get(name[: -len("boundary")] + "points")
    if points and points["rows"]:
        _scatter(axes, points)
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1))  # outside: it must hide no point
    axes.set(title=title, xlabel=one["columns"][0], ylabel=one["columns"][1])


def _draw_points(figure, title, one, _all, _name):
    axes = figure.subplots()
    _scatter(axes, one)
    axes.set(title=title, xlabel=one["columns"][0], ylabel=one["columns"][1])
    axes.legend()


def _scatter(axes, points):
    for label in sorted({int(row[2]) for row in points["rows"] if row[2] is not None}):
        rows = [row for row in points["rows"] if row[2] == label]
        axes.scatter(_numbers(rows, 0), _numbers(rows, 1), s=26, linewidths=0.6, edgecolors="white",
                     color=COLORS[label % len(COLORS)], marker=MARKERS[label % len(MARKERS)],
                     label=f"class {label}", zorder=2)


def _draw_confusion(figure, title, one, _all, _name):
    from matplotlib.colors import LogNorm

    names, size = one["columns"], len(one["columns"])
    counts = [[value or 0 for value in row] for row in one["rows"]]
    largest = max(max(row) for row in counts)
    axes = figure.subplots()
    # Logarithmic, or the diagonal would leave nothing to see of the mistakes.
    shown = [[max(value, 0.5) for value in row] for row in counts]
    axes.imshow(shown, cmap="Blues", norm=LogNorm(0.5, max(largest, 1)))
    for i, row in enumerate(counts):
        for c, value in enumerate(row):
            if value:
                dark = math.log(value / 0.5) > 0.6 * math.log(max(largest, 1) / 0.5)
                axes.text(c, i, f"{value:g}", ha="center", va="center", fontsize=8,
                          color="white" if dark else "black")
    right, total = sum(counts[i][i] for i in range(size)), sum(map(sum, counts))
    axes.set(title=f"{title}, {100 * right / total:.2f}% right" if total else title,
             xlabel="prediction", ylabel="label", xticks=range(size), yticks=range(size),
             xticklabels=names, yticklabels=names)


def _draw_images(figure, title, one, _all, _name):
    rows = one["rows"]
    side = math.isqrt(len(one["columns"]) - 3)
    figure.set_size_inches(6.4, 3.6)
    across = min(5, len(rows))
    grid = figure.subplots(math.ceil(len(rows) / across), across, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, row in zip(grid.flat, rows):
        pixels = [row[3 + r * side : 3 + (r + 1) * side] for r in range(side)]
        axes.imshow(pixels, cmap="gray_r", interpolation="nearest")
        axes.set_title(f"{row[0]:g}, not {row[1]:g}\n{100 * row[2]:.1f}% sure", fontsize=9)
    figure.suptitle(f"{title}: what it is, what the model said")


def _draw_predictions(figure, title, one, _all, _name):
    axes = figure.subplots()
    x, y = _numbers(one["rows"], 0), _numbers(one["rows"], 1)
    finite = [value for value in x + y if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0, 1)
    dense = len(x) > 500
    axes.plot([low, high], [low, high], color="#D55E00", linewidth=1, label="right", zorder=3)
    axes.scatter(x, y, s=5 if dense else 14, alpha=0.35 if dense else 0.7, color=COLORS[0],
                 linewidths=0)
    axes.set(title=title, xlabel=one["columns"][0], ylabel=one["columns"][1])
    if low > 0 and high > 100 * low:  # as prices are: most are small, a few are large
        axes.set(xscale="log", yscale="log")
    axes.set_aspect("equal")
    axes.grid(True, alpha=0.25)
    axes.legend()


def _draw_panels(figure, title, one, _all, _name):
    columns, rows = one["columns"], one["rows"]
    x = _numbers(rows, 0) if len(columns) > 1 else list(range(len(rows)))
    shown = range(1, len(columns)) if len(columns) > 1 else range(1)
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for i, (axes, c) in enumerate(zip(panels, shown)):
        axes.plot(x, _numbers(rows, c), color=COLORS[i % len(COLORS)], marker="o", markersize=3)
        axes.set_ylabel(columns[c])
        axes.grid(True, alpha=0.25)
    panels[-1].set_xlabel(columns[0] if len(columns) > 1 else "row")
    figure.suptitle(title)


def _rgb(color: str) -> tuple[float, ...]:
    return tuple(int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))


# ---- Files -------------------------------------------------------------------------------------


def draw(report: dict, folder: Path) -> list[Path]:
    """Draws the series of a report. Returns the files; a name never holds half a picture."""
    import matplotlib

    matplotlib.use("Agg")  # no screen is needed
    from matplotlib.figure import Figure

    series, files = series_of(report), []
    for name in pictures_of(report):
        figure = Figure(figsize=(6.4, 4.8), layout="constrained")
        title = f"{report['step']} {report['program']}: {name.replace('_', ' ')}"
        _kind_of(name)[0](figure, title, series[name], series, name)
        file = folder / f"{report['program']}_{name}.png"
        temporary = file.with_suffix(".new")
        figure.savefig(temporary, dpi=DPI, format="png")
        temporary.replace(file)
        files.append(file)
    return files


def main(arguments: list[str]) -> int:
    from course_lib import results

    folder = Path(arguments[0])
    for name in arguments[1:]:
        try:
            report = results.load(Path(name))
        except ValueError as error:
            print(f"plot: {error}", file=sys.stderr)
            return 2
        for file in draw(report, folder):
            print(file, flush=True)
    return 0


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder: it has a profile.py, too
    sys.exit(main(sys.argv[1:]))
