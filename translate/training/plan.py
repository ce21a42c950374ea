"""What a run is about to do, told before it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from translate.data.module import TranslationData
from translate.training.disk import bytes_of, memory_of_training, readable, space_of_run
from translate.training.settings import Settings
from translate.wording import counted


def plan(
    run: Path,
    model: nn.Module,
    data: TranslationData,
    options: Settings,
    schedule: Mapping[str, Any],
    *,
    steps: int,
    processes: int,
    precision: str,
    resuming: bool,
) -> str:
    """Three lines: the run, its way through the corpus, what memory and disk have to hold.

    Further ones where the learning rate never comes to its peak, or is never halved.

    Memory is that of weights, gradients and optimizer, or a process's share of them and the whole
    weights that it validates with; activations, which grow with the batch, come on top.
    """
    extent = data.mixture.extent
    batches = options.accumulate * processes  # of a step
    tokens, epoch = data.tokens_per_batch * batches, max(1, _batches(data)) / batches
    memory = memory_of_training(model, averaged=options.averages)
    if options.strategy == "fsdp":
        memory = memory // processes + bytes_of(model)
    disk = space_of_run(model, averaged=options.averages, keep=options.keep)
    lines = [
        f"{'resuming' if resuming else 'training'} {run}: "
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {extent.pairs:,} training "
        f"pairs{_left_out(data)}, {counted(steps, 'step')} of at most {tokens:,} tokens per side, "
        f"{precision}, {counted(processes, 'process', 'processes')}",
        f"an epoch is {extent.source_tokens:,.0f} source and {extent.target_tokens:,.0f} target "
        f"tokens, about {epoch:,.{int(epoch < 10)}f} steps; the run passes over the corpus "
        f"{steps / epoch:.1f} times",
        f"memory {readable(memory)} plus activations, in each process; disk {readable(disk)}",
    ]
    return "\n".join([*lines, *_in_vain(schedule, steps)])


def _in_vain(schedule: Mapping[str, Any], steps: int) -> Iterator[str]:
    """What the schedule never comes to in so many steps."""
    warmup = schedule.get("warmup_steps", 0)
    if warmup >= steps:
        yield (
            f"the learning rate never stops rising: schedule.warmup_steps = {warmup} of {steps} "
            "steps; use fewer, or train longer"
        )
    if schedule.get("kind") == "halving" and schedule["kept"] >= schedule["parts"]:
        yield (
            f"the learning rate is never halved: schedule.kept = {schedule['kept']} of "
            f"schedule.parts = {schedule['parts']}; keep fewer, or make more parts"
        )


def _left_out(data: TranslationData) -> str:
    longer = data.mixture.pairs - data.mixture.extent.pairs
    if not longer:
        return ""
    return f" ({longer:,} longer than data.max_length = {data.max_length} pieces are left out)"


def _batches(data: TranslationData) -> int:
    """Batches of an epoch, all of whose pools are as large as the first."""
    batches = data.batches()
    return batches.pools * sum(1 for _ in batches.pool(0, epoch=0))
