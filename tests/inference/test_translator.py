from __future__ import annotations

import itertools
import logging
import math

import numpy as np
import pytest
import torch
from small_translators import learned

from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.extras.word_attention import word_attention
from translate.inference import forcing
from translate.inference.batches import choose_device
from translate.inference.text_constraints import TextConstraint
from translate.inference.translation import NOTHING
from translate.inference.translator import Translator
from translate.search import build
from translate.vocabulary import EOS, UNK

LINES = [
    "el perro come.", "la casa azul", "", "donde está el tren rojo grande", "gato", " \u200b ",
    "el gato duerme la casa corre azul rojo grande.", "🚂 1", "perro perro", "la",
]  # fmt: skip


LIMITS = {"max_length_ratio": 1.0, "max_length_offset": 4}
GREEDY = {"kind": "greedy", **LIMITS}
BEAM = {
    "kind": "beam", "beam_size": 3, "length_penalty": "gnmt", "alpha": 0.6, "n_best": 1,
    "coverage_penalty": 0.0, **LIMITS,
}  # fmt: skip
NO_LONGER = {"max_length_ratio": 0.0, "max_length_offset": 8}


def assert_same(one, other) -> None:
    assert [[t.text for t in n_best] for n_best in one] == [
        [t.text for t in n_best] for n_best in other
    ]
    for a, b in zip(itertools.chain(*one), itertools.chain(*other), strict=True):
        assert a.tokens == b.tokens
        assert a.token_log_probs == pytest.approx(b.token_log_probs, abs=1e-10)
        assert a.score == pytest.approx(b.score, abs=1e-10)


@pytest.mark.parametrize(("tokens", "window"), [(1, 1), (16, 3), (40, 7), (1000, 1000)])
def test_batching_never_changes_a_translation(make_translator, name, tokens, window) -> None:
    alone = [next(make_translator(name).stream([line])) for line in LINES]
    together = make_translator(name, tokens_per_batch=tokens).stream(LINES, window=window)
    assert_same(alone, list(together))


def test_workers_never_change_a_translation(make_translator) -> None:
    alone, shared = (  # several batches a window, several windows
        list(
            make_translator(tokens_per_batch=20, workers=workers).stream(
                LINES, window=6, need_alignment=True
            )
        )
        for workers in (1, 2)
    )
    assert_same(alone, shared)
    for one, other in zip(itertools.chain(*alone), itertools.chain(*shared), strict=True):
        assert (one.alignment is None) == (other.alignment is None)
        if one.alignment is not None:
            np.testing.assert_allclose(one.alignment, other.alignment, rtol=0, atol=1e-12)


def test_workers_are_of_a_cpu(make_model, joint) -> None:
    with pytest.raises(UserError, match=r"workers = 2 .*device=cpu"):
        Translator(make_model("transformer"), joint, build(GREEDY), device="meta", workers=2)


@pytest.mark.parametrize("kind", ["greedy", "beam"])
def test_fewer_bits_change_the_last_digits_of_a_score_alone(make_model, joint, name, kind) -> None:
    """Probabilities of the very tokens that bf16 chose, by teacher forcing in float64."""
    model = make_model(name)
    search = build(GREEDY if kind == "greedy" else BEAM)
    rounded = model.in_dtype(torch.bfloat16)
    assert next(rounded.parameters()).dtype == torch.bfloat16
    assert next(model.parameters()).dtype == torch.float64
    exact = Translator(model, joint, search)
    sources = [joint.source.encode(line) for line in ("el perro come.", "la casa azul")]
    found = search(rounded.eval(), *exact.forcing.padded([[*ids, EOS] for ids in sources]))
    forced = exact.forcing.log_probs(sources, [list(best.tokens) for best, *_ in found])
    for (best, *_), expected in zip(found, forced, strict=True):
        assert best.log_prob == pytest.approx(sum(expected), rel=0.05, abs=0.5)
        assert best.log_prob != pytest.approx(sum(expected), rel=1e-6)


def test_order_comes_back_and_every_line_is_answered(make_translator) -> None:
    translator = make_translator()
    forward = translator.translate(LINES)
    assert len(forward) == len(LINES)
    assert translator.translate(LINES[::-1]) == forward[::-1]
    assert translator.translate([]) == []


def test_invisible_lines_become_empty_translations_in_place(make_translator) -> None:
    found = list(make_translator().stream(LINES))
    assert [i for i, n_best in enumerate(found) if n_best == [NOTHING]] == [2, 5]
    assert all(len(n_best) == 2 for i, n_best in enumerate(found) if i not in (2, 5))


def test_a_window_of_one_answers_before_it_reads_on(make_translator) -> None:
    seen = []

    def typed():
        for line in LINES[:3]:
            seen.append(line)
            yield line

    answers = make_translator().stream(typed(), window=1)
    for count in (1, 2, 3):
        next(answers)
        assert len(seen) == count


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_end_of_a_line_of_a_file_leaves_nothing_behind(make_translator, end: str) -> None:
    plain, ended = make_translator().translate(["el perro come.", f"el perro come.{end}"])
    assert ended == plain


def test_a_long_line_is_translated_in_segments_with_a_warning(make_translator, caplog) -> None:
    parts = ["el perro come la casa.", "la casa come el perro.", "el gato duerme el tren."]
    lengths = [len(make_translator().tokenizers.source.encode(part)) for part in parts]
    translator = make_translator(max_source_length=max(lengths))
    assert sum(lengths[:2]) > max(lengths) < sum(lengths[1:])  # no two fit together
    with caplog.at_level(logging.WARNING, logger="translate"):
        _, (whole, *_) = translator.stream(["la", " ".join(parts)])
    assert "line 2 has" in caplog.text
    assert f"more than the limit of {max(lengths)}: translated in 3 segments" in caplog.text
    assert whole.text == " ".join(translator.translate(parts))
    best = [next(translator.stream([part]))[0] for part in parts]
    assert whole.log_prob == pytest.approx(sum(part.log_prob for part in best), abs=1e-10)
    assert len(whole.token_log_probs) == sum(len(part.tokens) + 1 for part in best)


def test_a_line_of_ten_thousand_tokens_is_translated(make_translator) -> None:
    short = {"max_length_ratio": 0.1}  # an untrained model stops only there
    translator = make_translator(search=short, max_source_length=500, tokens_per_batch=4000)
    (text,) = translator.translate(["perro " * 10_000])
    assert text


def test_score_is_the_search_s_own_log_probability(make_translator, name, monkeypatch) -> None:
    translator = make_translator(name)
    lines = [line for line in LINES if line.strip(" \u200b")]
    n_bests = list(translator.stream(lines))
    assert {len(n_best) for n_best in n_bests} == {2}
    sources = [line for line, n_best in zip(lines, n_bests, strict=True) for _ in n_best]
    found = [one for n_best in n_bests for one in n_best]
    # as ids: the text of a translation may be segmented otherwise than the model spelled it
    ids = {
        t.text: [translator.tokenizers.target._processor.piece_to_id(p) for p in t.tokens]
        for t in found
    }
    texts = iter([ids[t.text] for t in found])
    encode = translator.tokenizers.source.encode
    encoded = [encode(source) for source in sources]
    answers = iter([*encoded, *texts])
    monkeypatch.setattr(type(translator.tokenizers.source), "encode", lambda *_: next(answers))
    scores = translator.score(sources, [t.text for t in found])
    for score, translation in zip(scores, found, strict=True):
        assert score.log_prob == pytest.approx(translation.log_prob, abs=1e-10)
        assert score.token_log_probs == pytest.approx(translation.token_log_probs, abs=1e-10)
        assert score.tokens == len(translation.tokens) + 1


def test_score_says_how_much_is_unknown(make_translator, monkeypatch) -> None:
    translator = make_translator()
    monkeypatch.setattr(
        type(translator.tokenizers.target),
        "encode",
        lambda _, text: [5, UNK, UNK] if text == "b" else [5],
    )
    assert [score.unknown for score in translator.score(["a", "a"], ["b", ""])] == [2, 0]


@pytest.mark.parametrize("number", [math.nan, -math.inf])
def test_a_score_that_is_no_number_is_refused(make_translator, monkeypatch, number: float) -> None:
    """Products of finite weights may be infinite."""
    translator = make_translator("transformer")
    monkeypatch.setattr(
        forcing, "log_probs_of", lambda model, hidden, tokens: torch.full(tokens.shape, number)
    )
    with pytest.raises(UserError, match="log-probabilities are not finite"):
        list(translator.score(["el perro"], ["the dog"]))


def test_a_pair_too_long_to_be_scored_is_named(make_translator) -> None:
    translator, longest = make_translator(), "el " * 4096
    assert translator.score([longest], ["a"])[0].tokens > 1
    with pytest.raises(UserError, match=r"line 2 has 4097 pieces on one side, more than the 4096"):
        translator.score(["la", longest + "el"], ["a", "b"])


def test_scoring_in_batches_is_scoring_one_by_one(make_translator, name) -> None:
    translator = make_translator(name)
    pairs = list(zip(LINES, LINES[::-1], strict=True))
    alone = [translator.score([source], [target])[0] for source, target in pairs]
    together = translator.score(LINES, LINES[::-1])
    for one, other in zip(alone, together, strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-10)
    # log P = sum of logs; the empty target is </s> alone
    assert together[LINES[::-1].index("")].tokens == 1
    assert all(math.exp(score.log_prob) <= 1 for score in together)


def test_attention_of_the_own_translation_is_what_the_search_saw(make_translator) -> None:
    translator = make_translator()
    ((best, *_),) = translator.stream(["el perro come."], need_alignment=True)
    found = translator.align("el perro come.")
    assert found.target_pieces == (*best.tokens, "</s>")
    assert found.source_pieces[-1] == "</s>"
    assert found.weights.shape == (2, 2, len(found.target_pieces), len(found.source_pieces))
    np.testing.assert_allclose(found.weights, best.alignment, atol=1e-10)
    np.testing.assert_allclose(found.weights.sum(-1), 1)


def test_attention_for_a_given_translation(make_translator) -> None:
    found = make_translator("rnn_general").align("el perro", "the dog is a dog")
    assert "".join(found.target_pieces) == "▁the▁dog▁is▁a▁dog</s>"
    assert found.weights.shape[:2] == (1, 1)


@pytest.mark.parametrize("self_attention", ["full", "linear", "sliding_window"])
def test_self_attention_is_told_for_both_sides(make_model, joint, self_attention) -> None:
    model = make_model("transformer", self_attention=self_attention)
    translator = Translator(model, joint, build({"kind": "greedy", **NO_LONGER}))
    source = translator.self_attention("el perro come.", side="encoder")
    assert source.source == source.target == "el perro come."
    assert source.source_pieces == source.target_pieces
    assert source.source_pieces == translator.align("el perro come.").source_pieces
    target = translator.self_attention("el perro", "the dog is", side="decoder")
    assert target.source == target.target == "the dog is"
    assert target.source_pieces == (
        "<s>",
        *translator.align("el perro", "the dog is").target_pieces[:-1],
    )
    for found, layers in ((source, 1), (target, 2)):
        assert found.weights.shape == (layers, 2, *[len(found.source_pieces)] * 2)
        np.testing.assert_allclose(found.weights.sum(-1), 1)
    assert np.triu(target.weights, 1).max() == 0
    assert np.triu(source.weights, 1).max() > 0
    own = translator.self_attention("el perro", side="decoder")
    assert own.target_pieces[1:] == translator.align("el perro").target_pieces[:-1]


def test_an_unknown_word_among_whole_words_is_a_word_of_its_own(make_model) -> None:
    words = learned(["el perro come .", "the dog eats ."], kind="word", vocab_size=30)
    model = make_model("rnn_general", Tokenizers(words, words))
    translator = Translator(model, Tokenizers(words, words), build({"kind": "greedy", **NO_LONGER}))
    found = translator.align("el Schrödinger come .", "the Planck eats .")
    joined = word_attention(found.source_pieces, found.target_pieces, found.weights[0, 0])
    assert joined.source == ("el", "Schrödinger", "come", ".", "</s>")
    assert joined.target == ("the", "Planck", "eats", ".", "</s>")
    produced = words.pieces([*words.encode("the"), UNK])  # as in the model's own translation
    assert word_attention(produced, produced, np.eye(2)).target == ("the", "<unk>")


def test_a_line_longer_than_the_model_reads_is_split(make_model, joint, caplog) -> None:
    model = make_model("transformer", positions="learned", max_positions=6)
    translator = Translator(model, joint, build({"kind": "greedy", **NO_LONGER}))
    with caplog.at_level(logging.WARNING, logger="translate"):
        (text,) = translator.translate(["el perro come la casa azul."])
    assert "more than the limit of 5" in caplog.text  # and </s>
    assert text
    long = "el perro come la casa azul."
    with pytest.raises(
        UserError, match=r"line 2 has \d+ pieces .* than the 5 .*split the sent"
    ) as e:
        translator.score(["la", long, "gato", "la"], ["a", "the dog", "a cat", long])
    assert "too long as well: 1 line" in str(e.value)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda it: it.translate(None), "^None is not a list of sentences"),
        (lambda it: it.align(None), r"^the sentence is None: give a string"),
        (lambda it: it.align("la", b"the"), r"^the target is b'the': give a string"),
        (lambda it: next(it.stream(["la"], window=-1)), r"^window=-1: must be a whole number"),
        (lambda it: next(it.stream(["la"], constraints="Hi")), "^constraint 1 is 'H'"),
        (lambda it: TextConstraint("", "the dog"), "^'the dog' is a string: give a list"),
        (lambda it: TextConstraint(None), "^prefix is None"),
        (lambda it: it.translate("la casa"), "is a string: give a list of sentences"),
        (lambda it: it.score(["l", "a"], "ab"), "is a string: give a list of sentences"),
        (lambda it: it.score(["a", "b", "c"], ["a", "b"]), "3 sources but 2 targets"),
        (lambda it: it.translate(["la", None]), "line 2 is None: give a string"),
        (lambda it: it.score(["la", "la"], ["a", None]), "line 2 is None: give a string"),
        (lambda it: it.self_attention("a", side="both"), "side='both': must be 'encoder' or 'dec"),
        (lambda it: it.align(" \u200b"), "empty"),
    ],
)
def test_wrong_arguments_are_refused_in_a_line(make_translator, call, told: str) -> None:
    with pytest.raises(UserError, match=told):
        call(make_translator())


def test_a_model_without_attention_has_none_to_show(make_translator) -> None:
    with pytest.raises(UserError, match="no attention over the source"):
        make_translator("rnn_none").align("el perro")
    with pytest.raises(UserError, match=r"no self-attention: .* leave out attention="):
        make_translator("convolutional").self_attention("el perro", side="encoder")


def test_dropout_is_off_and_no_graph_is_kept(make_translator) -> None:
    translator = make_translator()
    assert not translator.model.training
    assert translator.translate(LINES) == translator.translate(LINES)
    next(translator.stream(LINES))
    assert not torch.is_inference_mode_enabled()  # not leaked to whoever takes the lines


def test_a_batch_that_memory_cannot_hold_is_searched_by_halves(
    make_translator, caplog, monkeypatch
) -> None:
    expected = make_translator().translate(LINES)
    translator = make_translator()
    search = translator.search

    def small(model, source, *arguments, **options):
        if len(source) > most:
            raise torch.OutOfMemoryError
        return search(model, source, *arguments, **options)

    small.rules = search.rules
    most = 2
    monkeypatch.setattr(translator, "search", small)
    assert translator.translate(LINES) == expected
    assert f"later lines in batches of {translator.tokens_per_batch} tokens" in caplog.text
    assert translator.tokens_per_batch < 50
    assert translator.translate(LINES) == expected
    most = 0
    with pytest.raises(UserError, match=r"one sentence of \d+ pieces: use fewer hypotheses"):
        translator.translate(LINES)


def test_on_a_gpu_attention_is_not_left_to_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)  # as if there were one
    called = []
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", called.append)
    choose_device("cpu")
    assert called == []
    assert choose_device("cuda").type == "cuda"
    assert called == [False]


def test_a_device_that_is_not_there_is_told() -> None:
    assert choose_device("auto").type in ("cpu", "cuda")
    for device in ("cuda:99", "no_such_device"):
        with pytest.raises(UserError, match=f"device={device} .* device=auto"):
            choose_device(device)
