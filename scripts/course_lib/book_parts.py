"""What the book's pages have that their documents do not: diffs, hints, tabs of devices, sources, notebooks.

Everything is Markdown or HTML that stands in Markdown. What a search should not find, such as a hint, is in a
<section data-search-exclude>; Material's index needs a tag for it that does not occur inside.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

import tables

from . import diffs, exercises
from .steps import Step

STYLE = diffs.STYLE
LANGUAGES = {".hip": "cpp", ".h": "cpp", ".cpp": "cpp", ".py": "python", ".toml": "toml", ".cmake": "cmake",
             ".yml": "yaml", ".json": "json"}
# Before the first of these, what a step teaches is told.
BEHIND_THE_LADDER = re.compile(r"^## (Run it|What it prints|Try|Exercises)\b.*$", re.MULTILINE)
HIDDEN = "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n"


def step_page(step: Step, readme: str) -> str:
    """A step's README with its versions from neighbour to neighbour, and its exercises' hints."""
    if diffs.neighbours(step):
        place = BEHIND_THE_LADDER.search(readme)
        at = place.start() if place else len(readme)
        ladder = ("## Line by line\n\nEach version beside the one before it; opened, these show the exercises' "
                  f"solutions.\n\n{_unsearched(diffs.ladder(step))}\n\n")
        readme = f"{readme[:at].rstrip()}\n\n{ladder}{readme[at:]}"
    if exercises.has_exercises(step):
        readme = f"{readme.rstrip()}\n\n## Hints\n\n{hints(exercises.load(step))}\n"
    return readme


def hints(course: exercises.Course) -> str:
    """Every exercise, folded, with its hints inside each other: the next is in sight when one is open."""
    parts = []
    for exercise in course.exercises:
        nested = ""
        for number, hint in reversed(list(enumerate(exercise.hints, 1))):
            nested = (f'<details class="tip"><summary>Hint {number} of {len(exercise.hints)}</summary>'
                      f"<p>{_inline(hint)}</p>{nested}</details>")
        parts.append(f'<details class="question"><summary><code>{html.escape(exercise.name)}</code></summary>'
                     f"<p>{_inline(exercise.region.task)}: in <code>{html.escape(exercise.file)}</code></p>"
                     f"{nested}</details>")
    number = course.step.number
    return (f"`scripts/course start {number}` empties these lines in a copy of your own, "
            f"`scripts/course check {number}` judges what you write there.\n\n" + _unsearched("\n".join(parts)))


def _inline(text: str) -> str:
    """A line of text, of which what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def _unsearched(text: str) -> str:
    return f'<section data-search-exclude="true">\n{text}\n</section>'


def with_devices(text: str, reports: tables.Reports, root: str) -> str:
    """The document with a tab for each device in place of tables one below the other."""
    def fill(match: re.Match) -> str:
        having = {device: programs for device, programs in reports.items()
                  if match[1] == "summary" or match[1] in programs}
        if len(having) < 2:
            return match[0]
        tabs = []
        for device, programs in having.items():
            one = {device: programs}
            block = (tables.summary_block(one, root) if match[1] == "summary" else
                     tables.program_block(match[1], one, root))
            name = next(iter(programs.values()))["device"]["name"]
            tabs.append(f'=== "{tables.visible(name).replace(chr(34), "")}"\n\n' + _indented(block))
        return "\n\n".join(tabs) + "\n"

    return tables.BLOCK.sub(fill, text)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


# ---- Files of the repository -------------------------------------------------------------------


def source_page(path: Path, text: str) -> str:
    """A page that shows a source file, with the numbers of its lines."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    language = LANGUAGES.get(path.suffix, "text")
    return (f"{HIDDEN}# {_escaped(path.name)}\n\n`{path.as_posix()}`{_of_step(path)}\n\n"
            f'{fence}{language} linenums="1"\n{text}{fence}\n')


def folder_page(folder: Path, names: list[str]) -> str:
    """A page that lists the files of a folder."""
    files = "\n".join(f"- [`{name}`]({name})" for name in names)
    place = f"`{folder.as_posix()}`{_of_step(folder / 'index.md')}"
    return f"{HIDDEN}# {_escaped(folder.name)}/\n\n{place}\n\n{files}\n"


def _of_step(path: Path) -> str:
    """Where a file of a step is: with a link to the step's page."""
    if not re.match(r"stage\d+_\w+/\d\d_\w+/", path.as_posix()):
        return ""
    stage, step = path.parts[:2]
    number = f"{stage.removeprefix('stage').partition('_')[0]}.{int(step[:2])}"
    up = "../" * (len(path.parts) - 3)
    return f", of step [{number} {_escaped(step[3:])}]({up}README.md)"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>])", r"\\\1", text)


# ---- Notebooks ---------------------------------------------------------------------------------

COLAB = "https://colab.research.google.com/github/"
NOTEBOOK = "notebooks/first_gpu_kernels.ipynb"
NO_ADDRESS = 'REPOSITORY = ""'  # in its first cell


def notebook_page(notebook: dict) -> str:
    """A notebook to read: its texts, and its cells as code."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"]).rstrip()
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def with_repository(text: str, repository: str | None) -> str:
    """The document with the repository's address, OWNER/NAME on GitHub, where it asks for it."""
    if repository is None:
        return text
    text = text.replace(f"({COLAB})", f"({COLAB}{repository}/blob/main/{NOTEBOOK})")
    return text.replace(NO_ADDRESS, f'REPOSITORY = "https://github.com/{repository}"')


def without_network(text: str) -> str:
    """The document with the words of pictures that are elsewhere in place of the pictures."""
    return re.sub(r"!\[([^\]]*)\]\([a-z]+://[^)]*\)", r"\1", text)
