"""What object files define and call, by nm: whether a learner's file answers for the one it replaces.

Only names are compared that the linker sees; what is compiled in every file that uses it (inline functions,
templates) counts as defined only where another file relies on it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from . import documents, process

STRONG = set("TDBRSGAC")
WEAK = set("WVui")
LINE = re.compile(r"^(?:[0-9a-f]+)? *([A-Za-z]) (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Symbols:
    """The mangled names of one or more object files."""

    strong: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()

    @property
    def unresolved(self) -> frozenset[str]:
        """What none of the files defines."""
        return self.undefined - self.strong - self.weak


def of(paths: Iterable[Path]) -> Symbols:
    """The external symbols of object files, archives or programs; none of what nm can't read."""
    names = [*map(str, paths)]  # without one nm would look for a.out
    return _read(process.output(["nm", "-g", *names], any_exit_code=True) or "") if names else Symbols()


def _read(text: str) -> Symbols:
    """What nm -g has printed."""
    found = LINE.findall(text)

    def those(kinds: set[str]) -> frozenset[str]:
        # Compilers put names of their own into object files, such as HIP's __hip_cuid_1234.
        return frozenset(name for kind, name in found if kind in kinds and not name.startswith("__"))

    return Symbols(those(STRONG), those(WEAK), those({"U"}))


def together(some: Iterable[Symbols]) -> Symbols:
    """All names of all of them."""
    kinds = zip(*(vars(one).values() for one in [Symbols(), *some]))
    return Symbols(*(frozenset().union(*kind) for kind in kinds))


KEPT = {"mtime_ns": int, "size": int, "strong": str, "weak": str, "undefined": str}


class Kept:
    """of() for the files of a build, which asks nm once about each of them as it is: what nm has said is kept
    in the build's folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def of(self, names: Iterable[str]) -> Symbols:
        """`names` are the files' in the build's folder."""
        return together(map(self._of, names))

    def _of(self, name: str) -> Symbols:
        file, kept = self.folder / name, self.folder / "symbols" / f"{name}.json"
        if not file.is_file():
            return Symbols()
        status = file.stat()
        made = {"mtime_ns": status.st_mtime_ns, "size": status.st_size}
        try:
            known = documents.load(kept, lambda record: documents.require(record, KEPT, "what nm has said"))
        except ValueError:  # there is none yet, or it is broken
            known = {}
        if made.items() <= known.items():
            return Symbols(*(frozenset(known[field.name].split()) for field in fields(Symbols)))
        text = process.output(["nm", "-g", str(file)])
        if text is None:  # nm has failed, and may not fail another time
            return of([file])
        found = _read(text)
        words = {kind: " ".join(sorted(names)) for kind, names in vars(found).items()}
        kept.parent.mkdir(parents=True, exist_ok=True)
        documents.write(kept, json.dumps({**made, **words}).encode())
        return found


def inside(path: Path) -> frozenset[str]:
    """Every name that a program or a library defines, also those that it keeps to itself."""
    text = process.output(["nm", "--defined-only", str(path)], any_exit_code=True) or ""
    return frozenset(name for _, name in LINE.findall(text))


def plain(names: Iterable[str]) -> dict[str, str]:
    """The names as C++ writes them: "gemm::launch_tiled(float*, unsigned long)"."""
    wanted = sorted(names)
    answer = process.output(["c++filt", *wanted]) if wanted else ""
    lines = (answer or "").splitlines()
    return dict(zip(wanted, lines)) if len(lines) == len(wanted) else {name: name for name in wanted}


def refusal(file: str, mine: Symbols, replaced: Symbols, others: Symbols) -> str:
    """Why `mine` can't take the place of `replaced`, in a line; "" where it can. `others` are the step's
    other files."""
    promised = replaced.strong | replaced.weak & others.undefined - others.strong - others.weak
    missing = promised - mine.strong - mine.weak
    extra = mine.strong - promised
    twice = extra & others.strong
    if not missing and not twice:
        return ""
    words = plain(missing | extra)
    lacking = sorted(words[name] for name in missing)
    own = sorted(words[name] for name in extra)
    if not missing:
        return f"{file} defines {words[min(twice)]}, which another file of the step defines"
    for wanted in lacking:  # the same name with other parameters says most
        same = [name for name in own if _base(name) == _base(wanted)]
        if same:
            return f"{file} defines {same[0]}, but the step calls {wanted}"
    wanted = lacking[0]
    near = difflib.get_close_matches(_base(wanted), {_base(name) for name in own}, n=1, cutoff=0.6)
    if near:
        defined = next(name for name in own if _base(name) == near[0])
        return f"{file} defines {defined}, but the step calls {wanted}"
    launchers = [name for name in own if "launch" in name] or own
    if launchers:
        return f"{file} defines {launchers[0]}, but the step calls {wanted}"
    return f"{file} does not define {wanted}, which the step calls"


def _base(name: str) -> str:
    """"gemm::launch_tiled(float*)" -> "gemm::launch_tiled"."""
    return re.sub(r"[<(].*", "", name)
