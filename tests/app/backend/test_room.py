"""Two models that do not fit together are refused before the second is read; the numbers are worked by hand."""

import pytest

from analyses._source import Source
from app.backend.room import PROCESS_BYTES, check_room, loaded_bytes

GB = 10**9


def source(dtype, n_bytes=2 * GB):
    return Source("owner/name", "hub", None, "", None, "LlamaForCausalLM", "llama", n_bytes, (), dtype)


def check(needed, beside, **changes):
    facts = {"model_bytes": 0, "free": 10 * GB, "device": "cpu"} | changes
    check_room("owner/name", needed, beside, **facts)


def test_sixteen_bit_weights_double_in_float32_and_not_in_their_own_format():
    assert loaded_bytes(source("bfloat16"), None) == pytest.approx(1.1 * 4 * GB + PROCESS_BYTES)
    assert loaded_bytes(source("bfloat16"), "bfloat16") == pytest.approx(1.1 * 2 * GB + PROCESS_BYTES)
    assert loaded_bytes(source("float32"), None) == pytest.approx(1.1 * 2 * GB + PROCESS_BYTES)


def test_the_open_models_mapped_weights_are_not_free_on_the_cpu():
    check(6 * GB, 4 * GB)
    with pytest.raises(
        ValueError, match=r"needs about 6\.1 GB for owner/name beside the 4\.0 GB .*; found 6\.0 GB free"
    ):
        check(61 * GB // 10, 4 * GB)
    check(10 * GB, 4 * GB, device="cuda")
    with pytest.raises(ValueError, match=r"found 10\.0 GB free"):
        check(11 * GB, 4 * GB, device="cuda:1")


def test_a_limit_for_all_models_counts_both_wherever_they_are():
    check(4 * GB, 4 * GB, model_bytes=8 * GB)
    with pytest.raises(ValueError, match=r"found a limit of 8\.0 GB for both \(STREAMSCOPE_LIMIT_MODEL_BYTES\)"):
        check(5 * GB, 4 * GB, model_bytes=8 * GB)
