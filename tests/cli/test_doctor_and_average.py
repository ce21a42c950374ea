"""translate doctor and translate average as commands; what they find is tested elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from translate.cli.doctor import FINDINGS
from translate.errors import UserError
from translate.extras import doctor

TEXT = {
    "train.de": "ein Haus\nein Hund\nder Hund schläft\x07\n" * 2,
    "train.en": "a house\na dog\nthe dog sleeps\n" * 2,
    "dev.de": "ein Hund\n",
    "dev.en": "a dog\n",
    "test.de": "zwei\n",
    "test.en": "two\n",
}


@pytest.fixture
def corpus(tmp_path: Path) -> list[str]:
    for name, text in TEXT.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return ["data=files", "data.source=de", "data.target=en", "data.dev=dev", "data.test=test"]


def test_findings_are_told_and_kept(program, corpus, tmp_path: Path) -> None:
    done = program("doctor", *corpus, "json=found, =.json", "lines=1")
    assert done.status == 0, done.err
    assert done.out.startswith("pairs: train 6, dev 1, test 1\n")
    assert "training text in dev or test (train 2): " in done.out
    assert "  train line 2  both sides are dev line 1\n    ein Hund\n    a dog\n" in done.out
    assert "suggested: tokenizer.vocab_size=" in done.out
    assert re.search(
        r"only \d+% of its pieces occur 100 times, not 95%: there is little text", done.out
    )
    found = json.loads((tmp_path / "found, =.json").read_text("utf-8"))
    checks = {finding["check"]: finding for finding in found["findings"]}
    assert set(checks) == {"duplicate", "overlap", "characters"}
    assert [line["number"] for line in checks["duplicate"]["lines"]] == [4, 5, 6]
    assert found["advice"]["unseen_words"] == {"source": 0.0, "target": 0.0}


def test_further_text_is_examined_as_text_to_train_on(program, corpus, tmp_path: Path) -> None:
    (tmp_path / "more.de").write_text("ein Hund\nein Tag\x07\nein Berg\n", encoding="utf-8")
    (tmp_path / "more.en").write_text("a dog\na day\na <b>hill\n", encoding="utf-8")
    done = program("doctor", *corpus, "data.extra={more: {source: more.de, target: more.en}}")
    assert done.status == 0, done.err
    assert done.out.startswith("pairs: train 6, dev 1, test 1, extra.more 3\n")
    assert "training text in dev or test (extra.more 1): " in done.out
    assert "  extra.more line 1  both sides are dev line 1\n" in done.out
    assert "strange characters (train 2): " in done.out
    assert "strange characters (extra.more 2): " in done.out
    done = program("doctor", *corpus, "data.extra={more: {source: no.de, target: more.en}}")
    assert (done.status, done.out) == (1, "")
    assert "no.de cannot be read (No such file or directory)" in done.err


def test_a_tag_may_stand_for_another_language(program, corpus, tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    german = "Die Regierung hat gestern beschlossen, dass alle Schulen länger geöffnet bleiben."
    french = (
        "Le gouvernement a décidé hier que toutes les écoles resteront ouvertes plus longtemps."
    )
    (tmp_path / "more.de").write_text(f"{german}\n", encoding="utf-8")
    (tmp_path / "more.fr").write_text(f"{french}\n", encoding="utf-8")
    told = []
    for tag in ("", ", tag: fr"):
        extra = f"data.extra={{more: {{source: more.de, target: more.fr{tag}}}}}"
        told.append("another language (extra.more 1)" in program("doctor", *corpus, extra).out)
    assert told == [True, False]


def test_findings_are_told_and_kept_where_nothing_can_be_advised(
    program, corpus, tmp_path: Path
) -> None:
    for name in ("train.de", "train.en"):
        (tmp_path / name).write_text("\n\n", encoding="utf-8")
    done = program("doctor", *corpus, "json=found.json")
    assert done.status == 1
    assert done.out.startswith("pairs: train 2, dev 1, test 1\nan empty side (train 2): ")
    assert done.err.endswith(
        "error: no vocabulary can be learned from this text: it is too short\n"
    )
    found = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert [finding["check"] for finding in found["findings"]] == ["empty", "duplicate"]
    assert found["advice"] is None


@pytest.mark.parametrize(
    ("names", "status", "told"),
    [
        ("overlap, empty", 1, "fail_on: there are findings of the kinds overlap\n"),
        ("any", 1, "findings of the kinds duplicate, overlap, characters\n"),
        ("stray,empty", 0, ""),
    ],
)
def test_findings_that_are_named_fail(program, corpus, names: str, status: int, told: str) -> None:
    done = program("doctor", *corpus, f"fail_on={names}")
    assert (done.status, "suggested: tokenizer.vocab_size=" in done.out) == (status, True)
    assert done.err.endswith(told)


def test_every_finding_can_be_named() -> None:
    folder = Path(doctor.__file__).parent
    code = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    assert sorted(re.findall(r'Finding\(\s*"(\w+)"', code)) == sorted(FINDINGS)


def test_a_place_for_the_findings_is_looked_for_before_the_text_is_read(
    program, corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("translate.extras.doctor.examine", lambda *_: pytest.fail("it was read"))
    done = program("doctor", *corpus, "json=train.de/found.json")
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "cannot write to train.de: File exists" in done.err


def test_an_average_stands_beside_its_run_however_that_is_named(
    program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(
        "translate.extras.checkpoint_average.average_checkpoints",
        lambda run, steps, output: made.append(output),
    )
    monkeypatch.setattr("translate.extras.checkpoint_average.choose", lambda *_, **__: [4])
    (tmp_path / "runs" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "runs" / "a")
    for run in (".", "../a", str(tmp_path / "runs" / "a")):
        assert program("average", f"run={run}").status == 0
    assert {path.resolve() for path in made} == {tmp_path / "runs" / "a-last_5"}


def test_an_average_has_its_configuration_before_its_bundle(
    program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in between, it would be a run without a corpus."""
    there: list[list[str]] = []

    def failing(run: Path, steps: list[int], output: Path) -> None:
        there.append([path.name for path in output.iterdir()])
        raise UserError("no space")

    monkeypatch.setattr("translate.extras.checkpoint_average.average_checkpoints", failing)
    monkeypatch.setattr("translate.extras.checkpoint_average.choose", lambda *_, **__: [4])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.yaml").write_text("data: {}")
    assert program("average", "run=a", "output=b").status == 1
    assert there == [["config.yaml"]]
    assert not (tmp_path / "b").exists(), "or a second attempt would be refused"


def test_preparing_begins_with_a_short_look(program, corpus, tmp_path: Path) -> None:
    text = [*corpus, "tokenizer=char", "tokenizer.vocab_size=300", f"cache={tmp_path}/cache"]
    done = program("prepare", *text)
    assert done.status == 0, done.err
    assert "strange characters (train 2): run translate doctor with the same settings" in done.err
    assert done.out.startswith("Suspicious: strange characters (train 2)\n")
    again = program("prepare", *text)
    assert (again.out, again.err) == (done.out, ""), "a prepared corpus remembers"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["average", "run=x", "checkpoints=all"], "checkpoints = 'all': write last_5 or best_5"),
        (["average", "run=x", "output=."], "output=. exists: name another folder"),
        (["average", "run=nowhere"], "nowhere does not exist: give the folder of a run"),
        (["average", "run=.."], ".. has kept 0 checkpoints, but averaging needs 5"),
        (["doctor", "data=files"], "data.source is missing"),
        (["doctor", "data=toy", "json=."], "cannot write .: it is a folder"),
        (
            ["doctor", "data=toy", "fail_on=swaped"],
            "fail_on = swaped: choose from any, unreadable,",
        ),
    ],
)
def test_slips_are_told_in_a_line(program, arguments, line) -> None:
    done = program(*arguments)
    assert done.status in (1, 2)
    assert done.out == ""
    assert line in done.err
