"""Finds what a GPU's compiler does not take in a learner's files, which the CPU backend compiles as plain
C++.

Two look at the files. A compiler for GPUs, where one is installed, checks syntax and who calls whom, and
makes no code. A list of what host C++ allows and kernels do not is looked for in the text of every kernel
and device function: it is all there is where no such compiler is installed, and its words are plainer.

The compiler's word counts only where it takes the repository's own file with the same command: what an old
HIP or a missing header causes is no mistake of the learner's.

A file for NVIDIA's hardware, which its name says, is nothing to HIP's front end, and nvcc is silent about an
int that takes a size. The host's compiler says that wherever clang has not looked at the device code.
"""

from __future__ import annotations

import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import backend, cpp_source, process
from .build import Build, build_root
from .exercises import Course

TIMEOUT = 60.0  # seconds of one command, which takes about one
LISTED = "a list of what kernels can't use"  # who says so where no compiler is installed
SHARED_BYTES = 49152  # of a block on NVIDIA, static arrays only; AMD has 65536

Problem = tuple[int, str]  # a line of a file, and what is wrong there


def problems(course: Course, cpu: Build, files: dict[str, str], named: dict[str, str],
             ) -> tuple[list[str], str]:
    """A line for each place in `files`, texts by their names in the step's folder, that is not device code,
    and who has looked. `named` are the paths that the learner knows the files by."""
    found = {name: dict(listed_problems(text)) for name, text in files.items()}

    def look(compiler: DeviceCompiler, some: dict[str, str]) -> bool:
        errors = _confirmed(compiler, course, cpu, some)
        for name, lines in (errors or {}).items():
            found[name] = {**lines, **found[name]}
        return errors is not None

    left = dict(files)  # those that no compiler for GPUs has looked at yet
    unmeasured = dict(files)  # and those that none has looked at that knows an int too small
    by = []
    for compiler in compilers():
        some = {name: text for name, text in left.items() if compiler.takes(name)}
        if some and look(compiler, some):
            by.append(compiler.name)
            left = {name: text for name, text in left.items() if name not in some}
            if compiler.knows_sizes:
                unmeasured = {name: text for name, text in unmeasured.items() if name not in some}
    host = host_compiler() if unmeasured else None
    if host:
        look(host, unmeasured)
    return [f"{named.get(name, name)}:{line}: {words}"
            for name, lines in found.items() for line, words in sorted(lines.items())
            ], " and ".join([*by, *([LISTED] if left else [])])


# ---- Compilers for GPUs ------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceCompiler:
    name: str
    command: tuple[str, ...]  # without the include folder and the source
    message: re.Pattern  # of a line: file, line, kind and words
    knows_sizes: bool = True  # it says where an int takes what may be larger
    is_host: bool = False  # of the host, where nothing else that it says counts
    skips: re.Pattern | None = None  # files of which it sees no kernel

    def takes(self, name: str) -> bool:
        return not (self.skips and self.skips.search(name))

    def messages(self, source: Path, root: Path) -> str | None:
        """What it says of a source; None where it has not come to an end."""
        own = FOR_NVIDIA.search(source.name)
        architecture = f"-arch=sm_{own[1].replace('90', '90a')}" if own else ANY_NVIDIA
        command = [architecture if word == ANY_NVIDIA else word for word in self.command]
        code, out, complaint = process.limited([*command, f"-I{root}", str(source)], TIMEOUT,
                                               {**os.environ, "LC_ALL": "C"})  # plain quotes
        if code is None or self.is_host and code != 0:
            return None
        return out + complaint if code != 0 or NARROWED.search(complaint) else ""


CLANG_SAYS = "-ferror-limit=0", "-fno-caret-diagnostics", "-fno-color-diagnostics"
CLANG_MESSAGE = re.compile(r"^(?P<file>.+?):(?P<line>\d+):\d+: (?P<kind>fatal error|error|warning|note): "
                           r"(?P<words>.*)$")
NVCC_MESSAGE = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<kind>catastrophic error|error|warning)"
                          r"(?: #[\w-]+)?: (?P<words>.*)$")
NARROWED = re.compile(r"implicit conversion loses integer precision: '(?:const )?(?P<type>[^']+)'"
                      r"(?: \(aka '[^']+'\))? to '(?:const )?int'|"
                      r"conversion from '(?P<gcc>[^']+)'(?: {aka '[^']+'})? to 'int' may change value")
GCC_SIZE = re.compile(r"conversion from (?:'\w+' {aka )?'long (?:long )?(?:unsigned )?int'")
FOR_NVIDIA = re.compile(r"_sm(\d+)\.hip$")
ANY_NVIDIA = "-arch=sm_80"
SYSTEM_HIP = Path("/usr/include/hip/hip_runtime.h")


def compilers() -> list[DeviceCompiler]:
    """Those that are installed, the quickest first. Any GPU will do: no code is made for it."""
    found = []
    folders = tuple(f"{folder}/llvm/bin" for folder in backend.ROCM_FOLDERS)
    rocm = next((f"{folder}/clang++" for folder in folders if Path(folder, "clang++").is_file()), None)
    # A distribution's clang looks for ROCm's own folders; its HIP headers lie where all others do.
    clang = rocm or (backend.find_program("clang++", ()) if SYSTEM_HIP.is_file() else None)
    if clang:
        found.append(DeviceCompiler("clang", (
            clang, "-x", "hip", "--cuda-device-only", "-fsyntax-only", "--offload-arch=gfx1030",
            "-nogpulib", *(() if rocm else ("-nogpuinc",)), "-std=c++17", "-DGPU_BACKEND_HIP=1",
            "-D__HIP_PLATFORM_AMD__=1", "-Wno-everything", "-Werror=vla", "-Wshorten-64-to-32",
            *CLANG_SAYS), CLANG_MESSAGE, skips=FOR_NVIDIA))
    nvcc = backend.find_program("nvcc", backend.cuda_folders())
    if nvcc:
        found.append(DeviceCompiler("nvcc", (
            nvcc, "-x", "cu", "-ptx", ANY_NVIDIA, "-std=c++17", "-DGPU_BACKEND_CUDA=1", "-w", "-Xcicc=-O0",
            "-o", "/dev/null"), NVCC_MESSAGE, knows_sizes=False))
    return found


def host_compiler() -> DeviceCompiler | None:
    """One that reads the files as the CPU backend does, for what it says of sizes."""
    common = "-x", "c++", "-fsyntax-only", "-std=c++17", "-DGPU_BACKEND_CPU=1"
    if clang := backend.find_program("clang++", ()):
        return DeviceCompiler("clang", (clang, *common, "-Wno-everything", "-Wshorten-64-to-32", *CLANG_SAYS),
                              CLANG_MESSAGE, is_host=True)
    if gcc := backend.find_program("g++", ()):
        return DeviceCompiler("g++", (gcc, *common, "-Wconversion", "-fno-diagnostics-show-caret"),
                              CLANG_MESSAGE, is_host=True)
    return None


def _confirmed(compiler: DeviceCompiler, course: Course, cpu: Build, files: dict[str, str],
               ) -> dict[str, dict[int, str]] | None:
    """The errors of each file by their lines; None where the compiler is of no use here."""
    own = {name: course.solution(name) for name in files}
    folder = build_root(cpu.root) / "check" / course.step.name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        errors = _errors(compiler, cpu.root, files, Path(place) / "theirs")
        if errors == {}:
            return errors
        # Errors with no place in a learner's file are the environment's; so are the own files'.
        if errors is None or _errors(compiler, cpu.root, own, Path(place) / "own") != {}:
            return None
    return errors


def _errors(compiler: DeviceCompiler, root: Path, files: dict[str, str], place: Path,
            ) -> dict[str, dict[int, str]] | None:
    """{} where the compiler takes them all; None where something else than the files stops it."""
    paths = {name: place / name for name in files}
    for name, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], encoding="utf-8")
    with ThreadPoolExecutor(process.cpu_count()) as pool:
        texts = list(pool.map(lambda source: compiler.messages(source, root), paths.values()))
    names = {str(path): name for name, path in paths.items()}
    found: dict[str, dict[int, str]] = {}
    for text in texts:
        own = None if text is None else list(_places(compiler, text, names))
        failed = text and any(message and "error" in message["kind"]
                              for message in map(compiler.message.match, text.splitlines()))
        if own is None or (failed and not own):
            return None
        for name, line, words in own:
            found.setdefault(name, {}).setdefault(line, words)
    return found


def _places(compiler: DeviceCompiler, text: str, names: dict[str, str]):
    """(name, line, words) of each error that has a place in a file of `names`. Where it stands in another
    file, which the learner's calls, that is the first place among the notes on it."""
    groups: list[list[re.Match]] = []
    for line in text.splitlines():
        message = compiler.message.match(line)
        if message and message["kind"] == "note":
            if groups:
                groups[-1].append(message)
        elif message:
            groups.append([message])
    for group in groups:
        own = next((message for message in group if message["file"] in names), None)
        if own and is_refusal(group[0]):
            words = plain(group[0]["words"], [message["words"] for message in group])
            yield names[own["file"]], int(own["line"]), words


def is_refusal(message: re.Match) -> bool:
    """An error, or an int that takes what may be larger. (An unsigned one is a grid's: launchers hold
    themselves to its limits.)"""
    narrowed = NARROWED.search(message["words"])
    return "error" in message["kind"] or bool(
        narrowed and (narrowed["type"] or GCC_SIZE.search(message["words"])))


def plain(words: str, all_words: list[str]) -> str:
    """The compiler's words, or plainer ones for what happens most."""
    narrowed = NARROWED.search(words)
    if narrowed:
        return f"an int can't hold this {narrowed['type'] or narrowed['gcc']}: sizes and indices may be more than 2^31"
    called = re.match(r"no matching (?:member )?function for call to '(.+)'|"
                      r"reference to __host__ function '(.+?)' in|"
                      r"calling an? (?:constexpr )?__host__ function\(\"(.+?)\"\) from", words)
    if called and (not called[1] or any("call to __host__ function" in more for more in all_words)):
        name = called[1] or called[2] or called[3]
        return f"a kernel can't call {name}: it is a function of the host"
    variable = re.match(r"reference to __host__ variable '(.+?)' in|"
                        r"identifier \"(.+?)\" is undefined in device code", words)
    if variable:
        return f"a kernel can't use {variable[1] or variable[2]}: it is a variable of the host"
    if words.startswith("variable length array"):
        return VARIABLE_LENGTH
    return words


# ---- The list ----------------------------------------------------------------------------------

MARK = re.compile(r"\b__(?:global|device)__\b")
VARIABLE_LENGTH = "a kernel can't have an array whose length is known only when it runs"
STD_REASONS = (
    (r"vector|deque|list|forward_list|map|multimap|set|multiset|unordered_\w+|queue|stack|priority_queue|"
     r"string|basic_string|to_string|any|valarray|function|unique_ptr|shared_ptr|weak_ptr|make_unique|"
     r"make_shared|allocator", "it takes memory from the host"),
    (r"w?cout|w?cerr|w?clog|w?cin|endl|flush|[io]?stringstream|[io]?fstream|ostream|istream|getline",
     "it writes or reads on the host; printf works in a kernel"),
    (r"thread|mutex|recursive_mutex|lock_guard|unique_lock|scoped_lock|condition_variable|atomic|atomic_ref|"
     r"future|async|promise|this_thread|barrier|latch", "it works between threads of the host only"),
    (r"sort|stable_sort|partial_sort|nth_element|accumulate|reduce|inner_product|transform|partial_sum|copy|"
     r"copy_n|fill|fill_n|for_each|iota|shuffle|count_if|max_element|min_element|minmax_element|find|find_if|"
     r"lower_bound|upper_bound|binary_search|rotate|reverse|mt19937|mt19937_64|random_device|minstd_rand|"
     r"default_random_engine|\w+_distribution|rand|srand|time|chrono|system|getenv|abort|exit",
     "it runs on the host only"),
    (r"min|max|clamp|swap",
     "nvcc takes it on the host only; min, max, fminf, fmaxf and ?: work in a kernel"),
)
STD_NAMES = tuple((re.compile(rf"\bstd\s*::\s*({names})\b"), why) for names, why in STD_REASONS)
KEYWORDS = (
    (re.compile(r"\bnew\b(?=\s*(?:\(|\w|::))"),
     "a kernel can't use new: take a local array of constant length, shared memory, or memory that the "
     "launcher was given"),
    (re.compile(r"\bdelete\b"), "a kernel can't use delete"),
    (re.compile(r"\b(malloc|calloc|realloc|free|alloca)\s*\("),
     "a kernel can't use {0}: it takes memory that the launcher was given"),
    (re.compile(r"\b(throw|try|catch)\b"), "a kernel can't use {0}: a GPU has no exceptions"),
    (re.compile(r"\b(dynamic_cast|typeid)\b"), "a kernel can't use {0}: a GPU knows no types when it runs"),
    (re.compile(r"\bthread_local\b"),
     "a kernel can't use thread_local: its local variables are a thread's own"),
    (re.compile(r"(?<!__shared__ )\bstatic\b(?!\s+(?:__shared__|(?:constexpr|const)\b))"
                r"(?=[^;(){}]*[;={\[])"),  # a variable, not a function
     "a kernel's static variable is one for all threads of all blocks, and nothing sets it back"),
    (re.compile(r"\b(hip[A-Z]\w*|HIP_CHECK|LAUNCH|LAUNCH_ON)\s*\("),
     "a kernel can't call {0}: it is a function of the host"),
)
CONSTANT = re.compile(r"\b(?:constexpr|static_assert)\b[^;{}]*\Z")  # the compiler works out what follows
NUMBER_TYPE = r"(?:unsigned|signed|int|long|short|char|float|double|size_t|auto|bool|u?int\d+_t|half|T)"
DECLARED = re.compile(rf"\b((?:const\s+|constexpr\s+)*)(?:std\s*::\s*)?{NUMBER_TYPE}(?:\s+{NUMBER_TYPE})*"
                      r"((?:\s+const)?)\s+(\w+)\s*(?:=|\{|\()([^;]*)")
ARRAY = re.compile(r"\b[A-Za-z_]\w*(?:\s*<[^;<>]*>)?\s+\w+\s*((?:\[[^\[\]]+\]\s*)+)(?=[;={])")
BUILT_IN = {"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"}


# Of a function, from its mark on: what may come before its name with parentheses of its own, and the name.
BEFORE_NAME = re.compile(rf"[^(){{}};=]*?{cpp_source.ATTRIBUTE.pattern}")
NAME = re.compile(r"[^(){};=]*(?:\boperator\s*(?:\(\s*\)|[^\w\s(]+)\s*)?\(")


@dataclass(frozen=True)
class DeviceFunction:
    """What stands between the braces of a kernel or a device function."""

    parameters: str
    begin: int
    end: int


def listed_problems(text: str) -> list[Problem]:
    """What the list finds in a text. The first word on each line counts."""
    code = re.sub(cpp_source.DIRECTIVE, lambda line: cpp_source.blank(line[0]),
                  cpp_source.without_comments(text), flags=re.MULTILINE)
    found: list[tuple[int, str]] = []
    functions = device_functions(code)
    host = host_functions(code, functions)
    for function in functions:
        body = code[function.begin:function.end]
        here: list[tuple[int, str]] = []
        for pattern, why in STD_NAMES:
            here += [(match.start(), f"a kernel can't use std::{match[1]}: {why}")
                     for match in pattern.finditer(body)
                     if not CONSTANT.search(body, 0, match.start())]
        for pattern, words in KEYWORDS:
            here += [(match.start(), words.format(*match.groups())) for match in pattern.finditer(body)]
        if host:
            calls = re.compile(rf"(?<![\w.>:])(?:\w+\s*::\s*)*({'|'.join(map(re.escape, host))})\s*\(")
            here += [(match.start(), f"a kernel can't call {match[1]}: it is a function of the host")
                     for match in calls.finditer(body)]
        here += [(at, VARIABLE_LENGTH) for at in variable_length_arrays(function.parameters, body)]
        found += [(function.begin + at, words) for at, words in here]
    lines: dict[int, str] = {}
    for at, words in sorted(found):
        lines.setdefault(cpp_source.line_of(code, at), words)
    return list(lines.items())


def device_functions(code: str) -> list[DeviceFunction]:
    """The kernels and device functions that a code without comments defines."""
    found = []
    for mark in MARK.finditer(code):
        at = mark.end()
        while attribute := BEFORE_NAME.match(code, at):
            at = cpp_source.closing(code, attribute.end() - 1) + 1
        head = NAME.match(code, at)
        if not head:
            continue  # a variable
        end = cpp_source.closing(code, head.end() - 1)
        body = re.compile(r"[^;{}]*\{").match(code, end + 1)
        if body and not re.match(r"\s*=", code[end + 1:body.end()]):
            found.append(DeviceFunction(code[head.end():end], body.end(),
                                        cpp_source.closing(code, body.end() - 1)))
    return found


def host_functions(code: str, functions: list[DeviceFunction]) -> list[str]:
    """The functions of the host that the file itself defines at namespace scope."""
    own = {one.name for one in cpp_source.definitions(code) if one.body and isinstance(one.kind, str)}
    if not own:
        return []
    bodies = {function.begin for function in functions}
    host, everybodys = set(), set()
    for found in re.finditer(rf"\b({'|'.join(own)})\s*\(", code):
        end = cpp_source.closing(code, found.end() - 1)
        body = re.compile(r"[^;{}()=,]*\{").match(code, end + 1)
        if not body:
            continue  # a call, or a declaration
        begin = max(code.rfind(symbol, 0, found.start()) for symbol in ";{}") + 1
        is_host = body.end() not in bodies and "constexpr" not in code[begin:found.start()]
        (host if is_host else everybodys).add(found[1])
    return sorted(host - everybodys)


def variable_length_arrays(parameters: str, body: str) -> list[int]:
    """Where in the body of a function an array's length depends on what is known only when it runs."""
    names = [re.search(r"(\w+)\s*(?:\[[^\]]*\]|=.*)?\s*$", one) for one in parameters.split(",")]
    unknown = BUILT_IN | {name[1] for name in names if name}
    for before, after, name, value in DECLARED.findall(body):
        constant = "const" in before or "const" in after
        if not constant or unknown & set(re.findall(r"\w+", value)) and "constexpr" not in before:
            unknown.add(name)
    found = []
    for array in ARRAY.finditer(body):
        lengths = re.sub(r"\bsizeof\s*(?:\([^()]*\)|\.\.\.\s*\(\w+\))", "", array[1])
        first = re.match(r"\w+", array[0])[0]
        is_variable = first not in {"return", "delete", "new", "case", "else"}
        if is_variable and unknown & set(re.findall(r"\w+", lengths)):
            found.append(array.start())
    return found


# ---- Shared memory -----------------------------------------------------------------------------

SHARED = re.compile(r"^\s*\d+:\s+[0-9a-f]+\s+(\w+)\s+TLS\s.*\s(_ZZ\S+)$", re.MULTILINE)


def too_much_shared_memory(program: Path) -> list[str]:
    """A line for each kernel of a program or an object file of the CPU backend, which keeps what a block
    shares in its host thread's own memory, whose static arrays are more than a block has."""
    answer = process.output(["readelf", "-sW", str(program)]) or ""
    sizes = {name: int(size, 0) for size, name in SHARED.findall(answer)}
    plain_names = process.output(["c++filt", *sizes]) if sizes else ""
    kernels: dict[str, int] = {}
    for words, size in zip((plain_names or "").splitlines(), sizes.values()):
        function = words.rpartition("::")[0]
        kernels[function] = kernels.get(function, 0) + size
    return [f"kernel {_name_of(function)} has {size} bytes of shared memory; a block has {SHARED_BYTES}"
            for function, size in kernels.items() if size > SHARED_BYTES]


def _name_of(function: str) -> str:
    """"void gemm::gemm_tiled<float>(float*, unsigned long)" -> "gemm_tiled"."""
    head = re.sub(r"[<(].*", "", function.replace("(anonymous namespace)::", ""))
    return re.split(r" |::", head)[-1]
