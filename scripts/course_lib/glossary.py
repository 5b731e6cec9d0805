"""The entries of docs/glossary.md, and the links to them in the READMEs of the steps.

An entry is an item of a list. The comment behind its term is optional:

    - <a id="wave"></a>**wave** <!-- also: warp, warps; from: 0; until: 9; not: 0.5 --> — Text. [0.1](...)

`also` are other words that mean it; the plural need not be listed. `only` are the words that are linked in
place of the term, where that means other things as well. `from` and `until` are the stages, and `not` are
the steps, in which it is linked or not: a word that stage 1 has taught need not be blue in stage 7.

A link stands at the first use in a README outside of code, headings, tables, links and emphasis.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

TARGET = "../../docs/glossary.md"  # from a step's README
LAST_STAGE = 99
KEYS = {"also", "only", "from", "until", "not"}

ENTRY = re.compile(r'^- <a id="([\w-]+)"></a>\*\*([^*]+)\*\*(?: <!--([^>]*)-->)? — (.*(?:\n  .*)*)', re.MULTILINE)
LINK = re.compile(r"\[([^\[\]]*)\]\(" + re.escape(TARGET) + r"#([\w-]*)\)")
ANY_LINK = re.compile(r"!?\[([^\[\]]*)\]\(([^)\s]*)\)")
# What is not read: tables that a script writes, code, headings, rows, comments and tags, links, emphasis.
NOT_PROSE = [re.compile(pattern, re.DOTALL | re.MULTILINE) for pattern in (
    r"<!-- table\b.*?<!-- end table -->", r"^```.*?^```[^\n]*$", r"`[^`]*`", r"^#[^\n]*$", r"^\s*\|[^\n]*$",
    r"<!--.*?-->|<[a-z/][^>]*>", ANY_LINK.pattern, r"\*\*[^*]+\*\*", r"\*[^*\s][^*]*\*")]
NOT_FILLED = re.compile(r"\s*(\||<|```|#)")  # lines that are no prose
ITEM = re.compile(r"^(\s*)((?:[-*]|\d+\.)\s+)?")


@dataclass(frozen=True)
class Term:
    anchor: str
    name: str
    forms: tuple[str, ...]  # the words that are linked
    stages: range
    without: frozenset[str]  # steps, "0.5"
    text: str

    def is_linked_in(self, step: str) -> bool:
        return int(step.split(".")[0]) in self.stages and step not in self.without


@dataclass(frozen=True)
class Use:
    """A first use, and where it is in the text: characters first to last."""

    term: Term
    first: int
    last: int


def plural(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|z|ch|sh)$", word) else "s")


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def terms(glossary: str) -> list[Term]:
    """The entries. Raises ValueError where one can't be read."""
    items = [line for line in glossary.splitlines() if line.startswith("- ")]
    found = []
    for entry in ENTRY.finditer(glossary):
        options = {}
        for option in filter(str.strip, (entry[3] or "").split(";")):
            key, _, value = option.partition(":")
            if key.strip() not in KEYS or not value.strip():
                raise ValueError(f"'{entry[2]}': '{option.strip()}' means nothing")
            options[key.strip()] = [one.strip() for one in value.split(",")]
        forms = options.get("only") or [entry[2], plural(entry[2]), *options.get("also", [])]
        stages = range(int(options.get("from", [0])[0]), int(options.get("until", [LAST_STAGE])[0]) + 1)
        found.append(Term(entry[1], entry[2], tuple(dict.fromkeys(forms)), stages,
                          frozenset(options.get("not", ())), " ".join(entry[4].split())))
    if len(found) != len(items):
        known = {f'- <a id="{term.anchor}"></a>' for term in found}
        bad = next(line for line in items if not any(line.startswith(one) for one in known))
        raise ValueError(f"this is no entry: {bad[:60]}")
    return found


def mistakes_of(found: list[Term]) -> list[str]:
    """What is wrong with the entries themselves; whether their links lead somewhere, the caller says."""
    said, owners = [], {}
    for term in found:
        if term.anchor != slug(term.name):
            said.append(f"'{term.name}' has the anchor {term.anchor}, not {slug(term.name)}")
        for form in term.forms:
            if owners.setdefault(form.lower(), term.anchor) != term.anchor:
                said.append(f"'{form}' belongs to {owners[form.lower()]} and to {term.anchor}")
        if not ANY_LINK.search(term.text):
            said.append(f"'{term.name}' names no step that teaches it")
        if not re.search(r"[a-z)`0-9]\.( |$)", ANY_LINK.sub("", term.text)):
            said.append(f"'{term.name}' has no sentence")
    return said


def pattern_of(form: str) -> str:
    """A form with a capital letter is written so; another one may begin a sentence. Its words may stand on
    two lines."""
    words = r"\s+".join(re.escape(word) for word in form.split())
    if form == form.lower() and form[0].isalpha():
        words = f"[{form[0]}{form[0].upper()}]" + words[1:]
    return words


def without_links(readme: str) -> str:
    """The README with what the links to entries show in their place."""
    return LINK.sub(r"\1", readme)


def first_uses(readme: str, found: list[Term], step: str) -> list[Use]:
    """Where each term is used first, in the order of the text. Of two terms that begin at the same place
    the longer one counts: `shared memory bank conflict` uses `bank conflict` and not `bank`."""
    prose = readme
    for pattern in NOT_PROSE:
        prose = pattern.sub(lambda match: re.sub(r"[^\n]", "\0", match[0]), prose)
    owners = {form: term for term in found for form in term.forms}
    ordered = sorted(owners, key=len, reverse=True)
    words = re.compile(r"(?<![\w-])(?=\w)(?:" + "|".join(f"({pattern_of(form)})" for form in ordered) + r")(?![\w-])")
    first: dict[str, Use] = {}
    for match in words.finditer(prose):
        term = owners[ordered[match.lastindex - 1]]
        if term.is_linked_in(step):
            first.setdefault(term.anchor, Use(term, match.start(), match.end()))
    return sorted(first.values(), key=lambda use: use.first)


def right_links(readme: str, found: list[Term], step: str) -> tuple[set[str], dict[str, tuple[int, str]]]:
    """The anchors whose link stands at the term's first use; and of the others that the README uses, the line
    and the words of that use."""
    plain = without_links(readme)
    uses = {use.term.anchor: use for use in first_uses(plain, found, step)}
    removed, right, lines = 0, set(), {}
    for link in LINK.finditer(readme):
        shown = link.start() - removed  # where its text begins without links
        if link[2] in uses and uses[link[2]].first == shown:
            right.add(link[2])
        removed += len(link[0]) - len(link[1])
    for anchor in uses.keys() - right:
        use = uses[anchor]
        lines[anchor] = (plain.count("\n", 0, use.first) + 1, " ".join(plain[use.first:use.last].split()))
    return right, lines


def findings(readme: str, found: list[Term], step: str) -> list[str]:
    """What is wrong with the links of a step's README: `line: what`."""
    right, missing = right_links(readme, found, step)
    said, seen, anchors = [], set(), {term.anchor for term in found}
    for link in LINK.finditer(readme):
        line = readme.count("\n", 0, link.start()) + 1
        if link[2] not in anchors:
            said.append((line, f"docs/glossary.md has no entry {link[2]}"))
        elif link[2] not in right or link[2] in seen:
            said.append((line, f"this link to {link[2]} does not stand at the first use of the term"))
        seen.add(link[2])
    said += [(line, f"the first use of '{word}' is no link to its entry {anchor}")
             for anchor, (line, word) in missing.items()]
    return [f"{line}: {what}" for line, what in sorted(said)]


def with_links(readme: str, found: list[Term], step: str) -> str:
    """The README with links at all first uses and nowhere else. Paragraphs that get or lose one are filled
    again, as wide as all but the longest lines of prose are."""
    right, _ = right_links(readme, found, step)
    left, lines = set(right), set()

    def kept(link: re.Match) -> str:  # the first link of those that are right
        if link[2] not in left:
            lines.add(readme.count("\n", 0, link.start()))
            return link[1]
        left.remove(link[2])
        return link[0]

    text = LINK.sub(kept, readme)
    lengths = sorted(len(line) for line in without_links(text).splitlines()
                     if line and not NOT_FILLED.match(line) and "](" not in line and len(line) <= 120)
    width = lengths[int(0.95 * len(lengths))] if lengths else 100
    for use in reversed(first_uses(text, found, step)):
        if use.term.anchor in right:  # the first use is a link, this is another one
            continue
        lines.add(text.count("\n", 0, use.first))
        shown = text[use.first:use.last]
        text = f"{text[:use.first]}[{shown}]({TARGET}#{use.term.anchor}){text[use.last:]}"
    return _filled(text, lines, width)


def _filled(text: str, chosen: set[int], width: int) -> str:
    """The paragraphs and items that the chosen lines, counted from 0, are in, filled again."""
    lines, out, at = text.split("\n"), [], 0
    while at < len(lines):
        end = at + 1
        if lines[at].strip() and not NOT_FILLED.match(lines[at]):
            while end < len(lines) and lines[end].strip() and not ITEM.match(lines[end])[2] \
                    and not NOT_FILLED.match(lines[end]):
                end += 1
        if chosen.isdisjoint(range(at, end)):
            out += lines[at:end]
        else:
            indent, mark = ITEM.match(lines[at])[1], ITEM.match(lines[at])[2] or ""
            body = " ".join(line.strip() for line in lines[at:end])[len(mark):]
            # What is between `` or [] stays on its line, so that no line begins with a mark of an item.
            body = re.sub(r"`[^`]*`|" + ANY_LINK.pattern, lambda whole: whole[0].replace(" ", "\0"), body)
            out += textwrap.fill(body, width, initial_indent=indent + mark, break_long_words=False,
                                 subsequent_indent=indent + " " * len(mark),
                                 break_on_hyphens=False).replace("\0", " ").split("\n")
        at = end
    return "\n".join(out)
