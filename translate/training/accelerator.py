"""What a run computes on, and with how many processes beside it."""

from __future__ import annotations

import os

import torch

from translate.errors import UserError


def on_gpu(accelerator: str) -> bool:
    """Whether a run trains on a GPU, as Lightning decides it: `auto` takes one if there is one."""
    return accelerator != "cpu" and torch.cuda.is_available()


def check_accelerator(accelerator: str) -> None:
    """UserError where a GPU is asked for and there is none."""
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise UserError(
            "trainer.accelerator = gpu, but PyTorch finds no NVIDIA GPU here: choose auto or cpu"
        )


def is_first_process() -> bool:
    """Whether no process on any machine comes before this one.

    Whoever starts the others numbers them in some of these variables: torchrun sets RANK, SLURM
    its own, Lightning the number on a machine and that of the machine.
    """
    numbers = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
    return all(os.environ.get(name, "0") == "0" for name in numbers)


def started_together(nodes: int) -> int:
    """How many processes torchrun, SLURM or a person, one a node, started at once; 1: only this."""
    return max(nodes, *(int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "SLURM_NTASKS")))


def started_by_the_first() -> bool:
    """Whether the run's first process started this one, by Lightning, once it had noted its own.

    Processes that were started at once are not: what they find in the folder is an earlier try's.
    """
    lightning = "LOCAL_RANK" in os.environ and "RANK" not in os.environ  # torchrun sets both
    on_this_node = os.environ.get("NODE_RANK", "0") == "0"
    return lightning and on_this_node and os.environ["LOCAL_RANK"] != "0"
