"""The progress bar appears for what takes long, on a terminal, and nowhere else."""

from __future__ import annotations

import pytest

from translate.data import progress as progress_module
from translate.data.progress import progress


def test_a_short_step_and_a_stderr_that_is_no_terminal_show_nothing(capfd, monkeypatch):
    with progress("short", 3) as advance:
        advance(3)
    monkeypatch.setattr(progress_module, "PATIENCE", 0.0)
    with progress("piped"):
        pass
    assert capfd.readouterr() == ("", "")


def test_a_long_step_shows_its_count_on_a_terminal(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes stderr for a terminal
    monkeypatch.setenv("TERM", "xterm")
    timers = []

    class AtOnce(progress_module.Timer):
        def start(self):
            timers.append(self)
            self.function()
            super().start()

    monkeypatch.setattr(progress_module, "Timer", AtOnce)
    with progress("Counting", 3) as advance:
        advance(2)
    out, err = capfd.readouterr()
    assert out == ""
    assert "Counting" in err
    assert "2/3" in err
    assert not timers[0].is_alive()


def test_an_error_passes_through():
    with pytest.raises(KeyError), progress("broken"):
        raise KeyError
