"""Processes that have everything imported, and take with them what they change."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path


def forked(act: Callable[[], object], stderr: int | None = None) -> int:
    """Do something in a new process; its id.

    It ends with the number that `act` returns, 0 for any other object, or 1 after an exception.

    Args:
        stderr: the descriptor of what becomes its standard error.
    """
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        if stderr is not None:
            os.dup2(stderr, 2)
            sys.stderr = os.fdopen(2, "w", buffering=1)
        returned = act()
        status = returned if isinstance(returned, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(child: int) -> int:
    """The status that a process ends with, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def torchrun(count: int, arguments: list[str], said: Path) -> list[int]:
    """`translate` in so many processes, as torchrun starts them on one machine; how they end.

    Args:
        said: where what they write to standard error goes.
    """
    from translate.cli.main import main

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free.getsockname()[1]}"}

    def process(rank: int) -> int:
        os.environ |= meeting | {
            "RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "GROUP_RANK": "0",
            "WORLD_SIZE": f"{count}", "LOCAL_WORLD_SIZE": f"{count}", "TORCHELASTIC_RUN_ID": "test",
        }  # fmt: skip
        return main(arguments)

    with said.open("a") as file:
        started = [forked(partial(process, rank), file.fileno()) for rank in range(count)]
    return [ended(child) for child in started]
