"""Reads C++ as far as scripts/check_structure.py needs: comments, includes, and what a file defines."""

from __future__ import annotations

import re
from dataclasses import dataclass

COMMENT = r"//[^\n]*|/\*.*?\*/"
STRING = r'R"(?P<raw>\w*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"'
CHARACTER = r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # 1'000 is a number
DIRECTIVE = r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"
NOT_CODE = re.compile(f"{COMMENT}|{STRING}|{CHARACTER}", re.DOTALL | re.MULTILINE)

CLASS = re.compile(r"(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(?:\w+\s+(?=\w))*(\w+)\s*(<)?")
# What may stand before a function's name with parentheses of its own.
ATTRIBUTE = re.compile(r"\b(?:__launch_bounds__|GPU_LAUNCH_BOUNDS|__attribute__|__align__|alignas|decltype)\s*\(")
CLOSING = {"(": ")", "{": "}"}


def blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def without_comments(text: str) -> str:
    """The code with comments, strings and characters blanked. Every offset and line number stays."""
    return NOT_CODE.sub(lambda found: blank(found[0]), text)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def line_count(text: str) -> int:
    return len(text.splitlines())


def includes(text: str) -> list[tuple[int, str]]:
    """(line, file) of each #include "file"."""
    pattern = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', re.MULTILINE)
    return [(line_of(text, found.start(1)), found[1]) for found in pattern.finditer(text)]


def included(text: str, always: bool) -> list[str]:
    """The files, "quoted" or <angular>, that are included; with `always` those that stand under no #if."""
    files, depth = [], 0
    for line in text.splitlines():
        found = re.match(r'\s*#\s*(ifdef|ifndef|if|endif|include)\b\s*(?:["<]([^">]+)[">])?', line)
        if not found:
            continue
        if found[1] == "endif":
            depth -= 1
        elif found[1] != "include":
            depth += 1
        elif found[2] and not (always and depth):
            files.append(found[2])
    return files


@dataclass(frozen=True)
class Definition:
    """A function, class, constant or macro at namespace scope."""

    name: str
    kind: int | str  # IS_CLASS, IS_CONSTANT or IS_MACRO, or a function's parameters as they are written
    line: int
    body: str  # without comments and white space; empty for a declaration

    @property
    def parameters(self) -> int:
        """How many a function has; a negative number that says what it is for all else."""
        return count_parameters(self.kind) if isinstance(self.kind, str) else self.kind


IS_CLASS, IS_CONSTANT, IS_MACRO = -1, -2, -3


def definitions(text: str) -> list[Definition]:
    """What `text` defines at namespace scope, and the functions that it declares there. Left out are members,
    operators, specialisations, variables, and classes that are only announced."""
    code = without_comments(text)
    found = [Definition(macro[1], IS_MACRO, line_of(code, macro.start(1)), "")
             for macro in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", code, re.MULTILINE)]
    code = re.sub(DIRECTIVE, lambda line: blank(line[0]), code, flags=re.MULTILINE)
    start = at = 0
    while at < len(code):
        symbol = code[at]
        if symbol == "(":
            at = closing(code, at)
        elif symbol in ";}":
            found += named(code, start, at, "")
            start = at + 1
        elif symbol == "{" and re.search(r"\bnamespace\b[^()=]*$|\bextern\s*$", code[start:at]):
            start = at + 1
        elif symbol == "{":
            end = closing(code, at)
            found += named(code, start, at, re.sub(r"\s", "", code[at:end + 1]))
            at = end
            start = at + 1
        at += 1
    return found


def closing(code: str, at: int) -> int:
    """Where the parenthesis or brace at `at` is closed; the end of the code if it never is."""
    opens, closes, depth = code[at], CLOSING[code[at]], 0
    for i in range(at, len(code)):
        depth += (code[i] == opens) - (code[i] == closes)
        if depth == 0:
            return i
    return len(code) - 1


def named(code: str, start: int, end: int, body: str) -> list[Definition]:
    """The class or function that code[start:end] names, if it does; a declaration where `body` is empty."""
    head = re.sub(r"\[\[.*?\]\]", lambda attribute: blank(attribute[0]), code[start:end], flags=re.DOTALL)
    first = len(head) - len(head.lstrip())
    while template := re.match(r"\s*template\s*<", head[first:]):
        first = end_of_angles(head, first + template.end() - 1) + 1
        first += len(head[first:]) - len(head[first:].lstrip())
    line = line_of(code, start + first)
    head = head[first:]
    if re.match(r"(using|typedef|friend|extern\s+template|template|return)\b", head):
        return []
    while attribute := ATTRIBUTE.search(head):
        last = closing(head, attribute.end() - 1)
        head = head[:attribute.start()] + blank(head[attribute.start():last + 1]) + head[last + 1:]
    if (one := CLASS.match(head)) and "(" not in head[:one.end()]:
        return [Definition(one[1], IS_CLASS, line, body)] if body and not one[2] else []
    constant = re.match(r"[^=({]*\bconst(?:expr)?\b[^=({]*?(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|$)", head)
    if constant and (body or "=" in head):
        return [Definition(constant[1], IS_CONSTANT, line, body)]
    bracket = head.find("(")
    if bracket < 0 or "=" in head[:bracket] or "operator" in head[:bracket]:
        return []
    function = re.search(r"^(.*[\s*&>])(\w+)\s*$", head[:bracket], re.DOTALL)
    if not function or not function[1].strip() or head[:bracket].rstrip().endswith("::"):
        return []
    line += head.count("\n", 0, function.start(2))
    parameters = " ".join(head[bracket + 1:closing(head, bracket)].split())
    return [Definition(function[2], parameters, line, body)]


def end_of_angles(head: str, at: int) -> int:
    depth = 0
    while at < len(head):
        if head[at] == "(":
            at = closing(head, at)
        depth += (head[at] == "<") - (head[at] == ">")
        if depth == 0:
            return at
        at += 1
    return len(head) - 1


def count_parameters(text: str) -> int:
    if text.strip() in ("", "void"):
        return 0
    depth = commas = 0
    for symbol in text:
        depth += (symbol in "(<[{") - (symbol in ")>]}")
        commas += symbol == "," and depth == 0
    return commas + 1
