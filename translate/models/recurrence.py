"""Recurrent layers that padding cannot touch, over whole sequences or a token at a time."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from translate.linear import Prepackable
from translate.models.seq2seq import Dropout, Stack

# One tensor (layers, N, D) for a GRU, two (hidden and cell) for an LSTM.
RecurrentState = tuple[Tensor, ...]


class Recurrence(nn.Module):
    """A stack of GRU or LSTM layers, as PyTorch has them.

    The LSTM of Hochreiter & Schmidhuber 1997 has the forget gate of Gers et al. 2000. The GRU's
    reset gate comes after the product with the state, in Cho et al. 2014 before it.
    """

    def __init__(
        self, *, cell: str, input_size: int, hidden_size: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        kind: type[nn.LSTM | nn.GRU] = nn.LSTM if cell == "lstm" else nn.GRU
        self.layers: Stack[nn.LSTM | nn.GRU] = Stack(
            kind(input_size if layer == 0 else hidden_size, hidden_size, batch_first=True)
            for layer in range(num_layers)
        )
        self.dropout = Dropout(dropout)
        self.hidden_size = hidden_size
        self.num_states = 2 if cell == "lstm" else 1

    def zeros(self, like: Float[Tensor, "B *rest"]) -> RecurrentState:
        """The state before anything was read."""
        shape = (len(self.layers), like.shape[0], self.hidden_size)
        return tuple(like.new_zeros(shape) for _ in range(self.num_states))

    def forward(
        self, x: Float[Tensor, "B T I"], state: RecurrentState
    ) -> tuple[Float[Tensor, "B T D"], RecurrentState]:
        """Read a sequence from `state` on: the top layer's outputs, and the state after it."""
        after = []
        # float32: autocast would take CUDA's recurrence to float16, and the CPU's off oneDNN. A
        # graph, which is traced without autocast, cannot hold its context beside a `scan`
        exporting = torch.compiler.is_exporting()
        with nullcontext() if exporting else torch.autocast(x.device.type, enabled=False):
            x = x.to(state[0].dtype)
            read = self.read_token if x.shape[1] == 1 else _read_sequence
            befores = zip(*(part.unbind() for part in state), strict=True)
            for index, (layer, before) in enumerate(zip(self.layers, befores, strict=True)):
                x, last = read(layer, self.dropout(x) if index else x, before)
                after.append(last)
        return x, tuple(torch.stack(parts) for parts in zip(*after, strict=True))

    def read_token(
        self, layer: nn.LSTM | nn.GRU, x: Float[Tensor, "B 1 I"], state: tuple[Tensor, ...]
    ) -> tuple[Float[Tensor, "B 1 D"], tuple[Tensor, ...]]:
        """The output of one of the layers for one token, and its state after it."""
        return _read_token(layer, x, state)


class StepwiseRecurrence(Prepackable, Recurrence):
    """A recurrence that translates token by token, with weights that may be laid out for it."""

    def matrices(self) -> list[Float[Tensor, "O I"]]:
        return [weight for weight in self.parameters() if weight.dim() == 2]

    def read_token(
        self, layer: nn.LSTM | nn.GRU, x: Float[Tensor, "B 1 I"], state: tuple[Tensor, ...]
    ) -> tuple[Float[Tensor, "B 1 D"], tuple[Tensor, ...]]:
        ((W_x, W_h, b_x, b_h),) = layer.all_weights
        word, before = x[:, 0], state[0]
        of_word, of_state = self.prepacked(word, W_x), self.prepacked(before, W_h)
        if of_word is None or of_state is None:
            return super().read_token(layer, x, state)
        gates = of_word.product(word, b_x), of_state.product(before, b_h)
        after = _lstm(*gates, state) if isinstance(layer, nn.LSTM) else _gru(*gates, state)
        return after[0][:, None], after


def _gru(
    of_word: Float[Tensor, "B gates"], of_state: Float[Tensor, "B gates"], state: tuple[Tensor, ...]
) -> tuple[Tensor]:
    """h' = (1 - z) n + z h,  n = tanh(W x + r (U h)); r = σ(W_r x + U_r h), z likewise."""
    (h,) = state
    size = h.shape[1]
    r, z = (of_word[:, : 2 * size] + of_state[:, : 2 * size]).sigmoid_().chunk(2, dim=1)
    n = torch.addcmul(of_word[:, 2 * size :], r, of_state[:, 2 * size :]).tanh_()
    return (torch.lerp(n, h, z),)


def _lstm(
    of_word: Float[Tensor, "B gates"], of_state: Float[Tensor, "B gates"], state: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """c' = σ(f) c + σ(i) tanh(g),  h' = σ(o) tanh(c')."""
    _, c = state
    i, f, g, o = (of_word + of_state).chunk(4, dim=1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _read_sequence(
    layer: nn.LSTM | nn.GRU, x: Float[Tensor, "B T I"], state: tuple[Tensor, ...]
) -> tuple[Float[Tensor, "B T D"], tuple[Tensor, ...]]:
    if torch.compiler.is_exporting():
        return _scan(layer, x, state)
    before = tuple(part[None].contiguous() for part in state)
    x, last = layer(x, before if len(before) > 1 else before[0])
    after = last if isinstance(last, tuple) else (last,)
    return x, tuple(part[0] for part in after)


def _scan(
    layer: nn.LSTM | nn.GRU, x: Float[Tensor, "B T I"], state: tuple[Tensor, ...]
) -> tuple[Float[Tensor, "B T D"], tuple[Tensor, ...]]:
    """`_read_sequence` for graphs, by a loop: traced, the layer's own kernel has a fixed length."""
    from torch._higher_order_ops.scan import scan  # public nowhere yet; imports the compiler

    def read(
        before: tuple[Tensor, ...], token: Float[Tensor, "B I"]
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        _, after = _read_token(layer, token[:, None], before)
        return after, after[0].clone()

    after, outputs = scan(read, tuple(part.clone() for part in state), x, dim=1)
    return outputs, after


def _read_token(
    layer: nn.LSTM | nn.GRU, x: Float[Tensor, "B 1 I"], state: tuple[Tensor, ...]
) -> tuple[Float[Tensor, "B 1 D"], tuple[Tensor, ...]]:
    """`_read_sequence` for one token: the layer's own kernel prepares its weights at each call."""
    (weights,) = layer.all_weights
    if isinstance(layer, nn.LSTM):
        after: tuple[Tensor, ...] = torch.lstm_cell(x[:, 0], state, *weights)
    else:
        after = (torch.gru_cell(x[:, 0], state[0], *weights),)
    return after[0][:, None], after


def reverse_each(x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
    """Each sentence backwards by its own length; padding stays at the end."""
    lengths = mask.sum(1, keepdim=True)
    position = torch.arange(x.shape[1], device=x.device)
    mirrored = torch.where(mask, lengths - 1 - position, position)
    return x.gather(1, mirrored[:, :, None].expand_as(x))


class BidirectionalLayer(nn.Module):
    """A layer forwards and backwards. Each direction meets padding only after the sentence."""

    def __init__(self, *, cell: str, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.forwards, self.backwards = (
            Recurrence(
                cell=cell, input_size=input_size, hidden_size=hidden_size, num_layers=1, dropout=0.0
            )
            for _ in range(2)
        )

    def forward(
        self, x: Float[Tensor, "B S I"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        ahead, _ = self.forwards(x, self.forwards.zeros(x))
        back, _ = self.backwards(reverse_each(x, mask), self.backwards.zeros(x))
        return torch.cat((ahead, reverse_each(back, mask)), dim=-1)


class BidirectionalEncoder(nn.Module):
    """Bahdanau et al. 2015, section 3.2: h_i = [forwards_i ; backwards_i], layer upon layer."""

    def __init__(
        self, *, cell: str, input_size: int, hidden_size: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.width = hidden_size // 2
        self.layers: Stack[BidirectionalLayer] = Stack(
            BidirectionalLayer(
                cell=cell,
                input_size=input_size if index == 0 else hidden_size,
                hidden_size=self.width,
            )
            for index in range(num_layers)
        )
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B S I"], mask: Bool[Tensor, "B S"]
    ) -> tuple[Float[Tensor, "B S D"], list[Float[Tensor, "B D"]]]:
        """All states of the top layer, and each layer's summary of the whole sentence."""
        last = mask.sum(1) - 1
        summaries = []
        for index, layer in enumerate(self.layers):
            x = layer(self.dropout(x) if index else x, mask)
            ends = x[torch.arange(x.shape[0], device=x.device), last, : self.width]
            summaries.append(torch.cat((ends, x[:, 0, self.width :]), dim=-1))
        return x, summaries
