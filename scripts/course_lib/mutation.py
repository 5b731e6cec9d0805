"""Mutants: a step's file with one mistake that people make.

mutants_of() reads a file as text, without a C++ parser. It finds kernels, device functions, launchers and
the exercises in other host code, and leaves references, bounds and tuning constants alone. Each operator
yields places of a function and what is put there instead.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Callable, Iterator

from .cpp_source import ATTRIBUTE, DIRECTIVE, blank, closing, line_of, without_comments
from .exercises import BEGIN, regions

KERNEL, LAUNCHER = "kernel", "launcher"  # a kernel or device function, or host code


@dataclass(frozen=True)
class Mutant:
    """One changed place of a file: text[start:end] becomes `put`."""

    file: str  # relative to the step's folder
    function: str
    line: int
    operator: str
    before: str  # the line or lines that change, and what they become
    after: str
    start: int
    end: int
    put: str
    key: str  # names the mutant: another one as soon as anything in the file is another

    def applied(self, text: str) -> str:
        return text[:self.start] + self.put + text[self.end:]


Edit = tuple[int, int, str]  # start, end, put


# ---- Reading a file ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    name: str
    kind: str
    head: int  # where its head begins
    start: int  # behind its opening brace, and where it is closed
    end: int


TOKEN = re.compile(
    r"[A-Za-z_]\w*|\d[\w.']*(?:(?<=[eE])[-+]\d+f?)?|\.\d+f?"
    r"|<<=|>>=|->|::|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|\S")
PRECEDENCE = {"*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "<<": 8, ">>": 8, "<": 7, "<=": 7, ">": 7, ">=": 7,
              "==": 6, "!=": 6, "&": 5, "^": 4, "|": 3, "&&": 2, "||": 1}
STOPS = {",", ";", "?", ":", "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
KEYWORDS = {"return", "else", "case", "do"}
OPENING = {"(": ")", "[": "]", "{": "}"}
# Statements without a mistake in them that shows in results: constants for tuning, names of types. Shared
# arrays have an operator of their own.
LEFT_ALONE = re.compile(
    r"(?<!if )\b(?:constexpr|static_assert|using|__shared__|template|typedef)\b[^;{]*[;{]")


@dataclass(frozen=True)
class Token:
    text: str
    start: int
    end: int
    binary: bool  # an operator between two operands: the formatter puts spaces around it


class Source:
    """A file's code: comments, strings, directives and what the CPU backend does not compile are blank."""

    def __init__(self, text: str):
        self.text = text
        self.code = _without_other_backends(without_comments(text))
        self.alone = [found.span() for found in LEFT_ALONE.finditer(self.code)]

    def is_left_alone(self, start: int) -> bool:
        return any(first <= start < last for first, last in self.alone)

    @cached_property
    def functions(self) -> list[Function]:
        return list(_functions(self.code, 0, len(self.code)))

    @cached_property
    def exercises(self) -> list[tuple[int, int]]:
        """Where the lines of the exercises begin and end."""
        if not any(map(BEGIN.match, self.text.splitlines())):
            return []
        ends = [0]
        for line in self.text.splitlines(keepends=True):
            ends.append(ends[-1] + len(line))
        return [(ends[region.first], ends[region.last]) for region in regions(self.text, "this file")]


def _without_other_backends(code: str) -> str:
    """The code without directives, and without the branches that only other backends compile."""
    kept, taken = [], []  # taken: for each open #if, whether its branch counts
    for part in re.split(f"({DIRECTIVE})", code, flags=re.MULTILINE):
        directive = re.match(r"[ \t]*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)", part, re.DOTALL)
        if directive:
            word, condition = directive[1], directive[2]
            cpu = "GPU_BACKEND_CPU" in condition
            other = bool(re.search(r"GPU_BACKEND_(CUDA|HIP)|__CUDA_ARCH__|__HIP|__gfx", condition))
            no = "!" in condition or word == "ifndef"
            if word == "endif":
                taken.pop()
            elif word == "else":
                taken[-1] = not taken[-1]
            else:
                if word == "elif":
                    taken.pop()
                taken.append(not no if cpu else no if other else True)
        kept.append(part if all(taken) and not re.match(r"[ \t]*#", part) else blank(part))
    return "".join(kept)


def _functions(code: str, at: int, end: int) -> Iterator[Function]:
    """The functions between two offsets: of namespaces and, in them, of classes."""
    start = at
    while at < end:
        symbol = code[at]
        if symbol == "(":
            at = closing(code, at)
        elif symbol in ";}":
            start = at + 1
        elif symbol == "{":
            last, head = closing(code, at), code[start:at]
            if re.search(r"\b(?:namespace|class|struct|union|extern)\b[^()=]*$", head):
                yield from _functions(code, at + 1, last)
            elif re.search(r"\)[^;=]*:[^:;=]*\w\s*$", head):  # a member that a constructor begins with
                at = last + 1
                continue
            elif name := re.search(r"(\w+|operator\W+)\s*\(", _without_attributes(head)):
                device = re.search(r"\b__(?:global|device)__\b", head)
                yield Function(name[1], KERNEL if device else LAUNCHER, start, at + 1, last)
            at, start = last, last + 1
        at += 1


def _without_attributes(head: str) -> str:
    """A function's head without what stands before its name with parentheses of its own."""
    while attribute := ATTRIBUTE.search(head):
        last = closing(head, attribute.end() - 1)
        head = head[:attribute.start()] + blank(head[attribute.start():last + 1]) + head[last + 1:]
    return head


class Body:
    """The tokens of a function, and what operators ask of them."""

    def __init__(self, source: Source, function: Function, spans: list[tuple[int, int]]):
        self.source, self.function, self.code = source, function, source.code
        self.tokens = []
        for found in (f for first, last in spans for f in TOKEN.finditer(self.code, first, last)):
            before, after = self.code[found.start() - 1], self.code[found.end()]
            self.tokens.append(Token(found[0], *found.span(),
                                     found[0] in PRECEDENCE and before.isspace() and after.isspace()))
        self.names = {token.text for token in self.tokens}
        self.close: dict[int, int] = {}  # of brackets, by the number of their token; both ways
        open_ones: list[int] = []
        for i, token in enumerate(self.tokens):
            if token.text in OPENING:
                open_ones.append(i)
            elif token.text in OPENING.values() and open_ones:
                self.close[i] = open_ones.pop()
                self.close[self.close[i]] = i

    def __getitem__(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def words(self, first: int, last: int) -> str:
        """The code of tokens first to last, in one line."""
        return " ".join(self.code[self.tokens[first].start:self.tokens[last].end].split())

    def edit(self, first: int, last: int, put: str) -> Edit:
        return self.tokens[first].start, self.tokens[last].end, put

    def right_end(self, i: int) -> int:
        """The last token of the operand behind the operator i."""
        at = i + 1
        while at < len(self.tokens):
            token = self.tokens[at]
            if (token.text in STOPS or token.text in OPENING.values()
                    or token.binary and PRECEDENCE[token.text] <= PRECEDENCE.get(self[i], 0)):
                return at - 1
            at = self.close.get(at, at) + 1
        return len(self.tokens) - 1

    def left_start(self, i: int) -> int:
        """The first token of the operand before the operator i."""
        at = i - 1
        while at >= 0:
            token = self.tokens[at]
            if (token.text in STOPS or token.text in OPENING or token.text in KEYWORDS
                    or token.binary and PRECEDENCE[token.text] <= PRECEDENCE.get(self[i], 0)):
                return at + 1
            at = (self.close.get(at, at) if token.text in OPENING.values() else at) - 1
        return 0

    def arguments(self, i: int) -> list[tuple[int, int]]:
        """The first and last tokens of what stands between the parenthesis i and its end, by commas."""
        end, found, first, at = self.close.get(i, i), [], i + 1, i + 1
        while at < end:
            if self[at] == ",":
                found.append((first, at - 1))
                first = at + 1
            at = self.close.get(at, at) + 1 if self[at] in OPENING else at + 1
        return [*found, (first, end - 1)] if end > i + 1 else []

    def binaries(self, *texts: str) -> Iterator[int]:
        return (i for i, token in enumerate(self.tokens) if token.binary and token.text in texts)

    def calls(self, pattern: str) -> Iterator[tuple[int, int]]:
        """(first token of the name, with what qualifies it; the parenthesis) of calls."""
        for i, token in enumerate(self.tokens):
            if self[i + 1] == "(" and i + 1 in self.close and re.fullmatch(pattern, token.text):
                first = i
                while self[first - 1] == "::" and first >= 2:
                    first -= 2
                yield first, i + 1

    @cached_property
    def loops(self) -> list[tuple[int, int, int, int]]:
        """The tokens `(`, first `;`, second `;` and `)` of for loops."""
        found = []
        for i, token in enumerate(self.tokens):
            if token.text == "for" and self[i + 1] == "(" and i + 1 in self.close:
                end, at, stops = self.close[i + 1], i + 2, []
                while at < end:
                    if self[at] == ";":
                        stops.append(at)
                    at = self.close.get(at, at) + 1 if self[at] in OPENING else at + 1
                if len(stops) == 2:
                    found.append((i + 1, *stops, end))
        return found

    def in_loop_head(self, i: int) -> bool:
        return any(first < i < last for first, _, _, last in self.loops)

    def declares(self, i: int) -> bool:
        """Whether token i is a name that is declared here: behind a type's name or its star."""
        before = self[i - 1]
        return bool(re.fullmatch(r"\w+|>|[*&]", before)) and before not in KEYWORDS and not (
            self.tokens[i - 1].binary or re.match(r"\d", before))

    def is_statement(self, first: int) -> bool:
        return self[first - 1] in (";", "{", "}", ")", "") or self[first - 1] == "else"


# ---- Operators ---------------------------------------------------------------------------------

SHARED = "shared array one too small"

Operator = Callable[[Body], Iterator[Edit]]
OPERATORS: dict[str, tuple[Operator, str]] = {}  # by name; with the kind of function they are for, or ""


def operator(name: str, kind: str = KERNEL) -> Callable[[Operator], Operator]:
    def keep(one: Operator) -> Operator:
        OPERATORS[name] = one, kind
        return one
    return keep


@operator("barrier dropped")
def _barrier(body: Body) -> Iterator[Edit]:
    for first, bracket in body.calls(r"__syncthreads|wave_sync|grid_sync|__syncwarp"):
        if body.is_statement(first) and body[body.close[bracket] + 1] == ";":
            yield body.edit(first, body.close[bracket], "")


@operator("atomic dropped")
def _atomic(body: Body) -> Iterator[Edit]:
    for first, bracket in body.calls(r"atomic(Add|Min|Max)"):
        arguments, end = body.arguments(bracket), body.close[bracket]
        if len(arguments) != 2:
            continue
        place, value = (body.words(*argument) for argument in arguments)
        kind = body[bracket - 1]
        if kind == "atomicAdd":
            put = f"*({place}) += {value}"
            if not body.is_statement(first):  # the value before
                put = f"(({put}) - ({value}))"
        else:
            sign = "<" if kind == "atomicMin" else ">"
            put = f"*({place}) = {value} {sign} *({place}) ? {value} : *({place})"
        yield body.edit(first, end, put)


@operator("blocks assumed in order")
def _order(body: Body) -> Iterator[Edit]:
    for first, bracket in body.calls(r"atomic(Add|Inc)"):
        if not body.is_statement(first):
            yield body.edit(first, body.close[bracket], "blockIdx.x")


NEXT_TO = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


@operator("comparison off by one", "")
def _comparison(body: Body) -> Iterator[Edit]:
    for i in body.binaries(*NEXT_TO):
        if body[i] == ">" and body[i + 1] == "0":
            yield body.edit(i + 1, i + 1, "1")  # >= 0 would be an endless loop where it is unsigned
        else:
            yield body.edit(i, i, NEXT_TO[body[i]])


@operator("loop begins one later")
def _begins(body: Body) -> Iterator[Edit]:
    for bracket, first, second, last in body.loops:
        if any(body[i] in ("/=", ">>=") for i in range(second, last)):
            continue  # distances 17, 8, 4, 2, 1 reach every lane of a wave as 16, 8, 4, 2, 1 do
        for i in range(bracket + 1, first):
            if body[i] == "=":
                end = body.right_end(i)
                yield body.edit(end, end, f"{body.words(end, end)} + 1")
                break


@operator("stride changed")
def _stride(body: Body) -> Iterator[Edit]:
    for _, _, second, last in body.loops:
        for i in range(second + 1, last):
            if body[i] in ("+=", "-="):
                end = body.right_end(i)
                yield body.edit(i + 1, end, f"2 * ({body.words(i + 1, end)})")
            elif body[i] in ("/=", ">>=", "*=", "<<=") and body[i + 1] in ("1", "2"):
                yield body.edit(i + 1, i + 1, "4" if body[i + 1] == "2" else "2")
            elif body[i] == "++" and re.match(r"\w", body[i + 1]):
                yield body.edit(i, i + 1, f"{body[i + 1]} += 2")


def _subscripts(body: Body) -> Iterator[tuple[int, int]]:
    for i, token in enumerate(body.tokens):
        if token.text == "[" and i in body.close and re.fullmatch(r"\w+|\]|\)", body[i - 1]) and i:
            first = i
            while body[first - 1] == "]":
                first = body.close[first - 1]
            if (not _is_declarator(body, first - 1) and body.close[i] > i + 1
                    and body[i - 1] not in KEYWORDS):
                yield i, body.close[i]


def _is_declarator(body: Body, i: int) -> bool:
    """Whether the array whose name is token i is declared here: `float a[2], b[2];`."""
    while body[i - 1] == "," and body[i - 2] == "]":
        i -= 2
        while body[i] == "]":
            i = body.close[i] - 1
    return body.declares(i)


@operator("index off by one")
def _index(body: Body) -> Iterator[Edit]:
    for first, last in _subscripts(body):
        yield body.edit(first + 1, last - 1, f"{body.words(first + 1, last - 1)} + 1")


@operator("indices swapped")
def _indices(body: Body) -> Iterator[Edit]:
    for first, last in _subscripts(body):
        if body[last + 1] == "[" and last + 1 in body.close:
            end = body.close[last + 1]
            one, other = body.words(first + 1, last - 1), body.words(last + 2, end - 1)
            yield body.edit(first, end, f"[{other}][{one}]")
    pairs = {(name, axis) for i, name in enumerate(t.text for t in body.tokens) for axis in (body[i + 2],)
             if name in ("threadIdx", "blockIdx", "gridDim") and axis in ("x", "y")}  # most blocks are square
    for i, token in enumerate(body.tokens):
        if (token.text, "x") in pairs and (token.text, "y") in pairs and body[i + 2] in ("x", "y"):
            yield body.edit(i + 2, i + 2, "y" if body[i + 2] == "x" else "x")


PARTNERS = (("rows", "cols"), ("row", "col"), ("height", "width"), ("Rows", "Cols"), ("Row", "Col"))
SINGLE = {"M": ("N", "K"), "N": ("M", "K"), "K": ("N", "M"), "H": ("W",), "W": ("H",), "R": ("S",),
          "S": ("R",), "P": ("Q",), "Q": ("P",), "T": ("C",), "C": ("T", "N"), "B": ("T",)}


@operator("wrong dimension", "")
def _dimension(body: Body) -> Iterator[Edit]:
    for i, token in enumerate(body.tokens):
        name = token.text
        others = list(SINGLE.get(name, ()))
        for one, other in PARTNERS:
            for a, b in ((one, other), (other, one)):
                others += [name.replace(a, b)] if a in name else []
        other = next((o for o in others if o in body.names), None)
        if other and not body.declares(i):
            yield body.edit(i, i, other)


@operator("wrong initial value")
def _initial(body: Body) -> Iterator[Edit]:
    for i, token in enumerate(body.tokens):
        before, is_value = body[i - 1], body[i + 1] in (",", ";")
        if (token.text in ("0", "0.0f", "0u", "1", "1.0f") and before == "=" and body.declares(i - 2)
                and is_value and not body.in_loop_head(i)):
            other = {"0": "1", "0.0f": "1.0f", "0u": "1u", "1": "0", "1.0f": "0.0f"}
            yield body.edit(i, i, other[token.text])
        elif token.text in ("FLT_MAX", "INFINITY") and before == "-":
            yield body.edit(i - 1, i, "0.0f")


@operator("initial value missing")
def _missing(body: Body) -> Iterator[Edit]:
    for i in range(1, len(body.tokens)):
        if body[i] != "=" or body.in_loop_head(i):
            continue
        if body[i + 1] == "{" and body[i + 2] == "}" and body[i + 3] == ";":
            yield body.edit(i, i + 2, "")
        elif (re.fullmatch(r"0|0u|0\.0f", body[i + 1]) and body[i + 2] == ";" and body.declares(i - 1)
                and body[i - 3] != "const"):
            yield body.edit(i, i + 1, "")


@operator("wave size assumed")
def _wave(body: Body) -> Iterator[Edit]:
    for first, bracket in body.calls("wave_size"):
        end = body.close[bracket]
        yield body.edit(first, end, "32")
        if body[end + 1] == "/" and body[end + 2] == "2":
            yield body.edit(first, end + 2, "16")
    for first, bracket in body.calls("wave_ballot"):
        yield body.edit(first, body.close[bracket],
                        f"static_cast<unsigned>({body.words(first, body.close[bracket])})")
    for i, token in enumerate(body.tokens):
        if token.text == "WaveMask":
            first = i - 2 if body[i - 1] == "::" else i
            yield body.edit(first, i, "unsigned")


def _ifs(body: Body) -> Iterator[tuple[int, int]]:
    """The parentheses of conditions."""
    for i, token in enumerate(body.tokens):
        if token.text == "if" and body[i + 1] == "(" and i + 1 in body.close:
            yield i + 1, body.close[i + 1]


@operator("guard dropped", "")
def _guard(body: Body) -> Iterator[Edit]:
    for first, last in _ifs(body):
        leaves = body[last + 1] in ("return", "continue", "break") or (
            body[last + 1] == "{" and body[last + 2] in ("return", "continue", "break"))
        if body[last + 1] != "throw":
            yield body.edit(first + 1, last - 1, "false" if leaves else "true")
    for i, token in enumerate(body.tokens):
        if token.text == "?":
            first = _condition_start(body, i)
            if first < i:
                yield body.edit(first, i - 1, "true")


def _condition_start(body: Body, question: int) -> int:
    at = question - 1
    while at >= 0 and body[at] not in STOPS and body[at] not in OPENING and body[at] not in KEYWORDS:
        at = (body.close.get(at, at) if body[at] in OPENING.values() else at) - 1
    return at + 1


@operator("part of a guard dropped", "")
def _part(body: Body) -> Iterator[Edit]:
    for i in body.binaries("&&", "||"):
        yield body.edit(i, body.right_end(i), "")
        yield body.edit(body.left_start(i), i, "")


@operator("term dropped")
def _term(body: Body) -> Iterator[Edit]:
    for i in body.binaries("+", "-"):
        yield body.edit(i, body.right_end(i), "")
        if body[i] == "+":
            yield body.edit(body.left_start(i), i, "")


@operator("factor dropped")
def _factor(body: Body) -> Iterator[Edit]:
    for i in body.binaries("*", "/", "%"):
        yield body.edit(i, body.right_end(i), "")
        if body[i] == "*":
            yield body.edit(body.left_start(i), i, "")


@operator("sign changed")
def _sign(body: Body) -> Iterator[Edit]:
    other = {"+": "-", "-": "+", "+=": "-=", "-=": "+="}
    for i, token in enumerate(body.tokens):
        if token.binary and token.text in "+-" or token.text in ("+=", "-="):
            if not body.in_loop_head(i):
                yield body.edit(i, i, other[token.text])
        elif token.text == "-" and body[i - 1] in ("=", "(", ",", "return", "*", "?", ":"):
            yield body.edit(i, i, "")


@operator("int for size_t", "")
def _narrow(body: Body) -> Iterator[Edit]:
    """Of products of two sizes only: what counts threads, tiles or bytes fits an int."""
    def may_be_large(words: str) -> bool:
        return " * " in words and not re.search(r"\b(blockIdx|gridDim|k[A-Z]\w*|sizeof)\b", words)

    # What a loop counts in an int is small, and the size_t behind it makes the product one anyway.
    counters = {body[first + 2] for first, *_ in body.loops if body[first + 1] == "int"}
    for i, token in enumerate(body.tokens):
        if token.text == "size_t":
            first = i - 2 if body[i - 1] == "::" else i
            if body[i + 1] == "{" and may_be_large(body.words(i + 1, body.close[i + 1] + 2)):
                last = body.close[i + 1]
                yield body.edit(first, last, f"static_cast<int>({body.words(i + 2, last - 1)})")
            elif body[i + 2] == "=" and may_be_large(body.words(i + 3, body.right_end(i + 2))):
                yield body.edit(first, i, "int")
            elif body[i + 1] == ">" and body[i - 1] == "<" and body[i - 2] == "static_cast":
                counter = body.words(i + 3, body.close[i + 2] - 1) in counters
                if body[body.close[i + 2] + 1] == "*" and not counter:
                    yield body.edit(first, i, "int")


@operator(SHARED)
def _shared(body: Body) -> Iterator[Edit]:
    for i, token in enumerate(body.tokens):
        if token.text != "__shared__":
            continue
        at = i + 1
        while at < len(body.tokens) and body[at] != ";":
            if body[at] == "[" and body.close[at] > at + 1:
                inside = body.words(at + 1, body.close[at] - 1)
                # A padding holds nothing, and a limit is more than what is used.
                if not re.fullmatch(r"[12]|.*\+ *(1|k?[Pp]ad\w*)|.*\bkMax\w*", inside):
                    yield body.edit(at + 1, body.close[at] - 1, f"({inside}) - 1")
            at += 1


def _is_store(body: Body, i: int) -> bool:
    """Whether the token i assigns to an element or through a pointer."""
    if body[i - 1] == "]":
        at = i - 1
        while body[at] == "]":
            at = body.close[at] - 1
        return not body.declares(at)
    first = body.left_start(i)
    return body[first] == "*" and body.is_statement(first)


@operator("stored, not added")
def _stored(body: Body) -> Iterator[Edit]:
    for i, token in enumerate(body.tokens):
        if token.text == "+=" and not body.in_loop_head(i):
            yield body.edit(i, i, "=")


@operator("added, not stored")
def _added(body: Body) -> Iterator[Edit]:
    for i, token in enumerate(body.tokens):
        if token.text == "=" and i and body[i + 1] != "{" and _is_store(body, i):
            yield body.edit(i, i, "+=")


def _grids(body: Body) -> Iterator[tuple[int, int, bool | None]]:
    """The first and last token of the grids of launches, and whether the kernel goes round over more than
    its grid; None where it is in another file."""
    for first, bracket in body.calls(r"LAUNCH(_ON|_COOPERATIVE)?"):
        arguments, place = body.arguments(bracket), 1 if body[first] == "LAUNCH" else 2
        if len(arguments) > place:
            kernel = re.search(r"\w+", body.words(*arguments[place - 1]))
            of_kernel = [f for f in body.source.functions if kernel and f.name == kernel[0]]
            goes_round = any(re.search(r"\bgridDim\b|_in_grid\b", body.code[f.start:f.end])
                             for f in of_kernel)
            yield *arguments[place], goes_round if of_kernel else None


def _any_grid(body: Body) -> Iterator[tuple[int, int]]:
    """Where the grids of kernels that go round are computed: in the launch, and in variables that hold
    nothing but such a grid."""
    used = Counter(token.text for token in body.tokens)
    for first, last, goes_round in _grids(body):
        if not goes_round:
            continue
        yield body.edit(first, last, "")[:2]
        names = {body[i] for i in range(first, last + 1) if used[body[i]] == 2}
        for i, token in enumerate(body.tokens):
            if token.text in names and body[i + 1] == "=" and body.declares(i):
                yield body.edit(i + 2, body.right_end(i + 1), "")[:2]


@operator("wrong grid", LAUNCHER)
def _grid(body: Body) -> Iterator[Edit]:
    for first, last, goes_round in _grids(body):
        grid = body.words(first, last)
        if goes_round is False and grid != "1":
            for change in ("grid.x = 1;", "--grid.x;"):  # threads of one too many have nothing to do
                yield body.edit(first, last, f"[&] {{ dim3 grid({grid}); {change} return grid; }}()")


@operator("memory not cleared", LAUNCHER)
def _cleared(body: Body) -> Iterator[Edit]:
    for first, bracket in body.calls("HIP_CHECK"):
        if body[bracket + 1].startswith("hipMemset") and body.is_statement(first):
            yield body.edit(first, body.close[bracket], "")


@operator("minimum for maximum")
def _extreme(body: Body) -> Iterator[Edit]:
    for _, bracket in body.calls(r"f?(min|max)f?"):
        name = body[bracket - 1]
        yield body.edit(bracket - 1, bracket - 1,
                        name.replace("min", "max") if "min" in name else name.replace("max", "min"))


# Calls that mean the same whichever argument comes first.
SYMMETRIC = r"f?(min|max)f?|\w*multiply_add\w*|atomic\w+|apply|thread_sum|for|if|while|switch|add|merge|swap"
FMA = r"__fmaf?_r[dnuz]|fmaf?"


@operator("arguments swapped", "")
def _arguments(body: Body) -> Iterator[Edit]:
    for _, bracket in body.calls(rf"(?!({SYMMETRIC})$|LAUNCH)\w+"):
        arguments = body.arguments(bracket)
        if re.fullmatch(FMA, body[bracket - 1]):
            del arguments[0]  # the factors of a product: only the term can be in the wrong place
        for one, other in zip(arguments, arguments[1:]):
            left, right = body.words(*one), body.words(*other)
            if left != right and all(re.match(r"\w", text) and "{" not in text for text in (left, right)):
                yield body.edit(one[0], other[1], f"{right}, {left}")
                break


@operator("leap dropped")
def _leap(body: Body) -> Iterator[Edit]:
    for i, token in enumerate(body.tokens):
        if token.text in ("continue", "break") and body[i + 1] == ";":
            yield body.edit(i, i, "")


# ---- Mutants -----------------------------------------------------------------------------------


def mutants_of(text: str, file: str, any_host_code: bool) -> list[Mutant]:
    """All mutants of a file. With `any_host_code` all that is no kernel is a launcher: else only functions
    that launch one, and the lines of exercises."""
    source = Source(text)
    found: dict[tuple[int, str], Mutant] = {}  # what two operators agree on is one mutant
    name_of_text = hashlib.sha256(f"{file}\n{text}".encode()).hexdigest()
    for function in source.functions:
        kinds = {function.kind, ""}
        spans = [(function.start, function.end)]
        launches = re.search(r"\bLAUNCH\w*\(", source.code[function.start:function.end])
        exercises = [(max(first, function.start), min(last, function.end)) for first, last in source.exercises
                     if first < function.end and function.start < last]
        if function.kind == LAUNCHER and exercises:
            kinds, spans = {KERNEL, LAUNCHER, ""}, exercises
        elif function.kind == LAUNCHER and not (launches or any_host_code):
            continue
        body = Body(source, function, spans)
        any_grid = list(_any_grid(body))
        for name, (edits, kind) in OPERATORS.items():
            if kind not in kinds:
                continue
            for start, end, put in edits(body):
                if source.is_left_alone(start) and name != SHARED:
                    continue
                if any(first <= start < last for first, last in any_grid):
                    continue  # a kernel that goes round is right with any grid
                if "".join(text[start:end].split()) == "".join(put.split()):
                    continue
                line = line_of(text, start)
                before, after = _lines(text, start, end, put)
                same = line, "".join(after.split())
                key = hashlib.sha256(f"{name_of_text}{same}".encode()).hexdigest()[:16]
                found.setdefault(same, Mutant(file, function.name, line, name, before, after, start, end,
                                              put, key))
    return list(found.values())


def _lines(text: str, start: int, end: int, put: str) -> tuple[str, str]:
    """The lines that change, and what they become, each as one line."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last
    return (" ".join(text[first:last].split()),
            " ".join((text[first:start] + put + text[end:last]).split()))


def spread(mutants: list[Mutant], seed: str) -> list[Mutant]:
    """The mutants in an order of which every beginning has all operators and functions about equally."""
    chance = random.Random(seed)
    groups: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        groups[mutant.operator].append(mutant)
    for name, group in groups.items():
        chance.shuffle(group)
        groups[name] = _in_turns(group)
    names = sorted(groups)
    chance.shuffle(names)
    return [groups[name][turn] for turn in range(max(map(len, groups.values()), default=0))
            for name in names if turn < len(groups[name])]


def _in_turns(group: list[Mutant]) -> list[Mutant]:
    """One of each function, then a second one of each, and so on."""
    met: dict[tuple[str, str], int] = defaultdict(int)
    turns = []
    for mutant in group:
        place = mutant.file, mutant.function
        turns.append(met[place])
        met[place] += 1
    return [mutant for _, mutant in sorted(zip(turns, group), key=lambda one: one[0])]


def shares(candidates: list[int], count: int, least: int, most: int) -> list[int]:
    """How many to choose of each group: as the square root of its size, at least and at most that many,
    `count` together as nearly as these allow."""
    def chosen(scale: float) -> list[int]:
        return [min(n, max(least, min(most, round(scale * math.sqrt(n))))) for n in candidates]

    low, high = 0.0, float(most)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(chosen(middle)) < count else (low, middle)
    return chosen(high)
