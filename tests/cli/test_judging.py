"""What a translation is judged by beside its references."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.text import Text

from translate.cli.streams import show
from translate.evaluation.report import Comet

LETTERS = "abcdefghijklmnopqrst"


def test_what_is_printed_is_cut_for_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who searches a log or a pipe looks for a signature or a sentence as a whole."""
    line = "word " * 200 + "end"
    show(Text(line))
    assert capsys.readouterr().out == f"{line}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    show(Text(line))
    assert max(map(len, capsys.readouterr().out.split("\n"))) <= 60


def figures(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def test_scores_by_a_column_of_the_corpus(program, run: str, tmp_path: Path) -> None:
    """Of a corpus that names domains, whether the run was trained on it or not."""
    rows = [(f"{a}{b}", f"{a}{b} x", "talk" if b < "k" else "news") for a in "ab" for b in LETTERS]
    (tmp_path / "t.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
    done = program(
        "evaluate", run, "output=here", "cache=here", "tokenizer=char", "data=tsv",
        "data.train=t.tsv", "data.source=de", "data.target=en", "data.columns={de: 1, en: 2}",
        "data.domain=3", "data.hold_out={dev: 5, test: 8}",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "by domain" in done.out
    (told,) = (tmp_path / "here").glob("test-*.json")  # `test` is kept for the run's own
    found = figures(told)["domains"]
    assert {part["label"] for part in found} == {"talk", "news"}
    assert sum(part["items"] for part in found) == 8
    assert figures(told)["rarest_word"] == [], "trained on other words"
    assert "By domain" in told.with_suffix(".html").read_text("utf-8")
    (sentences,) = (tmp_path / "here").glob("test-*.sentences.jsonl")
    first = json.loads(sentences.read_text("utf-8").split("\n")[0])
    assert first["domain"] == {row[0]: row[2] for row in rows}[first["source"]]


def test_scores_by_a_file_of_labels(program, run: str, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("der Hund\nein Haus\n", encoding="utf-8")
    (tmp_path / "r").write_text("the dog\na house\n", encoding="utf-8")
    (tmp_path / "d").write_text("animals\nplaces\n", encoding="utf-8")
    files = ["input=s", "reference=r", "output=here"]
    done = program("evaluate", run, *files, "domains=d")
    assert done.status == 0, done.err
    labels = [part["label"] for part in figures(tmp_path / "here" / "s.json")["domains"]]
    assert labels == ["animals", "places"]
    assert "sentences = 2 is too few for an interval: give 20 or more" in done.err
    (tmp_path / "d").write_text("animals\n", encoding="utf-8")
    done = program("evaluate", run, *files, "domains=d")
    assert done.status == 1
    assert "1 domain for 2 sentences" in done.err


@pytest.mark.parametrize("command", ["evaluate", "verify", "compare"])
def test_a_corpus_is_not_named_beside_files(program, trained: Path, run: str, command) -> None:
    which = [run] if command != "compare" else [str(trained), str(trained / "bundle" / "..")]
    for key in ("data.split=dev", "data=toy", "tokenizer.vocab_size=9"):
        done = program(command, *which, "input=s", "reference=r", key)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert f"{key.partition('=')[0]}= and input= cannot be combined: " in done.err


def test_an_empty_test_set_is_told_as_that(program, run: str) -> None:
    for name in ("s", "r"):
        Path(name).write_bytes(b"")
    done = program("evaluate", run, "input=s", "reference=r")
    assert done.status == 1
    assert "s has no sentences: there is nothing to score" in done.err


def test_other_sentences_of_the_same_name_do_not_take_the_place(
    program, run: str, trained: Path, tmp_path: Path
) -> None:
    """`test` is the name of the run's own, and test sets are often files of one name."""
    for year, line in (("2014", "the dog"), ("2015", "a house")):
        (tmp_path / year).mkdir()
        (tmp_path / year / "test").write_text("der Hund\n", encoding="utf-8")
        (tmp_path / year / "src.de").write_text("der Hund\n", encoding="utf-8")
        (tmp_path / year / "ref").write_text(f"{line}\n", encoding="utf-8")
    stored = trained / "evaluation"
    for name in ("test", "src.de"):
        for year in ("2014", "2015"):
            files = [f"input={year}/{name}", f"reference={year}/ref"]
            done = program("evaluate", run, *files, "resamples=2", "attention=[]")
            assert done.status == 0, done.err
        assert "already belongs to other sentences" in done.err
        assert program("verify", run, *files).status == 0
    assert not (stored / "test.json").exists()
    assert len(list(stored.glob("test-*.json"))) == 2
    assert {path.name[:6] for path in stored.glob("src*.json")} == {"src.de"}
    assert len(list(stored.glob("src*.json"))) == 2


def test_the_tokenizer_of_bleu_is_kept_and_verified(
    program, run: str, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "zh").write_text("der Hund\n", encoding="utf-8")
    (tmp_path / "r").write_text("狗\n", encoding="utf-8")
    files = ["input=zh", "reference=r"]
    done = program("evaluate", run, *files, "tokenize=zh", "resamples=2", "attention=[]")
    assert done.status == 0, done.err
    found = figures(trained / "evaluation" / "zh.json")
    assert found["tokenize"] == "zh"
    for place in (found["bleu"], found["confidence"]["bleu"]):
        assert "tok:zh" in place["signature"]
    assert program("verify", run, *files).status == 0
    done = program("evaluate", run, *files, "tokenize=hz")
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "BLEU tokenizer 'hz' is unknown" in done.err


def test_comet_is_told_beside_the_other_scores(
    program, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s").write_text("der Hund\nein Haus\n", encoding="utf-8")
    (tmp_path / "r").write_text("the dog\na house\n", encoding="utf-8")
    files = ["input=s", "reference=r", "output=here", "device=cpu"]
    done = program("evaluate", run, *files, "comet=no where, =x")
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "comet = no where, =x" in done.err
    assert not (tmp_path / "here").exists(), "it was evaluated for nothing"

    judged = Comet([0.5, 0.75], "wmt-da", "ab" * 32, 1, "2.2.7")
    stand_in = SimpleNamespace(judge=lambda sources, hypotheses, references: judged)
    monkeypatch.setattr("translate.extras.comet.CometModel", lambda path, device: stand_in)
    done = program("evaluate", run, *files, "comet=model")
    assert done.status == 0, done.err
    assert "COMET" in done.out
    assert "0.6250" in done.out
    assert figures(tmp_path / "here" / "s.json")["comet"] == judged.as_dict()
    lines = (tmp_path / "here" / "s.sentences.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["comet"] for line in lines] == [0.5, 0.75]
    assert "model:wmt-da" in (tmp_path / "here" / "s.html").read_text("utf-8")


def test_sentences_of_standard_input_have_a_name(program, run: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_text("the dog\n", encoding="utf-8")
    files = ["input=-", "reference=r", "output=here", "resamples=2"]
    done = program("evaluate", run, *files, stdin=b"der Hund\n")
    assert done.status == 0, done.err
    assert {path.name.partition(".")[0] for path in (tmp_path / "here").iterdir()} == {"stdin"}
    assert program("verify", run, *files[:3], stdin=b"der Hund\n").status == 0


def test_a_blank_line_among_several_references_is_none(program, run: str, tmp_path: Path) -> None:
    """As one of length 0 it would spare a short translation the brevity penalty."""
    for name, lines in (("s", "der Hund\nein Haus\n\n"), ("r1", "the dog\na house\n\n"),
                        ("r2", "\n \n\n"), ("r3", "\n\n\n")):  # fmt: skip
        (tmp_path / name).write_text(lines, encoding="utf-8")
    scores = {}
    for given in (["r1"], ["r1", "r2"], ["r2", "r1"], ["r3", "r2"], ["r3"]):
        files = ["input=s", *(f"reference={name}" for name in given)]
        done = program("evaluate", run, *files, f"output=of-{''.join(given)}", "resamples=2")
        assert done.status == 0, done.err
        report = json.loads((tmp_path / f"of-{''.join(given)}" / "s.json").read_text("utf-8"))
        scores["".join(given)] = [report[key] for key in ("bleu", "chrf", "ter", "likelihood")]
        told = "2 of 3 sentences have a blank reference, which counts as a reference of length 0"
        assert (told in done.err) is ("r1" not in given)
    assert scores["r1"] == scores["r1r2"] == scores["r2r1"]
    assert scores["r3r2"] == scores["r3"]


def test_scores_of_changed_sentences_are_shown_and_kept(program, run: str) -> None:
    Path("s").write_text("Der Hund schläft .\nDie Katze schläft .\n", encoding="utf-8")
    Path("r").write_text("the dog sleeps .\nthe cat sleeps .\n", encoding="utf-8")
    keys = ["input=s", "reference=r", "output=scores", "modifiers=upper,unpunctuated"]
    done = program("evaluate", run, *keys)
    assert done.status == 0, done.err
    assert "as people's text differs" in done.out
    modified = json.loads(Path("scores", "s.json").read_text("utf-8"))["modified"]
    assert [each["modifier"] for each in modified] == ["upper", "unpunctuated"]
    wrong = program("evaluate", run, *keys[:3], "modifiers=upper,titel")
    assert wrong.status == 2
    assert "modifiers.1 = 'titel': must be 'upper', 'title'" in wrong.err
