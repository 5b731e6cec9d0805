#!/usr/bin/env python3
"""Measures the course's trainings in PyTorch on this machine's GPU: the peer to compare with.

scripts/pytorch_training.py                     all: xor, mnist, sales, cnn, small, medium, adam
scripts/pytorch_training.py mnist --json FILE   one of them; the figures also as JSON

Each network is trained twice: eagerly, one launch for each operation, and with the whole step (the
gathering of the batch, forward, loss, backward, optimizer) captured in a CUDA graph and replayed.
Both keep the data on the device, shuffle there, use the fused optimizers and never wait for the
device. small and medium are step 7.5's transformers on Tiny Shakespeare: they are also trained by
torch.compile, where that works, and medium in bfloat16 (autocast) too; their learning rate is
constant. Matrix products and convolutions are float32, without TF32; cuDNN tries its algorithms and
keeps the fastest. A time is that of a whole training on the wall clock, from initialised parameters
to the device at rest; loading, warming up and capturing come before. What is shown is the median of
--repeat trainings.

Exit codes: 0 all is well, 1 PyTorch failed, 2 the request must change, 3 no PyTorch or no GPU.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from course_lib.errors import FAILED, MISSING, OK, USAGE, CourseError
from course_lib.results import format_ms, format_rate, validate

try:
    import torch
    from torch import nn
except ImportError as error:
    print(f"pytorch_training: no PyTorch here ({error}): pip install torch", file=sys.stderr)
    sys.exit(MISSING)

WARM_UPS = 3  # steps before anything is timed or captured
ADAM_BYTES = 28  # per parameter: w, gradient, m and v are read, w, m and v are written
ADAM_STEPS = 50  # timed


@dataclass
class Task:
    """A network, its data on the device, and how it is trained on them."""

    network: Callable[[], nn.Module]
    loss: nn.Module
    inputs: torch.Tensor  # (rows, inputs)
    targets: torch.Tensor  # (rows, outputs), or (rows) classes
    batch: int  # rows of a step; the rows left over at the end of an epoch are dropped
    epochs: int
    learning_rate: float
    optimizer: str = "adam"  # or "momentum", "adamw"
    steps_wanted: int = 0  # of an epoch, from fewer rows than there are; 0: as many as they make
    problem: str = ""  # how the table begins; empty: with the widths of the layers
    autocast: bool = False  # to bfloat16, in forward and backward passes

    @property
    def steps(self) -> int:
        """of one epoch"""
        return self.steps_wanted or len(self.inputs) // self.batch


def make_optimizer(task: Task, network: nn.Module, is_captured: bool) -> torch.optim.Optimizer:
    if task.optimizer == "momentum":
        return torch.optim.SGD(network.parameters(), lr=task.learning_rate, momentum=0.9,
                               fused=True)
    rule = torch.optim.AdamW if task.optimizer == "adamw" else torch.optim.Adam
    return rule(network.parameters(), lr=task.learning_rate, fused=True, capturable=is_captured)


class Trainer:
    """Trains a task's network eagerly: one launch, or several, for each operation."""

    name = "PyTorch eager"
    is_captured = False

    def __init__(self, task: Task):
        self.task = task
        self.gathers = task.batch < len(task.inputs)  # else a batch is everything
        torch.manual_seed(1)
        device = task.inputs.device
        self.network = self.wrap(task.network().to(device))
        self.initial = [parameter.detach().clone() for parameter in self.network.parameters()]
        self.optimizer = make_optimizer(task, self.network, self.is_captured)
        # The rows of every batch of an epoch.
        self.order = torch.zeros(task.steps, task.batch, dtype=torch.int64, device=device)
        self.loss = torch.zeros((), device=device)  # of the last step
        self.prepare()

    def wrap(self, network: nn.Module) -> nn.Module:
        return network

    def prepare(self) -> None:
        """Runs everything once that takes longer the first time."""
        for _ in range(WARM_UPS):
            self.step(self.order[0])

    def step(self, rows: torch.Tensor) -> None:
        inputs, targets = self.task.inputs, self.task.targets
        if self.gathers:
            inputs, targets = inputs.index_select(0, rows), targets.index_select(0, rows)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.task.autocast):
            loss = self.task.loss(self.network(inputs), targets)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()

    def restart(self) -> None:
        """Puts parameters and optimizer back to the beginning, in the memory where they are."""
        with torch.no_grad():
            for parameter, initial in zip(self.network.parameters(), self.initial):
                parameter.copy_(initial)
        for state in self.optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()
        torch.manual_seed(1)

    def shuffle(self) -> None:
        shuffled = torch.randperm(len(self.task.inputs), device=self.order.device)
        self.order.copy_(shuffled[: self.order.numel()].view_as(self.order))

    def epoch(self) -> None:
        for rows in self.order.unbind():
            self.step(rows)

    def train(self) -> float:
        """One whole training; its time in milliseconds."""
        self.restart()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(self.task.epochs):
            if self.gathers:
                self.shuffle()
            self.epoch()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)


class GraphTrainer(Trainer):
    """Trains a task's network by replaying one captured step. Which batch is the next is a number
    on the device, so that a replay needs nothing from the host."""

    name = "PyTorch CUDA graph"
    is_captured = True

    def prepare(self) -> None:
        self.position = torch.zeros(1, dtype=torch.int64, device=self.order.device)
        # What is captured must have run before, and on no stream but one beside the default.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self.position.zero_()
                self.next_step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.next_step()

    def next_step(self) -> None:
        rows = self.order[0]
        if self.gathers:
            rows = self.order.index_select(0, self.position).view(-1)
            self.position.add_(1)
        self.step(rows)

    def epoch(self) -> None:
        if self.gathers:
            self.position.zero_()
        for _ in range(self.task.steps):
            self.graph.replay()


class CompiledTrainer(Trainer):
    """Trains a network that torch.compile has made one function of, with kernels of its own."""

    name = "PyTorch compile"

    def wrap(self, network: nn.Module) -> nn.Module:
        return torch.compile(network)


# ---- The tasks ----------------------------------------------------------------------------------


def xor_task(device: torch.device, options: argparse.Namespace) -> Task:
    """2-8-2 on the four rows of XOR, all of them in every step."""
    return Task(
        network=lambda: nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)),
        loss=nn.CrossEntropyLoss(),
        inputs=torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], device=device),
        targets=torch.tensor([0, 1, 1, 0], device=device),
        batch=4, epochs=100 if options.quick else 5000, learning_rate=0.1, optimizer="momentum")


def read_idx(path: Path, header: int) -> torch.Tensor:
    """The bytes behind the header of a gzip'd IDX file (scripts/data.py has checked it)."""
    contents = bytearray(gzip.decompress(path.read_bytes()))
    return torch.frombuffer(contents, dtype=torch.uint8)[header:]


def load_digits(folder: Path, part: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as (rows, 784) from 0 to 1, and their classes."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).view(-1, 784)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8)
    return images.to(device).float() / 255, labels.to(device).long()


def mnist_task(device: torch.device, options: argparse.Namespace) -> Task:
    """784-128-10 on 60 000 digits; on random ones where MNIST is not there."""
    folder = Path(options.data) / "mnist"
    if folder.is_dir():
        inputs, targets = load_digits(folder, "train", device)
    else:
        inputs = torch.rand(60000, 784, device=device)
        targets = torch.randint(10, (60000,), device=device)
    return Task(
        network=lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
        loss=nn.CrossEntropyLoss(), inputs=inputs, targets=targets, batch=64,
        epochs=1 if options.quick else 10, learning_rate=1e-3)


def cnn_network() -> nn.Sequential:
    """What step 6.3 trains: the images come as rows of 784 pixels."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn_task(device: torch.device, options: argparse.Namespace) -> Task:
    """Two convolutions and two dense layers on the digits of mnist_task."""
    return replace(mnist_task(device, options), network=cnn_network, problem="8C3-P2-16C3-P2-64-10")


def sales_task(device: torch.device, options: argparse.Namespace) -> Task:
    """n-32-1 on random rows: the time does not depend on what they say."""
    rows, features = options.sales_rows, options.sales_features
    return Task(
        network=lambda: nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 1)),
        loss=nn.MSELoss(), inputs=torch.randn(rows, features, device=device),
        targets=torch.randn(rows, 1, device=device), batch=1024,
        epochs=1 if options.quick else 50, learning_rate=1e-3)


class Block(nn.Module):
    """Step 7.4's block; the tensors have the names of its checkpoints."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        hidden = nn.functional.gelu(self.fc(self.norm2(x)), approximate="tanh")
        return x + self.out(hidden)


class Transformer(nn.Module):
    """Step 7.5's model: learned positions, a head of its own without a bias, no dropout."""

    def __init__(self, layers: int, heads: int, width: int, context: int, vocabulary: int):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.layers = layers
        for layer in range(layers):
            self.add_module(str(layer), Block(width, heads))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                ends_box = name.endswith(("proj.weight", "out.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if ends_box else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for layer in range(self.layers):
            x = getattr(self, str(layer))(x)
        return self.head(self.norm(x))


class TokenLoss(nn.Module):
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def load_text(folder: Path, device: torch.device) -> torch.Tensor:
    """The first nine tenths of Tiny Shakespeare, a number per character; random ones without it."""
    path = folder / "tiny_shakespeare.txt"
    if not path.is_file():
        return torch.randint(65, (1003854,), device=device)
    contents = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    tokens = torch.unique(contents, return_inverse=True)[1].to(device)
    return tokens[: len(tokens) // 10 * 9]


# Layers, heads, width, context, batch, steps, learning rate.
TEXT_MODELS = {"small": (2, 4, 64, 128, 32, 1000, 3e-3), "medium": (6, 6, 384, 256, 64, 200, 1e-3)}


def text_task(name: str) -> Callable[[torch.device, argparse.Namespace], Task]:
    layers, heads, width, context, batch, steps, learning_rate = TEXT_MODELS[name]

    def make(device: torch.device, options: argparse.Namespace) -> Task:
        """Pieces of text, and the same a character further: views, of which a batch is copied."""
        text = load_text(Path(options.data), device)
        return Task(
            network=lambda: Transformer(layers, heads, width, context, int(text.max()) + 1),
            loss=TokenLoss(), inputs=text[:-1].unfold(0, context, 1),
            targets=text[1:].unfold(0, context, 1), batch=batch, epochs=1,
            steps_wanted=10 if options.quick else steps, learning_rate=learning_rate,
            optimizer="adamw",
            problem=f"layers={layers} heads={heads} width={width} context={context} batch={batch} "
                    f"{10 if options.quick else steps} steps")

    return make


def test_accuracy(trainer: Trainer, options: argparse.Namespace) -> str:
    """What the trained network makes of the digits it has not seen."""
    folder = Path(options.data) / "mnist"
    if not folder.is_dir():
        return "random images, for there is no MNIST"
    images, labels = load_digits(folder, "t10k", trainer.task.inputs.device)
    with torch.no_grad():
        right = trainer.network(images).argmax(1) == labels
    return f"test accuracy {100 * right.float().mean().item():.2f}%"


# ---- Measuring ----------------------------------------------------------------------------------


def make_row(name: str, times: list[float], note: str, bytes_moved: float = 0) -> dict:
    """A row as the programs write it, from times in milliseconds."""
    ordered, median = sorted(times), statistics.median(times)
    tenth = round(0.1 * (len(times) - 1))
    return {"name": name, "lesson": "", "peer": True, "status": "ok", "skipped": "", "ms": median,
            "ms_p10": ordered[tenth], "ms_p90": ordered[-1 - tenth],
            "rate": bytes_moved / (median / 1e3) if bytes_moved else None, "rate_unit": "B/s",
            "of_limit": None, "limit": "copy" if bytes_moved else "none", "of_peer": {},
            "max_error": None, "bound": None, "index": 0, "compared": 0, "failed": 0,
            "unwritten": 0, "note": note}


# The table of a program that a measurement is to be read beside: its problem begins so.
BESIDE = {"xor": ("train_toy", "xor"), "mnist": ("train_mnist", ""), "sales": ("train_sales", ""),
          "small": ("train_shakespeare", "layers=2 "), "medium": ("train_shakespeare", "layers=6 "),
          "cnn": ("train_cnn", ""), "adam": ("optimizers", "adam ")}


def make_table(name: str, problem: str, rows: list[dict]) -> dict:
    program, beginning = BESIDE[name]
    return {"problem": f"{name} {problem}", "sampled": "", "reference_ms": None, "rows": rows,
            "beside": {"program": program, "problem": beginning}}


def measure_trainer(kind: type[Trainer], name: str, task: Task,
                    options: argparse.Namespace) -> tuple[dict, Trainer]:
    trainer = kind(task)
    times = [trainer.train() for _ in range(options.repeat)]
    median = statistics.median(times)
    note = f"{1e3 * median / (task.epochs * task.steps):.1f} us a step"
    if name in TEXT_MODELS:
        tokens = task.epochs * task.steps * task.batch * task.inputs.shape[1]
        note += f", {tokens / median / 1e3:.3g} M tokens/s"
    if name in ("mnist", "cnn"):
        note += f", {test_accuracy(trainer, options)}"
    else:
        note += f", last loss {trainer.loss.item():.3g}"
    return make_row(trainer.name + (" bf16" if task.autocast else ""), times, note), trainer


def measure_task(name: str, task: Task, options: argparse.Namespace) -> dict:
    rows = []
    for kind in (Trainer, GraphTrainer):
        row, trainer = measure_trainer(kind, name, task, options)
        rows.append(row)
    widths = [layer.in_features for layer in trainer.network if isinstance(layer, nn.Linear)]
    widths.append(trainer.network(task.inputs[:1]).shape[1])
    problem = task.problem or "-".join(map(str, widths))
    problem += f" {task.epochs} epochs batch={task.batch} float32"
    return make_table(name, problem, rows)


def measure_text(name: str, task: Task, options: argparse.Namespace) -> dict:
    """Three ways to launch a step; the medium model also in bfloat16."""
    rows = []
    for autocast in ((False, True) if name == "medium" else (False,)):
        for kind in (Trainer, CompiledTrainer, GraphTrainer):
            try:
                rows.append(measure_trainer(kind, name, replace(task, autocast=autocast), options)[0])
            except Exception as error:  # torch.compile fails in as many ways as it has parts
                if kind is not CompiledTrainer:
                    raise
                print(f"torch.compile: {str(error).partition(chr(10))[0]}", file=sys.stderr)
    return make_table(name, f"{task.problem} float32", rows)


def measure_adam(device: torch.device, options: argparse.Namespace) -> dict:
    """One step of the fused Adam over one long tensor, timed by the device."""
    count = options.adam_parameters
    parameter = nn.Parameter(torch.randn(count, device=device))
    parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam([parameter], lr=1e-3, fused=True)
    for _ in range(WARM_UPS):
        optimizer.step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(ADAM_STEPS + 1)]
    marks[0].record()
    for mark in marks[1:]:  # the host is far ahead: the device goes from one step to the next
        optimizer.step()
        mark.record()
    torch.cuda.synchronize()
    times = [before.elapsed_time(after) for before, after in zip(marks, marks[1:])]
    row = make_row("PyTorch fused Adam", times, "", ADAM_BYTES * count)
    return make_table("adam", f"n={count} float32", [row])


TASKS = {"xor": xor_task, "mnist": mnist_task, "sales": sales_task,
         "cnn": cnn_task, "small": text_task("small"), "medium": text_task("medium")}


def use_float32() -> None:
    """cuDNN's convolutions round to TF32 unless they are told not to."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def make_report(device: torch.device, tables: list[dict], options: argparse.Namespace) -> dict:
    properties = torch.cuda.get_device_properties(device)
    return {
        "schema": 1, "step": "5", "program": "pytorch_training",
        "summary": f"PyTorch {torch.__version__}, float32",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "quick": options.quick, "seed": 1,
        "device": {"name": properties.name, "backend": "hip" if torch.version.hip else "cuda",
                   "toolkit": torch.version.hip or torch.version.cuda,
                   "wave_size": getattr(properties, "warp_size", 32),
                   "multiprocessors": properties.multi_processor_count},
        "torch": torch.__version__,
        "limits": {"copy_bytes_per_s": None, "read_bytes_per_s": None,
                   "fma_operations_per_s": None},
        "tables": tables, "facts": [], "series": {},
    }


def print_table(table: dict) -> None:
    print(f"\n{table['problem']}")
    for row in table["rows"]:
        rate = format_rate(row["rate"], row["rate_unit"]) if row["rate"] else ""
        print(f"{row['name']:<20} {format_ms(row['ms']):>8} {rate:>11}  {row['note']}".rstrip(),
              flush=True)


# ---- The command line ---------------------------------------------------------------------------


def positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**10:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to 10^10")
    return int(text)


def parse_options(arguments: list[str]) -> argparse.Namespace:
    title, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="pytorch_training", description=title, epilog=details,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*TASKS, "adam"]
    parser.add_argument("measurements", nargs="*", metavar="NAME",
                        help=f"some of {', '.join(known)}; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--quick", action="store_true", help="short trainings, which say little")
    parser.add_argument("--repeat", type=positive, default=3, metavar="N",
                        help="trainings of which the median is shown (default %(default)s)")
    parser.add_argument("--data", default=os.environ.get("COURSE_DATA") or "data", metavar="DIR",
                        help="folder of the data sets (default: $COURSE_DATA, or data)")
    parser.add_argument("--sales-rows", type=positive, default=293000, metavar="N",
                        help="rows of the sales (default %(default)s)")
    parser.add_argument("--sales-features", type=positive, default=24, metavar="N",
                        help="inputs of the sales' network (default %(default)s)")
    parser.add_argument("--adam-parameters", type=positive, default=10**8, metavar="N",
                        help="parameters of the Adam step (default %(default)s)")
    options = parser.parse_args(arguments)
    for name in options.measurements:
        if name not in known:
            raise CourseError(f"'{name}' is unknown; there are {', '.join(known)}", USAGE)
    options.measurements = [name for name in known
                            if name in options.measurements or not options.measurements]
    if options.sales_rows < 1024:
        raise CourseError("--sales-rows: a batch has 1024 rows", USAGE)
    if options.json and not options.json.parent.is_dir():
        raise CourseError(f"--json: there is no folder {options.json.parent}", USAGE)
    return options


def main(arguments: list[str]) -> int:
    try:
        options = parse_options(arguments)
        if not torch.cuda.is_available():
            raise CourseError(f"PyTorch {torch.__version__} finds no GPU here", MISSING)
        device = torch.device("cuda", torch.cuda.current_device())
        use_float32()
        print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name(device)}", flush=True)
        tables = []
        for name in options.measurements:
            if name == "adam":
                tables.append(measure_adam(device, options))
            else:
                measure = measure_text if name in TEXT_MODELS else measure_task
                tables.append(measure(name, TASKS[name](device, options), options))
            print_table(tables[-1])
        report = make_report(device, tables, options)
        validate(report)
        if options.json:
            partial = options.json.with_name(f"{options.json.name}.{os.getpid()}.partial")
            partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            os.replace(partial, options.json)
        return OK
    except CourseError as error:
        line, code = str(error), error.code
    except (RuntimeError, OSError, EOFError, zlib.error) as error:  # out of memory among them
        line, code = str(error).partition("\n")[0], FAILED
    print(f"pytorch_training: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
