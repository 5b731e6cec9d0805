"""What scripts/check_structure.py holds files against: limits, exceptions and patterns, and how a README's words,
its first picture and a kernel's comment are found."""

from __future__ import annotations

import re

# Lines of a file, the line of a version's first kernel, and what a README may ask of its reader.
LIMITS = {
    "lines of a file": 400,
    "lines of a test": 500,
    "lines of NAME.h": 120,
    "lines of a version": 200,
    "lines of detail/*.h": 250,
    "line of a version's first kernel": 40,
    "line of the first version's first kernel": 29,
    "words of README.md": 1200,
    "line of README.md's first picture": 40,
    "characters of a copied body": 80,  # white space and comments not counted; a shorter one is chance
}

# What people write, and where: tables that a script writes into a README do not count.
FOLDERS = ("common", "stage*", "scripts", "tests", "cmake", "docs", ".ci", ".github")
HAND_WRITTEN = re.compile(r"\.(h|hip|cpp|py|cmake|toml|html|yml|md)$|(^|/)CMakeLists\.txt$|^\.ci/run$|^scripts/course$")
IS_A_TEST = re.compile(r"^tests/|/tests/|_test\.(cpp|hip)$|_for_tests\.h$")

# Names that every step may define for itself.
OWN_IN_EACH_STEP = re.compile("|".join([
    r"launch_\w+|best|workspace_bytes",  # what a contract declares
    r"Problem|Product|Launch|Shape|Layout|Input|Row|Tensor|File|Workspace",  # what the step is about
    r"\w+_cpu|bound|Reference|check|compare|run|main",  # its reference, its check, its program
    r"name|available|read|write|quoted",  # members of a namespace in common/ that says of what
    r"add|reciprocal",  # operations of the framework, which kernels have as device functions
    r"Tanh|Sigmoid",  # its modules, which have PyTorch's names
    r"Graph",  # its list of Calls; that of common/ is the device's
]))

# Steps whose versions may be launches of earlier steps, without a kernel.
COMPOSED = {"stage4_forward/01_dense": "the products of stage 2 with the activations of 3.1",
            "stage4_forward/02_mlp_forward": "the layers of 4.1, in five launches or in two",
            "stage5_training/01_dense_backward": "orders, slices and streams of the products of stage 2",
            "stage5_training/02_activation_backward": "kernels of 1.4, 5.1 and 3.3 in two of its versions",
            "stage5_training/03_gradient_check": "the backward passes of earlier steps, and losses on the host",
            "stage5_training/05_sequential": "launches the layers of stages 3 to 5",
            "stage5_training/06_train_toy": "launches the layers of 5.5, one by one and as a graph",
            "stage5_training/07_train_sales": "replays the kernels of `operations` from a graph",
            "stage5_training/08_train_mnist": "replays the kernels of `operations` from a graph",
            "stage6_cnn/02_conv2d_backward": "the gradient of x is the convolution of 6.1",
            "stage7_transformer/02_layernorm": "row_cached of a sum, in two launches or with another input",
            "stage6_cnn/04_train_cnn": "launches its layers, one by one, fused and as a graph",
            "stage7_transformer/06_transformer_block": "the layers of stages 2 to 7, one after the other",
            "stage7_transformer/07_train_shakespeare": "launches the blocks of 7.6, with branches and as a graph",
            "stage8_framework/01_tensor": "its second ladder is an allocator, which is host code",
            "stage8_framework/02_backends": "asks the kernels of all steps, by way of their plug-ins",
            "stage8_framework/03_autograd": "runs the operations of 8.2, from the last one to the first",
            "stage8_framework/04_modules": "calls the operations of 8.2, and the gradients of 8.3",
            "stage8_framework/05_capture": "runs the operations of 8.2 again; its planners are host code",
            "stage8_framework/06_fusion": "its kernels are the interpreter's, and texts that are compiled when it runs"}

# Steps with plug-ins: folders of sources that the program does not link.
PLUGINS = {"stage8_framework/02_backends": "own|reference|vendor", "stage8_framework/06_fusion": "own"}

# Headers that are no use alone.
NOT_ALONE = {"common/check.h": "the second half of gpu.h, which includes it"}

# Headers that are included more than once, as what a row becomes differs.
LISTS = {"stage8_framework/02_backends/formula_list.h": "the expressions of operations on elements"}

STEP_FOLDER = re.compile(r"stage(\d+)_\w+/(\d\d)_(\w+)")
HARDWARE = r"(sm\d+|cdna|rdna|gfx\w+)"

# Where the differences between the vendors live.
BACKENDS = re.compile(rf"common/(cuda/|hip/|cpu/|gpu\.h$|gpu_runtime\.h$|(blas|dnn)\.cpp$)|_{HARDWARE}\.h$|"
                      rf"/versions/\w+_{HARDWARE}\.hip$")
TESTS = re.compile(r"_test\.hip$")

WAVE_SIZE = {
    r"[%/]\s*(32|64)[uUlL]*\b(?!\s*\.)": "a division by a wave's size: ask wave_size() or lane_id()",
    r"&\s*(31|63)[uUlL]*\b": "a mask of a wave's size: ask lane_id()",
    r">>=?\s*[56]\b": "a shift by a wave's size: ask wave_id()",
    r"\b0[xX][fF]{8}[uUlL]*\b": "a full mask: use the wave_ functions of common/gpu.h",
    r"(?<![.>])\bwarpSize\b": "warpSize: ask wave_size()",
    r"\bk?(Wave|Warp|wave|warp)(_?[Ss]ize)?\s*=\s*(32|64)\b": "a wave's size in a constant: ask wave_size()",
}
ONE_VENDOR = {
    r"\bcuda[A-Z]\w*|\bcu[A-Z][a-z]\w*\s*\(|\b(cublas|cudnn|nvcuda)\w*": "a CUDA name: use HIP's",
    r"\basm\b": "inline assembly belongs in a file named for its hardware",
    r"\b__(shfl|ballot|any|all|match)\w*\s*\(|\b__activemask\b|\b__syncwarp\b":
        "a wave intrinsic: use the wave_ functions of common/gpu.h",
    r"\b__builtin_amdgcn_\w+": "an AMD builtin belongs in a file named for its hardware",
    r"<<<": "a launch that only nvcc and hipcc read: use LAUNCH",
}
KERNEL = re.compile(r"\b__global__\b")
DEVICE_CODE = {r"\b(__global__|LAUNCH\w*)\b": "kernels and launches belong in versions/ or NAME_test.hip"}
EXERCISE = re.compile(r"^\s*// (end )?exercise\b", re.MULTILINE)
COMMENT_OF_A_KERNEL = ("Fixes", "Idea", "Thread", "Costs")


def without_tables(readme: str) -> str:
    """Without what scripts/tables.py writes."""
    return re.sub(r"<!-- table\b.*?<!-- end table -->", "", readme, flags=re.DOTALL)


def words(readme: str) -> int:
    """The words of a README beside its tables, a word being what stands between spaces and has a letter or a
    digit. Tables are what stands between `<!-- table: -->` and `<!-- end table -->`, the rows of a Markdown
    table, and a fenced block of which at least half the lines are in columns: with a |, or with two gaps of
    two or more spaces. So a drawing is a table, too."""
    text = without_tables(readme)

    def unless_a_table(fence: re.Match) -> str:
        lines = [line.strip() for line in fence[1].splitlines() if line.strip()]
        columns = [line for line in lines if "|" in line or len(re.findall(r"\S {2,}(?=\S)", line)) > 1]
        return "" if 2 * len(columns) >= len(lines) else fence[1]

    text = re.sub(r"^```[^\n]*\n(.*?)^```[^\n]*$", unless_a_table, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\s*\|.*$|<!--.*?-->|<img\b[^>]*>", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # of a link what is shown
    return sum(1 for word in text.split() if re.search(r"[^\W_]", word))


def first_picture(readme: str) -> int | None:
    """The line of the first image or drawing, which is a fenced block of no language."""
    is_open = False
    for number, line in enumerate(readme.splitlines(), 1):
        if re.search(r"!\[[^\]]*\]\(|<img\b|<picture\b", line):
            return number
        if line.startswith("```"):
            if not is_open and line.strip() in ("```", "```text"):
                return number
            is_open = not is_open
    return None


def comment_above(lines: list[str], line: int) -> str:
    """The comment right above the declaration that reaches to `line`, counted from 1."""
    above = line - 2
    while above >= 0 and (code := lines[above].strip()) and not code.startswith("//") \
            and not code.endswith((";", "{", "}")):
        above -= 1  # template <...>, static, #if
    block = []
    while above >= 0 and lines[above].lstrip().startswith("//"):
        block.insert(0, lines[above])
        above -= 1
    return "\n".join(block)


def step_of(name: str) -> str | None:
    match = STEP_FOLDER.match(name)
    return match[0] if match else None


def order(step: str) -> tuple[int, int]:
    match = STEP_FOLDER.match(step)
    return int(match[1]), int(match[2])
