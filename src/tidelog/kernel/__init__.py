"""The loops over rows, compiled by Numba.

Kernels get arrays and numbers and return a status. They do not allocate, raise, or decide anything:
what to join, in which order and what to do with the result is said by the layers around them.
"""
