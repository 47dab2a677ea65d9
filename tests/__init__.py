"""Tests; the tree mirrors the code. A package, so that two folders may hold tests of the same name."""
