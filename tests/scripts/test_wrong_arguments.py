"""What a script cannot do is told in a line before it begins."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

WRONG = {
    "bench_attention": [
        ("--only fusd", "no mechanism fusd: choose from rnn, .*fused"),
        ("--lengths 64", r"--lengths \[64\]: give two or more"),
        ("--device tpu", "--device: tpu: choose cpu or cuda"),
        ("--plot cost.gif", "--plot: cannot tell the picture's format from 'cost.gif'"),
        ("--repeats 0", "--repeats: 0: must be a whole number of at least 1"),
    ],
    "bench_decode": [
        ("run in --engines served-int7", "--engines: no served-int7: .*int8_float32"),
        ("run in --peer fairseq", "--peer: 'fairseq': give NAME=COMMAND"),
        ("run in --peer a=b --peer a=c", "give each --peer a name of its own"),
        ("run in --device cuda", "workers are for CPUs"),
    ],
    "bench_train": [
        ("--steps 19", "--steps 19: must be at least 20"),
        ("--variant a='b", "--variant: 'b: No closing quotation"),
        ("--variant a=b=1 --variant a=b=2", "and each --variant, a name of its own"),
    ],
    "experiment_ablations": [
        ("--change model.norm", "'model.norm': give KEY=VALUE"),
        ("--change seed=2", "--change 'seed=2': choose seeds with --seeds"),
        ("--seeds 1,x", "'1,x' must be whole numbers"),
        ("--seeds 1,1", r"--seeds \[1, 1\] has a seed twice"),
    ],
    "experiment_length": [
        ("--models rnn_non", "no model rnn_non: choose from .*rnn_none"),
        ("--positions rotary data=files", "--positions needs .* the toy grammar"),
        ("--models ", "nothing to train"),
        ("--recipes toy experiment=toy_rnn", "give only one of the two"),
        ("--edges 20,10", r"--edges: \[20, 10\] do not rise"),
    ],
}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [(name, *each) for name, several in WRONG.items() for each in several],
)
def test_wrong_arguments_are_told_before_any_work(
    load_script: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    arguments: str,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments.split(" ")])
    with pytest.raises(SystemExit):
        load_script(name).main()
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
