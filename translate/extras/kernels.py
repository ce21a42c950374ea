"""The kernel of a fused attention call, and the reason why it is not flash, asked of PyTorch.

`F.scaled_dot_product_attention` chooses among kernels by device, dtype, shapes, mask, dropout and
what it was compiled with. The choice is silent: a mask is enough to lose flash attention on CUDA.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile

from translate.extras.flex import flex_attention

OPERATION = re.compile(r"aten::_scaled_dot_product_(?:attention_)?(flash|efficient|cudnn|math)")
VARIABLE_LENGTH = "torch_attn._varlen_attn"  # the operator of variable_length.py on CUDA


@dataclass(frozen=True)
class Kernel:
    """The name of a kernel, and the reason why it is not flash (empty where there is none)."""

    name: str
    why_not_flash: str


@dataclass(frozen=True)
class Call:
    """One call of fused attention, and the kernel that computes it."""

    place: str  # the submodule that made it, by its name in the model
    query: tuple[int, ...]  # shapes, (B, H, T, K); of sentences end to end (M, H, K)
    keys: tuple[int, ...]
    values: tuple[int, ...]
    mask: tuple[int, ...] | None
    dtype: torch.dtype
    causal: bool
    dropout: float
    kernel: Kernel


def kernel_of(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    grouped: bool = False,
) -> Kernel:
    """The kernel that `F.scaled_dot_product_attention` takes for these tensors here and now.

    Shapes are those of that function; nothing is computed. The tensors count with what they carry:
    device, dtype, strides, and whether a gradient will be wanted.
    """
    query, keys, values = (_as_autocast_will(tensor) for tensor in (query, keys, values))

    def ask() -> SDPBackend:
        # not public, but the very function that the call itself asks
        choice = torch._fused_sdp_choice(
            query, keys, values,
            attn_mask=mask, dropout_p=dropout, is_causal=causal, enable_gqa=grouped,
        )  # fmt: skip
        return SDPBackend(choice)

    try:
        chosen = ask()
    except NotImplementedError:
        return Kernel("math", f"PyTorch has no fused attention for {query.device.type}")
    name = chosen.name.lower().removesuffix("_attention")  # flash, efficient, cudnn or math
    return Kernel(name, "" if name == "flash" else _why_not_flash(ask, name))


@contextmanager
def recorded_calls(model: nn.Module) -> Iterator[list[Call]]:
    """Yield the list to which every fused attention call inside the block is added."""
    recorder = _Recorder({id(module): name for name, module in model.named_modules()})
    with recorder:
        yield recorder.calls


def kernels_that_ran(work: Callable[[], object]) -> set[str]:
    """The names of the attention kernels that the profiler sees while `work` runs."""
    # operators are launched by the CPU; without `acc_events` PyTorch 2.11 warns
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
        work()
    operations = (OPERATION.match(event.key) for event in seen.key_averages())
    return {operation[1] for operation in operations if operation}


class _Recorder(TorchFunctionMode):
    """A recorder of torch functions before they run; it costs nothing while it is off."""

    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.names = names

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            self._record(*args, **(kwargs or {}))
        elif str(func) == VARIABLE_LENGTH:
            # query, keys, values, their starts, their longest; then whether it is causal
            self._add(args[:3], Kernel("flash, variable length", ""), causal=args[7])
        elif func is flex_attention:
            self._add(args[:3], Kernel("flex", ""))
        return func(*args, **(kwargs or {}))

    def _record(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        kernel = kernel_of(
            query, key, value,
            mask=attn_mask, causal=is_causal, dropout=dropout_p, grouped=enable_gqa,
        )  # fmt: skip
        self._add((_as_autocast_will(query), key, value), kernel, attn_mask, is_causal, dropout_p)

    def _add(
        self,
        inputs: Sequence[Tensor],
        kernel: Kernel,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> None:
        query, keys, values = (tuple(tensor.shape) for tensor in inputs)
        seen = None if mask is None else tuple(mask.shape)
        dtype = inputs[0].dtype
        self.calls.append(
            Call(self._place(), query, keys, values, seen, dtype, causal, dropout, kernel)
        )

    def _place(self) -> str:
        """The innermost submodule at work; read from the stack, for `step` calls no hooks."""
        frame = inspect.currentframe()
        while frame is not None:
            owner = id(frame.f_locals.get("self"))
            if owner in self.names:
                return self.names[owner]
            frame = frame.f_back
        return ""


def _as_autocast_will(tensor: Tensor) -> Tensor:
    """The tensor in the dtype that reaches the kernel: autocast changes it below this level."""
    device = tensor.device.type
    if torch.is_autocast_enabled(device) and tensor.dtype != torch.float64:
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor


def _why_not_flash(ask: Callable[[], SDPBackend], name: str) -> str:
    """PyTorch's own words: with flash the only kernel allowed, it warns why there is none."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            ask()
        except RuntimeError:
            pass
        else:
            return f"flash would do, but PyTorch prefers {name}, or flash is switched off"
    reasons, heading = [], ""  # the other kernels have headings of their own
    for message in (str(warning.message) for warning in said):
        text = re.sub(r" \(Triggered internally at .*\)$", "", message, flags=re.DOTALL).strip()
        if text.endswith("kernel not used because:"):
            heading = text
        elif heading.startswith("Flash attention"):
            reasons.append(text)
    return " ".join(reasons) or "PyTorch gives no reason"
