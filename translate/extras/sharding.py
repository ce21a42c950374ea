"""A Transformer whose parameters, gradients and moments are sharded over all processes.

Fully sharded data parallelism (Rajbhandari et al. 2020, stage 3; Zhao et al. 2023), as PyTorch's
`fully_shard` does it and Lightning's strategy for it sets it up: a layer's weights are whole only
while it computes. What a run saves is whole, so that it may go on under any strategy.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from translate.attention.multi_head import CrossAttention, SelfAttention
from translate.models.seq2seq import Seq2Seq
from translate.models.transformer import FeedForward
from translate.training.step import TranslationTask


class FullySharded(ModelParallelStrategy):
    """Lightning's strategy, with whole checkpoints, which every other strategy writes and reads."""

    def __init__(self, processes: int) -> None:
        super().__init__(
            data_parallel_size=processes, tensor_parallel_size=1, save_distributed_checkpoint=False
        )

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state of every parameter, in the first process; numbered as an optimizer does.

        Lightning numbers them as the model does, which another strategy would read wrongly.
        """
        assert self.model is not None
        plain = getattr(optimizer, "_optimizer", optimizer)  # without Lightning's wrapper
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state: dict[str, Any] = get_optimizer_state_dict(self.model, plain, options=options)
        if not self.is_global_zero:
            return {}
        names = itertools.chain.from_iterable(group["params"] for group in state["param_groups"])
        return _renamed(state, {name: number for number, name in enumerate(names)})

    def load_checkpoint(
        self, checkpoint_path: str | Path, weights_only: bool | None = None
    ) -> dict[str, Any]:
        assert self.model is not None
        checkpoint: dict[str, Any] = self.checkpoint_io.load_checkpoint(checkpoint_path)
        options = StateDictOptions(full_state_dict=True)
        set_model_state_dict(self.model, checkpoint["state_dict"], options=options)
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            if not state["state"]:  # plain gradient descent; PyTorch would look for a device in it
                optimizer.load_state_dict(state)
                continue
            parameters = itertools.chain.from_iterable(
                group["params"] for group in optimizer.param_groups
            )
            named = _renamed(state, {i: names[each] for i, each in enumerate(parameters)})
            set_optimizer_state_dict(self.model, optimizer, named, options=options)
        return checkpoint


class ShardedTask(TranslationTask):
    """A `TranslationTask` of a sharded Transformer; validation computes with a whole copy of it."""

    _copy: tuple[Seq2Seq, ...] = ()  # no submodule: nothing of it is trained, sharded or saved

    @property
    def evaluated(self) -> Seq2Seq:
        return self._copy[0]

    def configure_model(self) -> None:
        if not self._copy:  # Lightning asks before each stage
            assert self.device_mesh is not None
            self._copy = (copy.deepcopy(self.model),)
            shard(self.model, self.device_mesh["data_parallel"])
            self.compiled = self.model.read  # which gathers weights now

    def on_validation_start(self) -> None:
        # every process takes part in gathering, and from there on none waits for another; what was
        # gathered has gone from the device before the copy comes there
        self.evaluated.load_state_dict(
            get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True))
        )
        self.evaluated.to(self.device).eval()

    def on_validation_end(self) -> None:
        self.evaluated.cpu()

    def gradients(self) -> list[Tensor]:
        return [g.to_local() if isinstance(g, DTensor) else g for g in super().gradients()]

    def gradient_norm(self) -> Tensor:
        norm = super().gradient_norm()
        return norm.full_tensor() if isinstance(norm, DTensor) else norm


def shard(model: Seq2Seq, mesh: DeviceMesh) -> None:
    """Shard the parameters of each part that is called by itself, then all that is left."""
    for part in list(model.modules()):
        if isinstance(part, SelfAttention | FeedForward):
            fully_shard(part, mesh=mesh)
        elif isinstance(part, CrossAttention):  # whose keys and values are asked for beforehand
            for projection in (part.query, part.key_value, part.output):
                fully_shard(projection, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for method in ("read", "read_packed"):
        register_fsdp_forward_method(model, method)


def _renamed(state: Mapping[str, Any], names: Mapping[Any, Any]) -> dict[str, Any]:
    """Return an optimizer's state in which parameters go by other names."""
    return {
        "state": {names[old]: values for old, values in state["state"].items()},
        "param_groups": [
            {**group, "params": [names[old] for old in group["params"]]}
            for group in state["param_groups"]
        ],
    }
