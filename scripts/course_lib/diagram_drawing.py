"""Draws the diagrams of diagrams.py with Matplotlib, in the colours of the pictures of results."""

from __future__ import annotations

from . import drawing

COLORS = {"ink": drawing.INK, "dim": drawing.DIM, "paper": drawing.PAPER, "back": drawing.GRID,
          "plain": drawing.PLAIN, "strong": drawing.BEST, "warm": drawing.COLORS[0], "none": "none"}


def draw(data: dict):
    """A figure of the parts, the first one behind the others."""
    from matplotlib.patches import FancyArrowPatch, Rectangle

    page = drawing.Page(data["height"])
    for order, (kind, *part) in enumerate(data["items"]):
        if kind == "box":
            x, y, width, height, fill, edge = part
            page.axes.add_patch(Rectangle((x, y), width, height, facecolor=COLORS[fill], edgecolor=COLORS[edge],
                                          linewidth=1, zorder=order))
        elif kind == "text":
            x, y, text, color, size, align, bold = part
            page.text(x, y, drawing.plain(text), size, COLORS[color], ha=align,
                      weight="bold" if bold else "normal", zorder=order)
        elif kind == "line":
            points, color, width, dashed = part
            page.line([x for x, _ in points], [y for _, y in points], COLORS[color], (0, (4, 2)) if dashed else "-",
                      width, zorder=order)
        else:
            x, y, to_x, to_y, color = part
            page.axes.add_patch(FancyArrowPatch((x, y), (to_x, to_y), arrowstyle="->", mutation_scale=7, shrinkA=0,
                                                shrinkB=0, color=COLORS[color], linewidth=1.1, zorder=order))
    return page.figure


KINDS = {**drawing.KINDS, "diagram": draw}
