"""Reads a step's file as text, without a C++ parser: its functions, and the tokens of each.

For mutation testing: it knows kernels and launchers apart, what the CPU backend does not compile, and the
statements in which a mistake would not show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Iterator

from .cpp_source import ATTRIBUTE, DIRECTIVE, blank, closing, without_comments
from .exercises import BEGIN, regions

KERNEL, LAUNCHER = "kernel", "launcher"  # a kernel or device function, or host code

Edit = tuple[int, int, str]  # start, end, and what is put there


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
