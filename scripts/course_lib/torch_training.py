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

import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from .peers import blank_row, first_line, make_row
from .problems import Problem
from .torch_tasks import TASKS
from .training_task import Task, described

WARM_UPS = 3  # steps before anything is timed or captured
LONG_MS = 3000  # a training that takes longer is not repeated: it has thousands of steps to vary in


def make_optimizer(task: Task, network: nn.Module, is_captured: bool) -> torch.optim.Optimizer:
    if task.optimizer in ("sgd", "momentum"):
        return torch.optim.SGD(network.parameters(), lr=task.learning_rate, fused=True,
                               momentum=0.9 if task.optimizer == "momentum" else 0)
    rule = torch.optim.AdamW if task.optimizer == "adamw" else torch.optim.Adam
    rate = task.learning_rate
    if task.until and is_captured:  # a replay reads what it falls to from the device
        rate = torch.tensor(rate, device=task.inputs.device)
    return rule(network.parameters(), lr=rate, fused=True, capturable=is_captured)


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


class Trainer:
    """Trains a task's network eagerly: one launch, or several, for each operation."""

    name = "PyTorch eager"
    is_captured = False

    def __init__(self, task: Task):
        self.task = task
        torch.manual_seed(self.task.seed)
        device = task.inputs.device
        self.network = self.wrap(task.network().to(device))
        self.initial = [parameter.detach().clone() for parameter in self.network.parameters()]
        self.optimizer = make_optimizer(task, self.network, self.is_captured)
        # The rows of every batch of an epoch.
        self.order = torch.zeros(task.steps, task.batch, dtype=torch.int64, device=device)
        self.loss = torch.zeros((), device=device)  # of the last step
        self.epochs = task.epochs  # of the last training
        self.prepare()
        if task.until:
            accuracy_of(self)

    def wrap(self, network: nn.Module) -> nn.Module:
        return network

    def prepare(self) -> None:
        """Runs everything once that takes longer the first time."""
        for _ in range(WARM_UPS):
            self.step(self.order[0])

    def step(self, rows: torch.Tensor) -> None:
        inputs, targets = self.task.inputs, self.task.targets
        if self.task.gathers:
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

    def set_rate(self, share: float) -> None:
        """Takes so much of the task's learning rate."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(share * self.task.learning_rate)
            else:
                group["lr"] = share * self.task.learning_rate

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
        for number in range(self.task.epochs):
            if self.task.until:
                self.set_rate(1 - number / self.task.epochs)
            if self.task.gathers:
                self.shuffle()
            self.epoch()
            self.epochs = number + 1
            if self.task.until and accuracy_of(self) >= self.task.until:
                break
        wait_for(self.order.device)
        return 1e3 * (time.perf_counter() - start)

    def peak_bytes(self) -> int | None:
        """What a step has in use at most, above what is there between two steps (parameters, gradients, the
        optimizer's state, the data). None where nobody counts."""
        device = self.order.device
        if device.type != "cuda":
            return None
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        self.step(self.order[0])
        return torch.cuda.max_memory_allocated(device) - before

    def series(self) -> dict:
        """The losses of one more training, which nobody times: of each step where there is one epoch, else
        the mean of each epoch, at most 100 of them, with the accuracy where there are test images."""
        task, rows = self.task, []
        self.restart()
        every = max(1, task.epochs // 100)
        for epoch in range(1, task.epochs + 1):
            if self.task.gathers:
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
        if self.task.gathers:
            rows = self.order.index_select(0, self.position).view(-1)
            self.position.add_(1)
        self.step(rows)

    def epoch(self, losses: list[torch.Tensor] | None = None) -> None:
        if self.task.gathers:
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


# ---- Measuring ----------------------------------------------------------------------------------


def describe(trainer: Trainer, ms: float) -> str:
    """What a step took and had in use, and what was learnt."""
    accuracy = accuracy_of(trainer) if trainer.task.test else None
    note = described(trainer.task, ms, trainer.epochs, trainer.loss.item(), accuracy)
    peak = trainer.peak_bytes() if type(trainer) is Trainer else None  # a graph keeps what it has had
    return note if peak is None else f"{note}, at most {peak / 1e6:.3g} MB live in a step"


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
        return task.shortened() if self.quick else task

    def kinds(self, task: Task) -> list[tuple[type[Trainer], bool]]:
        """How it is trained: by what, and whether in bfloat16."""
        if self.device.type != "cuda":
            return [(Trainer, False)]
        if not task.is_text:
            return [(Trainer, False), (GraphTrainer, False)]
        precisions = (False, True) if task.is_large else (False,)
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
