"""The loops over rows, compiled by Numba.

Kernels take arrays and numbers, and return a status. They do not allocate, raise or decide
anything. The layers above say what to join, in which order, and what to do with the result.
"""
