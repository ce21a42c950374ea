"""Every command on one tiny trained run, as a person would use it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from translate.cli import attend
from translate.extras.attention_views import Attended, Tokens, write_view
from translate.models.transformer import TransformerConfig
from translate.training import records

ODD = ["¿Dónde, 'está' = ${x} {tren} [y]~?", "", "two  spaces", "   ", "é=3", '"quoted", x']


def test_training_leaves_the_files_of_a_run(trained: Path) -> None:
    left = {path.relative_to(trained).as_posix() for path in trained.rglob("*") if path.is_file()}
    assert {"config.yaml", "metrics.csv", "train.log", "provenance.json"} <= left
    assert {"bundle/config.json", "bundle/model.safetensors", "checkpoints/last.ckpt"} <= left


def test_a_run_begun_before_an_option_was_there_goes_on(
    program, trained: Path, tmp_path: Path
) -> None:
    """Without those of model and tokenizer; others that are missing are told, and what to do."""
    run = shutil.copytree(trained, tmp_path / "run")
    config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    for option in TransformerConfig.since:
        del config["model"][option]
    del config["tokenizer"]["pretrained"]
    (run / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    done = program("train", f"run={run}", "trainer.max_steps=3")
    assert done.status == 0, done.err
    assert records.read(run)["steps"] == 3
    del config["trainer"]["patience"]
    (run / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    done = program("train", f"run={run}")
    assert done.status == 2
    assert "trainer.patience is missing" in done.err
    assert "the run was started by another version of this program: resume it with that" in done.err


def test_a_line_in_is_a_line_out(program, run: str) -> None:
    done = program("text", run, *ODD)
    assert done.status == 0
    lines = done.out.split("\n")
    assert len(lines) == len(ODD) + 1
    assert [not line for line in lines[:-1]] == [not text.strip() for text in ODD]


def test_arguments_standard_input_and_files_agree(program, run: str, tmp_path: Path) -> None:
    texts = [*ODD, "der Hund schläft ."]
    content = "".join(f"{text}\n" for text in texts).encode()
    (tmp_path / "in, =.txt").write_bytes(content)
    from_arguments = program("text", run, "--", *texts)
    from_stdin = program("text", run, stdin=content)
    to_file = program("text", run, "input=in, =.txt", "output=out ${x}.txt")
    one_by_one = program("text", run, "interactive=true", stdin=content)
    assert from_arguments.out == from_stdin.out == one_by_one.out != ""
    assert to_file.out == ""
    assert (tmp_path / "out ${x}.txt").read_text("utf-8") == from_stdin.out


def test_lines_of_any_bytes_come_out_in_place(program, run: str) -> None:
    done = program("text", run, stdin=b"\xff der Hund\r\n\n\xe2\x80\xa8x\x00\nlast")
    assert done.status == 0
    assert done.out.count("\n") == 4
    assert done.out.split("\n")[1] == ""
    assert "line 1" in done.err


def test_n_best_lines_carry_number_and_score(program, run: str) -> None:
    done = program("text", run, "search.beam_size=3", "search.n_best=2", "der Hund", "ein Haus")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert float(rows[0][1]) >= float(rows[1][1])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["search.beem_size=3", "x"],
            "search.beem_size is not a key; did you mean search.beam_size?",
        ),
        (["a=b"], "a is not a key"),
        (["device=gpu", "x"], "device = 'gpu': must be auto, cpu, mps, cuda or cuda:N"),
        (["input=nowhere.txt"], "nowhere.txt"),
        (["input=x", "sentence"], "both sentences and input=x are given: give only one"),
        (["dictionary=words.tsv", "x"], "dictionary=words.tsv only serves to replace unknown"),
        (["replace_unknown=true", "dictionary=no, =.tsv", "x"], "no, =.tsv cannot be read"),
    ],
)
def test_slips_are_told_and_nothing_is_translated(program, run: str, arguments, line) -> None:
    done = program("text", run, *arguments)
    assert done.status in (1, 2)
    assert done.out == ""
    assert line in done.err
    assert done.err.count("\n") == 1


def test_unknown_words_and_coverage_need_nothing_but_their_keys(
    program, run: str, tmp_path: Path
) -> None:
    (tmp_path / "words, =.tsv").write_text("Hund\tdog\n", encoding="utf-8")
    keys = ["replace_unknown=true", "dictionary=words, =.tsv", "search.coverage_penalty=0.2"]
    done = program("text", run, *keys, "der Hund", "")
    assert done.status == 0, done.err
    assert done.out.count("\n") == 2
    (tmp_path / "s").write_text("der Hund\nein Haus\n", encoding="utf-8")
    (tmp_path / "r").write_text("the dog\na house\n", encoding="utf-8")
    done = program("evaluate", run, *keys, "input=s", "reference=r", "output=scores")
    assert done.status == 0, done.err
    decoding = json.loads((tmp_path / "scores" / "s.json").read_text("utf-8"))["decoding"]
    assert decoding["coverage_penalty"] == 0.2
    assert (decoding["replace_unknown"], decoding["dictionary"]) == (True, "words, =.tsv")


@pytest.mark.parametrize(
    "arguments",
    [
        ["text", "input=kept"],
        ["text", "constraints=kept", "input=other"],
        ["score", "input=other", "reference=kept"],
        ["align", "input=other", "reference=other", "gold=kept"],
    ],
)
def test_the_output_may_not_be_what_is_read(program, run: str, arguments: list[str]) -> None:
    for name in ("kept", "other"):
        Path(name).write_text("der Hund\n", encoding="utf-8")
    done = program(arguments[0], run, *arguments[1:], "output=./kept")
    assert done.status == 2
    key = next(argument for argument in arguments if argument.endswith("=kept"))
    assert f"output=./kept would overwrite {key.removesuffix('kept')}, which is" in done.err
    assert Path("kept").read_text("utf-8") == "der Hund\n"


@pytest.mark.parametrize("missing", ["input=nowhere", "prefixes=nowhere"])
def test_what_fails_leaves_the_output_as_it_was(program, run: str, missing: str) -> None:
    Path("kept").write_text("the dog\n", encoding="utf-8")
    done = program("text", run, missing, "output=kept", stdin=b"der Hund\n")
    assert done.status == 1
    assert "nowhere cannot be read" in done.err
    assert Path("kept").read_text("utf-8") == "the dog\n"


def test_nothing_in_gives_an_empty_file(program, run: str) -> None:
    Path("o").write_text("of yesterday\n", encoding="utf-8")
    assert program("text", run, "output=o").status == 0
    assert Path("o").read_bytes() == b""


@pytest.mark.parametrize("target", [".", "no/folder"])
def test_an_output_that_cannot_be_written_is_told_first(program, run: str, target: str) -> None:
    done = program("text", run, f"output={target}", "der Hund")
    assert done.status == 2
    assert f"output={target} cannot be written" in done.err


def test_a_run_is_needed_and_must_have_a_model(program, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in ("text", "attend", "evaluate"):
        sentence = ["x"] if command in ("text", "attend") else []
        for given, line in [
            ([], "run=PATH is missing"),
            (["runs=x"], "runs is not a key; did you mean run?"),
            (["run=nowhere"], "nowhere"),
            (["run=empty"], "has no bundle"),
        ]:
            done = program(command, *given, *sentence)
            assert done.status in (1, 2), command
            assert line in done.err
            assert done.err.count("\n") == 1


def test_evaluating_a_split_of_the_run(program, run: str, trained: Path, home: Path) -> None:
    done = program("evaluate", run, "data.split=dev", f"cache={home}/data")
    assert done.status == 0, done.err
    assert "BLEU" in done.out
    report = json.loads((trained / "evaluation" / "dev.json").read_text("utf-8"))
    assert report["items"] == 8
    assert report["bleu"]["signature"].startswith("nrefs:1")
    assert len((trained / "evaluation" / "dev.hyp").read_bytes().splitlines()) == 8


def test_a_stored_score_is_verified_to_the_last_bit(program, run: str, trained: Path) -> None:
    (Path("s")).write_text("der Hund\nein Haus\n", encoding="utf-8")
    (Path("r")).write_text("the dog\na house\n", encoding="utf-8")
    files = ["input=s", "reference=r"]
    done = program("verify", run, *files)
    assert done.status == 1
    assert "s.json does not exist: run translate evaluate first" in done.err
    assert program("evaluate", run, *files).status == 0
    done = program("verify", run, *files)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("equal: s, BLEU ")
    assert "2 sentences, model " in done.out
    path = trained / "evaluation" / "s.json"
    stored = json.loads(path.read_text("utf-8"))
    stored["bleu"]["score"] += 1e-9
    path.write_text(json.dumps(stored), encoding="utf-8")
    done = program("verify", run, *files)
    assert done.status == 1
    assert done.out == ""
    assert f"bleu score is {stored['bleu']['score'] - 1e-9}, but " in done.err
    (Path("r")).write_text("the dog\nthe house\n", encoding="utf-8")
    assert "the references changed: SHA-256" in program("verify", run, *files).err
    for damaged in ("{}", '{"bleu": {}, "decoding": {}, "sha256": "x"}'):
        path.write_text(damaged, encoding="utf-8")
        done = program("verify", run, *files)
        assert (done.status, done.err.count("\n")) == (1, 1)
        assert "s.json cannot be read" in done.err


def test_an_evaluation_elsewhere_is_verified_and_one_that_asks_too_much_refused(
    program, run: str
) -> None:
    (Path("s")).write_text("der Hund\nein Haus\n", encoding="utf-8")
    (Path("r")).write_text("the dog\na house\n", encoding="utf-8")
    files = ["input=s", "reference=r", "output=here"]
    assert program("evaluate", run, *files, "replace_unknown=true").status == 0
    assert program("verify", run, *files).out.startswith("equal: s, BLEU ")
    assert program("verify", run, *files[:2]).status == 1
    stored = json.loads(Path("here/s.json").read_text("utf-8"))
    stored["decoding"] |= {"beam_size": 10**8, "workers": -1}  # of a stranger
    Path("here/s.json").write_text(json.dumps(stored), encoding="utf-8")
    refused = program("verify", run, *files)
    assert refused.status == 1
    assert "here/s.json asks for settings that cannot be used: 2 problems" in refused.err
    assert "decoding.workers = -1: must be greater than 0" in refused.err
    assert "search.beam_size = 100000000: must be less than or equal to" in refused.err


@pytest.mark.parametrize("command", ["evaluate", "score"])
def test_files_that_do_not_fit_each_other_are_told(program, run: str, tmp_path, command) -> None:
    assert "reference=FILE is missing" in program(command, run, "input=s").err
    (tmp_path / "s").write_text("a\nb\nc\n", encoding="utf-8")
    (tmp_path / "r").write_text("a\nb\n", encoding="utf-8")
    done = program(command, run, "input=s", "reference=r")
    assert done.status == 1
    assert "s has 3 lines, but r has 2" in done.err


def test_attention_is_drawn_in_files_and_characters(program, run: str, trained: Path) -> None:
    before = set((trained / "plots").iterdir())
    done = program("attend", run, "der Hund, 'schläft' = ${x}")
    assert done.status == 0, done.err
    assert "Hund" in done.out
    pictures = set((trained / "plots").glob("attention-der-hund-schlaft-*")) - before
    assert {path.suffix for path in pictures} == {".png", ".svg", ".html", ".json"}
    assert sorted(done.err.splitlines()) == sorted(f"written: {path}" for path in pictures)


def test_a_long_sentence_is_left_out_of_the_terminal_and_a_longer_one_is_refused(
    program, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attend, "LONGEST_SHOWN", 3)
    done = program(
        "attend", run, "output=a.json", "reference=a dog", "der Hund schläft und schläft"
    )
    assert (done.status, done.out) == (0, "")
    assert done.err == "3 × 6 words and ends are too many for the terminal\nwritten: a.json\n"
    monkeypatch.setattr("translate.extras.attention_views.LONGEST_DRAWN", 4)
    for arguments, side in (
        (["der Hund schläft"], "the sentence"),
        (["reference=the dog sleeps", "x"], "ref"),
    ):
        refused = program("attend", run, "output=b.json", *arguments)
        assert refused.status == 1
        assert f"{side}" in refused.err
        assert "but at most 4 are drawn: give a shorter one" in refused.err


def test_another_look_at_a_sentence_does_not_take_the_place_of_the_first(
    program, run: str, trained: Path
) -> None:
    written: list[str] = []
    for more in ([], ["reference=a dog"], ["layer=1", "head=2"], ["grid=true", "pieces=true"]):
        done = program("attend", run, *more, "ein Hund schläft")
        assert done.status == 0, done.err
        written += done.err.splitlines()
    endings = [Path(line).suffix for line in set(written)]
    assert {end: endings.count(end) for end in endings} == {
        ".png": 4, ".svg": 4, ".html": 4, ".json": 2,
    }  # fmt: skip
    assert len(list((trained / "plots").glob("attention-ein-hund-schlaft-*-layer1-head2.png"))) == 1


def test_a_picture_is_of_the_layer_and_head_that_are_named(tmp_path: Path) -> None:
    weights = np.arange(2 * 3 * 4 * 5, dtype=float).reshape(2, 3, 4, 5)
    words, pieces = (Tokens(["s"] * 5, ["t"] * 4, array) for array in (weights, -weights))
    shown = Attended(
        run="runs/x", family="transformer", languages=("de", "en"), attention="cross",
        source="", target="", target_given=False, words=words, pieces=pieces,
    )  # fmt: skip
    for layer, head, expected, caption in [
        (2, 3, weights[1, 2], "layer 2 head 3"),
        (2, None, weights[1].mean(0), "layer 2"),
        (None, 1, weights[:, 0].mean(0), "head 1"),
        (None, None, weights.mean((0, 1)), None),
    ]:
        mean = shown.select(layer, head, pieces=False)
        np.testing.assert_allclose(mean, expected)
        path, how = tmp_path / "a.svg", {"layer": layer, "head": head}
        write_view(path, [shown], [mean], **how, grid=False, pieces=False)
        found = re.findall(">((?:layer|head) [^<]*)</text>", path.read_text("utf-8"))
        assert found == ([caption] if caption else []), "a picture that is passed on tells"
        np.testing.assert_allclose(shown.select(layer, head, pieces=True), -expected)


def test_attention_from_a_given_translation(program, run: str, tmp_path: Path) -> None:
    arguments = ["reference=the dog, = sleeps", "layer=1", "head=2", "output=p, =.png"]
    done = program("attend", run, *arguments, "der Hund schläft")
    assert done.status == 0, done.err
    assert "sleeps" in done.out
    assert (tmp_path / "p, =.png").read_bytes().startswith(b"\x89PNG")
    grid = program("attend", run, "grid=true", "pieces=true", "output=g.svg", "der Hund")
    assert grid.status == 0, grid.err
    assert b"<svg" in (tmp_path / "g.svg").read_bytes()


def test_the_kernels_of_a_sentence_are_explained(program, run: str, trained: Path) -> None:
    before = set(trained.rglob("*"))
    done = program("attend", run, "explain=true", "device=cpu", "der Hund schläft")
    assert done.status == 0, done.err
    head, *lines = done.out.splitlines()
    assert head.startswith("cpu, PyTorch ")
    assert head.endswith("trained in 32-true")
    assert "training, decode: 1 × decoder_layers.*.self_attention.pattern" in lines
    assert "translating, encode: 1 × encoder_layers.*.self_attention.pattern" in lines
    assert "readable" not in done.out
    covering = ["search=beam", "search.coverage_penalty=0.2"]
    done = program("attend", run, "explain=true", "device=cpu", *covering, "der Hund schläft")
    assert done.out.count("    readable, not flash: the weights are needed") == 1, done.out
    done = program("attend", run, f"beside={trained}", "explain=true", "device=cpu", "der Hund")
    assert done.out.count(f"{trained}\n") == 2
    assert set(trained.rglob("*")) == before


def test_attention_as_data_and_as_a_page(program, run: str, trained: Path, tmp_path: Path) -> None:
    arguments = ["reference=the dog", "head=2", "der Hund </script>"]
    done = program("attend", run, "output=a.json", *arguments)
    assert done.status == 0, done.err
    (found,) = json.loads((tmp_path / "a.json").read_text("utf-8"))["runs"]
    assert found["model"] == {
        "run": str(trained),
        "family": "transformer",
        "languages": ["de", "en"],
    }
    assert (found["source"], found["target"]) == ("der Hund </script>", "the dog")
    assert found["target_given"] is True
    for unit in ("words", "pieces"):
        weights = np.array(found[unit]["weights"])
        sides = (len(found[unit]["target"]), len(found[unit]["source"]))
        assert weights.shape == (1, 2, *sides)
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-4)
    assert found["words"]["target"] == ["the", "dog", "</s>"]
    done = program("attend", run, "output=a.html", *arguments)
    assert done.status == 0, done.err
    page = (tmp_path / "a.html").read_text("utf-8")
    assert page.count("</script>") == 2
    assert '"start": {"unit": "words", "layer": null, "head": 2}' in page


@pytest.mark.parametrize(
    ("attention", "words"),
    [("encoder", ["der", "Hund", "</s>"]), ("decoder", ["<s>", "the", "dog"])],
)
def test_self_attention_has_the_same_words_on_both_sides(
    program, run: str, trained: Path, attention: str, words: list[str]
) -> None:
    reference = ["reference=the dog"] * (attention == "decoder")
    done = program("attend", run, f"attention={attention}", *reference, "der Hund")
    assert done.status == 0, done.err
    paths = [Path(line.removeprefix("written: ")) for line in done.err.splitlines()]
    assert all(path.name.startswith(f"attention-{attention}-") for path in paths)
    (found,) = json.loads(paths[-1].read_text("utf-8"))["runs"]
    assert found["attention"] == attention
    assert found["words"]["source"] == found["words"]["target"] == words


def test_two_runs_side_by_side(program, run: str, trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other, = run"
    shutil.copytree(trained / "bundle", other)
    done = program("attend", run, f"beside={other}", "layer=1", "der Hund")
    assert done.status == 0, done.err
    assert done.out.index(str(trained)) < done.out.index(str(other))
    page, data = done.err.splitlines()[-2:]
    assert (page[-5:], data[-5:]) == (".html", ".json")
    document = json.loads(Path(data.removeprefix("written: ")).read_text("utf-8"))
    assert [one["model"]["run"] for one in document["runs"]] == [str(trained), str(other)]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["explain=true", "output=p.png", "x"], "explain = True draws nothing: leave out output"),
        (["explain=true", "layer=1", "x"], "explain = True draws nothing: leave out layer"),
        (["output=/dev/null/p.png", "x"], "'/dev/null/p.png' cannot be written: name a file"),
        (["layer=2", "x"], "has layers 1 to 1"),
        (["attention=encoder", "reference=y", "x"], "only at the source: leave out reference"),
        ([" "], "the sentence to align is empty"),
        (["grid=true", "head=1", "x"], "leave out layer and head"),
        (["x", "y"], "one sentence at a time, not 2: put it in quotes"),
        ([], "one sentence at a time, not 0: give it as the last argument"),
        (
            ["output=p.jpeg", "x"],
            "output = 'p.jpeg': end the name in .png, .svg, .pdf, .html, .json",
        ),
        (["output=p.png", "beside=y", "x"], "for two runs: end the name in .html, .json"),
        (["grid=true", "beside=y", "x"], "leave out beside"),
    ],
)
def test_what_cannot_be_drawn_is_told(program, run: str, arguments, line) -> None:
    done = program("attend", run, *arguments)
    assert done.status in (1, 2)
    assert line in done.err
    assert done.err.count("\n") == 1


def test_a_finished_run_is_not_trained_again_by_accident(program, run: str) -> None:
    for name in (run, f"{run}/bundle"):  # which is the run's, and nothing to be removed
        done = program("train", name)
        assert done.status == 1
        assert "is finished after 2 steps: continue training with trainer.max_steps=4" in done.err


def test_a_run_under_way_brings_its_settings(program, run: str, monkeypatch) -> None:
    seen: dict[str, object] = {}
    monkeypatch.setattr(
        "translate.training.run.train", lambda config, run, init: seen.update(config, run=run)
    )
    done = program("train", run, "trainer.max_steps=3")
    assert done.status == 0, done.err
    assert (seen["model"]["d_model"], seen["trainer"]["max_steps"]) == (16, 3)
    done = program("train", run, "model=transformer", "data=toy", "trainer.max_steps=3")
    assert seen["model"]["d_model"] == 256  # chosen anew: the engine compares and refuses


def test_the_jobs_of_a_sweep_have_folders_of_their_own(program, monkeypatch) -> None:
    folders: list[str] = []
    commands: list[list[str]] = []

    def train(config: object, run: Path, init: str | None) -> None:
        import sys

        folders.append(str(run))
        commands.append(list(sys.argv))

    monkeypatch.setattr("translate.training.run.train", train)
    done = program("train", "data=toy", "run=a b", "--multirun", "seed=1,2", "model=rnn_none")
    assert done.status == 0, done.err
    assert folders == ["a b-seed=1", "a b-seed=2"]
    repeats = ["translate", "train", "run=a b-seed=2", "data=toy", "seed=2", "model=rnn_none"]
    assert commands[1] == repeats


def test_the_processes_of_a_job_know_of_further_configurations(
    program, monkeypatch, tmp_path: Path
) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    recipe = "# @package _global_\ndefaults:\n  - override /data: toy\nseed: 7\n"
    (tmp_path / "mine" / "experiment" / "own.yaml").write_text(recipe, "utf-8")
    commands: list[list[str]] = []

    def train(config: dict[str, object], run: Path, init: str | None) -> None:
        assert config["seed"] == 7
        commands.append(sys.argv[1:])

    monkeypatch.setattr("translate.training.run.train", train)
    flags = ["--config-dir", "mine", "--multirun"]
    done = program("train", *flags, "experiment=own", "model=rnn_none,transformer", "run=r")
    assert done.status == 0, done.err
    assert [command[:3] for command in commands] == [["train", "--config-dir", "mine"]] * 2


def test_no_job_of_a_sweep_inherits_the_processes_of_another(program, monkeypatch) -> None:
    ranks: list[str | None] = []

    def train(config: object, run: Path, init: str | None) -> None:
        ranks.append(os.environ.get("LOCAL_RANK"))
        os.environ["LOCAL_RANK"] = "0"  # as Lightning does where it starts further processes

    monkeypatch.setattr("translate.training.run.train", train)
    assert program("train", "data=toy", "--multirun", "seed=1,2").status == 0
    assert ranks == [None, None]


def test_a_run_without_a_name_is_called_after_its_choices(program, monkeypatch) -> None:
    folders: list[str] = []
    monkeypatch.setattr(
        "translate.training.run.train", lambda _, run, init: folders.append(str(run))
    )
    program("train", "data=toy", "model=rnn_luong")
    program("train", "experiment=demo")
    assert folders == ["runs/toy-rnn_luong", "runs/demo"]


def test_shares_of_modifiers_beyond_all_pairs_are_refused(program) -> None:
    done = program("prepare", "data=toy", "data.modifiers.upper=0.6", "data.modifiers.signs=0.5")
    assert done.status == 2
    assert "data.modifiers: the shares add up to 1.1" in done.err


def test_examples_of_modifiers_are_printed(program) -> None:
    small = ["data=toy", "data.train=300", "data.dev=8", "data.test=8", "tokenizer=char"]
    done = program("prepare", *small, "data.modifiers.upper=0.1", "show=modifiers")
    assert done.status == 0, done.err
    assert done.out.count("\nupper\n") == 3
    assert "  → " in done.out
    assert "no modifier has a share" in program("prepare", *small, "show=modifiers").out


def test_the_choices_are_listed(program) -> None:
    every = program("models").out
    assert "model=transformer  " in every
    assert "search=beam  " in every
    names = {line.split()[0] for line in every.splitlines() if line}
    assert [name for name in names if "base" in name] == ["experiment=vaswani2017_base"]
    only = program("models", "group=model").out
    assert all(line.startswith("model=") for line in only.splitlines())
    wrong = program("models", "group=modle")
    assert "did you mean model?" in wrong.err
