"""translate train init=…: a run that begins from another, as a person would begin it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from translate.cli.arguments import Job
from translate.cli.train import folder


def node(program, group: str, *arguments: str) -> dict[str, object]:
    done = program("train", "data=toy", *arguments, "-c", "job")
    assert done.status == 0, done.err
    return dict(yaml.safe_load(done.out)[group])


def test_the_network_is_that_of_the_bundle_unless_one_is_chosen(program, trained: Path) -> None:
    assert node(program, "model", f"init={trained}")["d_model"] == 16
    assert node(program, "model", f"init={trained}/bundle", "model.dropout=0.3")["dropout"] == 0.3
    assert node(program, "model", f"init={trained}", "model=transformer")["d_model"] == 256


def test_an_experiment_chooses_no_network_in_place_of_the_bundles(program, trained: Path) -> None:
    toy = (f"init={trained}", "experiment=toy")
    stored = node(program, "model", f"init={trained}")
    assert node(program, "model", *toy) == stored
    assert node(program, "model", *toy, "model.dropout=0.3") == {**stored, "dropout": 0.3}
    chosen = node(program, "model", *toy, "model=transformer")
    assert (chosen["d_model"], chosen["dropout"]) == (128, 0.05)


def test_what_the_bundles_network_does_not_use_is_not_refused_as_if_it_had_been_given(
    program, trained: Path
) -> None:
    toy = ("train", f"init={trained}", "experiment=toy", "run=tuned", "-c", "job")
    done = program(*toy)
    assert done.status == 0, done.err
    typed = program(*toy, "model.window=3")
    assert typed.status == 2
    assert typed.err.startswith("translate: error: model.window has no effect while")


@pytest.fixture
def small(home: Path) -> list[str]:
    return [
        "data=toy", "data.train=100", "data.dev=8", "data.test=8", "data.workers=0",
        "tokenizer.vocab_size=350", "trainer.max_steps=1", "trainer.validation_sentences=2",
        "trainer.samples=0", "trainer.accelerator=cpu", f"cache={home}/data",
    ]  # fmt: skip


def test_a_smaller_vocabulary_takes_over_the_pieces_it_shares(
    program, trained: Path, tmp_path: Path, small: list[str]
) -> None:
    done = program("train", f"init={trained}", "run=tuned", *small)
    assert done.status == 0, done.err
    assert "pieces keep their rows" in done.err
    assert "are not in the vocabulary of the new text, and what was learned about them" in done.err
    record = json.loads((tmp_path / "tuned" / "provenance.json").read_text("utf-8"))
    assert record["init"]["bundle"] == str(trained / "bundle")
    other = program("train", f"init={trained}", "run=other", *small, "model.d_model=32")
    assert other.status == 1
    assert "model.d_model: 16 → 32" in other.err
    unsaid = program("train", f"init={trained}", "run=other", "trainer.max_steps=1")
    assert unsaid.status == 2
    assert "not what to train on: give data= or experiment=" in unsaid.err
    nothing = program("train", "init=nowhere", *small)
    assert nothing.status == 1
    assert "nowhere does not exist: check the path" in nothing.err


def test_the_vocabulary_is_that_of_the_bundle_unless_something_of_one_is_chosen(
    program, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "origin").symlink_to(trained)
    kept = str(tmp_path / "origin" / "bundle")
    before = yaml.safe_load((trained / "config.yaml").read_text("utf-8"))["tokenizer"]
    for given in ([], ["experiment=toy"], ["tokenizer.sampling.alpha=0.2"]):
        found = node(program, "tokenizer", "init=origin", *given)
        assert (found["pretrained"], found["kind"]) == (kept, before["kind"])
    assert node(program, "tokenizer", "init=origin/bundle")["pretrained"] == kept
    for given in (["tokenizer=bpe"], ["tokenizer.vocab_size=99"]):
        assert node(program, "tokenizer", "init=origin", *given)["pretrained"] is None


def test_a_run_with_the_vocabulary_of_another_needs_it_no_more(
    program, trained: Path, tmp_path: Path, small: list[str]
) -> None:
    """The two can be ensembled, and the first may be gone."""
    origin = shutil.copytree(trained, tmp_path / trained.name)
    given = [argument for argument in small if not argument.startswith("tokenizer.")]
    done = program("train", f"init={origin}", "run=tuned", *given)
    assert done.status == 0, done.err
    assert " 0 are new, 0 are lost" in done.err
    spm = (trained / "bundle" / "source.spm").read_bytes()
    assert (tmp_path / "tuned" / "bundle" / "source.spm").read_bytes() == spm
    both = program("text", "run=tuned", f"ensemble={origin}", "device=cpu", "der Hund schläft .")
    assert both.status == 0, both.err
    shutil.rmtree(origin)
    done = program("evaluate", "run=tuned", "data.split=dev", "device=cpu", small[-1])
    assert done.status == 0, done.err
    done = program("train", "run=tuned", "trainer.max_steps=2")
    assert done.status == 0, done.err
    other = "tokenizer.pretrained=nowhere"
    done = program("evaluate", "run=tuned", "data.split=dev", "device=cpu", small[-1], other)
    assert "tokenizer.pretrained = nowhere: there is no source.spm" in done.err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["tokenizer.joint=false"], "tokenizer.joint = false, but the vocabulary of tokenizer.pre"),
        (
            ["tokenizer=bpe"],
            'tokenizer.kind = "bpe", but the vocabulary of tokenizer.pretrained = ',
        ),
        (["data.tag=bt"], "tokenizer.pretrained = origin has no tag bt, which data names: leave"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(
    program, trained: Path, tmp_path: Path, small: list[str], given: list[str], told: str
) -> None:
    (tmp_path / "origin").symlink_to(trained)
    done = program(
        "train", "tokenizer.pretrained=origin", "run=r", "model.tied_embeddings=decoder",
        *small, *given,
    )  # fmt: skip
    assert done.status == 1
    assert told in done.err


def test_what_a_call_that_failed_began_from_holds_for_the_next_with_another_key(
    program, trained: Path, tmp_path: Path, small: list[str]
) -> None:
    failed = program("train", f"init={trained}", "run=tuned", *small, "data.tokens_per_batch=3")
    assert "does not fit a batch of 3 (data.tokens_per_batch): raise it" in failed.err
    done = program("train", "run=tuned", "data.tokens_per_batch=300")
    assert done.status == 0, done.err
    assert f"starting from {trained}/bundle" in done.err
    record = json.loads((tmp_path / "tuned" / "provenance.json").read_text("utf-8"))
    assert record["init"]["bundle"] == str(trained / "bundle")


@pytest.mark.parametrize("init", ["elsewhere/big", "elsewhere/big/bundle"])
def test_the_run_is_called_after_what_it_began_from(init: str) -> None:
    def named(**choices: str) -> str:
        return str(folder(Job(config={}, verbatim={"init": init}, choices=choices)))

    assert named(data="toy", model="stored") == "runs/toy-big"
    assert named(data="toy", model="stored", experiment="demo") == "runs/demo-big"
    gone_on_with = Job(config={}, verbatim={"init": init, "run": "tuned"}, choices={})
    assert folder(gone_on_with) == Path("tuned")
