"""Symbols by columns and one by one, against a plain dictionary."""

import random

import pyarrow as pa
import pytest

from tests.seeds import case_seeds
from tidelog.engine.arrow import arrow_column
from tidelog.engine.arrow import symbol_ids as ids_of
from tidelog.store import symbols as module
from tidelog.store.codec import Codec
from tidelog.values.types import SYMBOL

ALPHABET = ["", "a", "é", "\U0001f600", "a long name of a method in a class", "\x00", "12345678"]


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(ALPHABET, k=rng.randint(0, 3))) + str(rng.randrange(40))


def _column(rng: random.Random) -> pa.Array:
    texts = [_text(rng) for _ in range(rng.choice([1, 5, 60, 400]))]
    column = pa.array(texts, rng.choice([pa.string(), pa.large_string()]))
    if rng.random() < 0.3:
        column = column.dictionary_encode()
    return column.slice(rng.randrange(len(column)))


@pytest.mark.parametrize("least", [1, 50])
def test_ids_are_those_of_a_plain_dictionary(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST", least)
    for seed in case_seeds(40, offset=98_000):
        rng = random.Random(seed)
        codec, symbols = (codec := Codec({})), codec.symbols
        known: dict[str, int] = {}
        for _ in range(12):
            match rng.randrange(4):
                case 0:
                    text = _text(rng)
                    assert symbols.find(text) == known.get(text), seed
                    number = symbols.number(text)
                    assert known.setdefault(text, number) == number, seed
                case 1 if known:
                    text = rng.choice(list(known))
                    assert symbols.items[known[text]] == text, seed
                    if rng.random() < 0.2:
                        assert list(symbols.items) == sorted(known, key=known.__getitem__), seed
                case _:
                    column = _column(rng)
                    found = ids_of(column, symbols)
                    for text, number in zip(column.to_pylist(), found.tolist(), strict=True):
                        assert known.setdefault(text, number) == number, seed
                    if pa.types.is_dictionary(column.type):  # with texts that no row has
                        for text in column.dictionary.to_pylist():
                            known.setdefault(text, symbols.number(text))
                    assert arrow_column(found, SYMBOL, codec).to_pylist() == column.to_pylist()
            assert len(symbols) == len(known), seed
        by_id = sorted(known, key=known.__getitem__)
        assert symbols.entries(0, len(symbols)) == by_id, seed
        assert [symbols.number(text) for text in by_id] == list(range(len(by_id))), seed
