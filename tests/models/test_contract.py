"""What every model owes training and search, checked for each of them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import CONVOLUTIONAL, MODELS, RNN, TRANSFORMER
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from translate.attention.masks import padding_mask
from translate.errors import UserError
from translate.extras.fine_tuning import NEW, fits, transfer
from translate.models import registry
from translate.models.seq2seq import Dropout, LayerDrop, Seq2Seq
from translate.models.state_tensors import (
    released,
    reserved,
    tensors_in,
    why_no_graph,
    with_tensors,
    without_room,
)
from translate.search import BeamConfig, BeamSearch, GreedyConfig, GreedySearch
from translate.vocabulary import EOS, PAD

WORDS = 11
EXACT = {"rtol": 0.0, "atol": 1e-12}
# without the checks of shapes, which take up to four times as long as the steps; of each model the
# tests that take fewer have them
FEW_EXAMPLES = settings(max_examples=5)
DEVICE = os.environ.get("TEST_DEVICE", "cpu")  # scripts/gpu_check.sh runs these tests on CUDA


@pytest.fixture(autouse=True, scope="module")
def _device() -> Iterator[None]:
    """Where new tensors are, models too."""
    with nullcontext() if DEVICE == "cpu" else torch.device(DEVICE):
        yield


def make(name: str) -> Seq2Seq:
    torch.manual_seed(0)
    model = registry.build(MODELS[name], source_vocab_size=WORDS, target_vocab_size=WORDS)
    return model.double().eval()


@cache
def shared(name: str) -> Seq2Seq:
    """For those that only read it: to build it takes as long as some of them."""
    return make(name)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return shared(request.param)


def sentences(*lengths: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random padded sentences and their mask."""
    generator = torch.Generator().manual_seed(seed)
    shape = len(lengths), max(lengths)
    tokens = torch.randint(4, WORDS, shape, generator=generator, device="cpu").to(DEVICE)
    mask = padding_mask(torch.tensor(lengths), max(lengths))
    return tokens.masked_fill(~mask, PAD), mask


@pytest.mark.unchecked
@torch.no_grad()
def test_decoding_step_by_step_equals_decoding_the_whole_target(model: Seq2Seq) -> None:
    source, source_mask = sentences(7, 4, 2)
    target, _ = sentences(20, 20, 20, seed=1)  # past the caches' first sixteen
    memory = model.encode(source, source_mask)
    whole = model.decode(target, memory, need_alignment=True)
    state, steps = model.start(memory), []
    for tokens in target.T:
        steps.append(model.decode_step(tokens, state, need_alignment=True))
        state = steps[-1].state
    hidden = torch.stack([step.hidden for step in steps], dim=1)
    torch.testing.assert_close(hidden, whole.hidden, **EXACT)
    if whole.alignment is None:
        assert all(step.alignment is None for step in steps)
    else:
        alignment = torch.stack([step.alignment for step in steps], dim=3)
        torch.testing.assert_close(alignment, whole.alignment, **EXACT)


def test_a_memory_may_be_taken_at_some_sentences_and_more_than_once(model: Seq2Seq) -> None:
    source, source_mask = sentences(5, 2, 4)
    target, target_mask = sentences(4, 6, 3, 6, seed=1)
    rows = torch.tensor([2, 0, 0, 1])
    expected = model.decode(target, model.encode(source[rows], source_mask[rows]))
    memory = model.encode(source, source_mask).at(rows)
    actual = model.decode(target, memory).hidden
    torch.testing.assert_close(actual[target_mask], expected.hidden[target_mask], **EXACT)


def test_projecting_to_some_pieces_is_projecting_to_all(model: Seq2Seq) -> None:
    """Some are barred to some rows."""
    width = model.output.in_features
    hidden = torch.randn(2, width, dtype=torch.float64)
    pieces = torch.tensor([0, 3, 9, 10])
    barred = torch.tensor([[False, True, False, False], [False, False, False, True]])
    expected = model.project(hidden)[:, pieces].masked_fill(barred, -torch.inf)
    torch.testing.assert_close(model.projection(pieces)(hidden, barred), expected, **EXACT)


@given(extra=st.integers(0, 20), content=st.integers(0, WORDS - 1), seed=st.integers(0, 99))
@FEW_EXAMPLES
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.unchecked
def test_source_padding_changes_nothing(name: str, extra: int, content: int, seed: int) -> None:
    model = shared(name)
    source, source_mask = sentences(5, 3, seed=seed)
    target, _ = sentences(4, 4, seed=1)
    wider = F.pad(source, (0, extra), value=content)
    wider[1, 3:] = content
    wider_mask = padding_mask(torch.tensor([5, 3]), 5 + extra)
    expected = model.decode(target, model.encode(source, source_mask)).hidden
    actual = model.decode(target, model.encode(wider, wider_mask)).hidden
    torch.testing.assert_close(actual, expected, **EXACT)


def test_a_sentence_alone_equals_the_sentence_in_a_batch(model: Seq2Seq) -> None:
    source, source_mask = sentences(6, 2, 4)
    target, _ = sentences(5, 3, 4, seed=1)
    together = model.decode(target, model.encode(source, source_mask)).hidden
    for b, (s, t) in enumerate([(6, 5), (2, 3), (4, 4)]):
        memory = model.encode(source[b : b + 1, :s], source_mask[b : b + 1, :s])
        alone = model.decode(target[b : b + 1, :t], memory).hidden
        torch.testing.assert_close(together[b : b + 1, :t], alone, **EXACT)


@given(position=st.integers(0, 11), seed=st.integers(0, 99))
@FEW_EXAMPLES
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.unchecked
def test_the_future_of_the_target_is_not_seen(name: str, position: int, seed: int) -> None:
    model = shared(name)
    memory = model.encode(*sentences(5))
    target, _ = sentences(12, seed=seed)
    changed = target.clone()
    changed[0, position] = target[0, position] % (WORDS - 1) + 1
    before = model.decode(target, memory).hidden
    after = model.decode(changed, memory).hidden
    torch.testing.assert_close(after[:, :position], before[:, :position], **EXACT)
    assert not torch.allclose(after[:, position], before[:, position])


def test_the_order_of_the_source_matters(request: pytest.FixtureRequest, model: Seq2Seq) -> None:
    source, mask = sentences(6)
    turned = source.roll(1, dims=1)  # not mirrored: symmetric distances alone would not tell that
    target, _ = sentences(3, seed=1)
    one = model.decode(target, model.encode(source, mask)).hidden
    other = model.decode(target, model.encode(turned, mask)).hidden
    unordered = "unordered" in request.node.name  # attention without positions sees a set of words
    assert torch.allclose(one, other, rtol=0, atol=1e-10) == unordered


@given(data=st.data())
@FEW_EXAMPLES
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.unchecked
@torch.no_grad()
def test_select_continues_the_hypotheses_it_names(name: str, data: st.DataObject) -> None:
    """Expanding to a beam, reordering it and dropping sentences equals decoding each prefix.

    All prefixes are decoded at once, for what follows one is not seen.
    """
    model, found, read, of_each = shared(name), [], [], []
    torch.manual_seed(0)
    source, source_mask = sentences(5, 3, 4)
    prefixes = torch.full((3, 1, 0), 0)
    memory = model.encode(source, source_mask)
    state = model.start(memory)
    alive = torch.arange(3)
    for _ in range(8):  # a ring of five wraps, and a cache of 16 columns grows
        count, beam = prefixes.shape[:2]
        rows = data.draw(st.integers(1, 3), label="beam")
        picks = torch.tensor(
            data.draw(
                st.lists(
                    st.lists(st.integers(0, beam - 1), min_size=rows, max_size=rows),
                    min_size=count, max_size=count,
                )
            )
        )  # fmt: skip
        state = state.select((torch.arange(count)[:, None] * beam + picks).flatten())
        prefixes = prefixes.gather(1, picks[:, :, None].expand(-1, -1, prefixes.shape[2]))
        tokens = torch.randint(4, WORDS, (count, rows))
        step = model.decode_step(tokens.flatten(), state)
        state = step.state
        prefixes = torch.cat((prefixes, tokens[:, :, None]), dim=2)
        found.append(step.hidden)
        read.extend(prefixes.flatten(0, 1))
        of_each.append(alive.repeat_interleave(rows))
        stay = data.draw(st.lists(st.booleans(), min_size=count, max_size=count), label="stay")
        if any(stay):
            kept = torch.tensor(stay).nonzero().squeeze(1)
            state, prefixes, alive = state.keep(kept), prefixes[kept], alive[kept]
    whole = model.decode(pad_sequence(read, batch_first=True), memory.at(torch.cat(of_each))).hidden
    last = torch.tensor([len(prefix) - 1 for prefix in read])
    torch.testing.assert_close(torch.cat(found), whole[torch.arange(len(read)), last], **EXACT)


@given(data=st.data())
@FEW_EXAMPLES
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.unchecked
@torch.no_grad()
def test_what_is_read_does_not_depend_on_what_is_not(name: str, data: st.DataObject) -> None:
    """Rows may be left out, come back without meaning, and be taken by others that have one.

    All prefixes are decoded at once, for what follows one is not seen.
    """
    model, steps, read, meant = shared(name), [], [], []
    torch.manual_seed(0)
    source, source_mask = sentences(5, 3)
    sentence = torch.tensor([0, 0, 0, 1, 1, 1])
    state = model.start(model.encode(source, source_mask)).select(torch.tensor([0] * 3 + [1] * 3))
    prefixes, sound = torch.full((6, 0), 0), torch.ones(6, dtype=torch.bool)
    some = st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True).map(sorted)
    for _ in range(7):  # a ring of five wraps, and a cache of 16 columns grows
        live = torch.tensor(data.draw(some, label="live"))
        tokens = torch.randint(4, WORDS, (6,))
        step = model.decode_step(tokens[live], state, live=live, need_alignment=True)
        prefixes = torch.cat((prefixes, tokens[:, None]), dim=1)
        meant.append(live[sound[live]])
        steps.append((step.hidden[sound[live]], step.alignment))
        read.extend(prefixes)
        sound &= torch.zeros_like(sound).index_fill(0, live, value=True)
        places = st.lists(st.integers(0, 2), min_size=6, max_size=6)
        rows = torch.tensor(data.draw(places, label="rows")) + torch.tensor([0] * 3 + [3] * 3)
        state, prefixes, sound = step.state.select(rows), prefixes[rows], sound[rows]
    memory = model.encode(source, source_mask).at(sentence.repeat(len(steps)))
    whole = model.decode(pad_sequence(read, batch_first=True), memory, need_alignment=True)
    for t, ((hidden, alignment), rows) in enumerate(zip(steps, meant, strict=True)):
        torch.testing.assert_close(hidden, whole.hidden[6 * t + rows, t], **EXACT)
        if whole.alignment is not None:
            aligned = whole.alignment[6 * t + rows, :, :, t]
            torch.testing.assert_close(alignment[rows], aligned, **EXACT)


def test_a_sentence_kept_twice_goes_on_twice(model: Seq2Seq) -> None:
    source, source_mask = sentences(5, 3)
    target, _ = sentences(3, 3, 3, seed=1)
    twice = torch.tensor([1, 0, 1])
    state = model.start(model.encode(source, source_mask)).keep(twice)
    memory = model.encode(source[twice], source_mask[twice])
    expected = model.decode(target, memory).hidden
    for t in range(3):
        step = model.decode_step(target[:, t], state, need_alignment=True)
        state = step.state
        torch.testing.assert_close(step.hidden, expected[:, t], **EXACT)


@pytest.mark.unchecked
@torch.no_grad()
def test_a_state_taken_apart_after_every_token_goes_on_the_same(model: Seq2Seq) -> None:
    """What an exported step does: its state comes and goes as tensors, and `length` as a number."""
    memory = model.encode(*sentences(5, 3))
    if (reason := why_no_graph(model.start(memory))) is not None:
        pytest.skip(reason)
    state, example = model.start(memory), without_room(model.start(memory), 0)
    carried = tensors_in(example)
    tokens, _ = sentences(20, 20, seed=1)
    for length, token in enumerate(tokens.T):
        step = model.decode_step(token, state)
        state = step.state
        carried_on = without_room(with_tensors(example, carried), length)
        again = model.decode_step(token, carried_on)
        carried = tensors_in(again.state)
        torch.testing.assert_close(again.hidden, step.hidden, **EXACT)


@torch.no_grad()
def test_a_fixed_state_goes_on_the_same_and_keeps_its_shapes(model: Seq2Seq) -> None:
    memory = model.encode(*sentences(5, 3))
    tokens, _ = sentences(9, 9, 9, 9, seed=1)

    def steps(fixed: bool) -> list[Tensor]:
        state, found = model.start(memory), []
        for t, token in enumerate(tokens.T):
            beam = min(t + 1, 2)  # begins with one hypothesis of each
            state = state.select(torch.tensor([0, 0, 1, 1] if t == 1 else [*range(beam * 2)]))
            if fixed and t in (1, 4):
                before, since = state, t
                state = reserved(state, tokens=2 if t == 1 else 3, beam=2)
            step = model.decode_step(token[: beam * 2], state)
            if fixed and t in (2, 5, 6):
                assert shapes(step.state) == shapes(state)
            state = step.state.select(torch.tensor([1, 0, 3, 3])) if beam == 2 else step.state
            if fixed and t in (2, 6):
                state = released(state, before, tokens=t + 1 - since, beam=2)
            if t == 2:
                state = state.keep(torch.tensor([1, 0]))
            found.append(step.hidden)
        return found

    def shapes(state: object) -> list[torch.Size]:
        return [tensor.shape for tensor in tensors_in(state).values()]

    if reserved(model.start(memory), tokens=2, beam=1) is None:
        assert getattr(model.decoder_layers[0].self_attention.pattern, "window", None)
        return
    for one, other in zip(steps(fixed=True), steps(fixed=False), strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_alignment_rows_sum_to_one_and_padding_gets_nothing(
    request: pytest.FixtureRequest, model: Seq2Seq
) -> None:
    source, source_mask = sentences(5, 2)
    target, _ = sentences(3, 3, seed=1)
    memory = model.encode(source, source_mask)
    alignment = model.decode(target, memory, need_alignment=True).alignment
    if alignment is None:
        assert getattr(model, "score", 0) is None  # only the fixed vector has none
        return
    sums = alignment.sum(-1)
    if "local-p" in request.node.name:  # a Gaussian lies over the softmax
        assert ((sums < 1) & (sums > math.exp(-2))).all()
    else:
        torch.testing.assert_close(sums, torch.ones_like(sums), **EXACT)
    assert (alignment[1, ..., 2:] == 0).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.unchecked
def test_every_parameter_learns_and_dropout_is_off_at_inference(name: str) -> None:
    model = make(name).train()
    source, source_mask = sentences(5, 4)
    target, _ = sentences(6, 6, seed=1)

    def hidden() -> Tensor:
        return model.decode(target, model.encode(source, source_mask)).hidden

    assert not torch.equal(hidden(), hidden())
    model.project(hidden()).logsumexp(-1).sum().backward()
    untouched = [
        name for name, p in model.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-9
    ]
    assert untouched == []
    model.eval()
    assert torch.equal(hidden(), hidden())


def test_a_model_that_begins_from_another_reads_and_writes_the_same_pieces(
    model: Seq2Seq, request: pytest.FixtureRequest
) -> None:
    """Under another vocabulary: the old pieces in another order, and new ones among them."""
    name = request.node.callspec.params["model"]
    rows = torch.tensor([0, 1, 2, 3, NEW, 10, 9, 8, NEW, 7, 6, 5, 4])
    torch.manual_seed(1)
    new = registry.build(
        MODELS[name], source_vocab_size=len(rows), target_vocab_size=len(rows)
    ).double().eval()  # fmt: skip
    assert fits(model, new)
    transfer(model, new, source=rows, target=rows)
    source, source_mask = sentences(5, 3)
    target, _ = sentences(4, 4, seed=1)
    memory = model.encode(source, source_mask)
    expected = model.project(model.decode(target, memory).hidden)
    place = torch.stack([(rows == piece).nonzero()[0, 0] for piece in range(WORDS)])
    memory = new.encode(place[source], source_mask)
    actual = new.project(new.decode(place[target], memory).hidden)
    torch.testing.assert_close(actual[..., place], expected, **EXACT)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.unchecked
def test_recomputed_activations_give_the_same_gradients_and_are_not_kept(name: str) -> None:
    """Dropout is on: what is computed again must draw again what was drawn."""
    source, source_mask = sentences(5, 4)
    target, _ = sentences(6, 6, seed=1)
    gradients: list[list[Tensor | None]] = []
    kept: list[int] = []
    model = make(name).train()
    for module in model.modules():
        if isinstance(module, LayerDrop):
            module.p = 0.5
    for recompute in (False, True):
        model.recompute = recompute
        kept.append(0)

        def keep(tensor: Tensor) -> Tensor:
            kept[-1] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            torch.manual_seed(5)
            hidden = model.decode(target, model.encode(source, source_mask)).hidden
            loss = model.project(hidden).logsumexp(-1).sum()
        loss.backward()
        gradients.append([p.grad for p in model.parameters()])
        model.zero_grad()
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)
    assert (kept[1] < kept[0] / 2) == model.parallel


def test_output_has_one_logit_a_word(model: Seq2Seq) -> None:
    hidden = torch.zeros(2, 3, model.output.in_features, dtype=torch.float64)
    assert model.project(hidden).shape == (2, 3, WORDS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"d_model": 18}, ("d_model 18", "4 heads", "model.num_heads")),
        ({"num_kv_heads": 3}, ("4 heads", "3 key/value heads")),
        ({"positions": "rotary", "d_model": 12}, ("rotary", "3 dimensions")),
        *(
            (
                {"self_attention": kind, "positions": positions},
                (f"{positions} positions", f"model.self_attention={kind}", "sinusoidal"),
            )
            for kind in ("linear", "fast_weights")
            for positions in ("relative", "rotary", "alibi")
        ),
        (
            {"self_attention": "fixed", "summary": 5},
            ("block of 4 keys", "cannot have 5", "model.stride", "model.summary"),
        ),
        *(
            (
                {"flex_attention": True, "d_model": 64} | wrong,
                ("model.flex_attention = true", *words, "set it to false"),
            )
            for wrong, words in (
                ({}, ("model.self_attention=full", "model.positions=sinusoidal", "flash")),
                ({"self_attention": "linear"}, ("model.self_attention=linear", "no scores")),
                ({"self_attention": "fixed"}, ("model.attention_dropout=0.1",)),
                ({"self_attention": "fixed", "d_model": 32}, ("8 dimensions", "16 or more")),
            )
        ),
    ],
)
def test_contradicting_options_are_named(change: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        registry.build(TRANSFORMER | change, source_vocab_size=WORDS, target_vocab_size=WORDS)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 15}, ("hidden_size 15", "even")),
        ({"encoder_size": 15}, ("encoder_size 15", "model.encoder_size", "even")),
        (
            {"encoder_size": 20, "attention": "dot"},
            ("encoder has 20 numbers", "decoder 16", "model.attention=dot", "general"),
        ),
        (
            {"encoder_size": 20, "attention": "local_p", "local_score": "scaled_dot"},
            ("encoder has 20 numbers", "model.local_score=scaled_dot"),
        ),
        ({"encoder_size": 20, "bridge": "none"}, ("model.bridge=none", "linear")),
        ({"decoder_layers": 3}, ("3 decoder layers", "model.encoder_layers")),
        ({"attention": "none", "input_feeding": True}, ("input feeding", "model.attention=none")),
        (
            {"attention": "dot", "coverage": "linguistic"},
            (
                "tanh",
                "model.attention=dot has no such term",
                "model.attention=additive",
                "model.coverage=none",
            ),
        ),
        (
            {"attention": "local_p", "coverage": "linguistic"},
            ("model.local_score=general has no such term", "model.local_score=additive or concat"),
        ),
        (
            {"attention": "none", "coverage": "linguistic"},
            ("but model.attention=none has no such term",),
        ),
    ],
)
def test_contradicting_rnn_options_are_named(
    change: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(UserError) as error:
        registry.build(RNN | change, source_vocab_size=WORDS, target_vocab_size=WORDS)
    assert all(word in str(error.value) for word in words)


def test_unknown_family_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean transformer"):
        registry.build({"family": "transfomer"}, source_vocab_size=5, target_vocab_size=5)


@pytest.mark.parametrize("options", [RNN | {"tied_embeddings": "all"}, TRANSFORMER, CONVOLUTIONAL])
def test_two_vocabularies_cannot_share_their_embeddings(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"12 and 11 pieces.*model\.tied_embeddings=decoder"):
        registry.build(options, source_vocab_size=12, target_vocab_size=11)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beam_size", [1, 2])
@pytest.mark.unchecked
def test_a_search_goes_no_further_than_the_model_can_read(
    name: str, beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"max_positions": 4} if "max_positions" in MODELS[name] else {}
    model = registry.build(
        MODELS[name] | few, source_vocab_size=WORDS, target_vocab_size=WORDS
    ).eval()  # fmt: skip
    endless = torch.zeros(WORDS).index_fill(0, torch.tensor(EOS), -1e9)
    monkeypatch.setattr(type(model), "project", lambda self, hidden: self.output(hidden) + endless)
    search = BeamSearch(BeamConfig(kind="beam",
        beam_size=beam_size, length_penalty="none", alpha=0.0, coverage_penalty=0.0, n_best=1,
        max_length_ratio=0.0, max_length_offset=6,
    )) if beam_size > 1 else GreedySearch(
        GreedyConfig(kind="greedy", max_length_ratio=0.0, max_length_offset=6)
    )  # fmt: skip
    ((found,),) = search(model, *sentences(2))
    # a Transformer has the key whatever its positions are
    learned = MODELS[name].get("positions", "learned") == "learned" and bool(few)
    assert model.max_length == (4 if learned else None)
    assert len(found.tokens) == (3 if learned else 6)  # <s> is read too
    assert not found.finished


def test_learned_positions_refuse_what_they_have_not_learned() -> None:
    model = make("transformer-learned")
    with pytest.raises(UserError, match=r"70 pieces.*64 learned.*model\.max_positions"):
        model.encode(*sentences(70))


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("rnn-additive", 7),  # embeddings, between layers, the encoder's states, s_t and its h̃_t
        ("rnn-general-feeding", 7),
        ("transformer", 2 + 2 * 3 + 2 * 4),  # embeddings, sublayers, within the feed-forward ones
        ("convolutional", 2 + 2 + 2 + 1),  # embeddings, what each layer reads, the output
    ],
)
def test_every_dropout_is_on_the_way(name: str, passes: int) -> None:
    model, rates = make(name).train(), []
    for module in model.modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(lambda dropout, *_: rates.append(dropout.p))
    model.decode(sentences(1, 1)[0], model.encode(*sentences(5, 4)))
    assert rates == [0.1] * passes
