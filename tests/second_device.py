"""A device beside the CPU, for machines without a GPU: `torch.device("second")`.

Its tensors keep their numbers on the CPU, but say that they are elsewhere. An operation on tensors
of both devices is an error, as on CUDA, and each wait for an answer of the device is counted: on
CUDA that lets the work run dry which is asked for ahead. What is computed is what the CPU computes.

    with second_device() as waits:
        model.to("second")(…)
    waits  → Counter({"translate/search/walk.py:93 walk": 12})

For a process of its own: what is done to PyTorch here cannot be undone.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import DeviceLikeType
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "second"


class _Backend(_DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


_setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
DEVICE = torch.device(NAME, 0)

# they look at their second argument's numbers: a mask, or how often
ASKING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select",
          "aten::repeat_interleave.Tensor", "aten::_unique2", "aten::unique_consecutive",
          "aten::equal"}  # fmt: skip
INDEXING = ("aten::index.", "aten::index_put", "aten::_index_put_impl")
BETWEEN = ("aten::copy_", *INDEXING)  # they take tensors of both devices; indices, of the CPU


class Elsewhere(Tensor):
    """A tensor that says it is on the second device, and has its numbers in `held`."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        with torch.inference_mode(False):
            made: Elsewhere = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(),
                dtype=held.dtype, device=DEVICE,
            )  # fmt: skip
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Elsewhere({self.held})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Elsewhere, (self.held,)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside `second_device()`")


class _Operations(TorchDispatchMode):
    """Every operation, below autograd."""

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func._can_decompose():  # under inference mode such come whole
            with self:
                return func.decompose(*args, **kwargs)
        name = func.name()
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        ours = [x for x in tensors if isinstance(x, Elsewhere)]
        others = [x for x in tensors if x.dim() and not isinstance(x, Elsewhere)]
        if ours and others and not name.startswith(BETWEEN):
            raise RuntimeError(f"{name}: tensors of two devices, at {_place()}")
        there = bool(ours)
        if kwargs.get("device") is not None:
            there = _is_second(kwargs["device"])
            kwargs["device"] = torch.device("cpu")
        told = kwargs.get("output_size") is not None  # how many, by the program itself
        taken = not there and not kwargs.get("non_blocking")  # numbers, to the CPU, at once
        if ours and ((name in ASKING and not told) or taken or _by_mask(name, args)):
            self.waits[_place()] += 1
        compute = FUSED.get(name, func)
        given, named = tree_map(_held, (args, kwargs))
        found = compute(*given, **named)
        if torch.Tag.inplace_view in func.tags and ours:
            with no_dispatch():
                func(*args, **kwargs)
        if not there:
            return found
        known = {id(x.held): x for x in ours}  # an operation in place returns what it was given
        return tree_map(lambda x: known[id(x)] if id(x) in known else _there(x), found)


class _Calls(TorchFunctionMode):
    """What does not come to operations, or not to those of a mode."""

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        if func is Tensor.new_tensor:
            like, data = args
            return torch.tensor(data, **({"dtype": like.dtype, "device": like.device} | kwargs))
        if func is Tensor.tolist and isinstance(args[0], Elsewhere):
            self.waits[_place()] += 1
            return args[0].held.tolist()
        return func(*args, **kwargs)


@contextlib.contextmanager
def second_device() -> Iterator[Counter[str]]:
    """In here there is one; where the program waited for it, and how often."""
    waits: Counter[str] = Counter()
    # a module moves by swapping its weights, which leaves them tied; to set their data, as for real
    # devices, would leave `held` behind
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with _Operations(waits), _Calls(waits):
            yield waits
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def _is_second(device: DeviceLikeType) -> bool:
    return torch.device(device).type == NAME


def _there(x: Any) -> Any:
    return Elsewhere(x) if isinstance(x, Tensor) else x


def _held(x: Any) -> Any:
    return x.held if isinstance(x, Elsewhere) else x


def _by_mask(name: str, args: Any) -> bool:
    """Whether it takes what a mask says, which has to be counted first."""
    masks = (x for x in tree_leaves(args[1:2]) if isinstance(x, Elsewhere))
    return name.startswith(INDEXING) and any(x.dtype == torch.bool for x in masks)


def _place() -> str:
    """The line of this project, or else of Lightning, that asked."""
    frames = traceback.extract_stack()
    for folder in ("/translate/", "/lightning/"):
        for frame in reversed(frames):
            if folder in frame.filename:
                path = frame.filename[frame.filename.rindex(folder) + 1 :]
                return f"{path}:{frame.lineno} {frame.name}"
    return "autograd"


# Recurrent layers: devices that are not the CPU have cells as one operation, which it has not.


def _lstm(
    of_input: Tensor, of_state: Tensor, cell: Tensor, *biases: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    gates = sum((b for b in biases if b is not None), of_input + of_state)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * cell + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], 1)


def _lstm_backward(
    d_hidden: Tensor | None,
    d_cell: Tensor | None,
    before: Tensor,
    after: Tensor,
    gates: Tensor,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = gates.chunk(4, 1)
    d_hidden, d_cell = (torch.zeros_like(after) if d is None else d for d in (d_hidden, d_cell))
    shown = after.tanh()
    d = d_cell + d_hidden * o * (1 - shown**2)
    of_gates = torch.cat(
        [d * g * i * (1 - i), d * before * f * (1 - f), d * i * (1 - g**2),
         d_hidden * shown * o * (1 - o)], 1
    )  # fmt: skip
    return of_gates, d * f, of_gates.sum(0) if has_bias else None


def _gru(
    of_input: Tensor,
    of_state: Tensor,
    state: Tensor,
    b_input: Tensor | None = None,
    b_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    if b_input is not None and b_state is not None:
        of_input, of_state = of_input + b_input, of_state + b_state
    (ri, zi, ni), (rs, zs, ns) = of_input.chunk(3, 1), of_state.chunk(3, 1)
    r, z = (ri + rs).sigmoid(), (zi + zs).sigmoid()
    n = (ni + r * ns).tanh()
    return n + z * (state - n), torch.cat([r, z, n, state, ns], 1)


def _gru_backward(d: Tensor, kept: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    r, z, n, state, ns = kept.chunk(5, 1)
    dn = d * (1 - z) * (1 - n**2)
    dz, dr = d * (state - n) * z * (1 - z), dn * ns * r * (1 - r)
    of_input, of_state = torch.cat([dr, dz, dn], 1), torch.cat([dr, dz, dn * r], 1)
    of_biases = (of_input.sum(0), of_state.sum(0)) if has_bias else (None, None)
    return of_input, of_state, d * z, *of_biases


FUSED: dict[str, Callable[..., Any]] = {
    "aten::_thnn_fused_lstm_cell": _lstm,
    "aten::_thnn_fused_lstm_cell_backward_impl": _lstm_backward,
    "aten::_thnn_fused_gru_cell": _gru,
    "aten::_thnn_fused_gru_cell_backward": _gru_backward,
}
