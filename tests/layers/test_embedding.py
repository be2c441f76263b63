"""Tables against transformers' own."""

import pytest
import torch
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from transduce.layers.embedding import Embedding, IntegerEmbedding, TokenEmbedding, sinusoidal
from transduce.layers.norm import LayerNorm


@pytest.mark.parametrize("d", [8, 27, 64])
def test_sinusoidal_is_marians(d: int) -> None:
    expected = MarianSinusoidalPositionalEmbedding(40, d).create_weight()
    torch.testing.assert_close(sinusoidal(40, d), expected)


def test_token_embedding_adds_scaled_tokens_and_positions_and_then_norms() -> None:
    tokens, positions = torch.randn(10, 6), torch.randn(20, 6)
    norm = LayerNorm(torch.randn(6), torch.randn(6), 1e-5)
    ids, places = torch.tensor([3, 9, 0]), torch.tensor([0, 19, 4])
    whole = TokenEmbedding(Embedding(tokens, 2.5), Embedding(positions), norm)
    torch.testing.assert_close(whole(ids, places), norm(tokens[ids] * 2.5 + positions[places]))
    assert torch.equal(TokenEmbedding(Embedding(tokens))(ids, places), tokens[ids])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_integers_are_scaled_by_row_and_rounded_once(dtype: torch.dtype) -> None:
    table = torch.tensor([[127, -3], [5, -128]], dtype=torch.int8)
    rows = IntegerEmbedding(table, torch.tensor([0.1, 3.3]), dtype)(torch.tensor([1, 0, 1]))
    expected = torch.tensor([[5.0, -128.0], [127.0, -3.0], [5.0, -128.0]]) * torch.tensor([[3.3], [0.1], [3.3]])
    assert torch.equal(rows, expected.to(dtype))
