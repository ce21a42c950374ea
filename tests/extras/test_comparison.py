"""Runs side by side: verdicts, caveats, experiments of several seeds, tables and the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from translate.evaluation.metrics import intervals
from translate.evaluation.report import Likelihood
from translate.extras.comparison import Comparison, as_csv, compare, render
from translate.extras.pages import comparison_page
from translate.extras.seeds import System, _common_name, seed_scores
from translate.extras.significance import holm, welch
from translate.extras.word_diff import word_diff

SOURCES = [f"der Hund sieht Haus {i}" for i in range(12)]
REFERENCES = [[f"the dog sees house {i}"] for i in range(12)]
RIGHT = [item[0] for item in REFERENCES]
WRONG = [text.replace("dog", "cat").replace("sees", "<b>eats</b>") for text in RIGHT]
NEARLY = [*RIGHT[:-1], "a dog sees house 11"]


def system(
    name: str, hypotheses: Sequence[str], experiment: str | None = None, beam: int = 5
) -> System:
    search = {"kind": "beam", "beam_size": beam}
    _, _, seed = name.partition("-seed=")
    return System(
        name, hypotheses, Likelihood(-40.0, 60, 200), search, experiment or name, int(seed or 1)
    )


def judged(*systems: System, shown: int = 3) -> Comparison:
    return compare(
        systems, SOURCES, REFERENCES, split="test", resamples=100, trials=200, seed=1, shown=shown
    )


def told(comparison: Comparison) -> list[str]:
    """The caveats but for the one of systems that were trained once, as most are here."""
    return [caveat for caveat in comparison.caveats if not caveat.startswith("Trained once: ")]


def terminal(comparison: Comparison) -> str:
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(render(comparison))
    return console.export_text()


def test_a_better_run_is_told_in_a_sentence() -> None:
    (said,) = judged(system("runs/a", WRONG), system("runs/b", RIGHT)).verdicts
    assert said.startswith("runs/b is better than runs/a by ")
    assert (
        ", and these two models would differ in the same way on other sentences of this kind: "
        in said
    )
    assert said.endswith("; chrF agrees.")
    (said,) = judged(system("runs/a", RIGHT), system("runs/b", NEARLY)).verdicts
    assert said.startswith("The difference of ")
    assert "may be chance" in said
    (said,) = judged(system("a", RIGHT), system("b", RIGHT)).verdicts
    assert said == "b translates every sentence as a does."


def test_a_system_that_was_trained_once_is_told_and_one_of_several_seeds_is_not() -> None:
    """Two seeds of one configuration may differ by as much as the tests call certain."""
    found = judged(system("a", WRONG), system("b", RIGHT))
    (caveat,) = found.caveats
    assert caveat.startswith("Trained once: a, b. The tests say nothing about other seeds, ")
    assert "Trained once: a, b. The tests" in terminal(found)
    assert "real" not in " ".join([*found.caveats, *found.verdicts, comparison_page(found)])
    seeds = [system(f"x-seed={n}", text, "x") for n, text in enumerate([RIGHT, NEARLY])]
    assert judged(*seeds).caveats == []
    assert judged(*seeds, system("a", WRONG)).caveats[0].startswith("Trained once: a. ")


def test_a_run_beside_an_experiment_is_judged_by_the_spread_of_its_seeds() -> None:
    texts = [RIGHT, [*RIGHT[:-1], "z"], [*RIGHT[:-1], "z z"]]
    seeds = [system(f"x-seed={n}", text, "x") for n, text in enumerate(texts)]
    for runs in ([*seeds, system("a", WRONG)], [system("a", WRONG), *seeds]):
        (said,) = judged(*runs).verdicts
        assert said.startswith("a has ")
        assert " BLEU, outside the spread of x (" in said
        assert "over 3 seeds): another seed would be as far from their mean in 0." in said
    (said,) = judged(system("a", NEARLY), *seeds).verdicts
    assert " BLEU, within the spread of x (" in said
    copies = [system(f"x-seed={n}", RIGHT, "x") for n in range(2)]
    (said,) = judged(system("a", WRONG), *copies).verdicts
    assert said.endswith(
        "no seed deviates from the others: whether that is chance cannot be tested."
    )


def test_a_different_search_is_told() -> None:
    found = judged(system("a", WRONG), system("b", RIGHT, beam=1))
    (caveat,) = told(found)
    assert caveat == "The runs searched differently: beam_size 5, 1."
    assert caveat in terminal(found)
    assert caveat in comparison_page(found)
    assert told(judged(system("a", WRONG), system("b", RIGHT))) == []


def test_that_many_tests_find_something_is_told() -> None:
    runs = [system(name, [*RIGHT[:-1], name]) for name in "abcd"]
    (caveat,) = told(judged(*runs))
    assert caveat.startswith("3 differences are tested, each at 5 %")
    assert caveat.endswith("up to 15%.")
    equal = [system(name, RIGHT) for name in "abc"]
    assert told(judged(*equal)) == []
    (caveat,) = told(judged(*equal, system("d", WRONG), system("e", WRONG)))
    assert caveat.endswith("Of 2 that do, 2 remain so with p-values adjusted for that (Holm).")
    several = [
        [system(f"{name}-seed={n}", text, name) for n, text in enumerate([RIGHT, NEARLY])]
        for name in "abcd"
    ]
    assert told(judged(*several[0])) == told(judged(*several[0], *several[1])) == []
    every_pair = judged(*(run for experiment in several for run in experiment))
    (caveat,) = told(every_pair)
    assert caveat.startswith(f"{len(every_pair.verdicts)} differences are tested, each at 5 %")
    assert "up to 30%." in caveat
    assert told(judged(runs[0], *several[1])) == []
    (caveat,) = told(judged(runs[0], runs[1], *several[2]))  # a run alone, and an experiment
    assert caveat.startswith("2 differences are tested")


def test_settings_that_differ_are_told_once_for_all_seeds() -> None:
    """A better model with another vocabulary and more steps may owe it to these."""
    many = {f"model.k{n}": n for n in range(9)}
    common = {"data.id": "x", "tokenizer.kind": "bpe", "optimizer.lr": 1}
    first = replace(system("a", WRONG), settings=common | many | {"model.cell": "gru"})
    seeds = [
        replace(system(f"x-seed={n}", text, "x"), settings=common | {"optimizer.lr": 2})
        for n, text in enumerate([RIGHT, NEARLY])
    ]
    found = judged(first, *seeds)
    (caveat,) = told(found)
    assert caveat == (
        "x-seed=0 is configured otherwise than a: optimizer.lr, "
        + ", ".join(list(many)[:7])
        + " and 3 more."
    )
    for each in found.as_dict()["against_the_first"]:
        assert len(each["settings"]) == 11
        assert each["settings"]["optimizer.lr"] == [1, 2]
        assert each["settings"]["model.cell"] == ["gru", None]
    assert told(judged(first, replace(seeds[0], settings={}))) == [], "nothing is known of it"
    assert judged(*seeds).caveats == []


def test_runs_that_were_trained_by_another_program_or_machine_are_told() -> None:
    """Seeds of one experiment among them; what is not known of a run is not held against it."""
    made = [{"commit": "aa", "device": "H100", "torch": "2.13"}, {"commit": "bb", "torch": "2.13"}]
    seeds = [system(f"x-seed={n}", text, "x") for n, text in enumerate([RIGHT, NEARLY, WRONG])]
    runs = [replace(one, circumstances=each) for one, each in zip(seeds, [*made, {}], strict=True)]
    found = judged(*runs)
    assert found.caveats == [
        "The runs were not trained alike: commit aa (x-seed=0), bb (x-seed=1)."
    ]
    assert found.as_dict()["runs"][0]["circumstances"] == made[0]
    assert judged(*(replace(one, circumstances=made[0]) for one in seeds)).caveats == []


@pytest.mark.parametrize(
    ("likelihood", "begin", "end"),
    [  # fewer tokens for the same references are more surprising ones
        (Likelihood(-30.0, 50, 200), "Perplexities of different vocabularies are not", "50 by b."),
        (Likelihood(-30.0, 50, 180, left_out=2), "", "too long for the model: 0 by a, 2 by b."),
        (Likelihood(-3.0, 60, 200, unknown=40), "Bits per character are not", "0 by a, 40 by b."),
    ],
)
def test_likelihoods_that_are_not_comparable_are_told(likelihood, begin: str, end: str) -> None:
    other = replace(system("b", RIGHT), likelihood=likelihood)
    (caveat,) = told(judged(system("a", WRONG), other))
    assert caveat.startswith(begin)
    assert caveat.endswith(end)


def test_the_most_different_sentences_come_first_and_equal_ones_never() -> None:
    hypotheses = [*RIGHT[:10], "the dog sees house ten", "nothing"]
    shown = judged(system("a", RIGHT), system("b", hypotheses), shown=5).shown
    assert [sentence.number for sentence in shown] == [12, 11]
    assert shown[0].hypotheses == [RIGHT[11], "nothing"]


def test_seeds_of_one_experiment_have_a_mean_and_a_deviation() -> None:
    seeds = [system(f"x-seed={n}", text, "x") for n, text in enumerate([RIGHT, NEARLY], start=1)]
    found = judged(*seeds)
    (experiment,) = found.experiments
    assert experiment.name == "x"
    first, second = (column.scores.bleu.score for column in found.columns)
    assert experiment.means["bleu"] == pytest.approx((first + second) / 2)
    assert experiment.deviations["bleu"] == pytest.approx(abs(first - second) / 2**0.5)
    assert found.verdicts == [
        f"x has {experiment.means['bleu']:.2f} ± {experiment.deviations['bleu']:.2f} BLEU over "
        "2 seeds (mean and standard deviation)."
    ]


def test_the_same_seed_twice_is_no_experiment() -> None:
    """A copy, or a run that was trained again, tells nothing of how far seeds are apart."""
    names = ["x-seed=1", "y-seed=1", "z-seed=2"]
    texts = [WRONG, RIGHT, NEARLY]
    found = judged(*(system(name, text, "x") for name, text in zip(names, texts, strict=True)))
    assert found.experiments == []
    assert [said.partition(" than ")[0] for said in found.verdicts] == [
        "y-seed=1 is better",
        "z-seed=2 is better",
    ]
    same = (
        "y-seed=1 has the same seed as x-seed=1, so no mean over the seeds of their experiment is "
        "given."
    )
    many, twice = told(found)
    assert many.startswith("2 differences are tested")
    assert twice == same


def test_an_unfinished_run_is_told_and_is_none_of_the_seeds() -> None:
    seeds = [system(f"x-seed={n}", text, "x") for n, text in enumerate([RIGHT, NEARLY, WRONG])]
    stopped = replace(seeds[2], unfinished="its model is of step 50 of 250")
    found = judged(*seeds[:2], stopped)
    assert [experiment.runs for experiment in found.experiments] == [["x-seed=0", "x-seed=1"]]
    assert told(found) == [
        "x-seed=2 is unfinished (its model is of step 50 of 250), so it is not part of any mean "
        "over seeds."
    ]
    assert any(said.startswith("x-seed=2 has ") for said in found.verdicts)


def test_experiments_are_judged_by_their_means() -> None:
    runs = [
        *(system(f"x-seed={n}", text, "x") for n, text in enumerate([WRONG, [*WRONG[:-1], "z"]])),
        *(system(f"y-seed={n}", text, "y") for n, text in enumerate([RIGHT, NEARLY])),
    ]
    (said,) = judged(*runs).verdicts
    assert said.startswith("y is better than x by ")
    assert "over 2 seeds" in said
    assert ", and other seeds would differ in the same way on these sentences: " in said


def test_every_two_experiments_are_tested_by_every_metric() -> None:
    texts = {"x": [WRONG, [*WRONG[:-1], "z"]], "y": [RIGHT, NEARLY], "z": [RIGHT, RIGHT]}
    runs = [
        system(f"{name}-seed={n}", text, name)
        for name, both in texts.items()
        for n, text in enumerate(both)
    ]
    found = judged(*runs)
    record = json.loads(json.dumps(found.as_dict(), allow_nan=False))["experiment_pairs"]
    assert [(each["first"], each["second"]) for each in record[:3]] == [
        ("x", "y"), ("x", "z"), ("y", "z"),
    ]  # fmt: skip
    assert [each["metric"] for each in record[::3]] == ["bleu", "chrf", "ter"]
    assert all(each["gain"] > 0 for each in record), "better is positive, for TER too"
    bleu = {one.name: seed_scores(found.columns, one, "bleu") for one in found.experiments}
    assert (record[0]["p"], record[0]["degrees_of_freedom"]) == welch(bleu["x"], bleu["y"])
    p_values = [each["p"] for each in record[:3]]
    assert [each["p_holm"] for each in record[:3]] == holm(p_values)
    still = [system(f"{name}-seed={n}", text, name)
             for name, text in (("a", RIGHT), ("b", WRONG)) for n in (1, 2)]  # fmt: skip
    first, *_ = judged(*still).experiment_pairs
    assert (first.p, first.p_holm, first.degrees_of_freedom) == (None, None, None)


def test_terminal_page_and_json_say_the_same() -> None:
    comparison = judged(system("runs/a", WRONG), system("runs/b", RIGHT))
    shown, page = terminal(comparison), comparison_page(comparison)
    record = json.loads(json.dumps(comparison.as_dict()))
    bleu = record["against_the_first"][0]["bleu"]["gain"]
    for place in (shown, page):
        assert f"{bleu:+.2f}" in place
        assert "line 1" in place
        assert f"{record['against_the_first'][0]['bleu']['low']:+.2f} to +" in place
    assert comparison.verdicts[0] in page.replace("&#x27;", "'")
    assert record["runs"][1]["buckets"][0]["items"] == 12
    assert "&lt;b&gt;eats" in page, "text from the data is escaped"
    assert "<b>eats" not in page
    assert "<mark>cat</mark>" in page
    assert "<h1>runs/a against runs/b</h1>" in page
    assert "http" not in page.replace("http-equiv", "")


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_differing_words_lose_nothing_and_share_a_common_subsequence(one, other) -> None:
    sides = " ".join(one), " ".join(other)
    left, right = word_diff(*sides), word_diff(*sides[::-1])
    assert "".join(word.text for word in left) == " ".join(one)
    assert "".join(word.text for word in right) == " ".join(other)
    for side, text in ((left, other), (right, one)):
        rest = iter(text)
        assert all(word.text in rest for word in side if word.shared and word.text != " ")
    if one == other:
        assert all(word.shared for word in left)


def test_what_would_move_the_terminal_is_spelled_out() -> None:
    worse = [*RIGHT[:-1], "\x1b[31mred"]
    shown = terminal(judged(system("runs/a", RIGHT), system("runs/b", worse)))
    assert "\x1b" not in shown
    assert "\\x1b[31mred" in shown


def test_a_common_name_is_the_folders_without_their_seed() -> None:
    assert _common_name(["runs/toy-seed=1", "runs/toy-seed=2"]) == "runs/toy"
    assert _common_name(["runs/seed=1", "runs/seed=2"]) == "runs/seed=1 and 1 more"
    names = ["toy,data.seed=7-seed=1", "toy,data.seed=7-seed=2"]
    assert _common_name(names) == "toy,data.seed=7"


def test_scores_that_bleu_cannot_give_are_told() -> None:
    systems = [system("a", ["dog"] * 12), system("b", RIGHT)]
    found = judged(*systems)
    assert told(found) == ["BLEU is 0 because no translation has four tokens: go by chrF (a)."]
    shown, page = terminal(found), comparison_page(found)
    for place in (shown, page):
        assert "– / " in place
        assert "– / +" in place
    assert judged(*systems[::-1]).as_dict()["runs"][1]["buckets"][0]["bleu"] is None


def test_where_bleu_is_0_for_want_of_four_tokens_chrf_is_judged() -> None:
    short, shorter = ["dog"] * 12, [*["dog"] * 11, "cat"]
    (said,) = judged(system("a", short), system("b", RIGHT)).verdicts
    assert " chrF, and these two models would differ in the same way" in said
    pair = [system(f"x-seed={n}", text, "x") for n, text in enumerate([short, shorter])]
    more = [system(f"y-seed={n}", text, "y") for n, text in enumerate([RIGHT, NEARLY])]
    for others in ([], [system("y", RIGHT)], more):
        (said,) = judged(*pair, *others).verdicts
        assert " chrF" in said
        assert "BLEU" not in said


LIKELIHOOD = Likelihood(-40.0, 60, 200)
SYSTEMS = [
    System("x_y-seed=1", RIGHT, LIKELIHOOD, {}, "x", 1),
    System("a&b\\c", WRONG, LIKELIHOOD, {}, "a", 1),
    System("x_y-seed=2", [*RIGHT[:-1], "a house"], LIKELIHOOD, {}, "x", 2),
]
COMPARISON = compare(
    SYSTEMS, RIGHT, REFERENCES, split="test", resamples=100, trials=20, seed=1, shown=0
)


def test_a_csv_has_a_row_for_each_run_and_one_for_all_seeds() -> None:
    seeds, run = csv.DictReader(io.StringIO(as_csv(COMPARISON, REFERENCES)))
    (experiment,) = COMPARISON.experiments
    assert (seeds["system"], seeds["seeds"], seeds["spread"]) == ("x_y", "2", "standard deviation")
    for key in ("bleu", "chrf", "ter", "perplexity"):
        assert float(seeds[key]) == experiment.means[key]
        assert float(seeds[f"{key} spread"]) == experiment.deviations[key]
    assert (run["system"], run["seeds"]) == ("a&b\\c", "1")
    assert float(run["bleu"]) == COMPARISON.columns[1].scores.bleu.score
    found = intervals(WRONG, REFERENCES, resamples=100, seed=1)
    assert float(run["ter spread"]) == found["ter"].half_width
    assert run["perplexity spread"] == ""
    assert run["spread"] == "half of the 95 % bootstrap interval"
