"""The config node `trainer`: how long, how precisely and on what to train (conf/trainer/)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from translate.training.precision import Precision


class Averaging(BaseModel):
    """Which average of the weights is validated and shipped (`translate.training.averaging`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["none", "ema", "last"]
    decay: Annotated[float, Field(gt=0, lt=1)]
    start: Annotated[float, Field(ge=0, lt=1)]
    every: PositiveInt


class Settings(BaseModel):
    """Each key is explained where its default stands, in conf/trainer/default.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_steps: PositiveInt | None
    max_epochs: PositiveInt | None
    max_minutes: PositiveFloat | None
    accelerator: Literal["auto", "cpu", "gpu"]
    devices: PositiveInt | Literal["auto"]
    num_nodes: PositiveInt
    strategy: str
    precision: Precision | Literal["auto"]
    threads: PositiveInt | None
    accumulate: PositiveInt
    gradient_clip: Annotated[float, Field(ge=0)]
    label_smoothing: Annotated[float, Field(ge=0, lt=1)]
    validate_every: PositiveInt
    validation_sentences: PositiveInt
    save_every: PositiveInt
    log_every: PositiveInt
    patience: PositiveInt | None
    samples: NonNegativeInt
    averaging: Averaging
    tensorboard: bool
    wandb: bool
    mlflow: bool


# What may differ when a run goes on: how long and where it trains, and what it shows meanwhile.
MAY_CHANGE = frozenset(
    {"max_steps", "max_epochs", "max_minutes", "accelerator", "devices", "num_nodes", "strategy",
     "threads", "patience", "samples", "save_every", "log_every", "tensorboard", "wandb", "mlflow"}
)  # fmt: skip
