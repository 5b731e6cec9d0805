#!/usr/bin/env python3
"""Makes the sales that train_sales learns from: two years of a shop's receipts, one line each.

    scripts/make_sales.py --out data/sales.tsv
    scripts/make_sales.py --rows 5000 --malformed 0.02 --crlf --out awkward.tsv

Ten columns, separated by tabs, no header, UTF-8, in the order of time:

    name  code  date  timestamp  quantity  unit price  category  user  total  id

The total is not quantity times unit price: discounts depend on the category, on the day of the year
(each category has its own season), on how many pieces were bought and on the weekend, and prices
are haggled over by some percent. --malformed breaks that share of the lines, each in one of the
ways of BREAKS, in turn. The same seed makes the same file on every machine with the same NumPy.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from course_lib.arguments import Parser

try:
    import numpy as np
except ImportError:
    sys.exit("make_sales.py needs NumPy: pip install -r scripts/requirements.txt")

ROWS = 366_000
FIRST_DAY = np.datetime64("2023-01-01")
DAYS = 731  # 2023 and 2024, with its 29 February

# category, code, typical price, discount, day of the year around which its season lies, products
CATEGORIES = (
    ("Accessories", "ACC", 19, 0.05, 340, ("Leather belt", "Wool scarf", "Umbrella", "Key ring")),
    ("Audio", "AUD", 85, 0.12, 330, ("Headphones", "Bookshelf speaker", "Turntable", "Bluetooth-Würfel")),
    ("Baby", "BAB", 24, 0.03, 120, ("Rattle", "Bib", "Night light", "Stacking rings")),
    ("Books", "BOO", 16, 0.00, 350, ("Field guide to birds", "Cookbook", "Atlas", "Cien años de soledad")),
    ("Camping", "CAM", 60, 0.15, 160, ("Two-person tent", "Sleeping bag", "Head lamp", "Gas stove")),
    ("Clothing", "CLO", 38, 0.20, 20, ("Rain jacket", "Linen shirt", "Socks", "Norwegian jumper Ålesund")),
    ("Computers", "COM", 140, 0.08, 240, ("Keyboard", "Monitor", "USB hub", "External drive")),
    ("Furniture", "FUR", 170, 0.18, 30, ("Desk", "Bookcase", "Stool", "Fauteuil « Amélie »")),
    ("Garden", "GAR", 27, 0.10, 110, ("Watering can", "Secateurs", "Bird feeder", "Wheelbarrow")),
    ("Groceries", "GRO", 6, 0.00, 355, ("Olive oil", "Crème fraîche", "Jalapeño sauce", "Green tea 煎茶")),
    ("Health", "HEA", 14, 0.04, 15, ("Toothbrush", "Sunscreen", "First-aid kit", "Thermometer")),
    ("Kitchen", "KIT", 45, 0.14, 345, ("Cast-iron pan", "Paring knife", "Fondue set", "Kaffeemühle")),
    ("Music", "MUS", 110, 0.06, 300, ("Ukulele", "Metronome", "Tuner", "Music stand")),
    ("Sports", "SPO", 52, 0.11, 130, ("Running shoes", "Yoga mat", "Skipping rope", "Pétanque set")),
    ("Tools", "TOO", 48, 0.09, 80, ("Cordless drill", "Spirit level", "Hammer", "Schraubendreher, 6-teilig")),
    ("Toys", "TOY", 22, 0.07, 345, ("Wooden train", "Jigsaw puzzle", "Kite", "Матрёшка")),
)
EXTRAS = ("", " small", " large", " blue", " red", " deluxe", " (refurbished)", " – new")


def discounts(category, day, day_of_year, quantity):
    """The share that is taken off quantity times unit price; all arguments are arrays."""
    base = np.array([row[3] for row in CATEGORIES])[category]
    peak = np.array([row[4] for row in CATEGORIES])[category]
    season = 0.12 * np.maximum(0, np.cos(2 * np.pi * (day_of_year - peak) / 365.25))
    tier = np.select([quantity >= 10, quantity >= 5], [0.15, 0.07], 0.0)
    weekend = np.where((day.astype("datetime64[D]").astype(int) + 3) % 7 >= 5, 0.05, 0.0)
    return base + season + tier + weekend


def make_lines(rows, seed):
    """The lines of the file without their ends."""
    generator = np.random.default_rng(seed)
    seconds = np.sort(generator.integers(0, DAYS * 86400, rows))
    times = FIRST_DAY.astype("datetime64[s]") + seconds
    day = times.astype("datetime64[D]")
    day_of_year = (day - day.astype("datetime64[Y]")).astype(int) + 1
    popularity = 1 / np.sqrt(1 + np.arange(len(CATEGORIES)))
    category = generator.permutation(len(CATEGORIES))[
        generator.choice(len(CATEGORIES), rows, p=popularity / popularity.sum())]
    product = generator.integers(0, 4, rows)
    extra = generator.integers(0, len(EXTRAS), rows)
    quantity = np.minimum(generator.geometric(0.3, rows), 24)
    typical = np.array([row[2] for row in CATEGORIES], dtype=float)[category]
    price = np.round(typical * np.exp(generator.normal(0, 0.45, rows)), 2)
    haggled = 1 + np.clip(generator.normal(0, 0.02, rows), -0.06, 0.06)
    off = discounts(category, day, day_of_year, quantity)
    total = np.maximum(np.round(quantity * price * (1 - off) * haggled, 2), 0.01)
    user = generator.integers(0, max(rows // 12, 1), rows)

    columns = (product, extra, category, np.datetime_as_string(day),
               np.datetime_as_string(times), quantity, price, user, total)
    lines = []
    for number, (p, e, c, date, time, q, unit, u, t) in enumerate(
            zip(*(column.tolist() for column in columns)), 1):
        name, code, *_, products = CATEGORIES[c]
        lines.append(f"{products[p]}{EXTRAS[e]}\t{code}-{8 * p + e:03d}\t{date}\t{time}Z\t{q}\t{unit:.2f}"
                     f"\t{name}\tuser{u:05d}\t{t:.2f}\t{number}")
    return lines


def replace(column, text):
    def broken(fields):
        return b"\t".join([*fields[:column], text, *fields[column + 1:]])
    return broken


# How a line can be broken. `strange` is not malformed but a category that hardly ever comes up.
BREAKS = {
    "missing field": lambda fields: b"\t".join(fields[:-1]),
    "extra field": lambda fields: b"\t".join([*fields, b"again"]),
    "empty line": lambda fields: b"",
    "empty field": replace(6, b""),
    "bad quantity": replace(4, b"three"),
    "bad price": replace(5, b"12,50"),
    "bad total": replace(8, b"9.99 EUR"),
    "negative": replace(4, b"-2"),
    "NaN": replace(8, b"nan"),
    "too large": replace(5, b"1e300"),
    "no such day": replace(2, b"2023-02-30"),
    "no date": replace(2, b"17.03.2023"),
    "broken UTF-8": replace(0, b"Caf\xc3 cr\xe8me"),
    "strange": replace(6, "Curiosités".encode()),
}


def break_lines(lines, share, seed):
    """Breaks that share of the lines, which are bytes, in place. Returns how many of each kind."""
    chosen = np.random.default_rng([seed, 1]).permutation(len(lines))[:round(share * len(lines))]
    counts = dict.fromkeys(BREAKS, 0)
    for turn, index in enumerate(chosen.tolist()):
        kind = list(BREAKS)[turn % len(BREAKS)]
        lines[index] = BREAKS[kind](lines[index].split(b"\t"))
        counts[kind] += 1
    return counts


def make_sales(rows=ROWS, seed=1, malformed=0.0, crlf=False):
    """The file's bytes, and how many lines are broken in which way."""
    lines = make_lines(rows, seed)
    end = b"\r\n" if crlf else b"\n"
    if malformed == 0:
        text = end.decode().join([*lines, ""] if lines else []).encode()
        return text, dict.fromkeys(BREAKS, 0)
    encoded = [line.encode() for line in lines]
    counts = break_lines(encoded, malformed, seed)
    return b"".join(line + end for line in encoded), counts


def write(path, data):
    """Under a temporary name first, so that a reader never finds half a file."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("a share is a number from 0 to 1")
    return value


def count(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def main(arguments=None):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=count, default=ROWS, help=f"lines to make (default {ROWS})")
    parser.add_argument("--seed", type=count, default=1, help="another seed, other sales (default 1)")
    parser.add_argument("--malformed", type=share, default=0.0, metavar="SHARE",
                        help="break this share of the lines, 0 to 1 (default 0)")
    parser.add_argument("--crlf", action="store_true", help="end the lines as Windows does")
    parser.add_argument("--out", type=Path, default=Path("data/sales.tsv"), metavar="FILE",
                        help="default data/sales.tsv, where train_sales looks for it")
    options = parser.parse_args(arguments)
    data, counts = make_sales(options.rows, options.seed, options.malformed, options.crlf)
    try:
        write(options.out, data)
    except OSError as error:
        sys.exit(f"make_sales.py: {error}")
    print(f"{options.out}: {options.rows} lines, {len(data) / 1e6:.1f} MB")
    for kind, number in counts.items():
        if number:
            print(f"  {number:6d} {kind}")


if __name__ == "__main__":
    main()
