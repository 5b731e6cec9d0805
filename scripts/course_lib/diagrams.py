"""Pictures of ideas: the memories of a device, a tree with its barriers, access in rows and by rows, two
buffers over time, the tiles of attention.

A diagram is plain data: boxes, lines, arrows and texts in points from the upper left corner, and what it shows
in words. diagram_drawing.py draws it. Its figures come from committed results. As with the pictures of
results, a checksum of all of this stands in the committed SVG, so that it is checked without Matplotlib.
"""

from __future__ import annotations

from . import results

WIDTH, EDGE = 324, 8  # points; those of drawing.py
RIGHT = WIDTH - EDGE
SMALL, TEXT, TITLE = 10, 11, 13


class Sheet:
    """Collects the parts of a diagram, the first one behind the others. Colours are the names of
    diagram_drawing.py."""

    def __init__(self, title: str):
        self.items: list[list] = []
        self.text(EDGE, EDGE + TITLE - 1, title, size=TITLE, bold=True)

    def box(self, x, y, width, height, fill="back", edge="none") -> None:
        self.items.append(["box", x, y, width, height, fill, edge])

    def text(self, x, y, text, color="ink", size=SMALL, align="left", bold=False) -> None:
        self.items.append(["text", x, y, text, color, size, align, bold])

    def line(self, points, color="dim", width=1.2, dashed=False) -> None:
        self.items.append(["line", points, color, width, dashed])

    def arrow(self, x, y, to_x, to_y, color="dim") -> None:
        self.items.append(["arrow", x, y, to_x, to_y, color])

    def cell(self, x, y, width, height, text, fill="back", color="ink", edge="none") -> None:
        """A box with a text in its middle."""
        self.box(x, y, width, height, fill, edge)
        self.text(x + width / 2, y + height / 2 + 3.5, text, color, align="center")

    def barrier(self, y, text) -> None:
        """A dashed line across, and what is true below it."""
        self.line([[EDGE, y], [RIGHT, y]], "warm", 1.6, True)
        self.text(RIGHT, y + 12, text, "warm", align="right")

    def picture(self, name: str, height: float, words: str) -> dict:
        data = {"kind": "diagram", "height": height, "items": self.items, "words": words}
        return {"file": name, "program": "", "data": data}


def all_diagrams(devices: dict[str, dict[str, dict]]) -> list[dict]:
    """Every diagram, as pictures.all_pictures() has its pictures. `devices` are the results of each device, a
    report for each program; figures are those of the first device that has them."""
    figures = next((found for found in map(memory_figures, devices.values()) if found), None)
    return [memory_hierarchy(figures), tree_with_barriers(), coalesced_and_strided(), double_buffering(),
            attention_tiles()]


# ---- The memories of a device ------------------------------------------------------------------------


def memory_figures(reports: dict[str, dict]) -> dict[str, str] | None:
    """How large and how fast the memories are, as the programs of 0.1 and 0.3 have printed it."""
    if "hello_gpu" not in reports or "timing" not in reports:
        return None
    facts = {fact["name"].removeprefix("device 0 "): fact for fact in reports["hello_gpu"]["facts"]}
    probes = {row["name"]: row for table in reports["timing"]["tables"] for row in table["rows"]}
    reading, pinned = reports["timing"]["limits"]["read_bytes_per_s"], probes.get("upload_pinned", {}).get("rate")
    names = ("shared memory per multiprocessor", "last-level cache", "memory", "multiprocessors")
    if not all(name in facts for name in names) or not reading or not pinned:
        return None
    shared, cache, memory, count = (f"{facts[name]['value']:.0f} {facts[name]['unit']}".strip() for name in names)
    return {"device": reports["hello_gpu"]["device"]["name"], "shared": shared, "cache": cache, "memory": memory,
            "multiprocessors": count, "read": results.format_rate(reading, "B/s"),
            "copy": results.format_rate(pinned, "B/s")}


def memory_hierarchy(figures: dict[str, str] | None) -> dict:
    sheet = Sheet("The memory hierarchy")
    known = figures or {}
    levels = [("registers", "one thread", ""),
              ("shared memory", "the threads of a block", known.get("shared", "")),
              ("L2 cache", "all blocks", known.get("cache", "")),
              ("global memory", "all blocks and the host's copies", known.get("memory", "")),
              ("host memory", "the processor", "")]
    between = ["", "", "", f"read: {known['read']}" if known else "", f"upload: {known['copy']}" if known else ""]
    top, tall, gap = 48, 38, 24
    sheet.text(EDGE, 38, f"sizes and rates: {known['device']}" if known else "from small and fast to large and slow",
               "dim")
    for n, (name, who, size) in enumerate(levels):
        width = 180 + 32 * n
        x, y = (WIDTH - width) / 2, top + n * (tall + gap)
        if n:
            sheet.arrow(WIDTH / 2 - 5, y - 3, WIDTH / 2 - 5, y - gap + 3)
            sheet.arrow(WIDTH / 2 + 5, y - gap + 3, WIDTH / 2 + 5, y - 3)
            sheet.text(WIDTH / 2 + 14, y - 8, between[n], "dim")
        fill, ink = ("strong", "paper") if n < 2 else ("back", "ink")
        sheet.box(x, y, width, tall, fill)
        sheet.text(x + 10, y + 16, name, ink, TEXT, bold=True)
        sheet.text(x + 10, y + 30, who, ink)
        if size:
            sheet.text(x + width - 10, y + 16, size, ink, align="right")
    bottom = top + 5 * tall + 4 * gap
    sheet.box(EDGE, bottom + 12, 12, 10, "strong")
    count = f" ({known['multiprocessors']} of them)" if known else ""
    sheet.text(EDGE + 18, bottom + 21, f"inside each multiprocessor{count}", "dim")
    said = "; ".join(f"{name}, seen by {who}" + (f", {size}" if size else "") for name, who, size in levels)
    return sheet.picture("memory_hierarchy", bottom + 32, (
        f"The memory hierarchy, from the smallest and fastest to the largest and slowest: {said}. Registers and "
        "shared memory are inside each multiprocessor." + (
            f" Sizes and rates of an {known['device']}: {known['multiprocessors']} multiprocessors, global memory "
            f"is read at {known['read']}, and the host uploads at {known['copy']}." if known else "")))


# ---- A tree in shared memory -------------------------------------------------------------------------


def tree_with_barriers() -> dict:
    sheet = Sheet("A tree over the sums of 8 threads")
    sums = [3, 1, 4, 1, 5, 9, 2, 6]
    left, wide, tall = EDGE, 34, 22
    step = (RIGHT - left - wide) / 7
    x = [left + step * i for i in range(8)]
    for i in range(8):
        sheet.text(x[i] + wide / 2, 42, f"t{i}", "dim", align="center")
    y, half = 48, 8
    said = []
    while True:
        for i in range(8):
            if i < half:
                sheet.cell(x[i], y, wide, tall, str(sums[i]), "strong" if half == 1 else "back",
                           "paper" if half == 1 else "ink")
            else:
                sheet.cell(x[i], y, wide, tall, "", "none", edge="back")
        said.append(" ".join(str(value) for value in sums[:half]))
        whole = "every thread's sum is in sums" if half == 8 else (
            f"sums[0, {half}) hold the sum of all" if half > 1 else "sums[0] is the sum of all")
        sheet.barrier(y + tall + 9, f"barrier: {whole}")
        if half == 1:
            break
        half //= 2
        under = y + tall + 28
        for i in range(half):
            for source in (i, i + half):
                sheet.line([[x[source] + wide / 2, under], [x[i] + wide / 2, under + 24]],
                           "ink" if source == i else "strong", 1.4)
            sums[i] += sums[i + half]
        y = under + 26
    return sheet.picture("tree_with_barriers", y + tall + 30, (
        "A tree over the sums of 8 threads in shared memory. In each round the lower half of the threads adds the "
        f"upper half's sums to its own: {'; then '.join(said)}. A barrier stands after the sums are stored and "
        "after each round: all threads wait there before anyone reads what another one has written."))


# ---- Access to global memory ---------------------------------------------------------------------------


def coalesced_and_strided() -> dict:
    sheet = Sheet("Who reads which address")
    wide, tall, left = 32, 20, EDGE + 52

    def lane(x: float, y: float, number: int) -> None:
        sheet.cell(x, y, wide - 2, tall - 2, str(number), "none", edge="dim")

    def memory(top: float, cells: set[int], lines: int, note: str) -> None:
        """Four lines of 8 floats: the cells are read, and the first few lines are moved."""
        for address in range(32):
            line, place = divmod(address, 8)
            own = address in cells
            sheet.cell(left + wide * place, top + tall * line, wide - 2, tall - 2, str(address),
                       "strong" if own else "plain" if line < lines else "back", "paper" if own else "ink")
        sheet.text(left, top + 4 * tall + 12, note)

    sheet.text(EDGE, 44, "coalesced: lane i reads address i", size=TEXT, bold=True)
    sheet.text(EDGE, 68, "lane", "dim")
    sheet.text(EDGE, 116, "memory", "dim")
    for i in range(8):
        lane(left + wide * i, 54, i)
        sheet.arrow(left + wide * i + wide / 2 - 1, 54 + tall, left + wide * i + wide / 2 - 1, 100)
    memory(102, set(range(8)), 1, "1 line is moved, 8 of its 8 floats are used")

    top = 224
    sheet.text(EDGE, top, "strided: lane i reads address 8 i", size=TEXT, bold=True)
    for i in range(4):
        lane(EDGE, top + 10 + tall * i, i)
        sheet.arrow(EDGE + wide, top + 19 + tall * i, left - 3, top + 19 + tall * i)
    memory(top + 10, {0, 8, 16, 24}, 4, "4 lines are moved, 1 of 8 floats in each is used")
    low = top + 118
    sheet.box(EDGE, low, 12, 10, "strong")
    sheet.text(EDGE + 17, low + 9, "read by a lane", "dim")
    sheet.box(EDGE + 118, low, 12, 10, "plain")
    sheet.text(EDGE + 135, low + 9, "moved, and not used", "dim")
    return sheet.picture("coalesced_and_strided", low + 18, (
        "Memory moves whole lines, drawn here with 8 floats. Coalesced: lane i reads address i, and the 8 floats "
        "of one line serve 8 lanes. Strided: lane i reads address 8 i, so that 4 lanes make memory move 4 lines, "
        "and 7 of 8 floats in each are not used."))


# ---- Two buffers ---------------------------------------------------------------------------------------


def double_buffering() -> dict:
    sheet = Sheet("Loading and multiplying, over time")
    left, unit, tall, tiles = EDGE + 52, 42, 22, 3

    def lanes(top: float, title: str) -> None:
        sheet.text(EDGE, top, title, size=TEXT, bold=True)
        sheet.text(EDGE, top + 23, "load", "dim")
        sheet.text(EDGE, top + 47, "multiply", "dim")

    def bar(begin: int, top: float, loads: bool, text: str) -> None:
        sheet.cell(left + unit * begin + 2, top + (8 if loads else 32), unit - 4, tall, text,
                   "back" if loads else "strong", "ink" if loads else "paper")

    def barrier(begin: int, top: float) -> None:
        sheet.line([[left + unit * begin, top + 5], [left + unit * begin, top + 57]], "warm", 1.6, True)

    lanes(44, "tiled: one tile in shared memory")
    for n in range(tiles):
        bar(2 * n, 44, True, str(n))
        bar(2 * n + 1, 44, False, str(n))
        barrier(2 * n + 1, 44)
        barrier(2 * n + 2, 44)
    top = 126
    lanes(top, "double_buffered: two tiles, A and B")
    for n in range(tiles):
        bar(n, top, True, f"{n} to {'AB'[n % 2]}")
        bar(n + 1, top, False, f"{n} of {'AB'[n % 2]}")
        barrier(n + 1, top)
    low = top + 66
    sheet.arrow(left, low, RIGHT, low)
    sheet.text(RIGHT, low + 14, "time", "dim", align="right")
    sheet.line([[EDGE, low + 11], [EDGE + 22, low + 11]], "warm", 1.6, True)
    sheet.text(EDGE + 28, low + 14, "a barrier of the block", "dim")
    return sheet.picture("double_buffering", low + 22, (
        "Loading and multiplying three K-slices over time. With one tile in shared memory a block loads, waits at a "
        "barrier, multiplies, waits again, and loads the next one. With two tiles, A and B, it loads the next tile "
        "to one of them while it multiplies the other one, and there is one barrier per tile. The lengths are no "
        "measurements."))


# ---- Attention -----------------------------------------------------------------------------------------


def attention_tiles() -> dict:
    sheet = Sheet("Tiles of attention, causal")
    size, keys, queries = 30, 6, 6
    left, top = EDGE + 62, 88
    now = (3, 1)  # the tile that is computed
    sheet.text(left + size * keys / 2, 40, "keys and values", "dim", align="center")
    for k in range(keys):
        current = k == now[1]
        sheet.cell(left + size * k, 46, size - 2, 16, f"K{k}", "plain" if current else "back")
        sheet.cell(left + size * k, 64, size - 2, 16, f"V{k}", "plain" if current else "back")
    sheet.text(EDGE, top - 8, "queries", "dim")
    for q in range(queries):
        y = top + size * q
        sheet.cell(EDGE + 22, y, 32, size - 2, f"Q{q}", "plain" if q == now[0] else "back")
        for k in range(keys):
            x = left + size * k
            if (q, k) == now:
                sheet.cell(x, y, size - 2, size - 2, "S", "strong", "paper")
            elif k > q:
                sheet.box(x, y, size - 2, size - 2, "none", "back")
            elif q == now[0] and k < now[1]:
                sheet.box(x, y, size - 2, size - 2, "plain")
            else:
                sheet.box(x, y, size - 2, size - 2, "back")
    y = top + size * now[0] + size / 2 - 1
    sheet.arrow(left + size * (now[1] + 1) + 2, y, left + size * (now[0] + 1) - 6, y, "ink")
    right = left + size * keys + 8
    sheet.cell(right, top + size * now[0], RIGHT - right, size - 2, "m, l, out", "strong", "paper")
    sheet.text(right, top + size * now[0] + size + 10, "in registers", "dim")
    low = top + size * queries + 14
    lines = [("strong", "computed now; m, l and out are kept of each row"),
             ("plain", "done: their sums are in m, l and out"),
             ("back", "another block's, or later"),
             ("none", "above the diagonal: left out")]
    for n, (fill, text) in enumerate(lines):
        sheet.box(EDGE, low + 15 * n - 1, 12, 10, fill, "back" if fill == "none" else "none")
        sheet.text(EDGE + 18, low + 15 * n + 8, text, "dim")
    return sheet.picture("attention_tiles", low + 15 * len(lines) + 6, (
        "Tiles of attention. The scores are a square of queries times keys. A block owns the queries of one row of "
        "tiles and goes along the keys: it computes one tile of scores, adds what follows from it to the maximum m, "
        "the sum l and out of each query, which stay in registers, and forgets the tile. Tiles above the diagonal "
        "are left out."))
