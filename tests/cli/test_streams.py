"""Lines in and lines out."""

from __future__ import annotations

import gzip
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from translate.cli import streams
from translate.cli.streams import Advance, lines_done, lines_out, output_problems
from translate.data import progress
from translate.data.plain_text import read_lines


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file with a line."""
    path = tmp_path / "text"
    path.write_text("mine\n", encoding="utf-8")
    return path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_disk_is_told_with_the_file() -> None:
    with pytest.raises(OSError) as error, lines_out({"output": "/dev/full"}) as write:
        write("mine")
    assert error.value.filename == "/dev/full"


@pytest.mark.parametrize("flush", [True, False])
def test_what_is_called_gz_is_packed(tmp_path: Path, flush: bool) -> None:
    path = tmp_path / "text.gz"
    with lines_out({"output": str(path)}, flush=flush) as write:
        write("mine")
        write("yours")
    assert gzip.decompress(path.read_bytes()) == b"mine\nyours\n"
    assert b"partial" not in path.read_bytes()  # the name that gzip notes
    assert list(read_lines(path)) == ["mine", "yours"]


@pytest.mark.parametrize("ending", [".xz", ".bz2", ".zst"])
def test_what_is_called_packed_is_packed(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"text{ending}"
    with lines_out({"output": str(path)}) as write:
        write("grün")
    assert path.read_bytes() != "grün\n".encode()
    assert list(read_lines(path)) == ["grün"]


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_file_has_its_name_when_all_lines_are_written(tmp_path: Path, name: str, caplog) -> None:
    path = tmp_path / name
    path.write_text("of an earlier command\n", encoding="utf-8")

    def translations(end: BaseException | None) -> None:
        with lines_out({"output": str(path)}) as write:
            write("eins")
            write("zwei")
            assert path.read_text("utf-8") == "of an earlier command\n"
            if end is not None:
                raise end

    with pytest.raises(KeyboardInterrupt):
        translations(KeyboardInterrupt())
    kept = tmp_path / f"{name}.partial"
    assert path.read_text("utf-8") == "of an earlier command\n"
    assert list(read_lines(kept)) == ["eins", "zwei"]
    assert caplog.messages == [f"lines written so far, in {kept}: 2"]
    translations(None)
    assert list(read_lines(path)) == ["eins", "zwei"]
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_what_a_stopped_command_has_left_can_be_read_but_not_into_its_own_place(
    text: Path, tmp_path: Path
) -> None:
    kept, output = text.rename(tmp_path / "out.partial"), str(tmp_path / "out")
    (problem,) = output_problems({"input": str(kept), "output": output})
    assert problem.startswith(f"output={output} would overwrite input=, which is the same file")
    assert not output_problems({"input": str(kept), "output": f"{output}.rest"})


class Terminal(io.StringIO):
    """What a person sees, or types into."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch) -> list[int | None]:
    """The totals of the bars that were shown."""
    totals: list[int | None] = []

    @contextmanager
    def bar(description: str, total: int | None, *, counted: bool) -> Iterator[Advance]:
        assert counted
        totals.append(total)
        yield lambda lines: None

    monkeypatch.setattr(progress, "progress", bar)
    return totals


@pytest.fixture
def terminal(monkeypatch) -> Callable[..., None]:
    """What makes the standard streams of these names a terminal, and files of the others."""

    def make(*names: str) -> None:
        for name in ("stdin", "stdout", "stderr"):
            monkeypatch.setattr(sys, name, Terminal() if name in names else io.StringIO())

    return make


@pytest.mark.parametrize("output", [{}, {"output": "there"}])
def test_a_bar_counts_the_lines_of_a_file_or_a_pipe(text: Path, shown, terminal, output) -> None:
    text.write_text("eins\nzwei\nohne Ende", encoding="utf-8")
    terminal("stderr")
    with lines_done({"input": str(text), **output}, []):
        pass
    with lines_done(output, []):
        pass
    assert shown == [3, None]


def test_no_bar_stands_between_what_a_person_reads_or_types(text: Path, shown, terminal) -> None:
    there = {"input": str(text), "output": "there"}
    for names, verbatim, sentences in (
        (["stderr"], {}, ["A sentence."]),
        (["stderr", "stdin"], {"output": "there"}, []),
        (["stderr", "stdout"], {"input": str(text)}, []),
        ([], there, []),
    ):
        terminal(*names)
        with lines_done(verbatim, sentences) as advance:
            advance(1)
    assert shown == []
    terminal("stderr", "stdin", "stdout")
    with lines_done(there, []):
        pass
    assert shown == [1]


def slowly(*lines: tuple[float, str]) -> Iterator[str]:
    for seconds, line in lines:
        time.sleep(seconds)
        yield line


def test_a_pipe_that_waits_is_told_of_interactive_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "translate")
    monkeypatch.setattr(streams, "PATIENCE", 0.1)
    for lines in ([(0.0, "a"), (0.4, "b"), (0.4, "c")], [(0.0, "a")] + [(0.04, "b")] * 9):
        caplog.clear()
        assert len(list(streams.watched(slowly(*lines), 2048))) == len(lines)
        (said,) = caplog.messages
        assert "interactive=true" in said


def test_lines_that_come_fast_enough_are_waited_for_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that starts slowly, a little time for each of many windows, a slow translation."""
    caplog.set_level("INFO", "translate")
    monkeypatch.setattr(streams, "PATIENCE", 0.5)
    assert list(streams.watched(slowly((0.8, "a"), (0.0, "b")), 2048)) == ["a", "b"]
    for _ in streams.watched(slowly(*[(0.06, "a")] * 12), 2):
        pass
    for _ in streams.watched(slowly((0.0, "a"), (0.0, "b")), 2048):
        time.sleep(0.7)
    assert not caplog.messages


def test_a_pipe_is_known(monkeypatch: pytest.MonkeyPatch, text: Path) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with os.fdopen(reader) as pipe, text.open() as file:
        monkeypatch.setattr(sys, "stdin", pipe)
        assert streams.piped({}, ())
        assert not streams.piped({}, ("Hola.",))
        assert not streams.piped({"input": "file"}, ())
        monkeypatch.setattr(sys, "stdin", file)
        assert not streams.piped({}, ())


def test_what_could_move_a_terminal_is_written_visibly_on_one_and_as_it_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = "https://x.org/\x1b]0;title\x07\x9b2J\ta \N{ZERO WIDTH JOINER}"
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with lines_out({}) as write:
        write(line)
    visible = "https://x.org/\\x1b]0;title\\x07\\x9b2J\ta \N{ZERO WIDTH JOINER}\n"
    assert shown.getvalue().decode() == visible
    with lines_out({"output": str(tmp_path / "out")}) as write:
        write(line)
    assert (tmp_path / "out").read_bytes().decode() == line + "\n"
