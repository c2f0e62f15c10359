"""The oracle: what a program means, computed slowly and plainly.

`evaluate(program, facts)` is the definition of the answer that every other engine is tested
against. It is written to be read next to docs/language.md, it knows nothing of updates, and it
shares no code with the kernel. Use it to check results, not to serve them. Proofs use its `Solver`,
which tries one rule on a few rows.
"""

from tidelog.reference.evaluate import evaluate

__all__ = ["evaluate"]
