"""What is said last of a row counts, whatever was said before."""

from __future__ import annotations

import numpy as np

from tests.seeds import seeded
from tidelog.engine.last_write_wins import last_write_wins

WIDE = (-(2**63), -1, 0, 1, 2**62, 2**63 - 1)


def test_random_words() -> None:
    rng = seeded("last words")
    contested = plain = 0
    for number in range(400):
        width, values = rng.randint(1, 3), WIDE if number % 2 else range(rng.choice((3, 1000)))
        pieces, said = [], {}
        both: dict[tuple[int, ...], set[bool]] = {}
        for _ in range(rng.randint(1, 3)):
            n = rng.choice((0, 1, 2, 30))
            rows = [tuple(rng.choice(values) for _ in range(width)) for _ in range(n)]
            signs = None if rng.random() < 0.2 else [rng.random() < 0.5 for _ in rows]
            for row, sign in zip(rows, signs or [True] * n, strict=True):
                said[row] = sign
                both.setdefault(row, set()).add(sign)
            columns = np.array(rows, np.int64).reshape(n, width).T
            pieces.append(
                (
                    np.ascontiguousarray(columns),
                    None if signs is None else np.array(signs, np.bool_),
                )
            )
        came, went = (set(map(tuple, side.T.tolist())) for side in last_write_wins(pieces))
        assert came == {row for row, sign in said.items() if sign}
        assert went == {row for row, sign in said.items() if not sign}
        is_contested = any(len(signs) == 2 for signs in both.values())
        contested, plain = contested + is_contested, plain + (not is_contested)
    assert contested > 50
    assert plain > 50
