"""Objects of S3, Google Cloud Storage and Azure, and files of a web server, brought here as they are.

Belongs here: the addresses, listing and globs, the copying, the errors of the stores. Does not belong here: what the
bytes are packed in, or mean: all that is read here is read as from a disk.

The stores are reached through Arrow's own clients, which the wheel of pyarrow holds. Credentials come from the
environment, as the stores' own tools read them, never from the address, which is shown in reports.
"""

from __future__ import annotations

import os
import re
import uuid
from datetime import timedelta
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from http.client import HTTPException, responses
from typing import IO, TYPE_CHECKING, Literal, cast
from urllib.error import HTTPError
from urllib.request import Request

import pyarrow.fs as pafs

from parsers.errors import DISK_TROUBLE, SiteConfigError, UnreadableSourceError
from parsers.live import broken_off, shown, spool, without_credentials
from parsers.web import TIMEOUT_S, asked, download

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from parsers.live import Live

_REGION_OF_OTHERS = "us-east-1"
"""What stores beside AWS take where nothing else is said; they have no regions."""
_MAGIC = re.compile(r"[*?[]")
_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), AWS_REGION, AWS_ENDPOINT_URL",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_ENDPOINT",
}
"""By store: the environment variables that say where it is and who asks."""


def fetched(address: str, live: Live) -> Iterator[tuple[str, Path]]:
    """Copy what an address names: an object, all objects below a folder, or those that a glob fits.

    Each comes with its own address, and has the time of its last change.

    Raises:
        SiteConfigError: the address holds credentials, or names nothing that can be listed.
        UnreadableSourceError: nothing is there, or the store can't be reached or refuses.

    """
    scheme, _, rest = address.partition("://")
    store, (bucket, _, key) = scheme.lower(), rest.partition("/")
    if without_credentials(rest) != rest:
        instead = f"set {_VARIABLES[store]}" if store in _VARIABLES else "give a signed one (?signature=...)"
        raise SiteConfigError(
            "the address holds credentials", where=shown(address), remedy=f"Leave them out, and {instead}."
        )
    if store not in _VARIABLES:
        yield shown(address), _downloaded(address, live)
        return
    if not bucket:
        raise SiteConfigError(
            "the address names no bucket",
            where=shown(address),
            remedy=f"Write it like {store}://bucket/logs/.",
        )
    try:
        files = _opened(store, bucket)
        for info in _listed(files, f"{bucket}/{key}".rstrip("/")):
            name, path = f"{store}://{info.path}", live.folder / uuid.uuid4().hex
            with files.open_input_stream(info.path, compression=None) as stream:
                spool(cast("IO[bytes]", stream), path, name)
            _date(path, info.mtime)
            yield name, path
    except FileNotFoundError as error:
        raise _absent(address) from error
    except OSError as error:
        if error.errno in DISK_TROUBLE:
            raise
        raise UnreadableSourceError(
            f"the store can't be reached or refuses ({_reason(error)})",
            where=shown(address),
            remedy=f"It is asked as the environment says: {_VARIABLES[store]}.",
        ) from error


def _opened(store: str, bucket: str) -> pafs.FileSystem:
    """A client of the store, as the environment describes it."""
    get = os.environ.get
    match store:
        case "s3":
            region = get("AWS_REGION") or get("AWS_DEFAULT_REGION")
            if endpoint := _endpoint("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
                scheme, host = endpoint
                return pafs.S3FileSystem(
                    endpoint_override=host, scheme=scheme, region=region or _REGION_OF_OTHERS
                )
            return pafs.S3FileSystem(region=region or pafs.resolve_s3_region(bucket))
        case "gs":
            limit = timedelta(seconds=TIMEOUT_S)
            if endpoint := _endpoint("STORAGE_EMULATOR_HOST"):
                scheme, host = endpoint
                return pafs.GcsFileSystem(
                    anonymous=True, endpoint_override=host, scheme=scheme, retry_time_limit=limit
                )
            return pafs.GcsFileSystem(retry_time_limit=limit)
        case _:
            return _azure()


def _azure() -> pafs.FileSystem:
    get = os.environ.get
    account = get("AZURE_STORAGE_ACCOUNT_NAME") or get("AZURE_STORAGE_ACCOUNT")
    if not account:
        raise SiteConfigError(
            "the address names a container, and nothing says whose",
            where="az://",
            remedy=f"Set {_VARIABLES['az']}.",
        )
    key, signature = get("AZURE_STORAGE_ACCOUNT_KEY"), get("AZURE_STORAGE_SAS_TOKEN")
    endpoint = _endpoint("AZURE_STORAGE_ENDPOINT")
    if endpoint is None:
        return pafs.AzureFileSystem(account, account_key=key, sas_token=signature)
    scheme, host = endpoint
    # Arrow puts the account before a domain, which begins with a dot, and behind a host.
    blobs = host.removeprefix(account) if host.startswith(f"{account}.") else host
    folders = blobs.replace(".blob.", ".dfs.", 1)
    return pafs.AzureFileSystem(  # type: ignore[call-arg]  # the stubs misspell two of them
        account,
        account_key=key,
        sas_token=signature,
        blob_storage_authority=blobs,
        blob_storage_scheme=scheme,
        dfs_storage_authority=folders,
        dfs_storage_scheme=scheme,
    )


def _endpoint(*variables: str) -> tuple[Literal["http", "https"], str] | None:
    """Scheme and host of a store that is not the vendor's own, from the first variable that is set."""
    name = next((name for name in variables if os.environ.get(name)), None)
    if name is None:
        return None
    scheme, _, host = os.environ[name].rstrip("/").partition("://")
    if scheme not in {"http", "https"} or not host:
        raise SiteConfigError("it is no address", where=name, remedy="Write it like https://minio:9000.")
    return ("http" if scheme == "http" else "https"), host


def _listed(files: pafs.FileSystem, wanted: str) -> list[pafs.FileInfo]:
    """The objects that `bucket/key` names, in the order of their names; hidden ones only by their own name."""
    if not _MAGIC.search(wanted):
        info = files.get_file_info(wanted)
        if info.type == pafs.FileType.File:
            return [info]
        base, pattern = wanted, ["**"]
    else:
        parts = wanted.split("/")
        plain = next(n for n, part in enumerate(parts) if _MAGIC.search(part))
        base, pattern = "/".join(parts[:plain]), parts[plain:]
    if not base:
        raise SiteConfigError("the name of a bucket is no pattern", where=wanted, remedy="Name one bucket.")
    found = [
        info
        for info in files.get_file_info(pafs.FileSelector(base, recursive=True))
        if info.type == pafs.FileType.File and _fits(info.path.removeprefix(f"{base}/").split("/"), pattern)
    ]
    if not found:
        raise FileNotFoundError
    return sorted(found, key=lambda info: info.path)


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path fit those of a glob, `**` being any number of folders."""
    if not pattern:
        return not parts
    first, *rest = pattern
    if first == "**":
        return _fits(parts, rest or ["*"]) or (
            len(parts) > 1 and not parts[0].startswith(".") and _fits(parts[1:], pattern)
        )
    return (
        bool(parts)
        and fnmatchcase(parts[0], first)
        and (not parts[0].startswith(".") or first.startswith("."))
        and _fits(parts[1:], rest)
    )


def _downloaded(address: str, live: Live) -> Path:
    # Brackets of the host are those of an IPv6 address.
    if _MAGIC.search(shown(address).split("/", 3)[-1]):
        raise SiteConfigError(
            "a web server does not list its files", where=shown(address), remedy="Name each file."
        )
    path = live.folder / uuid.uuid4().hex
    try:
        request = Request(address, headers={"User-Agent": "tokenworks"})  # noqa: S310 - http or https
        with asked(request) as answer:
            download(answer, path, shown(address))
            changed = answer.headers.get("Last-Modified")
    except HTTPError as error:
        error.close()
        if error.code == 404:  # noqa: PLR2004 - as HTTP has it
            raise _absent(address) from error
        raise UnreadableSourceError(
            f"the server refuses it (HTTP {error.code}, {responses.get(error.code, 'no reason known')})",
            where=shown(address),
            remedy="Check the address; where files are guarded, give a signed one.",
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, OSError) and error.errno in DISK_TROUBLE:
            raise
        reason = str(getattr(error, "reason", None) or type(error).__name__)
        raise broken_off(shown(address), reason) from error
    try:
        _date(path, parsedate_to_datetime(changed) if changed else None)
    except ValueError:
        # A date that is none says nothing about the file.
        _date(path, None)
    return path


def _date(path: Path, changed: datetime | None) -> None:
    if changed is not None:
        os.utime(path, (changed.timestamp(), changed.timestamp()))


def _absent(address: str) -> UnreadableSourceError:
    return UnreadableSourceError(
        "no such object or folder", where=shown(address), remedy="Check the address."
    )


def _reason(error: OSError) -> str:
    """What a store says, in a few words: its messages run on with ids and repeat the request."""
    text = " ".join(str(error).split())
    if known := re.search(r"AWS Error (\w+)|Status\((\w+)|Azure Error: (\[\S*\] \d+ \w+)", text):
        return next(part for part in known.groups() if part)
    return text[:120]
