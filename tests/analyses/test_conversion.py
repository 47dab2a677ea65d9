"""The embedded model is converted once, wholly or not at all, whoever is killed or cancelled in between."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from analyses import conversion
from analyses._child import module_command
from analyses._steps import Cancelled
from analyses.conversion import convert, converted_folder, embedded_file
from analyses.sources import SourceError

ROOT = Path(__file__).resolve().parents[2]

# A converter that notes each start, and waits for a file named "go" if asked to: 20 ms instead of 20 s.
FAKE = """
import json, os, pathlib, sys, time
from analyses._child import start_reporting
report = start_reporting()
gguf, into, mode = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
with open(gguf.parent / "starts", "a") as starts:
    starts.write(f"{os.getpid()}\\n")
(into / "model.safetensors").write_bytes(gguf.read_bytes())
report(done=0.5, total=1.0, note="half")
while mode == "wait" and not (gguf.parent / "go").exists():
    time.sleep(0.02)
if mode == "fail":
    raise OSError(28, "No space left on device")
(into / "config.json").write_text("{}")
(into / "tokenizer.json").write_text("{}")
report(result=str(into))
"""

# A process of its own that converts with the fake, as an app would.
CONVERTING = """
import pathlib, sys
from analyses import conversion
fake = [sys.executable, "-c", pathlib.Path(sys.argv[2]).read_text()]
conversion._command = lambda gguf, into: [*fake, str(gguf), str(into), "wait"]
print(conversion.convert(pathlib.Path(sys.argv[1])))
"""


@pytest.fixture
def gguf(tmp_path, monkeypatch):
    """A small file to convert, and a cache folder of its own."""
    monkeypatch.setenv("STREAMSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(conversion, "NEEDED_BYTES", 1000)
    file = tmp_path / "small.gguf"
    file.write_bytes(b"weights")
    (tmp_path / "fake.py").write_text(FAKE)
    return file


def use_fake(monkeypatch, mode):
    monkeypatch.setattr(
        conversion, "_command", lambda gguf, into: [sys.executable, "-c", FAKE, str(gguf), str(into), mode]
    )


def start_app(gguf):
    """A real process that converts and waits for `go`."""
    return subprocess.Popen(
        [sys.executable, "-c", CONVERTING, str(gguf), str(gguf.parent / "fake.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def converters(gguf):
    """Process ids of the converters started so far."""
    starts = gguf.parent / "starts"
    return [int(line) for line in starts.read_text().split()] if starts.exists() else []


def wait_until(condition, what):
    for _ in range(1500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"still waiting for {what}")


def rubbish():
    """Everything in the cache that is neither a finished model nor the two files that belong there."""
    models = conversion.cache_folder() / "models"
    kept = {"conversion.lock", "digest.json"}
    return [p.name for p in models.iterdir() if p.name not in kept and not conversion.is_converted(p)]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2] if Path("/proc").is_dir() else True


def test_converted_once_and_then_only_looked_up(gguf, monkeypatch):
    use_fake(monkeypatch, "quick")
    seen = []
    folder = convert(gguf, on_progress=seen.append)
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert (0.5, "half") in {(p.done, p.note) for p in seen}
    assert convert(gguf) == folder and len(converters(gguf)) == 1 and rubbish() == []


def test_another_file_is_another_model(gguf, monkeypatch):
    first = converted_folder(gguf)
    gguf.write_bytes(b"other weights")
    second = converted_folder(gguf)
    monkeypatch.setattr(conversion, "FORMAT", conversion.FORMAT + 1)
    third = converted_folder(gguf)
    monkeypatch.setattr(conversion, "version", lambda name: "0")
    assert len({first, second, third, converted_folder(gguf)}) == 4


def test_damaged_memory_of_the_digest_is_only_slower(gguf):
    folder = converted_folder(gguf)
    memory = conversion.cache_folder() / "models" / "digest.json"
    for text in ("", "[]", '{"file": 1}', json.dumps({"file": [str(gguf), 0, 0], "sha256": "wrong"})):
        memory.write_text(text)
        assert converted_folder(gguf) == folder


def test_cancel_ends_the_converter_and_leaves_nothing(gguf, monkeypatch):
    use_fake(monkeypatch, "wait")

    def stop(progress):
        if converters(gguf):
            raise Cancelled

    with pytest.raises(Cancelled):
        convert(gguf, on_progress=stop)
    assert not any(is_running(pid) for pid in converters(gguf))
    assert rubbish() == []
    use_fake(monkeypatch, "quick")
    assert conversion.is_converted(convert(gguf))


def test_killed_app_takes_its_converter_along_and_the_next_one_cleans_up(gguf, monkeypatch):
    with start_app(gguf) as app:
        wait_until(lambda: converters(gguf), "the converter")
        app.kill()
    wait_until(lambda: not is_running(converters(gguf)[0]), "the converter to end with its app")
    assert not converted_folder(gguf).exists()
    assert len(rubbish()) == 1  # nobody was left to remove it
    use_fake(monkeypatch, "quick")
    assert (convert(gguf) / "model.safetensors").read_bytes() == b"weights"
    assert rubbish() == []


def test_killed_converter_is_one_sentence_and_nothing_stays(gguf, monkeypatch):
    use_fake(monkeypatch, "wait")

    def kill(progress):
        for pid in converters(gguf):
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(SourceError, match=r"needs to convert .* found: .* signal 9 .*; free .* start again\.$"):
        convert(gguf, on_progress=kill)
    assert rubbish() == []


def test_two_apps_at_once_convert_once(gguf):
    with start_app(gguf) as first, start_app(gguf) as second:
        wait_until(lambda: converters(gguf), "the first converter")
        waiting = []

        def look(progress):
            waiting.append(progress.note)
            (gguf.parent / "go").touch()

        folder = convert(gguf, on_progress=look)  # a third, which has to wait as well
        answers = [app.communicate(timeout=60)[0].strip() for app in (first, second)]
    assert answers == [str(folder)] * 2 and len(converters(gguf)) == 1
    assert waiting[0] == "another process is converting the model"


def test_cancel_while_another_process_converts(gguf):
    with start_app(gguf) as app:
        wait_until(lambda: converters(gguf), "the converter")

        def stop(progress):
            raise Cancelled

        with pytest.raises(Cancelled):
            convert(gguf, on_progress=stop)
        (gguf.parent / "go").touch()
        assert app.communicate(timeout=60)[0].strip() == str(converted_folder(gguf))


def test_failed_conversion_is_one_sentence_and_nothing_stays(gguf, monkeypatch):
    use_fake(monkeypatch, "fail")
    with pytest.raises(SourceError, match=r"No space left on device; free .* STREAMSCOPE_CACHE, and start again\.$"):
        convert(gguf)
    assert rubbish() == [] and not converted_folder(gguf).exists()


def test_full_disk_is_refused_before_the_work(gguf, monkeypatch):
    use_fake(monkeypatch, "quick")
    monkeypatch.setattr(conversion, "NEEDED_BYTES", 10**18)
    with pytest.raises(SourceError, match="MB free of"):
        convert(gguf)
    assert converters(gguf) == []


def test_cache_that_is_a_file_is_refused(gguf, monkeypatch, tmp_path):
    use_fake(monkeypatch, "quick")
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("STREAMSCOPE_CACHE", str(tmp_path / "taken"))
    with pytest.raises(SourceError, match="Not a directory"):
        convert(gguf)


def test_child_takes_its_code_from_this_package_whatever_lies_in_the_current_folder(tmp_path):
    (tmp_path / "analyses").mkdir()
    (tmp_path / "analyses" / "conversion.py").write_text("print('wrong')")
    command = [*module_command("analyses.conversion")[:2], "-c", "import analyses; print(analyses.__path__)"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert str(ROOT) in done.stdout and str(tmp_path) not in done.stdout


@pytest.mark.embedded
def test_embedded_model_equals_its_own_dequantisation():
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from safetensors import safe_open
    from tokenizers import Tokenizer

    folder = convert()
    by_name = {tensor.name: tensor for tensor in GGUFReader(embedded_file()).tensors}

    def own(name):
        return dequantize(by_name[name].data, by_name[name].tensor_type)

    with safe_open(folder / "model.safetensors", "numpy") as file:
        embedding = file.get_tensor("model.embed_tokens.weight")
        down = file.get_tensor("model.layers.17.mlp.down_proj.weight")
        query = file.get_tensor("model.layers.17.self_attn.q_proj.weight")
        n_parameters = sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())
    assert n_parameters == 134_515_008
    assert np.array_equal(embedding, own("token_embd.weight"))
    assert np.array_equal(down, own("blk.17.ffn_down.weight"))
    # llama.cpp interleaves the two halves that the rotary embedding turns; transformers keeps them apart.
    interleaved = own("blk.17.attn_q.weight").reshape(9, 32, 2, 576)
    assert np.array_equal(query, interleaved.swapaxes(1, 2).reshape(576, 576))
    config = json.loads((folder / "config.json").read_text())
    wanted = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "dtype": "float32"}
    assert {key: config[key] for key in wanted} == wanted and "quantization_config" not in config
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode("Hello world").ids == [19556, 905]
    assert tokenizer.encode("🙂").ids == [10813, 38887]
    assert (folder / "chat_template.jinja").read_text().count("im_start")


@pytest.mark.embedded
def test_embedded_model_is_readable_by_whom_the_umask_allows():
    mask = os.umask(0)
    os.umask(mask)
    for path in convert().iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
