"""Draws what pictures.py has computed: SVG and PNG files, legible on light and on dark pages.

    python scripts/course_lib/drawing.py JOBS.json FOLDER [svg] [png]

JOBS.json holds a list of {"file", "data", "identifier", "words"}. Matplotlib is needed for this and
for nothing else: this file is run on its own, by the Python of .venv.

A picture is 324 points wide and its smallest text has 10 points: on a phone of 360 pixels it is read
without zooming. Its colours are told apart by nearly all eyes, and lines by their dashes as well. The
same data and the same Matplotlib make the same bytes: no dates, and fixed names inside.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

WIDTH = 324  # points
EDGE = 8
SMALL, TEXT, TITLE = 10, 11, 13  # points of type
BAND = 32  # of a bar: a line of text and the bar
BAR = 10
DPI = 200  # of PNG files

INK, DIM, PAPER, GRID = "#1f2328", "#59636e", "#ffffff", "#d1d9e0"
PLAIN, BEST = "#8fa3b5", "#0072b2"
# After Okabe and Ito (Color universal design, 2008), darkened where white paper needs it.
COLORS = ("#d55e00", "#00825f", "#a8528a", "#946a00", "#0072b2", "#6f6f6f")
DASHES = ((0, (5, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 1)),
          (0, (8, 2)), (0, (1, 1, 4, 1)))
# The same on dark paper. Matplotlib writes colours into style attributes: those are overruled.
DARK = {INK: "#f0f6fc", DIM: "#9ba5b0", PAPER: "#0d1117", GRID: "#343b44", PLAIN: "#71869a",
        BEST: "#4aa3df", "#d55e00": "#f0883e", "#00825f": "#2fbf92", "#a8528a": "#d58abb",
        "#946a00": "#d9a520", "#6f6f6f": "#a8a8a8"}
DARK_STYLE = "".join(
    f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
    for light, dark in DARK.items() for kind in ("fill", "stroke"))
STYLE = f"@media screen and (prefers-color-scheme: dark){{{DARK_STYLE}}}"


# ---- Numbers on axes ---------------------------------------------------------------------------


def short(value: float, unit: str) -> str:
    """A round number with its prefix: 2e12 B/s → "2 TB/s"."""
    unit = "FLOP/s" if unit == "operations/s" else unit
    if unit == "x":
        return f"{value:g}x"
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g} {prefix}{unit}"
    return f"{value:g} {unit}"


def linear_ticks(top: float) -> list[float]:
    """Round numbers from 0 to `top`, four steps at most."""
    power = 10 ** math.floor(math.log10(top))
    step = next(s * power for s in (0.2, 0.25, 0.5, 1, 2, 2.5) if top / (s * power) <= 4.2)
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


def decades(low: float, high: float, most: int = 4) -> list[float]:
    """Powers of ten from `low` to `high`, every so many that there are `most` at most. Where none is between
    them, twice and five times the one below, as far as they are."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last < first:
        return [tick for tick in (2 * 10.0**last, 5 * 10.0**last) if low <= tick <= high]
    step = -(-(last - first + 1) // most)
    return [10.0**power for power in range(first, last + 1, step)]


# ---- Paper and type ----------------------------------------------------------------------------


class Page:
    """A figure with one axes over all of it, in points from the upper left corner."""

    def __init__(self, height: float):
        from matplotlib.figure import Figure

        self.height = height
        self.figure = Figure(figsize=(WIDTH / 72, height / 72), facecolor=PAPER)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.axis("off")

    def text(self, x, y, text, size=TEXT, color=INK, **how):
        self.axes.text(x, y, text, fontsize=size, color=color, va="baseline", **how)

    def line(self, x, y, color, dashes="-", width=1.4, **how):
        self.axes.plot(x, y, color=color, linestyle=dashes, linewidth=width,
                       solid_capstyle="butt", dash_capstyle="butt", **how)

    def box(self, x, y, width, height, color):
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor="none"))

    def panel(self, left, top, right, bottom):
        """Axes of their own in a part of the page."""
        axes = self.figure.add_axes((left / WIDTH, 1 - bottom / self.height,
                                     (right - left) / WIDTH, (bottom - top) / self.height))
        axes.set_facecolor("none")
        axes.tick_params(labelsize=SMALL, colors=DIM, length=3)
        axes.tick_params(which="minor", length=0)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(DIM)
        return axes


def width_of(text: str, size: float, bold: bool = False) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return TextPath((0, 0), text, size=size, prop=font).get_extents().width if text.strip() else 0


def wrapped(text: str, size: float, width: float) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width_of(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def plain(text: str) -> str:
    """Matplotlib reads what stands between dollars as a formula."""
    return text.replace("$", r"\$")


# ---- Ladder ------------------------------------------------------------------------------------


def draw_ladder(data: dict):
    """For each version a line of text and a bar under it; the limit and the peers cross the bars."""
    unit, bars, lines = data["unit"], data["bars"], data["lines"]
    problem = wrapped(data["problem"], SMALL, WIDTH - 2 * EDGE)
    values = [one["value"] for one in bars] + [line["value"] for line in lines]
    high, low = max(values), min(values)
    # A linear scale shows shares; where most of it would be empty, only the order of magnitude is
    # left to show.
    logarithmic = sorted(one["value"] for one in bars)[len(bars) // 2] < 0.04 * high
    left, right = EDGE, WIDTH - EDGE
    if logarithmic:
        floor = 10 ** math.floor(math.log10(low) - 0.05)
        ticks = decades(floor, high)
        scale = (right - left) / math.log10(high / floor)
        at = lambda value: left + scale * math.log10(value / floor)  # noqa: E731
    else:
        ticks = linear_ticks(high)
        at = lambda value: left + (right - left) * value / high  # noqa: E731

    top = EDGE + TITLE + 4 + 13 * len(problem) + 6
    bottom = top + BAND * len(bars)
    legend = bottom + (43 if logarithmic else 31)
    page = Page(legend + 16 * len(lines) + (2 if lines else -6))
    page.text(EDGE, EDGE + TITLE - 1, plain(data["title"]), TITLE, weight="bold")
    for n, text in enumerate(problem):
        page.text(EDGE, EDGE + TITLE + 13 + 13 * n, plain(text), SMALL, DIM)

    end = -math.inf  # of the last number
    for tick in ticks:
        page.line([at(tick)] * 2, [bottom, bottom + 4], DIM, width=0.8)
        text = short(tick, unit) if tick else "0"
        half = width_of(text, SMALL) / 2
        middle = min(max(at(tick), left + half), right - half)
        if middle - half > end + 6:
            page.text(middle, bottom + 15, text, SMALL, DIM, ha="center")
            end = middle + half
    page.line([left, right], [bottom, bottom], DIM, width=0.8)
    if logarithmic:
        page.text(right, bottom + 28, "a logarithmic scale", SMALL, DIM, ha="right")

    colors = iter(zip(COLORS, DASHES))
    marks = [(line, *(("#1f2328", "-") if line["kind"] == "limit" else next(colors, (DIM, ":"))))
             for line in lines]
    for n, one in enumerate(bars):
        y = top + BAND * n
        is_best = n == data["best"]
        page.text(left, y + 13, plain(one["name"]), TEXT, weight="bold" if is_best else "normal")
        figures = [figure for figure in (one["time"], one["rate"], one["share"]) if figure]
        # The rate is what the bar shows; the rest is said where there is room beside the name.
        room = right - left - width_of(one["name"], TEXT, is_best) - 12
        while len(figures) > 1 and width_of(" · ".join(figures), SMALL) > room:
            figures.pop(2 if len(figures) > 2 else 0)
        page.text(right, y + 13, " · ".join(figures), SMALL, INK if is_best else DIM,
                  ha="right")
        page.box(left, y + 19, right - left, BAR, GRID)
        page.box(left, y + 19, at(one["value"]) - left, BAR, BEST if is_best else PLAIN)
        for line, color, dashes in marks:
            x = min(at(line["value"]), right - 0.7)
            page.line([x, x], [y + 17.5, y + 20.5 + BAR], color, width=2)
    y = legend
    for line, color, _ in marks:
        page.line([left + 4, left + 4], [y - 4, y + 7], color, width=2)
        page.text(left + 12, y + 6, plain(f"{line['name']}: {line['text']}"), SMALL)
        y += 16
    return page.figure


# ---- Roofline ----------------------------------------------------------------------------------


def draw_roofline(data: dict):
    from matplotlib.ticker import FuncFormatter, NullLocator

    points, limits = data["points"], data["limits"]
    bandwidths = {key: limits[key] for key in ("copy_bytes_per_s", "read_bytes_per_s")
                  if key in limits}
    slope, flat = max(bandwidths.values()), limits["fma_operations_per_s"]
    low = min(p["intensity"] for p in points) / 1.6
    high = max(max(p["intensity"] for p in points), flat / slope) * 1.6
    bottom, top = min(p["rate"] for p in points) / 2, flat * 3
    ridge = flat / slope
    best = [p for p in points if p["best"]]
    crowds = {"on the slope": [], "under the flat roof": []}
    for p in sorted(best, key=lambda p: p["intensity"]):
        where, near = (("on the slope", 0.6 * slope * p["intensity"]) if p["intensity"] < ridge else
                       ("under the flat roof", 0.4 * flat))
        if p["rate"] > near:
            crowds[where].append(p)
    memory = ", ".join(f"{short(float(f'{limits[key]:.3g}'), 'B/s')} {name}" for key, name in
                       (("read_bytes_per_s", "reading"), ("copy_bytes_per_s", "copying"))
                       if key in limits)
    lines = [f"roof: {memory}, {short(float(f'{flat:.3g}'), 'operations/s')} fp32"]
    for where, there in crowds.items():
        if there:
            lines += wrapped(f"{where}, from the left: " + " ".join(p["step"] for p in there), SMALL,
                             WIDTH - 2 * EDGE)
    left_off = sum(data["left_off"].values())
    lines += wrapped("blue: the best of each step; grey: its other versions and sizes; "
                     f"not shown: {left_off} versions", SMALL, WIDTH - 2 * EDGE)
    left, right, head, foot = 54, WIDTH - EDGE, 34, 320
    page = Page(foot + 46 + 14 * len(lines))
    page.text(EDGE, EDGE + TITLE - 1, "Roofline of all kernels", TITLE, weight="bold")
    axes = page.panel(left, head, right, foot)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    for axis, ticks, unit in ((axes.xaxis, decades(low, high, 6), ""),
                              (axes.yaxis, decades(bottom, top, 8), "FLOP/s")):
        axis.set_ticks(ticks)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(
            lambda value, _, unit=unit: short(value, "FLOP/s").replace("FLOP/s", "").strip()
            if unit else f"{value:g}"))
    axes.grid(True, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel("operations per byte that must be moved", fontsize=SMALL, color=DIM)
    axes.set_ylabel("FLOP/s", fontsize=SMALL, color=DIM, labelpad=2)
    axes.plot([low, ridge, high], [slope * low, flat, flat], color=INK, linewidth=1.6)
    for other in sorted(bandwidths.values())[:-1]:
        axes.plot([low, flat / other], [other * low, flat], color=INK, linewidth=0.8,
                  linestyle=DASHES[0])
    rest = [p for p in points if not p["best"]]
    axes.scatter([p["intensity"] for p in rest], [p["rate"] for p in rest], s=9, color=PLAIN,
                 linewidths=0)
    axes.scatter([p["intensity"] for p in best], [p["rate"] for p in best], s=26, color=BEST,
                 edgecolors=PAPER, linewidths=0.6, zorder=3)

    # Near the roof the steps crowd: they are listed. Elsewhere each has its number beside it, and on no point.
    def place_of(point):
        return (left + (right - left) * math.log(point["intensity"] / low) / math.log(high / low),
                foot - (foot - head) * math.log(point["rate"] / bottom) / math.log(top / bottom))

    taken = [(*place_of(point), 2, 7) for point in best]  # middle, half its width, how far a number stays above
    roof = foot - (foot - head) * math.log(flat / bottom) / math.log(top / bottom)
    for point in sorted(best, key=lambda p: (-p["rate"], p["intensity"])):
        if any(point in there for there in crowds.values()):
            continue
        x, y = place_of(point)
        half = width_of(point["step"], SMALL) / 2 + 2
        places = [(x, y - 8), (x + half + 4, y), (x - half - 4, y), (x, y + 9), (x, y - 19),
                  (x + half + 4, y + 11), (x - half - 4, y + 11)]
        free = [p for p in places if not (point["intensity"] > ridge and abs(p[1] - roof) < 7)
                and p[0] + half < right + EDGE
                and all(abs(p[0] - x) > half + other or abs(p[1] - y) > apart
                        for x, y, other, apart in taken)]
        place = (free or places)[0]
        taken.append((*place, half, 10))
        page.text(place[0], place[1] + 3.3, point["step"], SMALL, ha="center")
    for n, text in enumerate(lines):
        page.text(EDGE, foot + 50 + 14 * n, text, SMALL, DIM if n else INK)
    return page.figure


# ---- Curves ------------------------------------------------------------------------------------


def draw_curves(data: dict):
    from matplotlib.ticker import FuncFormatter, NullFormatter

    panels = data["panels"]
    labels = {}  # in order, each with its colour
    own = {curve["label"] for panel in panels for curve in panel["curves"] if not curve["peer"]}
    for panel in panels:
        for curve in panel["curves"]:
            labels.setdefault(curve["label"], len(labels))
    first, tall = EDGE + TITLE + 12, 130
    bottom = first + len(panels) * (tall + 18)
    page = Page(bottom + 26 + 15 * len(labels))
    title = wrapped(data["title"], TITLE, WIDTH - 2 * EDGE)[0]
    page.text(EDGE, EDGE + TITLE - 1, plain(title), TITLE, weight="bold")
    for n, panel in enumerate(panels):
        top = first + n * (tall + 18)
        page.text(EDGE, top + 8, plain(panel["quantity"]), SMALL, DIM)
        axes = page.panel(50, top + 14, WIDTH - EDGE, top + tall)
        values = []
        for curve in panel["curves"]:
            place = labels[curve["label"]]
            x = [point[0] for point in curve["points"]]
            y = [math.nan if point[1] is None else point[1] for point in curve["points"]]
            values += [value for value in y if math.isfinite(value)]
            # Curves that coincide are all seen: each is narrower than the one below it.
            axes.plot(x, y, color=BEST if place == 0 else COLORS[(place - 1) % len(COLORS)],
                      linestyle="-" if place == 0 else DASHES[(place - 1) % len(DASHES)],
                      linewidth=1.6 + 0.9 * max(len(own) - 1 - place, 0))
        if values and min(values) > 0 and max(values) > 20 * min(values):
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_yticks(decades(min(values) / 2, max(values) * 2, 4))
        else:
            axes.yaxis.set_major_locator(_round_locator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_major_locator(_round_locator(integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(True, color=GRID, linewidth=0.7)
        if n + 1 < len(panels):
            axes.tick_params(labelbottom=False)
    page.text(WIDTH - EDGE, bottom + 8, plain(data["x"]), SMALL, DIM, ha="right")
    for label, place in labels.items():
        y = bottom + 26 + 15 * place
        page.line([EDGE, EDGE + 24], [y - 4, y - 4],
                  BEST if place == 0 else COLORS[(place - 1) % len(COLORS)],
                  "-" if place == 0 else DASHES[(place - 1) % len(DASHES)], 2)
        page.text(EDGE + 30, y, plain(label), SMALL)
    return page.figure


def _round_locator(integer: bool = False):
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4, steps=[1, 2, 5, 10], integer=integer)


# ---- Files -------------------------------------------------------------------------------------

KINDS = {"ladder": draw_ladder, "roofline": draw_roofline, "curves": draw_curves}


def draw(jobs: list[dict], folder: Path, formats: list[str], kinds: dict = KINDS) -> list[Path]:
    """Draws every job in every format, each by the function of its kind. A name never holds half a picture."""
    import matplotlib

    matplotlib.use("Agg")  # no screen is needed
    # Text stays text; what Matplotlib names inside is named by what it is.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "course", "font.family": "sans-serif",
                "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"], "path.simplify": True}
    files = []
    with matplotlib.rc_context(settings):
        for job in jobs:
            figure = kinds[job["data"]["kind"]](job["data"])
            for kind in formats:
                file = folder / f"{job['file']}.{kind}"
                temporary = file.with_suffix(f".{kind}.new")
                if kind == "svg":
                    figure.savefig(temporary, format="svg", facecolor=PAPER, metadata={
                        "Date": None, "Creator": None, "Title": job["words"],
                        "Identifier": job["identifier"]})
                    text = temporary.read_text(encoding="utf-8")
                    # The first style sheet of the file is Matplotlib's own.
                    text = text.replace("</style>", f"\n{STYLE}</style>", 1)
                    temporary.write_text(text, encoding="utf-8")
                else:
                    figure.savefig(temporary, format=kind, dpi=DPI, facecolor=PAPER,
                                   metadata={"Software": None})
                temporary.replace(file)
                files.append(file)
    return files


def main(arguments: list[str]) -> int:
    jobs = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    folder = Path(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file in draw(jobs, folder, arguments[2:] or ["svg", "png"]):
        print(file.name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
