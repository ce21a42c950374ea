"""The processes that were started at once, and the first of them (no PyTorch is needed)."""

from __future__ import annotations

import os

from translate.errors import UserError

_NUMBERS = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")  # of a process or its machine
_INTERACTIVE = ("bash", "interactive")  # names of a SLURM job whose shell is one task, to Lightning


def is_first_process() -> bool:
    """Tell whether no process on any machine comes before this one.

    Torchrun numbers by RANK alone, SLURM by its own variable, Lightning by the number on a machine
    and that of the machine.
    """
    names = _NUMBERS[:1] if "TORCHELASTIC_RUN_ID" in os.environ else _NUMBERS
    return all(os.environ.get(name, "0") == "0" for name in names)


def started_together(nodes: int) -> int:
    """Return how many processes torchrun, SLURM or a person, one a node, started at once."""
    launcher = _launcher()
    return max(nodes, int(os.environ[launcher]) if launcher else 1)


def started_by_lightning() -> bool:
    """Tell whether the first process on this machine started this one, for a job of its own."""
    return "RANK" not in os.environ and os.environ.get("LOCAL_RANK", "0") != "0"  # torchrun: both


def started_by_the_first() -> bool:
    """Tell whether the run's first process started this one, by Lightning, its own facts noted.

    Processes that were started at once are not: what they find in the folder is an earlier try's.
    """
    return started_by_lightning() and os.environ.get("NODE_RANK", "0") == "0"


def started_by_slurm() -> bool:
    """Tell whether srun started this process as one of a step, and not from a shell in one.

    A shell's job has one of the names that Lightning goes by, and its step a single task.
    """
    if "SLURM_PROCID" not in os.environ or "SLURM_NTASKS" not in os.environ:
        return False
    shell = os.environ.get("SLURM_JOB_NAME") in _INTERACTIVE
    return not shell or os.environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"


def _launcher() -> str | None:
    """Return the variable in which torchrun or srun gives the number of processes, if it is set."""
    slurm = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") if started_by_slurm() else ()
    return next((name for name in ("WORLD_SIZE", *slurm) if os.environ.get(name)), None)


def refuse_other_launch(devices: int, nodes: int) -> None:
    """Raise a UserError where other processes were started than those that train together.

    Each would train alone, all of them in one folder, or wait for ever for one that never comes.
    """
    launcher = _launcher()
    if launcher is not None and os.environ[launcher] != str(devices * nodes):
        raise UserError(
            f"{launcher} = {os.environ[launcher]}: other processes were started than "
            f"trainer.devices × trainer.num_nodes = {devices} × {nodes} asks for. Give both as "
            "they were started, or start the command without torchrun or srun (env -u SLURM_PROCID)"
        )
    if launcher is None and nodes > 1 and not {"NODE_RANK", "GROUP_RANK"} & os.environ.keys():
        raise UserError(
            f"trainer.num_nodes = {nodes}, but nothing started this process together with those of "
            "other machines, for which it would wait: start it by torchrun or srun on each "
            "(docs/scale.md), or give trainer.num_nodes=1"
        )
