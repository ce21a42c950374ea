"""What goes to Hydra, what is taken verbatim, what is a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.cli.arguments import paths_in, split, wants_debug
from translate.cli.main import COMMANDS
from translate.errors import UsageError

TEXT, TRAIN, ATTEND = (COMMANDS[name].syntax() for name in ("text", "train", "attend"))

ODD = [
    "¿Dónde está el tren?",
    "é=3",
    "~",
    "~/runs, a 'b' \"c\"",
    "x = y",
    "${oc.env:HOME}",
    "{a: b}",
    "[1,2]",
    "(a|b)",
    "two\nlines",
    "- ¿Quién es?",
    "-",
    "",
    "a\\b",
    "¡Sí!",
    "#1",
    "\udcff",
]


@pytest.mark.parametrize("sentence", ODD)
def test_sentences_are_taken_as_they_stand(sentence: str) -> None:
    assert split(TEXT, ["run=r", sentence]).sentences == (sentence,)


@pytest.mark.parametrize(
    "value", [v for v in ODD if v and v[0] != "~"] + ["a=b", "--", "-c", "x,y", "1e3", "null"]
)
@pytest.mark.parametrize("key", ["run", "input", "output"])
def test_paths_are_taken_as_they_stand(key: str, value: str) -> None:
    parsed = split(TEXT, [f"{key}={value}", "search=beam"])
    assert parsed.verbatim == {key: value}
    assert parsed.overrides == ("search=beam",)


def test_home_is_where_the_shell_would_have_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    asked = ["run=~/x", "input=~nobody-here/x", "prefix=~/x"]
    found = {"run": "/home/me/x", "input": "~nobody-here/x", "prefix": "~/x"}
    assert split(TEXT, asked).verbatim == found
    several = split(TEXT, ["ensemble=~/a, ~/b,c"]).verbatim
    assert several == {"ensemble": "/home/me/a,/home/me/b,c"}


def test_a_run_of_a_sweep_has_commas_in_its_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r-seed=2,model.dropout=0.1").mkdir()
    assert paths_in("a,r-seed=2,model.dropout=0.1,b") == ["a", "r-seed=2,model.dropout=0.1", "b"]
    many = [f"seed_{number:03}" for number in range(60)]
    assert paths_in(",".join(many)) == many, "longer together than a name may be"
    assert paths_in("r-seed=2,model.dropout=0.2") == ["r-seed=2", "model.dropout=0.2"]


@pytest.mark.parametrize("paths", [",", "a,,b", "a,"])
def test_a_list_of_paths_has_no_empty_one(paths: str) -> None:
    with pytest.raises(UsageError, match=f"ensemble={paths}: a path is missing between its commas"):
        split(TEXT, [f"ensemble={paths}"])


def test_a_reference_is_text_too() -> None:
    assert split(ATTEND, ["reference=a=b, ${c}", "x"]).verbatim == {"reference": "a=b, ${c}"}
    for command, key, kind in [(ATTEND, "reference", "TEXT"), (TEXT, "prefix", "TEXT"),
                               (ATTEND, "output", "PATH")]:  # fmt: skip
        with pytest.raises(UsageError, match=f"{key}= has no value: write {key}={kind}"):
            split(command, [f"{key}=", "x"])


@given(st.text())
def test_any_text_is_a_sentence_after_two_dashes(sentence: str) -> None:
    assert split(TEXT, ["scores=true", "--", sentence, "a=b"]).sentences == (sentence, "a=b")


@given(st.text())
def test_no_argument_is_lost_or_changed(argument: str) -> None:
    try:
        parsed = split(TEXT, [argument])
    except UsageError:
        assert argument.startswith(("-", "+", "~", "=", "debug=")) or argument.endswith("=")
    else:
        expected = () if argument in ("--", "debug=true", "debug=false") else (argument,)
        assert parsed.sentences + parsed.overrides == expected


@pytest.mark.parametrize(
    "argument",
    ["a=b", "search.beem_size=3", "E=mc² is known", "a.b=c d", "tokens-per-batch=10", "x[0]=5",
     "search..beam_size=8", "data/x=y", "a@b=c", "model.d_model=", "x_1.y=[1,2]"],
)  # fmt: skip
def test_what_looks_like_a_key_is_never_a_sentence(argument: str) -> None:
    parsed = split(TEXT, [argument])
    assert (parsed.overrides, parsed.sentences) == ((argument,), ())
    assert split(TEXT, ["--", argument]).sentences == (argument,)


@pytest.mark.parametrize(
    "sentence", ["https://a.de/?a=b", "runs/toy-seed=1", "2x=4", "größe=3", "is this = that"]
)
def test_text_with_an_equals_sign_is_a_sentence(sentence: str) -> None:
    assert split(TEXT, [sentence]).sentences == (sentence,)


def test_flags_stand_anywhere_with_their_values(tmp_path: Path) -> None:
    mine = str(tmp_path)
    parsed = split(TRAIN, ["seed=1,2", "-c", "job", f"--config-dir={mine}", "-m", "model=x"])
    assert parsed.overrides == ("seed=1,2", "model=x")
    assert (parsed.shows, parsed.multirun, parsed.config_dir) == (True, True, mine)
    assert parsed.composing == ("--config-dir", mine)
    assert split(TRAIN, ["-cd", mine]).config_dir == mine


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["+model.x=1"], "takes its value without a sign: KEY=VALUE"),
        (["++model.x=1"], "neither added"),
        (["~model=rnn"], "neither added"),
        (["--epochs", "3"], "--epochs is another toolkit's option: write trainer.max_epochs=3"),
        (["--batch-size=64"], "write data.tokens_per_batch=64"),
        (["--fp16"], "write trainer.precision=16-mixed"),
        (["--seed", "7"], "--seed is not an option, but a key: write seed=7"),
        (["--trainer.max_steps=9"], "write trainer.max_steps=9"),
        (["--multirum"], "did you mean --multirun?"),
        (["-c"], "--cfg : write -c job"),
        (["-c", "hydra"], "--cfg hydra: write -c job"),
        (["--multirun=true"], "--multirun takes no value: leave out true"),
        (["hello"], "'hello' is not KEY=VALUE, and train takes no sentences"),
        (["run="], "run= has no value"),
        (["max_steps", "=", "8"], "without spaces around ="),
        (["=", "8"], "'=': write KEY=VALUE without spaces around ="),
        (["=8"], "without spaces around ="),
        (["run=a", "seed=2", "run=b"], "run= is given twice, as 'a' and 'b'"),
        (["debug=yes"], "must be true or false"),
        (["--", "hello"], "takes no sentences"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        split(TRAIN, arguments)
    assert message in str(raised.value)


def test_debug_is_an_option_and_not_a_sentence() -> None:
    assert wants_debug(["text", "debug=true"])
    assert not wants_debug(["text", "--", "debug=true"])
    assert split(TEXT, ["debug=true", "x"]).sentences == ("x",)
