"""Joining rules: plans are compiled for the kernel, and run."""
