"""The configuration of a training: the node `trainer`, and all nodes together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
)

from translate.compose import compose
from translate.config import Node, OnlyWith, check, problems
from translate.data.corpus import KINDS
from translate.data.sources import Source
from translate.data.tokenizer import TokenizerConfig
from translate.inference.minimum_bayes_risk import Utility
from translate.models import registry
from translate.models.seq2seq import ModelConfig
from translate.nodes import group_problems
from translate.search import AnySearchConfig
from translate.search.sampling import Temperature
from translate.training.optim import OPTIMIZERS, SCHEDULES, OptimizerConfig, ScheduleConfig

Precision = Literal["32-true", "tf32", "bf16-mixed", "16-mixed", "64-true"]

# The share of a run after which averaging begins by default. A mean keeps all that it has seen, the
# random weights of the beginning too.
AVERAGING_STARTS = {"ema": 0.0, "last": 0.75}


class AveragingConfig(Node):
    """The average of the weights that is validated and shipped (`training.averaging`)."""

    kind: Literal["none", "ema", "last"] = Field(
        description="average of the weights that is validated and shipped: none, an exponential "
        "moving average, or the mean of those since `start`"
    )
    decay: Annotated[float, Field(gt=0, lt=1), OnlyWith("kind", "ema")] = Field(
        description="share of the moving average that an update keeps"
    )
    start: Annotated[
        Annotated[float, Field(ge=0, lt=1)] | None, OnlyWith("kind", "ema", "last")
    ] = Field(
        description="share of the run after which averaging begins; null: 0 for ema, 0.75 for "
        "last, which forgets nothing of a random beginning. A run that is prolonged keeps what it "
        "had"
    )
    every: Annotated[PositiveInt, OnlyWith("kind", "ema", "last")] = Field(
        description="optimizer steps between two updates of the average"
    )


class GuidedAlignmentConfig(Node):
    """The head of attention that learns to follow given alignments (`objectives.Guidance`)."""

    weight: Annotated[float, Field(ge=0)] = Field(
        description="weight of the alignment loss beside the translation's (Garg et al. 2019 take "
        "0.05); 0: off. Needs gold alignments (data=toy, data.alignments)"
    )
    layer: Annotated[PositiveInt | None, OnlyWith("weight", example=0.05)] = Field(
        description="layer of the decoder whose head learns, from 1; null: the last of one or two, "
        "the last but one of more"
    )
    head: Annotated[PositiveInt, OnlyWith("weight", example=0.05)] = Field(
        description="head that learns, from 1: the only one of a recurrent model"
    )


class MinimumRiskConfig(Node):
    """The weight of the risk of sampled translations (`extras.minimum_risk`)."""

    weight: Annotated[float, Field(ge=0, le=1)] = Field(
        description="share of the risk in the loss, the rest is that of tokens; 0: off. Fine-tunes "
        "a trained model (init=): good samples become likelier"
    )
    candidates: Annotated[int, Field(ge=2), OnlyWith("weight", example=0.8)] = Field(
        description="samples of a sentence. A step needs about this many times the memory, more "
        "if a sample runs long: divide data.tokens_per_batch by twice this number"
    )
    temperature: Annotated[Temperature, OnlyWith("weight", example=0.8)] = Field(
        description="temperature of sampling; 1 samples what the model finds likely, which label "
        "smoothing makes poor"
    )
    sharpness: Annotated[PositiveFloat, OnlyWith("weight", example=0.8)] = Field(
        description="exponent of the candidates' probabilities (0.005 in the paper); the risk's "
        "gradient grows with it"
    )
    metric: Annotated[Utility, OnlyWith("weight", example=0.8)] = Field(
        description="metric of a sentence that judges candidates"
    )
    include_reference: Annotated[bool, OnlyWith("weight", example=0.8)] = Field(
        description="count the reference among the candidates (the paper does)"
    )


class TrainerConfig(Node):
    """The length of a training, its precision and its devices."""

    max_steps: PositiveInt | None = Field(description="optimizer steps of the whole run")
    max_epochs: PositiveInt | None = Field(
        description="passes through the corpus: given alone, it takes the place of max_steps, and "
        "max_steps the place of it; of both, the earlier one ends the run"
    )
    max_minutes: PositiveFloat | None = Field(
        description="minutes of wall time after which to stop; the same command goes on for as "
        "many again"
    )
    accelerator: Literal["auto", "cpu", "gpu"] = Field(description="what computes")
    devices: PositiveInt | Literal["auto"] = Field(
        description="processes on this machine, one per GPU (or share of the CPU)"
    )
    num_nodes: PositiveInt = Field(description="machines (docs/scale.md)")
    strategy: Literal["auto", "ddp", "fsdp"] = Field(
        description="how processes share the work: fsdp distributes a Transformer's weights too "
        "(docs/scale.md)"
    )
    precision: Literal["auto", Precision] = Field(
        description="number format of training. auto: bf16-mixed where a trial shows it to be "
        "faster, else 32-true. On GPUs also tf32 (float32, multiplied in 10 bits) and 16-mixed "
        "(its loss is scaled to stay in range)"
    )
    threads: Annotated[int, Field(gt=0, le=1024)] | Literal["follow"] | None = Field(
        description="CPU threads of each process; null: all cores that it gets; follow: fewer "
        "while other processes use them (another number rounds differently, so that such a run "
        "cannot be repeated to the bit)"
    )
    accumulate: Annotated[int, Field(gt=0, le=10**6)] = Field(
        description="batches per optimizer step"
    )
    packing: Literal["auto", "on", "off"] = Field(
        description="lay sentences end to end, instead of padding them. auto: in batches whose "
        "longest sentence has 128 tokens or more, where flash attention takes them (GPU, 16 bits)"
    )
    activation_checkpointing: bool = Field(
        description="compute layers again in the backward pass rather than remember them: long "
        "inputs fit into memory, a step takes about a third longer; not for recurrent models"
    )
    compile: bool = Field(
        description="torch.compile: at first a minute or more of compiling, by a C++ compiler (and "
        "Triton on a GPU). Batches are padded then; a run that goes on equals one that did not "
        "stop up to rounding only; not for recurrent models"
    )
    gradient_clip: Annotated[float, Field(ge=0)] = Field(
        description="norm to which a longer gradient is cut; 0: off"
    )
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        description="share of the probability that is spread over all tokens alike"
    )
    r_drop: Annotated[float, Field(ge=0)] = Field(
        description="weight of the divergence between two passes with other dropout (R-Drop; 1 to "
        "5 is usual): a step takes twice as long; 0: off"
    )
    word_dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        description="share of words read as <unk>, each at all its places in a sentence; 0.1 is "
        "usual"
    )
    validate_every: PositiveInt = Field(description="optimizer steps between two validations")
    validation_sentences: PositiveInt = Field(
        description="dev sentences translated at a validation, at most: the first, so mix a dev "
        "file that is sorted"
    )
    save_every: PositiveInt = Field(
        description="optimizer steps between two saves of checkpoints/last.ckpt"
    )
    keep: NonNegativeInt = Field(
        description="how many of the latest validation checkpoints stay, for translate average"
    )
    log_every: PositiveInt = Field(
        description="optimizer steps between two lines of the log, whose loss is the mean of these "
        "steps"
    )
    patience: PositiveInt | None = Field(
        description="validations without a better dev BLEU after which to stop; null: never"
    )
    samples: NonNegativeInt = Field(description="translations shown at each validation")
    averaging: AveragingConfig = Field(description="weights that are validated and shipped")
    guided_alignment: GuidedAlignmentConfig = Field(
        description="one head of attention learns gold alignments as well"
    )
    minimum_risk: MinimumRiskConfig = Field(
        description="fine-tuning that makes good samples likelier"
    )
    tensorboard: bool = Field(description="log to TensorBoard (extra `tensorboard`)")
    wandb: bool = Field(description="log to Weights & Biases (extra `wandb`)")
    mlflow: bool = Field(description="log to MLflow (extra `mlflow`)")

    @property
    def averages(self) -> bool:
        """Tell whether an average of the weights is validated and shipped in their place."""
        return self.averaging.kind != "none"

    @property
    def guides(self) -> bool:
        """Tell whether a head learns given alignments."""
        return self.guided_alignment.weight > 0

    def contradictions(self) -> Iterator[str]:
        if self.max_steps is None and self.max_epochs is None:
            yield "trainer: has no end: set max_steps or max_epochs"


def _of_kind(table: Mapping[str, type[Node]]) -> BeforeValidator:
    """Validate a node by the class that its `kind` names."""

    def read(node: Any) -> Any:
        return node if isinstance(node, Node) else table[node["kind"]].model_validate(node)

    return BeforeValidator(read)


def _of_family(node: Any) -> Any:
    """Validate the node `model` by the family that it names."""
    if isinstance(node, Node):
        return node
    return registry.families()[node["family"]].Config.model_validate(node)


class RunKeys(Node):
    """The keys of a training that stand in no node."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(description="random seed of training")
    cache: Annotated[str, Field(min_length=1)] = Field(
        description="where downloads and prepared corpora are kept"
    )


class TrainingConfig(RunKeys):
    """Everything that a run is made of: the nodes of `conf/train.yaml`."""

    data: Annotated[SerializeAsAny[Source], _of_kind(KINDS)]
    tokenizer: TokenizerConfig
    model: Annotated[SerializeAsAny[ModelConfig], BeforeValidator(_of_family)]
    optimizer: Annotated[SerializeAsAny[OptimizerConfig], _of_kind(OPTIMIZERS)]
    schedule: Annotated[SerializeAsAny[ScheduleConfig], _of_kind(SCHEDULES)]
    trainer: TrainerConfig
    search: AnySearchConfig

    @property
    def samples_pieces(self) -> bool:
        """Tell whether training text is segmented anew each epoch."""
        return any([self.tokenizer.sampling.alpha, self.tokenizer.sampling.dropout])

    @property
    def length_limits(self) -> dict[str, Any]:
        """The limits of translations while training: those of the run's search."""
        return self.search.model_dump(include={"max_length_ratio", "max_length_offset"})

    @classmethod
    def load(cls, experiment: str | None = None, **settings: Any) -> TrainingConfig:
        """Compose a configuration as `translate train` does.

        Args:
            experiment: a ready recipe of conf/experiment.
            settings: GROUP=OPTION and KEY=VALUE; full keys by `**{"model.d_model": 128}`.

        Raises:
            UserError: something is wrong in it; all of it is listed.
        """
        overrides = [] if experiment is None else [f"experiment={experiment}"]
        overrides += [
            f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in settings.items()
        ]
        composition = compose("train", overrides)
        check(composition.wrong)
        values = {key: composition.values[key] for key in cls.model_fields}
        return read_config(values)

    def dump(self) -> dict[str, Any]:
        """Return plain containers, as they stand in config.yaml."""
        return self.model_dump(mode="json")

    def contradictions(self) -> Iterator[str]:
        yield from self._of_recurrence()
        yield from self._of_sharding()
        model = self.model.model_dump()
        if model.get("tied_embeddings") == "all" and not self.tokenizer.joint:
            # two vocabularies may even have the same size, and piece 7 of each another meaning
            yield (
                "model.tied_embeddings = all shares the embeddings of source and target, but "
                "tokenizer.joint = false gives each its own vocabulary: set "
                "model.tied_embeddings=decoder or tokenizer.joint=true"
            )
        if (risk := self.trainer.minimum_risk).weight and self.data.tokens_per_batch == "auto":
            yield (
                "data.tokens_per_batch = auto does not allow for the candidates that "
                f"trainer.minimum_risk.weight = {risk.weight} samples: give what fits without "
                f"them, divided by twice trainer.minimum_risk.candidates ({risk.candidates})"
            )
        dropout = [value for key, value in model.items() if key.endswith("dropout")]
        if self.trainer.r_drop and not any([self.trainer.word_dropout, *dropout]):
            yield (
                f"trainer.r_drop = {self.trainer.r_drop} compares two passes with different "
                "dropout, but dropout is off: set model.dropout=0.1 or trainer.r_drop=0"
            )
        if self.trainer.guides and self.samples_pieces:
            yield (
                "trainer.guided_alignment.weight and tokenizer.sampling cannot be combined: "
                "sampling splits the words of alignments anew each epoch; set one of the two to 0"
            )
        if model.get("flex_attention") and self.trainer.compile:
            yield (
                "model.flex_attention = true, but trainer.compile compiles programs of its own: "
                "set one of the two to false"
            )

    def _of_recurrence(self) -> Iterator[str]:
        # a loop over words has no layers to compute again, and is another program at each length
        families = registry.families()
        if families[self.model.family].parallel:
            return
        able = " and ".join(name for name, model in families.items() if model.parallel)
        for key in ("activation_checkpointing", "compile"):
            if getattr(self.trainer, key):
                yield (
                    f"trainer.{key} = true: model.family={self.model.family} reads word by "
                    f"word, but this option needs layers that read all words at once ({able}); set "
                    "it to false"
                )

    def _of_sharding(self) -> Iterator[str]:
        trainer, family = self.trainer, self.model.family
        if trainer.strategy != "fsdp":
            return
        remedies = []
        if family != "transformer":
            remedies.append("model=transformer")
        if trainer.precision not in ("auto", "bf16-mixed", "32-true"):
            remedies.append("trainer.precision=auto")
        if trainer.compile:
            remedies.append("trainer.compile=false")
        if trainer.minimum_risk.weight:
            remedies.append("trainer.minimum_risk.weight=0")
        if remedies:
            yield (
                "trainer.strategy = fsdp trains Transformers in float32 or bf16, neither compiled "
                f"nor by risk: choose {', '.join(remedies)}; or trainer.strategy=ddp"
            )


def training_problems(config: Mapping[str, Any]) -> list[str]:
    """Return everything that is wrong with a configuration in plain containers, one line each."""
    plain = {key: config[key] for key in RunKeys.model_fields if key in config}
    groups = [group for group in TrainingConfig.model_fields if group not in RunKeys.model_fields]
    strange = sorted(config.keys() - TrainingConfig.model_fields.keys())
    lines = [f"{key} is not a key" for key in strange]
    lines += [*problems(RunKeys, plain, ""), *group_problems(config, groups)]
    return lines or list(TrainingConfig.model_validate(dict(config)).contradictions())


def read_config(config: Mapping[str, Any]) -> TrainingConfig:
    """Read a configuration in plain containers; a UserError lists everything wrong with it."""
    check(training_problems(config))
    return TrainingConfig.model_validate(dict(config))


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

# what may differ, too, but the run is from there on another than one without the change
MAY_DIFFER = frozenset({
    "data.tokens_per_batch", "data.pool_batches", "optimizer.learning_rate",
    "schedule.warmup_steps", "schedule.final", *(f"trainer.{key}" for key in (
        "precision", "accumulate", "gradient_clip", "label_smoothing", "validate_every",
        "validation_sentences",
    )),
})  # fmt: skip


def flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name the leaves by their places: `{a: {b: 1}}` is `{a.b: 1}`."""
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves
