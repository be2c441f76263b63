"""The grammar rule: what it allows in every state, and that states are persistent."""

import pickle
import random
import re
from collections.abc import Iterator

import pytest
import torch

from transduce.core.request import RuleSpec
from transduce.errors import RequestError
from transduce.rules import build
from transduce.rules.grammar import Grammar, Progress
from transduce.rules.vocabulary import Vocabulary, compiled

CPU = torch.device("cpu")
EOS = 0
SPACED = {" ": "", " a": "a", " bc": "bc", " yes": "yes"}
PIECES = ["", "", *SPACED, *"abcyes", "ab", "ye", "es", "cb", "1"]
"""EOS, another special token, words with their spaces, and pieces of words."""

SPACE, LETTERS = 2, 6


def vocabulary(pieces: list[str] = PIECES) -> Vocabulary:
    first = {pieces.index(piece): form.encode() for piece, form in SPACED.items() if piece in pieces}
    return Vocabulary.of([piece.encode() for piece in pieces], first, [EOS])


TABLE = vocabulary()


def rule(lark: str, table: Vocabulary = TABLE, prompt: int = 1) -> Grammar:
    made = build(RuleSpec("grammar", (table, lark, prompt)), len(table.tokens), CPU)
    assert isinstance(made, Grammar)
    return made


def after(made: Grammar, *tokens: int) -> Progress:
    state = made.state()
    for token in tokens:
        state = made.advance(state, token)
    return state


def allowed(made: Grammar, state: Progress) -> set[str]:
    """What may follow; EOS as "EOS"."""
    scores = torch.zeros(3, len(PIECES))
    made.apply([1], scores, [state])
    assert scores[[0, 2]].isfinite().all()
    return {"EOS" if token == EOS else PIECES[token] for token in scores[1].isfinite().nonzero().flatten().tolist()}


def test_a_word_begins_with_its_space_or_without() -> None:
    made = rule('start: "yes" " a"?')
    begun = after(made, 1)
    assert allowed(made, begun) == {" ", " yes", "y", "ye"}
    assert allowed(made, made.advance(begun, PIECES.index(" yes"))) == {"EOS", " ", " a"}
    assert allowed(made, made.advance(begun, SPACE)) == {"y", "ye"}
    whole = after(made, 1, PIECES.index("ye"), PIECES.index("s"), PIECES.index(" a"))
    assert allowed(made, whole) == {"EOS"}


def test_a_space_that_is_wanted_at_the_beginning_is_another_one() -> None:
    made = rule("start: / a/")
    assert allowed(made, after(made, 1)) == {" "}
    assert allowed(made, after(made, 1, SPACE)) == {" ", " a"}


def test_special_tokens_and_the_prompt_are_passed_over() -> None:
    made = rule('start: "ab"', prompt=3)
    state = after(made, 1, LETTERS, 1)
    assert allowed(made, state) == allowed(made, made.advance(state, 1)) == {" ", " a", "a", "ab"}


def test_no_token_begins_what_cannot_be_ended() -> None:
    """After "a" there is no token to spell "1b" with."""
    pieces = ["", "", "a", "a1b", "b"]
    made = rule('start: "a1b" | "ab"', vocabulary(pieces))
    scores = torch.zeros(1, len(pieces))
    made.apply([0], scores, [after(made, 1, 2)])
    assert scores.isfinite().nonzero()[:, 1].tolist() == [4]
    lone = rule('start: "a1"', vocabulary(pieces))
    scores = torch.zeros(1, len(pieces))
    lone.apply([0], scores, [after(lone, 1)])
    assert not scores.isfinite().any()


def test_where_nothing_fits_not_even_eos_is_allowed() -> None:
    made = rule("start: /q/")
    assert allowed(made, after(made, 1)) == set()


def test_spelling_of_whole_texts() -> None:
    assert [TABLE.spells(text) for text in ("yes", "yes a", "a  bc", "ay", "q", "yesq")] == [True] * 4 + [False] * 2
    assert TABLE.closed
    table = vocabulary(["", "", "a", "a1b", "b"])
    assert not table.closed
    assert [table.spells(text) for text in ("a1ba", "a1", "1b")] == [True, False, False]


PATTERN = "(yes|ab{0,2}c*)( a| bc){0,3}"


def walks(made: Grammar, count: int) -> Iterator[list[int]]:
    drawn = random.Random(0)
    for _ in range(count):
        tokens, state = [], after(made, 1)
        while EOS not in tokens:
            options = torch.zeros(1, len(PIECES))
            made.apply([0], options, [state])
            tokens.append(drawn.choice(options.isfinite().nonzero()[:, 1].tolist()))
            state = made.advance(state, tokens[-1])
        yield tokens


def test_every_walk_matches_and_may_end_exactly_where_it_matches() -> None:
    made = rule(f"start: /{PATTERN}/")
    texts = set()
    for tokens in walks(made, 60):
        for end in range(1, len(tokens)):
            matches = re.fullmatch(PATTERN, TABLE.text(tokens[:end])) is not None
            assert ("EOS" in allowed(made, after(made, 1, *tokens[:end]))) == matches
        texts.add(TABLE.text(tokens))
    assert all(re.fullmatch(PATTERN, text) for text in texts)
    assert len(texts) > 20


def test_any_old_state_goes_on_as_if_it_were_alone() -> None:
    made = rule(f"start: /{PATTERN}/")
    drawn = random.Random(1)
    grown: list[tuple[Progress, tuple[int, ...]]] = [(made.state(), ())]
    for _ in range(200):
        state, past = drawn.choice(grown[-8:])
        token = drawn.randrange(1, len(PIECES))
        if not past or PIECES[token] in allowed(made, state):
            grown.append((made.advance(state, token), (*past, token)))
    fresh = rule(f"start: /{PATTERN}/")
    scores = torch.randn(len(grown), len(PIECES), generator=torch.Generator().manual_seed(0))
    expected = scores.clone()
    made.apply(range(len(grown)), scores, [state for state, _ in grown])
    for row, (_, past) in enumerate(grown):
        fresh.apply([row], expected, [after(fresh, *past)])
    assert torch.equal(scores, expected)
    assert max(len(past) for _, past in grown) > 5


def test_a_vocabulary_is_itself_again_after_pickling() -> None:
    spec = RuleSpec("grammar", (TABLE, 'start: "a"', 1))
    first, second = (pickle.loads(pickle.dumps(spec)) for _ in range(2))
    assert first == second
    assert first.args[0].tokens == TABLE.tokens
    assert compiled(first.args[0], 'start: "a"') is compiled(second.args[0], 'start: "a"')


@pytest.mark.parametrize(
    ("lark", "said"),
    [
        ("start: foo", 'unknown name: "foo"'),
        ("start: /(/", "unclosed group"),
        ('start: %json {"type": "foo"}', "Invalid type: foo"),
        ("what", "Expected token"),
        ("start: <|special|>", "special token"),
    ],
)
def test_grammars_that_are_none_are_refused(lark: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        rule(lark)


def test_a_grammar_that_takes_too_long_is_refused() -> None:
    with pytest.raises(RequestError, match="fuel exhausted"):
        rule("start: A\nA: /(.*a.{20}.*){3}/ & ~/.*b.{20}.*/ & /[^c]*d.{30}/")


def test_a_grammar_that_grows_too_large_underway_lets_nothing_pass() -> None:
    made = rule("start: /(([a-c]{0,1000}){0,1000}){0,1000}/")
    state = after(made, 1)
    for _ in range(100):
        state = made.advance(state, LETTERS)
    assert allowed(made, state) == set()
