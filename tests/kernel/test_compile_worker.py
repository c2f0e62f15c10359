"""The process that compiles kernels."""

import subprocess
import sys

# In a process of its own: it changes Numba.
SCRIPT = """
from itertools import product
from numba.core.compiler import Flags
from numba.core.targetconfig import TargetConfig
from tidelog.kernel.compile_worker import compare_flags_quickly

def flags(**options):
    made = Flags()
    for name, value in options.items():
        setattr(made, name, value)
    return made

some = [flags(), flags(nrt=True), flags(nrt=False), flags(nrt=True, forceinline=True),
        flags(forceinline=True, nrt=True), flags(forceinline=False), TargetConfig(), 1]
def results():
    pairs = [(one == other, one != other) for one, other in product(some, some)]
    return pairs, [hash(each) for each in some]

before, compare = results(), TargetConfig.__eq__
compare_flags_quickly()
print(TargetConfig.__eq__ is not compare, results() == before, len(set(before[0])))
"""


def test_flags_that_are_compared_quickly_are_as_equal_as_before() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True True 2\n", done.stdout + done.stderr
