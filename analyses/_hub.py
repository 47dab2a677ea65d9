"""Models on the Hugging Face hub: judged by their small files, then fetched by a child process.

Nothing of a repository is executed and only safetensors, JSON and tokenizer files are downloaded, into the ordinary hub
cache, so a model that is already there is not fetched twice. HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE and HF_HUB_OFFLINE are
honoured as usual; the endpoint, the cache and the offline switch are read at each call.
"""

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from analyses._child import ChildDied, OnProgress, Report, module_command, run_child, start_reporting
from analyses._source import CONFIG_BYTES, Source, SourceError, describe, from_folder, read_config

# The hub's own rule: 96 characters of letters, digits, "-", "_" and ".", no "--" or ".." inside.
HUB_ID = re.compile(r"(?=.{3,96}\Z)(?!.*(--|\.\.))[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*(?<![.-])", re.ASCII)
REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][\w./+-]{0,254}", re.ASCII)


def endpoint() -> str:
    """Address of the hub: HF_ENDPOINT as it is now, else the library's."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def hub_cache() -> Path:
    """Folder of the hub's cache: HF_HUB_CACHE as it is now, else the library's."""
    from huggingface_hub import constants

    return Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE).expanduser()


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids the network."""
    from huggingface_hub import constants

    set_now = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    return set_now or constants.is_offline_mode()


def resolve_hub(name: str, *, revision: str | None, timeout: float) -> Source:
    """The source of a hub id at a revision (a branch, tag or commit; None for the main branch).

    Args:
        name: "owner/name", already checked to look like one.
        revision: what to look up; the source carries the commit it stands for.
        timeout: seconds for each request; the caller bounds the whole.

    Raises:
        SourceError: gated, missing, unreachable, offline without a copy, or a model that cannot be opened here.
    """
    from huggingface_hub import HfApi, hf_hub_download

    if revision is not None and not REVISION.fullmatch(revision):
        raise SourceError(f"needs a branch, tag or commit; found {revision!r}; copy one from the model's page.")
    if is_offline():
        return _cached(name, revision)
    try:
        # Asked first, because it is not retried: without a network, hf_hub_download alone takes 24 s to say so.
        api = HfApi(endpoint=endpoint())
        info = api.model_info(name, revision=revision, files_metadata=True, timeout=timeout)
        _check_listed(name, info)
        # The hub describes a gated model to anyone, but gives its files only to those with access.
        config = Path(
            hf_hub_download(
                name,
                "config.json",
                revision=revision,
                cache_dir=hub_cache(),
                endpoint=endpoint(),
                etag_timeout=timeout,
            )
        )
        commit = config.parent.name
        if info.sha != commit:  # the branch moved between the two requests
            info = api.model_info(name, revision=commit, files_metadata=True, timeout=timeout)
    except SourceError:
        raise
    except _troubles() as error:
        raise SourceError(explain(error, name, revision)) from error
    return describe(name, "hub", read_config(config.read_bytes(), name), _sizes(info), revision=commit)


def _sizes(info: Any) -> dict[str, int]:
    """Name -> bytes of the files in a hub's answer."""
    return {file.rfilename: file.size or 0 for file in info.siblings or ()}


def _check_listed(name: str, info: Any) -> None:
    """Refuse a repository without a config.json, or with one that is no config.json, before it is downloaded."""
    n_bytes = _sizes(info).get("config.json")
    if n_bytes is None:
        raise SourceError(
            f"needs config.json, safetensors and a tokenizer; found no config.json in {name}; name another model."
        )
    if n_bytes > CONFIG_BYTES:
        raise SourceError(f"needs a config.json below 10 MB; found {n_bytes:,} bytes in {name}; name another model.")


def _cached(name: str, revision: str | None) -> Source:
    """The source of a model that is completely in the local hub cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    advice = "unset HF_HUB_OFFLINE to download it, or name a local folder"
    try:
        folder = Path(
            snapshot_download(
                name,
                revision=revision,
                cache_dir=hub_cache(),
                local_files_only=True,
                allow_patterns=["config.json"],
            )
        )
    except LocalEntryNotFoundError as error:
        raise SourceError(
            f"needs a downloaded copy of {name} while HF_HUB_OFFLINE is set; found none in {hub_cache()}; {advice}."
        ) from error
    return from_folder(folder, name, "hub", revision=folder.name)


def fetch_hub(source: Source, on_progress: OnProgress) -> Path:
    """Folder of a hub model's files, downloaded if they are not all there; what `on_progress` raises stops it.

    Finished files stay in the cache and are not fetched again; an unfinished one is removed.
    """
    if source.path is not None:
        return Path(source.path)
    if (folder := _complete(source)) is not None:
        return folder
    request = {"name": source.name, "commit": source.revision, "files": source.files}
    where = {"cache": str(hub_cache()), "address": endpoint()}
    try:
        return Path(run_child(module_command("analyses._hub", json.dumps({**request, **where})), on_progress))
    except ChildDied as error:
        raise SourceError(
            f"needs to download {source.name}; found: {str(error).rstrip('.')}; "
            "start it again, finished files are kept."
        ) from error


def _complete(source: Source) -> Path | None:
    """Snapshot folder of a source whose files are all in the hub cache."""
    from huggingface_hub import try_to_load_from_cache

    paths = [
        try_to_load_from_cache(source.name, file, cache_dir=hub_cache(), revision=source.revision)
        for file in source.files
    ]
    return Path(paths[0]).parent if paths and all(isinstance(p, str) for p in paths) else None


def _troubles() -> tuple[type[Exception], ...]:
    """What the hub library raises for a hub that says no, says nonsense or says nothing."""
    from huggingface_hub import errors

    # errors.HTTPError is the base class of the HTTP library in use: httpx up to huggingface_hub 1, httpx2 from 2.
    return (
        errors.HTTPError,
        errors.EntryNotFoundError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
    )


def explain(error: BaseException, name: str, revision: str | None) -> str:
    """One sentence for what went wrong with the hub."""
    from huggingface_hub import errors, get_token

    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)

    def among(*kinds: type[BaseException]) -> BaseException | None:
        return next((e for e in chain if isinstance(e, kinds)), None)

    token = "a token without access" if get_token() else "no token"
    if among(errors.GatedRepoError):
        return (
            f"needs access to {name}, which is gated; found {token}; accept its conditions on the hub, "
            "set HF_TOKEN and start again."
        )
    if among(errors.RevisionNotFoundError):
        return f"needs a revision that exists; found no {revision} of {name}; choose a branch, tag or commit of it."
    status = next((e.response.status_code for e in chain if isinstance(e, errors.HfHubHTTPError)), None)
    if among(errors.RepositoryNotFoundError) or status in (401, 403):
        return (
            f"needs a model that exists and that you may read; found no {name} on the hub (with {token}); "
            "check the spelling, or set HF_TOKEN if it is private."
        )
    if status is not None:
        return f"needs an answer from {endpoint()}; found status {status} for {name}; try again later."
    if among(errors.HTTPError, errors.OfflineModeIsEnabled, ConnectionError):
        return (
            f"needs the hub at {endpoint()} for {name}; found no connection ({type(chain[-1]).__name__}); check the "
            "network, name a local folder, or set HF_HUB_OFFLINE=1 to use what is already downloaded."
        )
    disk = among(OSError)
    if isinstance(disk, OSError) and disk.strerror:
        return (
            f"needs to write in {hub_cache()}; found: {disk.strerror}; make room there, or name another HF_HUB_CACHE."
        )
    found = " ".join(str(chain[-1]).split()).rstrip(".")
    return (
        f"needs the hub's answer about {name}; found {type(chain[-1]).__name__}: {found}; "
        f"check that {endpoint()} is a hub and that {hub_cache()} can be written."
    )


# What follows runs in the child.


def _download(report: Report, name: str, commit: str, files: list[str], cache: str, address: str) -> str:
    """Download a snapshot, reporting bytes; the folder."""
    from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache

    info = HfApi(endpoint=address).model_info(name, revision=commit, files_metadata=True, timeout=30)
    sizes = {file: n_bytes for file, n_bytes in _sizes(info).items() if file in files}
    here = [f for f in sizes if isinstance(try_to_load_from_cache(name, f, cache_dir=cache, revision=commit), str)]
    start, total = sum(sizes[f] for f in here), sum(sizes.values())

    def tell(received: float) -> None:
        report(done=min(start + received, total), total=total, note=f"downloading {name}")

    tell(0)
    folder = snapshot_download(
        name,
        revision=commit,
        cache_dir=cache,
        endpoint=address,
        allow_patterns=list(sizes),
        tqdm_class=_bar_class(tell),
    )
    tell(total)
    return folder


def _bar_class(tell: Any) -> type:
    """A tqdm that shows nothing and reports the bytes of the bar that is furthest."""
    from tqdm import tqdm

    furthest = 0.0

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "file": sys.stderr, "mininterval": 3600})

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal furthest
            shown = super().update(n)
            if self.unit == "B" and self.n > furthest:
                furthest = float(self.n)
                tell(furthest)
            return shown

    return Bar


def _remove_unfinished() -> None:
    """Delete the partial files this process has open: their names are its own, so no other process can resume them."""
    import psutil

    for file in psutil.Process().open_files():
        if file.path.endswith(".incomplete"):
            with contextlib.suppress(OSError):
                os.unlink(file.path)


def _main() -> None:
    report = start_reporting(before_leaving=_remove_unfinished)
    request = json.loads(sys.argv[1])
    try:
        report(result=_download(report, **request))
    except _troubles() as error:
        report(error=explain(error, request["name"], request["commit"]))
        sys.exit(1)


if __name__ == "__main__":
    _main()
