"""Files that survive: what is written here is whole or not there, and says so when it is damaged.

This layer knows files, checksums and arrays. What the arrays mean is known to engine/.
"""
