"""Batches of texts, as large as memory holds, and the workers that compute them."""

from __future__ import annotations

import copy
import itertools
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import warnings
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from translate import machine
from translate.attention.dot_product import leave_out_cudnn
from translate.attention.masks import padding_mask
from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq
from translate.search import Constraint
from translate.vocabulary import PAD

TOKENS_PER_BATCH = 8192
TOKENS_ON_A_GPU = 16384  # which takes hardly longer for them
MAX_SOURCE_LENGTH = 512  # pieces
MAX_SCORED_LENGTH = 4096  # pieces of a side; to read a pair takes time and memory by their product
WORKER_DIED = (
    "a worker process has died (killed, or out of memory): choose fewer workers or a smaller "
    "tokens_per_batch"
)

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Task = TypeVar("Task")


class Segment(NamedTuple):
    """A text as the model reads it, and what is asked of its translation."""

    text: str
    ids: list[int]  # without </s>
    pieces: list[str]  # as the text spells them; none where no word will be replaced
    constraint: Constraint
    asked: str = ""  # the words of the constraint, which its source need not have
    xml: bool = False  # and so must its translation be

    @property
    def fixed(self) -> bool:
        """Whether something must stand in its translation, between whose words nothing may come."""
        return bool(self.constraint.prefix or self.constraint.phrases)


def choose_device(device: str | torch.device) -> torch.device:
    """Return the device of this name; `auto` is a GPU if there is one.

    Raises:
        UserError: there is no such device here.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"device={device} is not available here: try device=auto") from error
    if chosen.type == "cuda":
        leave_out_cudnn()
    return chosen


def default_tokens(device: torch.device) -> int:
    """Return how many padded source pieces are translated at once where no number is chosen."""
    return TOKENS_ON_A_GPU if device.type == "cuda" else TOKENS_PER_BATCH


@cache
def survive_forks() -> None:
    """Let a forked process compute on one thread: it has none of the others, and would wait."""
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def each(texts: Iterable[str]) -> Iterator[str]:
    """Iterate over the texts.

    Raises:
        UserError: a string, which Python would take for a list of its characters, or no list; or,
            when it is reached, an element that is not a string.
    """
    if isinstance(texts, str):
        raise UserError(f"{texts!r} is a string: give a list of sentences, as [{texts!r}]")
    if not isinstance(texts, Iterable):
        raise UserError(f"{texts!r} is not a list of sentences")
    for number, text in enumerate(texts, start=1):
        yield text_of(text, f"line {number}")


def text_of(text: object, name: str) -> str:
    """Return the text; raise a UserError for anything but a string."""
    if not isinstance(text, str):
        raise UserError(f"{name} is {text!r}: give a string (of bytes their .decode())")
    return text


def most_pieces(model: Seq2Seq, most: int = MAX_SOURCE_LENGTH) -> int:
    """Return how many pieces of a text are translated at once: `most`, or as the model can read."""
    return most if model.max_length is None else min(most, model.max_length - 1)  # </s>


def by_length(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Group indices in batches, longest first; longest length × count stays within the budget.

    A single item longer than the budget is a batch of its own.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and lengths[batch[0]] * (len(batch) + 1) > tokens_per_batch:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def shared_out(lengths: Sequence[int], tokens_per_batch: int, workers: int) -> list[list[int]]:
    """Group indices like `by_length`, in equal shares: no worker waits long for the last one.

    Each gets as many batches as the others, all of about one size; or where there are fewer batches
    than workers, one or none.
    """
    batches = list(by_length(lengths, tokens_per_batch))
    if workers == 1 or len(batches) < 2:
        return batches
    most = len(batches) if len(batches) < workers else -(-len(batches) // workers) * workers

    def few_enough(budget: int) -> bool:
        return len(list(by_length(lengths, budget))) <= most

    smallest = bisect_left(range(tokens_per_batch), True, key=few_enough)
    return list(by_length(lengths, smallest))


def padded(
    sentences: Sequence[Sequence[int]], device: torch.device, multiple: int = 1
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Return token ids as one matrix on the device, and the mask of the real ones.

    Args:
        multiple: the matrix is so many tokens wide, or twice as many …
    """
    lengths = torch.tensor([len(ids) for ids in sentences])
    longest = int(lengths.max())
    mask = padding_mask(lengths, longest + -longest % multiple)
    ids = torch.full(mask.shape, PAD)
    ids[mask] = torch.tensor(list(itertools.chain.from_iterable(sentences)))
    return ids.to(device), mask.to(device)


def by_halves(
    search: Callable[[list[Segment]], list[Result]],
    segments: list[Segment],
    *,
    fits: Callable[[int], None],
) -> list[Result]:
    """Search for all segments at once, or where a GPU's memory is too small for halves of them.

    Args:
        fits: called with the number of padded tokens to try from then on.

    Raises:
        UserError: not even one of them fits.
    """
    try:
        return search(segments)
    except torch.OutOfMemoryError as error:
        half = len(segments) // 2
        if not half:
            raise UserError(
                f"the GPU ran out of memory searching for one sentence of {len(segments[0].ids)} "
                "pieces: use fewer hypotheses (search.beam_size, search.n_best), a shorter "
                "sentence, or a CPU"
            ) from error
    # outside of the except block, for the error holds on to the tensors that filled the memory
    torch.cuda.empty_cache()
    tokens = half * max(len(segment.ids) + 1 for segment in segments)
    fits(tokens)
    log.warning(
        "the GPU's memory is too small for %d sentences at once: splitting them in half, and "
        "translating later lines in batches of %d tokens (tokens_per_batch)",
        len(segments), tokens,
    )  # fmt: skip
    parts = segments[:half], segments[half:]
    return [result for part in parts for result in by_halves(search, part, fits=fits)]


def one_a_core(device: torch.device) -> int:
    """Return how many workers use a machine best: one for each core that this process may use.

    It is one beside a GPU, and where forking is not safe: libraries of macOS may crash in a forked
    process.
    """
    if device.type != "cpu" or sys.platform != "linux":
        return 1
    return min(torch.get_num_threads(), machine.cores())


class Workers(Generic[Task, Result]):
    """Processes of one thread each, `count` of them, that do `work`; one is this process itself.

    Two narrow jobs at once are faster than one wide one. The processes are forked when there is
    something to share, no more of them than tasks, with all that this process has loaded: a model
    is in memory once. They end with the `with` block, and by themselves when this process is
    killed.
    """

    def __init__(self, count: int, work: Callable[[Task], Result]) -> None:
        self._count, self._work = count, work
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        # at the exit of Python too, where nobody has read a stream to its end
        self._end = weakref.finalize(self, _end, os.getpid(), self._processes, self._connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._end()

    def map(self, tasks: Sequence[Task]) -> list[Result]:
        """Return the result of every task, in their order; raise the error of one here.

        Raises:
            UserError: a process died, or cannot be started.
        """
        if self._count == 1 or (len(tasks) == 1 and not self._processes):
            return [self._work(task) for task in tasks]
        self._start(min(self._count, len(tasks)))
        results: dict[int, Result] = {}
        waiting = iter(enumerate(tasks))
        doing: dict[Connection, int] = {}
        idle = list(self._connections)
        while len(results) < len(tasks):
            try:
                for connection, (i, task) in zip(idle, waiting, strict=False):
                    connection.send(task)
                    doing[connection] = i
                idle = cast("list[Connection]", wait(list(doing)))
                answers = [connection.recv() for connection in idle]
            except (EOFError, OSError) as ended:  # a BrokenPipeError would mean our own output
                raise UserError(WORKER_DIED) from ended
            for connection, (result, error) in zip(idle, answers, strict=True):
                if error is not None:
                    raise error
                results[doing.pop(connection)] = result
        return [results[i] for i in range(len(tasks))]

    def _start(self, count: int) -> None:
        """Start processes until there are `count`."""
        if "fork" not in multiprocessing.get_all_start_methods():
            raise UserError("this system cannot fork worker processes: set workers=1")
        try:
            while len(self._processes) < count:
                self._fork()
        except OSError as error:
            raise UserError(
                f"workers = {self._count}: only {len(self._processes)} could be started "
                f"({error.strerror}): choose fewer"
            ) from error

    def _fork(self) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        ends = [*self._connections, ours]
        process = context.Process(target=_serve, args=(theirs, ends, self._work), daemon=True)
        with warnings.catch_warnings():
            # Python warns of threads that hold locks; PyTorch's wait idle, and workers have one
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()  # theirs alone: when they die, ours comes to an end
        self._connections.append(ours)
        self._processes.append(process)


def _end(owner: int, processes: list[BaseProcess], connections: list[Connection]) -> None:
    if os.getpid() != owner:  # a forked process, with a copy of this list
        return
    for process in processes:
        process.kill()  # until it serves, it has this process's handlers, which may ignore SIGTERM
    for process, connection in zip(processes, connections, strict=True):
        process.join()
        connection.close()


def _serve(connection: Connection, ends: list[Connection], work: Callable[[Any], Any]) -> None:
    """Do tasks as a worker until the parent ends."""
    for end in ends:  # the parent's: held here, they would not end with it
        end.close()
    for number in (signal.SIGINT, signal.SIGHUP):  # they reach every process; one answers them
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    with suppress(EOFError, ConnectionError):  # nobody is left to work for
        while True:
            task = connection.recv()
            try:
                connection.send((work(task), None))
            except ConnectionError:
                raise
            except Exception as error:
                connection.send((None, _portable(error, traceback.format_exc())))


def _portable(error: Exception, place: str) -> Exception:
    """Add the place to an error; make one with the same message where it cannot be pickled.

    Both are common: an error that holds a lock or an open file, and one that needs arguments when
    it is made anew.
    """
    message = traceback.format_exception_only(error)[0].strip()
    try:
        pickle.dumps(copy.copy(error))
    except Exception:
        error = RuntimeError(message)
    error.add_note("in a worker:\n" + place)
    return error
