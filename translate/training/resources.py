"""The resources of a run: device, number format, compiled programs, memory of a batch.

Where the configuration says `auto`, what it stands for is found here once. It is then part of the
run, as its batches are, so that a run that goes on computes the same.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from timeit import timeit
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translate.data.batching import TOKENS_ON_CPU, Batch
from translate.errors import UserError, first_line
from translate.machine import threads_restored
from translate.models.seq2seq import Decoded, Seq2Seq
from translate.training.launch import started_together
from translate.training.settings import Precision, TrainerConfig
from translate.vocabulary import UNK
from translate.wording import counted

log = logging.getLogger(__name__)

# number formats
ROUNDS = 12  # of a trial
PAYS = 1.5  # times as fast: a step has other work beside products, and casts its numbers
HALF = ("bf16-mixed", "16-mixed")  # what flash attention computes in

# packing
AMPERE = (8, 0)  # compute capability
ALL, NONE = 0, sys.maxsize
# tokens of a batch's longest sentence: flash computes tiles of 128 queries, which shorter sentences
# leave half empty (docs/benchmarks/gpu.md)
LONG = 128

# tokens of a batch
MOST = 25_000  # tokens a side and step: what Vaswani et al. 2017 trained with
# tokens, more than the loss takes at once of a usual vocabulary; the second probe has twice as many
FIRST_PROBE = 8_192
SHARE = 0.85  # of the free memory: the rest is for fragments, and for what Lightning copies
MOMENTS = 2  # AdamW keeps two numbers a parameter

MOST_PROGRAMS = 32  # of a compiled run; a model that needs more is not read by shape
UNCOMPILED = "set it to false"


def on_gpu(accelerator: str) -> bool:
    """Tell whether a run trains on an NVIDIA GPU: `auto` takes one if there is one."""
    return accelerator != "cpu" and torch.cuda.is_available()


def devices(config: TrainerConfig) -> int:
    """Return how many processes train on each machine."""
    if config.devices == "auto":
        # as Lightning counts
        return torch.cuda.device_count() if on_gpu(config.accelerator) else 1
    return config.devices


def processes(config: TrainerConfig) -> int:
    """Return how many processes train together."""
    return config.num_nodes * devices(config)


def bytes_of(model: nn.Module) -> int:
    """Return the bytes that the weights take."""
    return sum(p.nbytes for p in model.parameters())


def chosen_precision(
    asked: Literal["auto", Precision], accelerator: str, *, nodes: int = 1, noted: object = None
) -> Precision:
    """Return what a run multiplies in; `auto` is what this machine trains faster in.

    Args:
        noted: what the run, or its first process, has found before.

    Processes that were started at once have no first one to ask: on CPUs they take float32.
    """
    if asked != "auto":
        return asked
    if noted in get_args(Precision):
        return cast(Precision, noted)
    if on_gpu(accelerator):
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = started_together(nodes) == 1 and _cpu_has_bf16() and products_in_bf16() >= PAYS
    return "bf16-mixed" if fast else "32-true"


def lightning_name(precision: Precision) -> Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]:
    """Return Lightning's name; tf32 is float32 multiplied by other means (`multiply_in`)."""
    return "32-true" if precision == "tf32" else precision


def multiply_in(precision: Literal["auto", Precision]) -> None:
    """Let GPUs round the factors of float32 products to 10 bits (TensorFloat-32), or not."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def autocast_dtype(precision: Precision) -> torch.dtype | None:
    """Return what a mixed precision multiplies in; None where that is the dtype of the weights."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)


def _cpu_has_bf16() -> bool:
    capability = torch.backends.cpu.get_cpu_capability
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "AVX512" in capability() and bool(native())


def products_in_bf16() -> float:
    """Measure how many times as fast as in float32 this CPU multiplies in bf16.

    No flag tells: with AVX512-BF16 and no AMX, an AMD EPYC (Zen 4) multiplies 2.5 times as fast and
    an Intel Xeon (Sapphire Rapids) 0.6 times (docs/benchmarks/training.md). One thread, and
    products that take turns, so that other jobs on the machine do not decide.
    """
    products = {
        dtype: partial(F.linear, *(torch.ones(1024, 256, dtype=dtype) for _ in range(2)))
        for dtype in (torch.float32, torch.bfloat16)
    }
    with threads_restored():
        torch.set_num_threads(1)
        rounds = [
            [timeit(product, number=1) for product in products.values()] for _ in range(ROUNDS)
        ]
    wide, narrow = (min(seconds[i] for seconds in rounds) for i in range(2))
    return wide / narrow


def packed_from(
    choice: Literal["auto", "on", "off"],
    model: Seq2Seq,
    *,
    accelerator: str,
    precision: Precision,
    guided: bool,
    compiled: bool,
) -> int:
    """Return from how many tokens of its longest sentence on a batch is packed.

    For `auto` where flash attention takes packed sentences, in batches of long ones. On a CPU
    attention takes them one by one, which costs more than the few per cent of padding.

    Raises:
        UserError: `on`, and something of the run needs padded batches.
    """
    flash = on_gpu(accelerator) and precision in HALF
    obstacle = model.why_padded
    if compiled:
        obstacle = "trainer.compile compiles programs for padded batches"
    elif guided:
        obstacle = "trainer.guided_alignment needs weights, which flash attention never computes"
    elif obstacle is None and flash and torch.cuda.get_device_capability() < AMPERE:
        obstacle = "flash attention needs a GPU of NVIDIA's Ampere generation or later"
    if choice == "on" and obstacle:
        raise UserError(f"trainer.packing = on, but {obstacle}: choose auto or off")
    if choice != "auto":
        return ALL if choice == "on" else NONE
    if obstacle is None and not flash:
        obstacle = "flash attention computes in 16 bits on a GPU"
    packed = f"packed, without padding, in batches whose longest sentence has {LONG} tokens or more"
    log.info("sentences are %s", f"padded: {obstacle}" if obstacle else packed)
    return LONG if obstacle is None else NONE


class Compiler:
    """A compiler by torch.compile with symbolic batch shapes; it counts the programs it makes.

    Rows and widths of a batch are symbols in a program, so that one serves batches of every shape.
    A batch of one sentence has its own: PyTorch's compiler takes a size of 1 as it is. Attention
    that reads long sentences in blocks has further ones for those.

    Args:
        backend: PyTorch's name of what makes a program of a graph.
    """

    def __init__(self, backend: str) -> None:
        from torch._dynamo import lookup_backend

        torch.compiler.reset()  # what earlier runs of a sweep compiled counts towards the limit
        torch._dynamo.config.recompile_limit = MOST_PROGRAMS
        torch._dynamo.config.optimize_ddp = False  # else cut into a program a bucket of gradients
        self.programs = 0
        self._backend: Callable[..., Any] = lookup_backend(backend)

    def __call__(self, read: Callable[..., Decoded]) -> Callable[..., Decoded]:
        """Return `Seq2Seq.read`, compiled when it is called first; UserError then if impossible."""
        from torch._dynamo import mark_dynamic
        from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
        from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

        cannot = (FailOnRecompileLimitHit, TorchDynamoException, ConstraintViolationError)

        program = torch.compile(read, fullgraph=True, backend=self._make)

        def compiled(*batch: Tensor, need_alignment: bool) -> Decoded:
            for side in batch:
                mark_dynamic(side, (0, 1))
            try:
                return program(*batch, need_alignment=need_alignment)
            except cannot as error:
                raise UserError(
                    f"trainer.compile = true, but PyTorch cannot compile this model "
                    f"({first_line(error)}): {UNCOMPILED}"
                ) from error

        return compiled

    def account(self) -> str:
        """Say how much was compiled, at the end of a run."""
        return f"trainer.compile: {counted(self.programs, 'program')} read all batches"

    def _make(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.programs += 1
        log.info("compiling program %d", self.programs)
        program: Callable[..., Any] = self._backend(graph, inputs)
        return program


def tokens_that_fit(
    config: TrainerConfig,
    task: nn.Module,
    loss: Callable[[Batch], Tensor],
    *,
    longest: int,
    precision: Precision,
    guided: bool,
) -> int:
    """Return what `data.tokens_per_batch=auto` is: tokens of one side of a batch.

    On a GPU as many as fit. What a step needs is affine in the rows of a batch of equally long
    sentences, so that two probes tell it; the sentences are as long as the longest of the batches,
    for attention may take memory by the square. On a CPU `TOKENS_ON_CPU`: more are no faster there.

    Args:
        task: of the run's model, to be probed; it comes back as it was.
        loss: the training loss of a batch.
        longest: tokens that a training sentence may have, as batches are planned.
        guided: batches have gold alignments.

    Raises:
        UserError: not one sentence fits; or the model is to be sharded over several GPUs.
    """
    longest = max(1, longest)
    most = max(longest, MOST // (config.accumulate * processes(config)))
    if not on_gpu(config.accelerator):
        return max(longest, min(most, TOKENS_ON_CPU))
    if config.strategy == "fsdp":
        raise UserError(
            "data.tokens_per_batch = auto tries the whole model on one GPU, but trainer.strategy = "
            "fsdp distributes it over all: give a number, such as data.tokens_per_batch=4096"
        )
    free, _ = torch.cuda.mem_get_info()
    # without what the first step makes
    room = int(SHARE * free) - (MOMENTS + config.averages) * bytes_of(task)
    dtype = autocast_dtype(precision)

    def peak(rows: int) -> int:
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", dtype, enabled=dtype is not None):
            summed = loss(_longest_sentences(rows, longest, guided=guided))
        summed.backward()  # type: ignore[no-untyped-call]
        task.zero_grad()
        return torch.cuda.max_memory_allocated()

    try:
        task.to("cuda")
        with torch.random.fork_rng(devices=[torch.cuda.current_device()]):
            peak(1)  # libraries take their workspaces at the first call
            return min(most, longest * rows_that_fit(peak, max(1, FIRST_PROBE // longest), room))
    except torch.OutOfMemoryError:
        raise UserError(
            "the model and its longest training sentences do not fit into the GPU's memory: lower "
            "data.max_length, choose a smaller model, or set trainer.activation_checkpointing=true"
        ) from None
    finally:
        task.zero_grad()
        task.to("cpu")
        torch.cuda.empty_cache()


def rows_that_fit(peak: Callable[[int], int], first: int, room: int) -> int:
    """Return how many rows need `room` bytes, from what `first` rows and twice as many need.

    Args:
        peak: rows → bytes at the height of a step; may raise OutOfMemoryError.

    Raises:
        torch.OutOfMemoryError: not one row fits.
    """
    while first:
        try:
            small, large = peak(first), peak(2 * first)
            break
        except torch.OutOfMemoryError:
            first //= 2
    else:  # not in the handler above: its error holds on to what filled the memory
        first, small, large = 1, peak(1), sys.maxsize
    each = max(1, (large - small) // first)
    rows = (room - small) // each + first
    if rows < 1:
        raise torch.OutOfMemoryError
    return rows


def _longest_sentences(rows: int, width: int, *, guided: bool) -> Batch:
    """Make a batch that is full of words on both sides: which words does not matter."""
    words = torch.full((rows, width), UNK, device="cuda")
    widths = torch.full((rows,), width, device="cuda")
    return Batch(
        ids=torch.arange(rows), source=words, source_lengths=widths,
        target_in=words, target_out=words, target_lengths=widths,
        source_tokens=rows * width, target_tokens=rows * width,
        gold=torch.full((rows, width, width), 1 / width, device="cuda") if guided else None,
    )  # fmt: skip
