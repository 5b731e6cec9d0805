"""scripts/glossary.py: which uses of a term are linked, and what it finds where a link is missing or wrong."""

from __future__ import annotations

from pathlib import Path

import glossary as script  # scripts/glossary.py
import pytest
from conftest import ROOT, write
from course_lib import glossary

ENTRIES = """# Words

- <a id="barrier"></a>**barrier** — All threads wait here. [1.1](../stage1_vector/01_vector_add/)
- <a id="wave"></a>**wave** <!-- also: warp, warps; until: 1 --> — Threads of one instruction, 32 or
  64 of them. [1.1](../stage1_vector/01_vector_add/)
- <a id="bank"></a>**bank** <!-- not: 1.2 --> — A part of memory. [1.1](../stage1_vector/01_vector_add/)
- <a id="bank-conflict"></a>**bank conflict** — Two lanes, one bank. [1.1](../stage1_vector/01_vector_add/)
- <a id="limit"></a>**limit** <!-- only: copy limit --> — What was reached. [1.1](../stage1_vector/01_vector_add/)
- <a id="tma"></a>**TMA** — An engine. [1.1](../stage1_vector/01_vector_add/)
"""
README = "stage1_vector/01_vector_add/README.md"


@pytest.fixture
def terms() -> list[glossary.Term]:
    return glossary.terms(ENTRIES)


def used(text: str, terms: list[glossary.Term], step: str = "1.1") -> list[str]:
    return [f"{use.term.anchor}: {text[use.first:use.last]}" for use in glossary.first_uses(text, terms, step)]


@pytest.mark.parametrize(("text", "found"), [
    ("A barrier, and a barrier.", ["barrier: barrier"]),
    ("Barriers help.", ["barrier: Barriers"]),
    ("Warps of a wave.", ["wave: Warps"]),
    ("Its bank\nconflicts, its bank.", ["bank-conflict: bank\nconflicts", "bank: bank"]),
    ("The limit is the copy limit.", ["limit: copy limit"]),
    ("Only TMA, not tma.", ["tma: TMA"]),
    ("mbarrier, barrier-free, wavelet", []),
    ("# barrier\n\n| barrier |\n\n`barrier` **Barrier.** *barrier* <!-- barrier -->", []),
    ("```\nbarrier\n```\n<!-- table: x -->\nbarrier\n<!-- end table -->\n", []),
    ("See [the barrier of 1.3](../03_dot/), in [-1, 1). A wave.", ["wave: wave"]),
])
def test_first_uses(text: str, found: list[str], terms: list[glossary.Term]):
    assert used(text, terms) == found


def test_a_step_may_be_left_out(terms: list[glossary.Term]):
    text = "A bank, a wave."
    assert used(text, terms, "1.2") == ["wave: wave"]
    assert used(text, terms, "2.1") == ["bank: bank"]


TEXT = """# 1.1

The first wave of the block comes to a barrier, and `waits - there` for the others to come there too.

- An item with a barrier.
- Another one, with warps and bank conflicts that are long enough to be filled again, as wide as before.
"""
LINKED = """# 1.1

The first [wave](../../docs/glossary.md#wave) of the block comes to a
[barrier](../../docs/glossary.md#barrier), and `waits - there` for the others to come there too.

- An item with a barrier.
- Another one, with warps and [bank conflicts](../../docs/glossary.md#bank-conflict) that are long
  enough to be filled again, as wide as before.
"""


def test_links_are_written_where_a_term_is_used_first(terms: list[glossary.Term]):
    assert glossary.with_links(TEXT, terms, "1.1") == LINKED
    assert glossary.with_links(LINKED, terms, "1.1") == LINKED
    assert glossary.findings(LINKED, terms, "1.1") == []
    assert glossary.findings(TEXT, terms, "1.1") == [
        "3: the first use of 'barrier' is no link to its entry barrier",
        "3: the first use of 'wave' is no link to its entry wave",
        "6: the first use of 'bank conflicts' is no link to its entry bank-conflict"]


@pytest.mark.parametrize(("before", "after", "found"), [
    ("item with a barrier", "item with a [barrier](../../docs/glossary.md#barrier)",
     ["6: this link to barrier does not stand at the first use of the term"]),
    ("[wave](../../docs/glossary.md#wave)", "wave", ["3: the first use of 'wave' is no link to its entry wave"]),
    ("#wave)", "#waves)", ["3: docs/glossary.md has no entry waves",
                           "3: the first use of 'wave' is no link to its entry wave"]),
    ("The first [wave]", "A warp, the first [wave]",
     ["3: this link to wave does not stand at the first use of the term",
      "3: the first use of 'warp' is no link to its entry wave"]),
])
def test_a_link_that_is_missing_or_elsewhere_is_found(before, after, found, terms: list[glossary.Term]):
    text = LINKED.replace(before, after)
    assert text != LINKED
    assert sorted(glossary.findings(text, terms, "1.1")) == sorted(found)
    written = glossary.with_links(text, terms, "1.1")
    assert glossary.findings(written, terms, "1.1") == []


@pytest.mark.parametrize(("before", "after", "message"), [
    ('id="barrier"', 'id="barriers"', "'barrier' has the anchor barriers, not barrier"),
    ("All threads wait here. [1.1](../stage1_vector/01_vector_add/)", "All threads wait here.",
     "'barrier' names no step that teaches it"),
    ("All threads wait here.", "", "'barrier' has no sentence"),
    ("**TMA**", "**barrier**", "'barrier' belongs to barrier and to tma"),
    ("also: warp", "alias: warp", "'wave': 'alias: warp, warps' means nothing"),
    ("**bank** <!--", "bank <!--", "this is no entry: - <a id=\"bank\"></a>bank"),
    ("All threads wait here. [1.1](../stage1_vector/01_vector_add/)",
     "All threads wait here. [1.1](../stage1_vector/09_none/)",
     "'barrier' links ../stage1_vector/09_none/, which does not exist"),
])
def test_an_entry_that_is_wrong_is_found(before, after, message, tmp_path: Path, capsys):
    write(tmp_path, README, LINKED)
    assert before in ENTRIES
    write(tmp_path, "docs/glossary.md", ENTRIES.replace(before, after, 1))
    assert script.main(["--root", str(tmp_path), "--check"]) == 1
    assert message in capsys.readouterr().err


def test_readmes_are_written_once_and_then_agree(tmp_path: Path, capsys):
    write(tmp_path, "docs/glossary.md", ENTRIES)
    write(tmp_path, README, TEXT)
    assert script.main(["--root", str(tmp_path), "--check"]) == 1
    assert f"{README}:3: the first use of 'wave' is no link" in capsys.readouterr().err
    assert (tmp_path / README).read_text() == TEXT
    assert script.main(["--root", str(tmp_path)]) == 0
    assert (tmp_path / README).read_text() == LINKED
    assert script.main(["--root", str(tmp_path), "--check"]) == 0


def test_the_committed_readmes_agree():
    assert script.main(["--root", str(ROOT), "--check"]) == 0
