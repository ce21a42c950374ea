"""The config node `trainer`: how long, how precisely and on what to train (conf/trainer/)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from translate.config import Node
from translate.inference.minimum_bayes_risk import Utility
from translate.search.sampling import Temperature
from translate.training.precision import Precision


class Averaging(Node):
    """Which average of the weights is validated and shipped (`translate.training.averaging`)."""

    kind: Literal["none", "ema", "last"]
    decay: Annotated[float, Field(gt=0, lt=1)]
    start: Annotated[float, Field(ge=0, lt=1)] | None
    every: PositiveInt


class GuidedAlignment(Node):
    """Which attention learns to follow given alignments (`translate.training.guidance`)."""

    weight: Annotated[float, Field(ge=0)]
    layer: PositiveInt | None
    head: PositiveInt


class MinimumRisk(Node):
    """How much the risk of sampled translations counts (`translate.training.minimum_risk`)."""

    weight: Annotated[float, Field(ge=0, le=1)]
    candidates: Annotated[int, Field(ge=2)]
    temperature: Temperature
    sharpness: PositiveFloat
    metric: Utility
    include_reference: bool


class Settings(Node):
    """Each key is explained where its default stands, in conf/trainer/default.yaml."""

    max_steps: PositiveInt | None
    max_epochs: PositiveInt | None
    max_minutes: PositiveFloat | None
    accelerator: Literal["auto", "cpu", "gpu"]
    devices: PositiveInt | Literal["auto"]
    num_nodes: PositiveInt
    strategy: Literal["auto", "ddp", "fsdp"]
    precision: Literal["auto", Precision]
    threads: Annotated[int, Field(gt=0, le=1024)] | None
    accumulate: Annotated[int, Field(gt=0, le=10**6)]
    packing: Literal["auto", "on", "off"]
    activation_checkpointing: bool
    compile: bool
    gradient_clip: Annotated[float, Field(ge=0)]
    label_smoothing: Annotated[float, Field(ge=0, lt=1)]
    r_drop: Annotated[float, Field(ge=0)]
    word_dropout: Annotated[float, Field(ge=0, lt=1)]
    validate_every: PositiveInt
    validation_sentences: PositiveInt
    save_every: PositiveInt
    keep: NonNegativeInt
    log_every: PositiveInt
    patience: PositiveInt | None
    samples: NonNegativeInt
    averaging: Averaging
    guided_alignment: GuidedAlignment
    minimum_risk: MinimumRisk
    tensorboard: bool
    wandb: bool
    mlflow: bool

    @property
    def averages(self) -> bool:
        """Whether an average of the weights is validated and shipped in their place."""
        return self.averaging.kind != "none"

    @property
    def guides(self) -> bool:
        """Whether a head learns given alignments."""
        return self.guided_alignment.weight > 0

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.max_steps is None and self.max_epochs is None:
            raise ValueError("has no end: set max_steps or max_epochs")
        return self


# keys of a configuration that say how long a run trains
LENGTHS = frozenset({f"trainer.{key}" for key in (
    "max_steps", "max_epochs", "max_minutes", "patience",
)})  # fmt: skip
# what may differ when a run goes on: that, where it trains, what it shows meanwhile, and where its
# text lies, which is compared itself
MAY_CHANGE = LENGTHS | {"cache", "data.workers", "data.dir"} | {f"trainer.{key}" for key in (
    "accelerator", "devices", "num_nodes", "strategy", "threads", "packing",
    "activation_checkpointing", "compile", "samples", "save_every", "keep", "log_every",
    "tensorboard", "wandb", "mlflow",
)}  # fmt: skip


def flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{a: {b: 1}}` as `{a.b: 1}`."""
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves
