"""A page with a bug."""

factor = 0
share = 1 / factor
