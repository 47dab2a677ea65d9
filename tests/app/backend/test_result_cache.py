"""The cache is bounded in bytes and forgets what was used longest ago."""

import numpy as np

from app.backend.result_cache import ResultCache, size_of


def test_sizes_count_array_buffers():
    assert size_of({"x": np.zeros(1000, np.float32)}) >= 4000
    assert size_of((b"12345", "12345")) >= 10


def test_least_recently_used_goes_first_and_bytes_stay_bounded():
    cache = ResultCache(max_bytes=40_000)
    for name in "abcd":
        cache.put(name, {"x": np.zeros(8_000, np.uint8)})
    assert cache.get("a") is not None  # now "b" is the oldest
    cache.put("e", {"x": np.zeros(8_000, np.uint8)})
    assert cache.get("b") is None
    assert all(cache.get(name) is not None for name in "acde")
    assert cache.bytes <= 40_000 and cache.hits == 5


def test_one_large_result_cannot_throw_all_others_out():
    cache = ResultCache(max_bytes=40_000)
    cache.put("small", {"x": 1})
    cache.put("large", {"x": np.zeros(10_001, np.uint8)})
    assert cache.get("large") is None and cache.get("small") is not None


def test_storing_twice_counts_once():
    cache = ResultCache(max_bytes=40_000)
    for _ in range(5):
        cache.put("a", {"x": np.zeros(8_000, np.uint8)})
    assert cache.bytes < 9_000
