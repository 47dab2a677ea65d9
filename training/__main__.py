"""`python -m training`: from the Debian package to checkpoints/, log_*.json and data/ (README.md)."""

import argparse
import logging
import shutil
import sys
from pathlib import Path

import numpy as np

from analyses.sources import cache_folder
from training import corpus, tokenizer
from training.measure import measure, write_log
from training.runs import RUNS, Run, last_step, train_all
from training.slices import write_first_batches, write_measuring

HERE = Path(__file__).resolve().parent
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def main() -> None:
    """Fetch, clean, tokenise, train, measure, and put the results in their places."""
    parser = argparse.ArgumentParser(description="Train the tiny models again and measure their checkpoints.")
    parser.add_argument("--doc", type=Path, help=f"a .deb of {corpus.PACKAGE}; downloaded with apt-get when left out")
    package = parser.parse_args().doc
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if package and not package.is_file():
        sys.exit(f"needs a .deb of {corpus.PACKAGE}; found no file {package}; check the path, or leave it out.")
    try:
        documents = corpus.read_package(package.read_bytes() if package else corpus.fetch_package())
    except ValueError as error:
        sys.exit(str(error))
    logging.info("%d documents, %d characters", len(documents), sum(map(len, documents)))
    build = cache_folder() / "training"
    build.mkdir(parents=True, exist_ok=True)
    trained = tokenizer.train_tokenizer(documents)
    training = tokenizer.encode(trained, documents, held_out=False)
    np.save(build / "ids.npy", training)
    (HERE / "data").mkdir(exist_ok=True)
    write_measuring(tokenizer.encode(trained, documents, held_out=True), HERE / "data")
    write_first_batches(training, HERE / "data")
    train_all(build / "ids.npy", build)
    for run in RUNS:
        tokenizer.save_tokenizer(trained, build / run.name)
        finish(build / run.name, run, corpus.fingerprint(documents), tokenizer.fingerprint(trained))


def finish(folder: Path, run: Run, text: str, words: str) -> None:
    """Measure a run, write its log, and put the checkpoints that ship in their place.

    Args:
        folder: the run's.
        run: which one.
        text: fingerprint of the corpus.
        words: fingerprint of the tokenizer.
    """
    logging.info("measuring %s", run.name)
    write_log(measure(folder, run, corpus=text, tokenizer=words), HERE / f"log_{run.name}.json")
    if not run.kept:
        return
    target = HERE / "checkpoints" / run.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    earlier = [f"step{step:05d}.safetensors" for step in run.kept if step != last_step(folder)]
    for file in ("config.json", *TOKENIZER_FILES, "model.safetensors", *earlier):
        shutil.copyfile(folder / file, target / file)


if __name__ == "__main__":  # the training processes import this module too
    main()
