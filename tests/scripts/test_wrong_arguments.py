"""What a script cannot do is told in a line before it begins."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

WRONG = {
    "bench_attention": [
        ("--only fusd", "no fusd: choose from rnn, .*fused"),
        ("--lengths 64", "64: give two or more whole numbers"),
        ("--lengths 64,1k", "64,1k: give two or more whole numbers"),
        ("--device tpu", "--device: tpu: choose cpu or cuda"),
        ("--plot cost.gif", "--plot: cannot tell the picture's format from 'cost.gif'"),
        ("--repeats 0", "--repeats: 0: must be a whole number of at least 1"),
    ],
    "bench_decode": [
        ("run in --engines nativ", "--engines: no nativ: choose from native, .*direct-int8"),
        ("run in --engines served-int7", "--engines: no served-int7: .*int8_float32"),
        ("run in --single -1", "--single: -1: must be a whole number of at least 0"),
        ("run in --peer fairseq", "--peer: 'fairseq': give NAME=COMMAND"),
        ("run in --peer a=b --peer a=c", "give each --peer a name of its own"),
        ("run in --device cuda", "workers are for CPUs"),
    ],
    "bench_train": [
        ("--steps 19", "--steps 19: must be at least 20"),
        ("--variant a='b", "--variant: 'b: No closing quotation"),
        ("--variant a=b=1 --variant a=b=2", "and each --variant, a name of its own"),
        ("--model rnn_none --stpes 30", "unrecognized arguments: --stpes"),
    ],
    "experiment_ablations": [
        ("--change model.norm", "'model.norm': give KEY=VALUE"),
        ("--change seed=2", "--change 'seed=2': choose seeds with --seeds"),
        ("--change a='b", "--change: a='b: No closing quotation"),
        ("seed=2", "KEY=VALUE: choose seeds with --seeds"),
        ("toy", "KEY=VALUE: give KEY=VALUE"),
        ("--seeds 1,x", "'1,x' must be whole numbers"),
        ("--seeds 1,1", "'1,1' contains a seed twice"),
    ],
    "experiment_length": [
        ("--models rnn_non", "no model rnn_non: choose from .*rnn_none"),
        ("--positions sinusoid", "no positions sinusoid: choose from .*sinusoidal"),
        ("--positions rotary data=files", "--positions needs .* the toy grammar"),
        ("--models ", "nothing to train"),
        ("--recipes toy experiment=toy_rnn", "give only one of the two"),
        ("--edges 5,x", "'5,x' must be whole numbers"),
        ("--edges 20,10", r"--edges: length bucket edges \[20, 10\] do not rise"),
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
