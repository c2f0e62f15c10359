"""The mark of a row: its level, or that it is dead.

A row's level is the iteration of a recursion that first derives it, 0 without recursion. Marks are
ordered, so that one comparison tells whether a version of a relation shows a row:

    0 .. ALIVE         alive, with this level
    DEAD_NOW           alive before this epoch, deleted in it
    GONE               inserted and deleted in this epoch: no version shows it
    FLAG | old mark    in the bucket that the level repair processes (maintain/repair.py)
    DEAD               a tombstone of an earlier epoch, which a merge will remove
"""

from __future__ import annotations

DEAD_NOW = 1 << 29
FLAG = 1 << 30
DEAD = (1 << 31) - 1

ALIVE = DEAD_NOW - 1  # the largest mark of a row that is alive
GONE = DEAD_NOW + 1
KNOWN = DEAD - 1  # every mark but DEAD: rows that this epoch may still change
