"""Files that the shell has opened already are not emptied."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from translate.cli.streams import lines_out, output_problems
from translate.data.text import read_lines


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file with a line."""
    path = tmp_path / "text"
    path.write_text("mine\n", encoding="utf-8")
    return path


def test_the_file_behind_standard_input_is_not_written(text: Path, monkeypatch) -> None:
    other = text.with_name("other")
    other.touch()
    with text.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        (problem,) = output_problems({"output": str(text)})
        assert not output_problems({"output": str(other)})
    assert problem.startswith(
        f"output={text} would overwrite standard input, which is the same file"
    )


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
    assert list(read_lines(path)) == ["mine", "yours"]


def test_the_file_behind_standard_output_is_not_opened_anew(text: Path, monkeypatch) -> None:
    with text.open("a", encoding="utf-8") as stdout:  # >> text
        monkeypatch.setattr(sys, "stdout", stdout)
        with lines_out({"output": f"/dev/fd/{stdout.fileno()}"}) as write:
            write("yours")
    assert text.read_text("utf-8") == "mine\nyours\n"
