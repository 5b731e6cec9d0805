"""scripts/make_sales.py: the sales that train_sales learns from."""

from __future__ import annotations

import datetime
import subprocess
import sys

import pytest

from conftest import ROOT

np = pytest.importorskip("numpy")
import make_sales  # noqa: E402

SCRIPT = ROOT / "scripts" / "make_sales.py"


def fields(data: bytes) -> list[list[str]]:
    return [line.split("\t") for line in data.decode().splitlines()]


def test_rows_are_ten_good_fields_in_the_order_of_time():
    data, counts = make_sales.make_sales(rows=2000, seed=3)
    rows = fields(data)
    assert len(rows) == 2000 and sum(counts.values()) == 0
    times = []
    for number, row in enumerate(rows, 1):
        name, code, date, time, quantity, price, category, user, total, identity = row
        day = datetime.date.fromisoformat(date)
        assert datetime.date(2023, 1, 1) <= day <= datetime.date(2024, 12, 31)
        assert time.startswith(date) and time.endswith("Z")
        assert int(quantity) >= 1 and float(price) > 0 and float(total) > 0
        assert name and code and user and int(identity) == number
        assert category in {shelf[0] for shelf in make_sales.CATEGORIES}
        times.append(time)
    assert times == sorted(times)
    assert len({row[6] for row in rows}) == len(make_sales.CATEGORIES) == 16
    assert any(ord(character) > 127 for row in rows for character in row[0])


def test_totals_have_discounts_that_can_be_learned():
    rows = fields(make_sales.make_sales(rows=20000)[0])
    paid = np.array([float(row[8]) / (int(row[4]) * float(row[5])) for row in rows])
    assert 0.6 < paid.mean() < 0.95
    category = np.array([row[6] for row in rows])
    quantity = np.array([int(row[4]) for row in rows])
    assert paid[category == "Clothing"].mean() < paid[category == "Books"].mean() - 0.1
    assert paid[quantity >= 10].mean() < paid[quantity < 5].mean() - 0.1
    weekend = np.array([datetime.date.fromisoformat(row[2]).weekday() >= 5 for row in rows])
    assert paid[weekend].mean() < paid[~weekend].mean() - 0.03
    winter = np.array([row[2][5:7] in ("01", "12") for row in rows]) & (category == "Kitchen")
    summer = np.array([row[2][5:7] in ("06", "07") for row in rows]) & (category == "Kitchen")
    assert paid[winter].mean() < paid[summer].mean() - 0.05


def test_a_seed_is_a_file():
    assert make_sales.make_sales(500, seed=5) == make_sales.make_sales(500, seed=5)
    assert make_sales.make_sales(500, seed=5) != make_sales.make_sales(500, seed=6)


def test_a_share_of_the_lines_is_broken_in_every_way():
    good = make_sales.make_sales(1000)[0].splitlines()
    data, counts = make_sales.make_sales(1000, malformed=0.1)
    lines = data.split(b"\n")[:-1]
    assert len(lines) == 1000
    assert sum(counts.values()) == 100 and min(counts.values()) > 0
    assert sum(a != b for a, b in zip(good, lines)) == 100
    with pytest.raises(UnicodeDecodeError):
        data.decode()
    for broken in (b"2023-02-30", b"12,50", b"\tnan\t", "Curiosités".encode()):
        assert broken in data


def test_lines_end_as_asked():
    assert make_sales.make_sales(10)[0].count(b"\r") == 0
    data = make_sales.make_sales(10, crlf=True)[0]
    assert data.count(b"\r\n") == data.count(b"\n") == 10
    broken = make_sales.make_sales(100, malformed=0.5, crlf=True)[0]
    assert broken.count(b"\r\n") == broken.count(b"\n") == 100
    assert make_sales.make_sales(0)[0] == b""


def test_the_program_writes_the_file_and_refuses_nonsense(tmp_path):
    out = tmp_path / "data" / "sales.tsv"
    result = subprocess.run([sys.executable, SCRIPT, "--rows", "300", "--malformed", "0.2", "--out", out],
                            capture_output=True, text=True, check=True)
    assert "300 lines" in result.stdout and "broken UTF-8" in result.stdout
    assert out.read_bytes().count(b"\n") == 300
    assert list(out.parent.iterdir()) == [out]
    for arguments in (["--rows", "-1"], ["--malformed", "1.5"], ["--rows", "many"]):
        refused = subprocess.run([sys.executable, SCRIPT, *arguments, "--out", out],
                                 capture_output=True, text=True)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
    missing = subprocess.run([sys.executable, SCRIPT, "--rows", "1", "--out", out / "below"],
                             capture_output=True, text=True)
    assert missing.returncode == 1 and "Traceback" not in missing.stderr
