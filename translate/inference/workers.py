"""Work shared out to processes, each on one thread: two narrow jobs at once beat one wide one."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import torch

from translate import machine
from translate.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")

DIED = (
    "a worker process has died (killed, or out of memory): choose fewer workers or a smaller "
    "tokens_per_batch"
)


def one_a_core(device: torch.device) -> int:
    """How many workers make the most of a machine: one a core, or of a container's share of them.

    One beside a GPU, and where forking is not safe: libraries of macOS may crash in a forked
    process.
    """
    if device.type != "cpu" or sys.platform != "linux":
        return 1
    return min(torch.get_num_threads(), machine.cores())


class Workers(Generic[Task, Result]):
    """`count` processes that do `work`; with one, it is done here.

    They are forked when there is something to share, no more of them than tasks, with all that this
    process has loaded: a model is in memory once. They end with the `with` block, and by themselves
    when this process is killed.
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
        """The result of every task, in their order; an error of one is raised here.

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
            for connection, (i, task) in zip(idle, waiting, strict=False):
                _send(connection, task)
                doing[connection] = i
            idle = cast("list[Connection]", wait(list(doing)))
            for connection in idle:
                results[doing.pop(connection)] = _answer(connection)
        return [results[i] for i in range(len(tasks))]

    def _start(self, count: int) -> None:
        """See to it that there are at least so many."""
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
    if os.getpid() != owner:  # forked from it, with a copy of what is not its own
        return
    for process in processes:
        process.kill()  # until it serves, our own handlers are its, and may only take note
    for process, connection in zip(processes, connections, strict=True):
        process.join()
        connection.close()


def _serve(connection: Connection, ends: list[Connection], work: Callable[[Any], Any]) -> None:
    """A worker's life."""
    for end in ends:  # of its parent: held here, they would not end with it
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; one answers it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    while True:
        try:
            task = connection.recv()
        except EOFError:  # nobody is left to work for
            return
        try:
            connection.send((work(task), None))
        except Exception as error:
            connection.send((None, _portable(error, traceback.format_exc())))


def _portable(error: Exception, place: str) -> Exception:
    """The error with its place; one that says the same where it cannot go from process to process.

    Either way to fail is common: it holds a lock or an open file, or wants arguments when it is
    made anew.
    """
    said = traceback.format_exception_only(error)[0].strip()
    try:
        pickle.dumps(copy.copy(error))
    except Exception:
        error = RuntimeError(said)
    error.add_note("in a worker:\n" + place)
    return error


def _send(connection: Connection, task: Any) -> None:
    try:
        connection.send(task)
    except OSError as error:  # not a BrokenPipeError: that would mean our own output
        raise UserError(DIED) from error


def _answer(connection: Connection) -> Any:
    try:
        result, error = connection.recv()
    except (EOFError, OSError) as ended:
        raise UserError(DIED) from ended
    if error is not None:
        raise error
    return result
