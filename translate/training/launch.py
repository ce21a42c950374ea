"""The processes that were started at once, and the first of them (no PyTorch is needed)."""

from __future__ import annotations

import os

from translate.errors import UserError

_OF_A_MACHINE = {  # who starts processes at once, by what says how many → how many on a machine
    "WORLD_SIZE": "LOCAL_WORLD_SIZE",  # torchrun; Lightning, which says no more
    "SLURM_STEP_NUM_TASKS": "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS": "SLURM_NTASKS_PER_NODE",
}
_INTERACTIVE = ("bash", "interactive")  # names of a SLURM job whose shell is one task, to Lightning


def is_first_process() -> bool:
    """Tell whether no process on any machine comes before this one."""
    return _later() is None


def _later() -> str | None:
    """Return the variable by which this process comes after another; None: it is the first.

    Whoever starts the others numbers them in some of these: torchrun sets RANK, which alone counts
    then, SLURM its own, Lightning the number on a machine and that of the machine.
    """
    names = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
    numbers = names[:1] if "TORCHELASTIC_RUN_ID" in os.environ else names
    return next((name for name in numbers if os.environ.get(name, "0") != "0"), None)


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
    """Return the variable in which a launcher says how many processes it started, if any did."""
    slurm = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") if started_by_slurm() else ()
    return next((name for name in ("WORLD_SIZE", *slurm) if os.environ.get(name)), None)


def refuse_other_launch(devices: int, nodes: int) -> None:
    """Raise a UserError where other processes were started than those that train together.

    Each would train alone, all of them in one folder, or wait for ever for one that never comes.
    """
    wanted, launcher = devices * nodes, _launcher()
    asked = f"trainer.devices × trainer.num_nodes = {devices} × {nodes}"
    if launcher is not None:
        started, share = int(os.environ[launcher]), os.environ.get(_OF_A_MACHINE[launcher])
        uneven = started > 1 and share != str(devices) and (launcher != "WORLD_SIZE" or share)
        if started != wanted or uneven:
            raise UserError(
                f"{launcher} = {started}, {_OF_A_MACHINE[launcher]} = {share or 'not set'}: other "
                f"processes were started than {asked} asks for. Start {devices} on each machine "
                "(torchrun --nproc-per-node, srun --ntasks-per-node), give trainer.devices and "
                "trainer.num_nodes as they were started, or start the command without torchrun or "
                "srun (env -u SLURM_PROCID)"
            )
    elif nodes > 1 and os.environ.keys().isdisjoint(("NODE_RANK", "GROUP_RANK")):
        raise UserError(
            f"trainer.num_nodes = {nodes}, but nothing started this process together with those of "
            "other machines, for which it would wait: start it by torchrun or srun on each "
            "(docs/scale.md), or give trainer.num_nodes=1"
        )
    if wanted == 1 and (later := _later()) is not None:
        raise UserError(
            f"{later} = {os.environ[later]} says that another process was started before this one, "
            f"but {asked} has one alone: give as many as were started, or unset it for a run of "
            f"its own (env -u {later} translate train …, each with another run=)"
        )
