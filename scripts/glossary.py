#!/usr/bin/env python3
"""Links the first use of each term in the READMEs of the steps to its entry in docs/glossary.md.

    scripts/glossary.py            writes the links, and takes away those that stand elsewhere
    scripts/glossary.py --check    writes nothing: exit code 1 where one is missing or wrong

`course_lib/glossary.py` says what an entry looks like, and which uses count. The entries are checked, too:
each has an anchor of its own, a sentence, and a link to the step that teaches it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from course_lib import glossary, terminal
from course_lib.arguments import Parser
from course_lib.structure_rules import order, step_of

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where a link is missing")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(arguments)
    file = options.root / "docs" / "glossary.md"
    try:
        terms = glossary.terms(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"docs/glossary.md: {terminal.visible(str(error))}", file=sys.stderr)
        return 1
    problems = [f"docs/glossary.md: {what}" for what in glossary.mistakes_of(terms)]
    problems += [f"docs/glossary.md: '{term.name}' links {target}, which does not exist"
                 for term in terms for _, target in glossary.ANY_LINK.findall(term.text)
                 if not (file.parent / target).exists()]
    links = 0
    for readme in sorted(options.root.glob("stage*/*/README.md")):
        name = readme.relative_to(options.root).as_posix()
        if step_of(name) is None:
            continue
        stage, number = order(step_of(name))
        text, step = readme.read_text(encoding="utf-8"), f"{stage}.{number}"
        found = glossary.findings(text, terms, step)
        if found and options.check:
            problems += [f"{name}:{one}: run `scripts/glossary.py`" for one in found]
        elif found:
            text = glossary.with_links(text, terms, step)
            readme.write_text(text, encoding="utf-8")
            print(f"{name}: written")
        links += len(glossary.LINK.findall(text))
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"glossary: {len(terms)} terms, {links} links from the steps")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
