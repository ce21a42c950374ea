"""translate compare: on runs that have been evaluated, on those that have not, and on bad ones."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from copy import deepcopy
from functools import reduce
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import yaml

from translate.data import corpus
from translate.extras import compared_runs
from translate.training import records


@pytest.fixture(scope="module")
def runs(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two seeds of one experiment, which have the same weights."""
    folder = tmp_path_factory.mktemp("runs, =")
    for seed in (1, 2):
        run = folder / f"toy-seed={seed}"
        for name in ("bundle", "config.yaml"):
            copy = shutil.copytree if (trained / name).is_dir() else shutil.copy
            run.mkdir(exist_ok=True)
            copy(trained / name, run / name)
        config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
        (run / "config.yaml").write_text(yaml.safe_dump(config | {"seed": seed}))
    return folder


def only(folder: Path, pattern: str) -> dict:
    """The figures in the one file that matches."""
    (path,) = folder.glob(pattern)
    return json.loads(path.read_text("utf-8"))


FAST = ("resamples=20", "trials=20")


def test_what_is_missing_is_evaluated_and_what_is_there_is_used(
    program, runs: Path, home: Path
) -> None:
    names = [f"{runs}/toy-seed=1", f"{runs}/toy-seed=2"]
    for name in names:  # what another test has left
        shutil.rmtree(Path(name) / "evaluation", ignore_errors=True)
    first = program("compare", *names, *FAST, f"cache={home}/data")
    assert first.status == 0, first.err
    for number, name in enumerate(names, start=1):
        assert f"evaluating {name} on test ({number} of 2)\n" in first.err
    assert "translates every sentence as" not in first.out  # seeds are not rivals
    assert "over 2 seeds (mean and standard deviation).\n" in first.out
    assert "± 0.00" in first.out
    folder = runs / "toy-seed=1" / "evaluation"
    figures = only(folder, "test-against-toy-seed=2-*.json")
    assert figures["experiments"][0]["runs"] == names
    assert len(list(folder.glob("test-against-toy-seed=2-*.html"))) == 1
    command = json.loads((folder / "test.json").read_text("utf-8"))["command"]
    ours = "resamples=20 " + shlex.quote(f"cache={home}/data")
    assert command == f"translate evaluate 'run={names[0]}' data.split=test {ours}"
    again = program("compare", str(runs), *FAST, f"cache={home}/data")
    assert again.status == 0, again.err
    assert "evaluating" not in again.err
    assert again.out == first.out, "a folder of runs stands for them"


def test_standard_output_is_a_table_alone_where_one_is_asked_for(
    program, runs: Path, home: Path
) -> None:
    arguments = (str(runs), *FAST, f"cache={home}/data")
    done = program("compare", *arguments, "table=csv")
    assert done.status == 0, done.err
    heading, row = done.out.splitlines()
    assert heading.startswith("system,seeds,bleu,bleu spread,chrf,")
    assert ",2," in row
    assert "over 2 seeds (mean and standard deviation)." in done.err


def test_runs_into_different_languages_are_told(program, runs: Path, tmp_path: Path) -> None:
    from translate.inference import bundle

    (tmp_path / "s").write_text("der Hund\n", encoding="utf-8")
    one = str(runs / "toy-seed=1")
    loaded = bundle.load(Path(one) / "bundle")
    config = loaded.config
    bundle.save(
        tmp_path / "other" / "bundle", node=config.model,
        model=loaded.model, tokenizers=loaded.tokenizers, languages=("fr", "es"),
        search=config.search, extra=config.extra, taught=config.taught,
    )  # fmt: skip
    text = ["input=s", "reference=s", "output=judged", *FAST]
    done = program("compare", one, "other", *text)
    assert done.status == 0, done.err
    told = f"other translates fr → es, but {one} de → en: scores are only comparable"
    assert any(told in caveat for caveat in _caveats(tmp_path / "judged"))
    assert "only comparable within one language" in " ".join(done.out.split())
    assert "only comparable" not in program("compare", str(runs), *text).out


def test_sentences_that_a_run_was_trained_on_are_told(
    program, trained: Path, home: Path, tmp_path: Path
) -> None:
    without = shutil.ignore_patterns("evaluation")  # of other tests
    one, other = (str(shutil.copytree(trained, tmp_path / name, ignore=without)) for name in "ab")
    text = corpus.load(home / "data" / "corpora" / records.noted(trained, "corpus")["corpus"])
    for name, column in (("s", "source"), ("r", "target")):
        trained_on = [
            x.replace(" ", "  ").upper() for x in text.train.column(column)[:3].to_pylist()
        ]
        lines = [*trained_on, "something else"]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    few = ["input=s", "reference=r", f"cache={home}/data", "resamples=10"]
    done = program("compare", one, other, *few, "output=judged")
    assert done.status == 0, done.err
    caveats = _caveats(tmp_path / "judged")
    for run in (one, other):
        assert any(
            f"3 of these 4 sentences are in the training text of {run}" in c for c in caveats
        )
    assert any("resamples = 10 is too few" in caveat for caveat in caveats)
    told = f"3 of 4 sentences are in the training text of {one}"
    evaluated = program("evaluate", f"run={one}", *few, "output=evaluated")
    assert told in evaluated.err
    assert "in the training text" not in program("evaluate", f"run={one}", f"cache={home}/data").err


def _caveats(folder: Path) -> list[str]:
    (path,) = folder.glob("s-against-*.json")
    figures = json.loads(path.read_bytes())
    assert figures["command"].startswith("translate compare ")
    assert figures["seed"] == 12345
    assert all(run["sha256"]["model"] for run in figures["runs"])
    found: list[str] = figures["caveats"]
    return found


def test_files_of_ones_own_with_several_references(program, runs: Path, tmp_path: Path) -> None:
    for name, lines in [("s", "der Hund\nein Haus\n"), ("r1", "the dog\na house\n"),
                        ("r2", "a dog\nthe house\n")]:  # fmt: skip
        (tmp_path / name).write_text(lines, encoding="utf-8")
    text = ["input=s", "reference=r1", "reference=r2"]
    done = program("compare", str(runs), *text, *FAST, "output=judged")
    assert done.status == 0, done.err
    figures = only(tmp_path / "judged", "s-against-toy-seed=2-*.json")
    assert figures["runs"][0]["bleu"]["signature"].startswith("nrefs:2")
    first = (runs / "toy-seed=1" / "evaluation" / "s.json").read_bytes()
    done = program("compare", str(runs), *text[:-1], *FAST, "output=judged")
    assert done.status == 0, done.err
    assert "toy-seed=1 on s-" in done.err
    assert (runs / "toy-seed=1" / "evaluation" / "s.json").read_bytes() == first
    assert len(list((tmp_path / "judged").glob("*.json"))) == 2


def test_the_test_sentences_of_another_run_do_not_take_the_place_of_its_own(
    program, runs: Path, home: Path, tmp_path: Path
) -> None:
    for number, name in enumerate(("a", "b")):
        shutil.copytree(runs / "toy-seed=1" / "bundle", tmp_path / name / "bundle")
        config = yaml.safe_load((runs / "toy-seed=1" / "config.yaml").read_text("utf-8"))
        config["data"]["seed"] += number
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    arguments = ("compare", "a", "b", *FAST, f"cache={home}/data")
    for evaluated in ("evaluating b on test", ""):
        done = program(*arguments)
        assert done.status == 0, done.err
        assert evaluated in done.err
    assert "evaluating" not in done.err, "what is there is found again"
    assert (tmp_path / "a" / "evaluation" / "test.json").is_file()
    assert not (tmp_path / "b" / "evaluation" / "test.json").exists()
    figures = only(tmp_path / "b" / "evaluation", "test-*.json")
    assert shlex.split(figures["command"]) == ["translate", *arguments]
    assert figures["rarest_word"] == [], "its own training had other words"
    assert only(tmp_path / "a" / "evaluation", "test.json")["rarest_word"] != []


def test_runs_of_one_corpus_may_be_batched_apart(
    program, runs: Path, home: Path, tmp_path: Path
) -> None:
    """And where a bundle is named, what is written of its run lies outside it."""
    for number, name in enumerate(("a", "b")):
        shutil.copytree(runs / "toy-seed=1" / "bundle", tmp_path / name / "bundle")
        config = yaml.safe_load((runs / "toy-seed=1" / "config.yaml").read_text("utf-8"))
        config["data"]["tokens_per_batch"] += number
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    before = sorted(tmp_path.glob("?/bundle/**/*"))
    done = program("compare", "a/bundle", "b/bundle", *FAST, f"cache={home}/data")
    assert done.status == 0, done.err
    for name in ("a", "b"):
        figures = json.loads((tmp_path / name / "evaluation" / "test.json").read_text("utf-8"))
        assert figures["rarest_word"] != []
        command = shlex.split(figures["command"])[:4]
        ours = f"run={tmp_path / name}"
        assert command == ["translate", "evaluate", ours, "data.split=test"]
    assert sorted(tmp_path.glob("?/bundle/**/*")) == before


def test_an_average_and_a_fine_tuned_run_are_no_seeds(
    program, runs: Path, home: Path, tmp_path: Path
) -> None:
    for seed, name in enumerate(("base", "mean", "tuned")):
        shutil.copytree(runs / "toy-seed=1", tmp_path / name)
        config = yaml.safe_load((tmp_path / name / "config.yaml").read_text("utf-8"))
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(config | {"seed": seed}))
    bundle = tmp_path / "mean" / "bundle"
    card = json.loads((bundle / "config.json").read_text("utf-8"))
    (bundle / "config.json").write_text(json.dumps(card | {"extra": {"mean of": "base"}}))
    sums = json.loads((bundle / "checksums.json").read_text("utf-8"))
    sums["config.json"] = hashlib.sha256((bundle / "config.json").read_bytes()).hexdigest()
    (bundle / "checksums.json").write_text(json.dumps(sums))
    (tmp_path / "tuned" / "provenance.json").write_text(
        json.dumps({"status": "finished", "init": {"bundle": "base/bundle"}}), encoding="utf-8"
    )
    shutil.copytree(tmp_path / "mean", tmp_path / "longer mean")  # of the same run, so of its seed
    done = program("compare", "base", "mean", "longer mean", "tuned", *FAST, f"cache={home}/data")
    assert done.status == 0, done.err
    assert "over seeds" not in done.out
    assert "has the same seed as" not in done.out
    for name in ("mean", "longer mean", "tuned"):
        assert f"{name} translates every sentence as base does." in done.out


def test_seeds_of_an_experiment_differ_in_nothing_that_changes_the_result(
    runs: Path, tmp_path: Path
) -> None:
    written = yaml.safe_load((runs / "toy-seed=1" / "config.yaml").read_text("utf-8"))

    def experiment(key: str = "seed", value: object = 7, text: str = "one", **facts: object) -> str:
        run = tmp_path / f"{key}-{value}-{text}-{facts}"
        shutil.copytree(runs / "toy-seed=1", run)
        config = deepcopy(written)
        *nodes, last = key.split(".")
        reduce(dict.__getitem__, nodes, config)[last] = value
        (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        record = {"status": "finished", "corpus": {"corpus": text}} | facts
        (run / "provenance.json").write_text(json.dumps(record), encoding="utf-8")
        return compared_runs.experiment(run)

    first = experiment()
    for key in ("trainer.log_every", "trainer.threads", "trainer.max_minutes", "trainer.compile",
                "data.workers", "data.dir", "cache"):  # fmt: skip
        assert experiment(key) == first, key
    for key in ("trainer.max_steps", "trainer.max_epochs", "trainer.patience", "trainer.devices",
                "trainer.num_nodes", "trainer.accumulate", "data.seed"):  # fmt: skip
        assert experiment(key) != first, key
    assert experiment(text="another") != first, "the files of a folder may have changed"
    auto = {
        numbers: experiment("trainer.precision", "auto", precision=numbers)
        for numbers in ("bf16-mixed", "32-true")
    }
    assert auto["bf16-mixed"] != auto["32-true"] == first, "what auto came to is what counts"
    sizes = [
        experiment("data.tokens_per_batch", "auto", tokens_per_batch=size) for size in (512, 1024)
    ]
    assert sizes[0] != sizes[1]
    starts = [experiment("trainer.averaging.start", start) for start in (None, 0.0, 0.75)]
    assert starts[0] == starts[1] != starts[2], "null is 0 for what the tests train with"
    assert experiment("tokenizer.pretrained", "elsewhere") == first, "its pieces are in the record"


def test_the_circumstances_of_a_run_are_those_of_all_its_calls(tmp_path: Path) -> None:
    commits = ("ab" * 20, "ab" * 20, "cd" * 20 + "+")  # the last was changed
    calls = [{"commit": commit, "versions": {"torch": "2.13"}} for commit in commits]
    record = {"status": "finished", "device": "H100", **calls[0], "calls": calls[1:]}
    (tmp_path / "provenance.json").write_text(json.dumps(record), encoding="utf-8")
    assert compared_runs.circumstances(tmp_path) == {
        "commit": "ababababab then cdcdcdcdcd+", "device": "H100", "torch": "2.13",
    }  # fmt: skip
    assert compared_runs.circumstances(tmp_path / "without a record") == {}


def test_another_model_is_evaluated_again(program, runs: Path, home: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(runs / "toy-seed=1" / "bundle", tmp_path / name / "bundle")
    shutil.copy(runs / "toy-seed=1" / "config.yaml", tmp_path / "a")
    arguments = ("compare", "a", "b", *FAST, f"cache={home}/data")
    assert program(*arguments).status == 0
    evaluation = tmp_path / "a" / "evaluation" / "test.json"
    figures = json.loads(evaluation.read_text("utf-8"))
    figures["sha256"]["model"] = "another"
    evaluation.write_text(json.dumps(figures), encoding="utf-8")
    done = program(*arguments)
    assert done.status == 0, done.err
    assert "the model of a has changed since its evaluation: evaluating it again" in done.err
    assert "b translates every sentence as a does." in done.out


def test_what_is_missing_of_a_run_that_cannot_be_written_to_goes_below_the_output(
    program, runs: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a training without a bundle in a folder of runs is left out by name."""
    for name in ("all/a", "all/ro"):
        shutil.copytree(runs / "toy-seed=1" / "bundle", tmp_path / name / "bundle")
        shutil.copy(runs / "toy-seed=1" / "config.yaml", tmp_path / name)
    (tmp_path / "all" / "stopped").mkdir()
    shutil.copy(runs / "toy-seed=1" / "config.yaml", tmp_path / "all" / "stopped")

    def refuse(dir: Path) -> object:
        if "ro" in Path(dir).parts:
            raise PermissionError(13, "Permission denied")
        return TemporaryFile(dir=dir)

    monkeypatch.setattr("translate.files.TemporaryFile", refuse)
    arguments = ("compare", "all", *FAST, f"cache={home}/data", "output=cmp")
    done = program(*arguments)
    assert done.status == 0, done.err
    assert done.err.count("left out, because they have no bundle: all/stopped\n") == 1
    assert not list(tmp_path.glob("**/ro/evaluation/*"))
    assert (tmp_path / "all" / "a" / "evaluation" / "test.json").is_file(), "as before"
    assert "evaluating all/ro on test (2 of 2), into cmp/ro-" in done.err
    assert len(list((tmp_path / "cmp").glob("ro-*/test.json"))) == 1
    again = program(*arguments)
    assert (again.status, again.out) == (0, done.out)
    assert "evaluating" not in again.err, "what is there is found again"
    done = program("compare", "all/ro", "all/a", *FAST, f"cache={home}/data")
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "cannot write to all/ro/evaluation: Permission denied; " in done.err


def test_an_evaluation_of_more_than_the_run_is_not_taken_for_it(
    program, runs: Path, home: Path, tmp_path: Path
) -> None:
    """Nor one whose files have changed; it is told before another is evaluated, and kept."""
    for name in ("a", "b"):
        shutil.copytree(runs / "toy-seed=1" / "bundle", tmp_path / name / "bundle")
        shutil.copy(runs / "toy-seed=1" / "config.yaml", tmp_path / name)
    cache = f"cache={home}/data"
    stored = tmp_path / "b" / "evaluation" / "test.json"
    compare = ("compare", "a", "b", *FAST, cache)
    (tmp_path / "words").write_text("Hund\tdog\n", encoding="utf-8")

    assert program("evaluate", "run=b", "ensemble=a", cache).status == 0
    before = stored.read_bytes()
    done = program(*compare)
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "test.json is the evaluation of an ensemble, b with a: evaluate b again" in done.err
    assert stored.read_bytes() == before
    assert not (tmp_path / "a" / "evaluation" / "test.json").exists()
    ensemble = json.loads(before)["sha256"]["ensemble"]
    assert len(ensemble) == 64

    replacing = ("replace_unknown=true", "dictionary=words")
    assert program("evaluate", "run=b", *replacing, cache).status == 0
    done = program(*compare)
    assert done.status == 0, done.err
    assert "dictionary None, words" in " ".join(done.out.split()), "the search says what it is"
    (tmp_path / "words").write_text("Hund\tcat\n", encoding="utf-8")
    done = program(*compare)
    assert done.status == 1
    assert "the dictionary changed since b/evaluation/test.json was written: repeat" in done.err


def test_what_cannot_be_compared_is_told_before_a_run_is_evaluated(
    program, runs: Path, home: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "toy-seed=1" / "bundle", tmp_path / "a" / "bundle")
    shutil.copy(runs / "toy-seed=1" / "config.yaml", tmp_path / "a")
    second, cache = f"{runs}/toy-seed=2", f"cache={home}/data"
    for slip, line in (
        (["a", "nowhere"], "nowhere does not exist: check the path"),
        (["a", second, f"output={tmp_path}/a/config.yaml"], "config.yaml: File exists"),
    ):
        done = program("compare", *slip, *FAST, cache)
        assert done.status == 1
        assert line in done.err
        assert done.err.count("\n") == 1
    assert not (tmp_path / "a" / "evaluation").exists()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "give at least two runs, as in translate compare runs/a runs/b"),
        (["{0}/toy-seed=1"], "toy-seed=1 is one run: name another"),
        (["{0}/toy-seed=1", "{0}/toy-seed=1/"], "toy-seed=1 is named twice"),
        (["{0}", "trails=9"], "trails is not a key; did you mean trials?"),
        (["{0}", "reference=x"], "input=FILE is missing"),
    ],
)
def test_slips_are_told_in_a_line(program, runs: Path, arguments, line) -> None:
    done = program("compare", *(argument.format(runs) for argument in arguments))
    assert done.status in (1, 2)
    assert done.out == ""
    assert line in done.err
    assert done.err.count("\n") == 1
