"""The course's trainings in PyTorch: the same model, data, batch, optimizer, precision and seed.

Each network is trained eagerly, one launch for each operation, and on a GPU also with the whole step
(the gathering of the batch, forward, loss, backward, optimizer) captured in a CUDA graph and replayed.
Both keep the data on the device, shuffle there, use the fused optimizers and never wait for the
device. The transformers are also trained by torch.compile, and the larger one in bfloat16 (autocast)
too; their learning rate is constant. Matrix products and convolutions are float32, without TF32; cuDNN
tries its algorithms and keeps the fastest. A time is that of a whole training on the wall clock, from
initialised parameters to the device at rest; loading, warming up and capturing come before.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from .peers import blank_row, first_line, make_row
from .problems import Problem

WARM_UPS = 3  # steps before anything is timed or captured
QUICK_STEPS = 20  # of a training that only shows that it runs
LONG_MS = 3000  # a training that takes longer is not repeated: it has thousands of steps to vary in


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
    optimizer: str = "adam"  # or "sgd", "momentum", "adamw"
    steps_wanted: int = 0  # of an epoch, from fewer rows than there are; 0: as many as they make
    seed: int = 1
    autocast: bool = False  # to bfloat16, in forward and backward passes
    test: tuple[torch.Tensor, torch.Tensor] | None = None  # images that training does not see
    is_text: bool = False  # rows of tokens
    curve: str = ""  # the program's name for its series of losses, where it trains on the same data

    @property
    def steps(self) -> int:
        """of one epoch"""
        return self.steps_wanted or len(self.inputs) // self.batch


def make_optimizer(task: Task, network: nn.Module, is_captured: bool) -> torch.optim.Optimizer:
    if task.optimizer in ("sgd", "momentum"):
        return torch.optim.SGD(network.parameters(), lr=task.learning_rate, fused=True,
                               momentum=0.9 if task.optimizer == "momentum" else 0)
    rule = torch.optim.AdamW if task.optimizer == "adamw" else torch.optim.Adam
    return rule(network.parameters(), lr=task.learning_rate, fused=True, capturable=is_captured)


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


class Trainer:
    """Trains a task's network eagerly: one launch, or several, for each operation."""

    name = "PyTorch eager"
    is_captured = False

    def __init__(self, task: Task):
        self.task = task
        self.gathers = task.batch < len(task.inputs)  # else a batch is everything
        torch.manual_seed(self.task.seed)
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
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.task.autocast):
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
        torch.manual_seed(self.task.seed)

    def shuffle(self) -> None:
        shuffled = torch.randperm(len(self.task.inputs), device=self.order.device)
        self.order.copy_(shuffled[: self.order.numel()].view_as(self.order))

    def epoch(self, losses: list[torch.Tensor] | None = None) -> None:
        """Adds the loss of every step to `losses`, where they are wanted."""
        for rows in self.order.unbind():
            self.step(rows)
            if losses is not None:
                losses.append(self.loss.clone())

    def train(self) -> float:
        """One whole training; its time in milliseconds."""
        self.restart()
        wait_for(self.order.device)
        start = time.perf_counter()
        for _ in range(self.task.epochs):
            if self.gathers:
                self.shuffle()
            self.epoch()
        wait_for(self.order.device)
        return 1e3 * (time.perf_counter() - start)

    def series(self) -> dict:
        """The losses of one more training, which nobody times: of each step where there is one epoch, else
        the mean of each epoch, at most 100 of them, with the accuracy where there are test images."""
        task, rows = self.task, []
        self.restart()
        every = max(1, task.epochs // 100)
        for epoch in range(1, task.epochs + 1):
            if self.gathers:
                self.shuffle()
            losses: list[torch.Tensor] = []
            self.epoch(losses)
            if task.epochs == 1:
                return {"columns": ["step", "loss"],
                        "rows": [[step, loss] for step, loss in enumerate(torch.stack(losses).tolist(), 1)]}
            if epoch % every == 0:
                accuracy = [accuracy_of(self)] if task.test else []
                rows.append([epoch, torch.stack(losses).mean().item(), *accuracy])
        return {"columns": ["epoch", "loss", "accuracy"][: len(rows[0])], "rows": rows}


def accuracy_of(trainer: Trainer) -> float:
    """Percent of the test images that are called by their names."""
    images, labels = trainer.task.test
    with torch.no_grad():
        return 100 * (trainer.network(images).argmax(1) == labels).float().mean().item()


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

    def epoch(self, losses: list[torch.Tensor] | None = None) -> None:
        if self.gathers:
            self.position.zero_()
        for _ in range(self.task.steps):
            self.graph.replay()
            if losses is not None:
                losses.append(self.loss.clone())


class CompiledTrainer(Trainer):
    """Trains a network that torch.compile has made one function of, with kernels of its own."""

    name = "PyTorch compile"

    def wrap(self, network: nn.Module) -> nn.Module:
        return torch.compile(network)


# ---- The tasks ----------------------------------------------------------------------------------


def read_idx(path: Path, header: int) -> torch.Tensor:
    """The bytes behind the header of a gzip'd IDX file (scripts/data.py has checked it)."""
    contents = bytearray(gzip.decompress(path.read_bytes()))
    return torch.frombuffer(contents, dtype=torch.uint8)[header:]


def load_digits(folder: Path, part: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as (rows, 784) from 0 to 1, and their classes."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).view(-1, 784)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8)
    return images.to(device).float() / 255, labels.to(device).long()


def mlp(widths: list[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def toy_task(values: dict, device: torch.device, data: Path) -> Task:
    """All points in every step. Those of XOR are its four; of the others only the number counts: a step
    takes as long whatever they say."""
    widths = [int(width) for width in str(values["network"]).split("-")]
    inputs = torch.rand(values["points"], 2, device=device)
    targets = torch.randint(widths[-1], (values["points"],), device=device)
    if values["data"] == "xor":
        inputs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], device=device)
        targets = torch.tensor([0, 1, 1, 0], device=device)
    return Task(network=lambda: mlp(widths, nn.Tanh), loss=nn.CrossEntropyLoss(), inputs=inputs,
                targets=targets, batch=len(inputs), epochs=values["epochs"],
                curve="xor_loss" if values["data"] == "xor" else "",
                learning_rate=float(values["learning_rate"]), optimizer=values["optimizer"])


def cnn_network() -> nn.Sequential:
    """What step 6.4 trains: the images come as rows of 784 pixels."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def digits_task(values: dict, device: torch.device, data: Path) -> Task:
    """Handwritten digits, where the program had them and they are here; else as many random images."""
    network, test = str(values["network"]), None
    if values["data"] == "MNIST" and (data / "mnist").is_dir():
        inputs, targets = load_digits(data / "mnist", "train", device)
        inputs, targets = inputs[: values["images"]], targets[: values["images"]]
        test = load_digits(data / "mnist", "t10k", device)
    else:
        inputs = torch.rand(values["images"], 784, device=device)
        targets = torch.randint(10, (values["images"],), device=device)
    make = cnn_network if "C" in network else lambda: mlp(list(map(int, network.split("-"))), nn.ReLU)
    return Task(network=make, loss=nn.CrossEntropyLoss(), inputs=inputs, targets=targets,
                batch=values["batch"], epochs=values["epochs"], test=test,
                curve="training" if test else "",
                learning_rate=float(values["learning_rate"]), optimizer=values["optimizer"])


def sales_task(values: dict, device: torch.device, data: Path) -> Task:
    """24-32-1 on random rows: the time does not depend on what they say."""
    return Task(
        network=lambda: mlp([24, 32, 1], nn.ReLU), loss=nn.MSELoss(),
        inputs=torch.randn(values["rows"], 24, device=device),
        targets=torch.randn(values["rows"], 1, device=device), batch=values["batch"],
        epochs=values["epochs"], learning_rate=1e-3, optimizer=values["optimizer"])


class Block(nn.Module):
    """Step 7.6's block; the tensors have the names of its checkpoints."""

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
    """Step 7.7's model: learned positions, a head of its own without a bias, no dropout."""

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


def text_task(values: dict, device: torch.device, data: Path) -> Task:
    """Pieces of text, and the same a character further: views, of which a batch is copied."""
    text = load_text(data, device)
    sizes = [values[name] for name in ("layers", "heads", "width", "context")]
    return Task(
        network=lambda: Transformer(*sizes, int(text.max()) + 1), loss=TokenLoss(),
        inputs=text[:-1].unfold(0, values["context"], 1),
        targets=text[1:].unfold(0, values["context"], 1), batch=values["batch"], epochs=1,
        steps_wanted=values["steps"], learning_rate=float(values["learning_rate"]),
        optimizer=values["optimizer"], is_text=True, curve="training")


TASKS: dict[str, Callable[[dict, torch.device, Path], Task]] = {
    "train_toy": toy_task, "train_digits": digits_task, "train_sales": sales_task,
    "train_text": text_task}


# ---- Measuring ----------------------------------------------------------------------------------


def describe(trainer: Trainer, ms: float) -> str:
    """What a step took, and what was learnt."""
    task = trainer.task
    note = f"{1e3 * ms / (task.epochs * task.steps):.1f} us a step"
    if task.is_text:
        tokens = task.epochs * task.steps * task.batch * task.inputs.shape[1]
        note += f", {tokens / ms / 1e3:.3g} M tokens/s"
    if task.test:
        return f"{note}, test accuracy {accuracy_of(trainer):.2f}%"
    return f"{note}, last loss {trainer.loss.item():.3g}"


class Trainings:
    """Measures trainings, and remembers which are too long to be repeated. With `quick` a training is a
    few steps, and only one is compiled."""

    def __init__(self, device: torch.device, data: Path, repeat: int = 1, quick: bool = False):
        self.device, self.data, self.repeat, self.quick = device, data, repeat, quick
        self.long: set[tuple[str, str]] = set()  # problem, row
        self.drawn: set[str] = set()  # problems whose curve is known

    def task(self, problem: Problem, seed: int) -> Task:
        torch.manual_seed(seed)
        task = replace(TASKS[problem.kind](problem.values, self.device, self.data), seed=seed)
        if not self.quick:
            return task
        if task.steps == 1:
            return replace(task, epochs=QUICK_STEPS)
        return replace(task, epochs=1, steps_wanted=min(QUICK_STEPS, task.steps))

    def kinds(self, task: Task) -> list[tuple[type[Trainer], bool]]:
        """How it is trained: by what, and whether in bfloat16."""
        if self.device.type != "cuda":
            return [(Trainer, False)]
        if not task.is_text:
            return [(Trainer, False), (GraphTrainer, False)]
        # In bfloat16 too where the products are large enough for matrix units to matter.
        precisions = (False, True) if task.batch * task.inputs.shape[1] > 8192 else (False,)
        ways = (Trainer, GraphTrainer) if self.quick and self.long else (
            Trainer, CompiledTrainer, GraphTrainer)
        return [(kind, autocast) for autocast in precisions for kind in ways]

    def measure(self, problem: Problem, seed: int = 1) -> list[dict]:
        task, rows = self.task(problem, seed), []
        for kind, autocast in self.kinds(task):
            name = kind.name + (" bf16" if autocast else "")
            if (repr(problem), name) in self.long:
                continue
            try:
                trainer = kind(replace(task, autocast=autocast))
                times = [trainer.train() for _ in range(self.repeat)]
                row = make_row(name, times, describe(trainer, sorted(times)[len(times) // 2]))
                if task.curve and kind is GraphTrainer and not autocast and repr(problem) not in self.drawn:
                    self.drawn.add(repr(problem))
                    row["series"] = {task.curve: trainer.series()}
                rows.append(row)
            except Exception as error:  # torch.compile fails in as many ways as it has parts
                rows.append(blank_row(name, first_line(error)))
                continue
            if times[0] > LONG_MS or kind is CompiledTrainer:  # compiling takes longer still
                self.long.add((repr(problem), name))
        return rows
