"""One model from several checkpoints of a run: the mean of their weights.

Vaswani et al. 2017, section 6.1, average the last 5 checkpoints of their base model and 20 of the
big one. With trainer.averaging each checkpoint holds an average already; the mean of such is a
longer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from translate.errors import UserError
from translate.inference import bundle
from translate.run_folder import read_curves
from translate.training.averaging import for_use
from translate.training.checkpoints import AtomicCheckpointIO, foreign, kept
from translate.wording import counted


def average_checkpoints(run: Path, steps: Sequence[int], output: Path) -> None:
    """Write a bundle of averaged weights to the folder `output`, all else as in the run's own.

    Raises:
        UserError: a checkpoint cannot be read or is of another model, or no place to write.
    """
    loaded = bundle.load(bundle.find(run))
    weights = mean_weights([kept(run)[step] for step in steps])
    try:
        loaded.model.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(
            f"the checkpoints of {run} do not belong to the model in its bundle: "
            f"{' '.join(str(error).split())}"
        ) from error
    config = loaded.config
    # the score of the one checkpoint no longer holds
    facts = {key: value for key, value in config.extra.items() if key not in ("dev_bleu", "step")}
    bundle.save(
        output / "bundle",
        node=config.model,
        model=loaded.model,
        tokenizers=loaded.tokenizers,
        languages=config.languages,
        search=config.search,
        extra={**facts, "mean of": str(run), "steps": list(steps)},
        taught=config.taught,
    )


def choose(run: Path, *, count: int, best: bool) -> list[int]:
    """Return the steps of the last checkpoints that were kept, or of those with the best dev BLEU.

    Raises:
        UserError: there is no such run, fewer were kept, or the best are wanted and one has no
            score.
    """
    steps = list(kept(run))
    if not run.is_dir():
        raise UserError(f"{run} does not exist: give the folder of a run")
    if len(steps) < count:
        raise UserError(
            f"{run} has kept {counted(len(steps), 'checkpoint')}, but averaging needs {count}: "
            f"train with trainer.keep={count} and as many validations (trainer.validate_every), or "
            f"ask for fewer (checkpoints={'best' if best else 'last'}_N)"
        )
    if not best:
        return steps[-count:]
    scores = dict(read_curves(run / "metrics.csv").get("dev/bleu", []))
    if unknown := [step for step in steps if step not in scores]:
        raise UserError(
            f"{run / 'metrics.csv'} has no dev/bleu of step {', '.join(map(str, unknown))}, so "
            f"the best cannot be determined: use checkpoints=last_{count}"
        )
    return sorted(sorted(steps, key=lambda step: scores[step])[-count:])


def mean_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the model's weights, summed in float64; no code of a file is run.

    Raises:
        UserError: they are not all of one model.
    """
    first, *others = checkpoints
    total = _weights(first)
    for path in others:
        more = _weights(path)
        if {n: x.shape for n, x in more.items()} != {n: x.shape for n, x in total.items()}:
            raise UserError(
                f"{path} and {first} have weights of different models, which cannot be averaged"
            )
        total = {name: value + more[name] for name, value in total.items()}
    return {name: value / len(checkpoints) for name, value in total.items()}


def _weights(path: Path) -> dict[str, Tensor]:
    checkpoint, prefix = AtomicCheckpointIO().load_checkpoint(path), "model."
    try:
        state = for_use(checkpoint)
        if any(value.nbytes > value.untyped_storage().nbytes() for value in state.values()):
            raise ValueError("a number stands for many")  # which would fill the memory
        return {
            name.removeprefix(prefix): value.double()
            for name, value in state.items()
            if name.startswith(prefix)
        }
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise foreign(path, error) from error
