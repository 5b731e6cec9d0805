"""The operators of mutation testing: the mistakes that people make, each as places of a function and what is
put there instead.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Callable, Iterator

from .kernel_source import KERNEL, KEYWORDS, LAUNCHER, OPENING, STOPS, Body, Edit

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


def any_grid(body: Body) -> Iterator[tuple[int, int]]:
    """Where the grids of kernels that go round are computed: in the launch, and in variables that hold
    nothing but such a grid."""
    grids = [(first, last) for first, last, goes_round in _grids(body) if goes_round]
    yield from (body.edit(first, last, "")[:2] for first, last in grids)
    used = Counter(token.text for token in body.tokens)
    in_grids = Counter(body[i] for first, last in grids for i in range(first, last + 1))
    for i, token in enumerate(body.tokens):
        of_grids_only = in_grids[token.text] > 0 and used[token.text] == in_grids[token.text] + 1
        if of_grids_only and body[i + 1] == "=" and body.declares(i):
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
            if left == "seed" and body.function.kind == LAUNCHER:
                break  # of a host's random numbers any will do, whatever is the seed and what the stream
            if left != right and all(re.match(r"\w", text) and "{" not in text for text in (left, right)):
                yield body.edit(one[0], other[1], f"{right}, {left}")
                break


@operator("leap dropped")
def _leap(body: Body) -> Iterator[Edit]:
    for i, token in enumerate(body.tokens):
        if token.text in ("continue", "break") and body[i + 1] == ";":
            yield body.edit(i, i, "")
