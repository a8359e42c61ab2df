"""A state table on an object store: S3 and what speaks its protocol, Azure Blob Storage, Google Cloud Storage.

The fence rests on conditional put: of two requests that create one key, the second is refused. A store that ignores the
condition would let two processors commit one version, without an error: `check` finds it at the start.

A refusal is not always a rival's: the client repeats a put whose response was lost, and meets its own object. So after
a refusal the object is read and compared; each commit has an id of its own. A response that never comes leaves the
outcome unknown; the put is tried again with the same content and the same name, so that it takes effect at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa

from sharegroup.config.table_location import (
    AZURE_SCHEMES,
    CLIENT_OPTIONS,
    RETRY_OPTIONS,
    S3_SCHEMES,
    StoreAddress,
    store_address,
)
from sharegroup.errors import ConfigurationError, StateTableError
from sharegroup.state.store_errors import StoreError, reason_of
from sharegroup.state.table_storage import TIMEOUT_DEFAULTS, StoredFile

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
    from obstore.store import AzureStore, GCSStore, S3Store
except ImportError as error:
    raise ConfigurationError(
        f"A state table on an object store needs the library obstore: {error}.", "Run pip install 'sharegroup[stores]'."
    ) from error

_CLOCK = "_sharegroup_clock"


class ObjectStorage:
    """The objects of a table under its prefix; see `TableStorage`.

    Args:
        address: the table's address, such as `s3://bucket/table`.
        options: name → value, as delta-rs has them.

    Raises:
        ConfigurationError: an option is wrong.
    """

    can_be_torn = False
    charges_requests = True

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        self._address = store_address(address)
        try:
            self._store = _opened(self._address, {**TIMEOUT_DEFAULTS, **options})
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"The options of object store {address} are not accepted: {reason_of(error)}.",
                "Correct state.table.storage.*, or the variables of the environment with these names.",
            ) from None

    @contextmanager
    def prepared(self, content: bytes) -> Iterator[Callable[[str], bool]]:
        """Yield a function that puts the content under a name, unless there is an object."""

        def put(name: str) -> bool:
            if self._is_created(name, content):
                return True
            # The response to an earlier try of this request may be lost.
            return self.read(name) == content

        yield put

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Put a new object."""
        with self._naming(name, "written"):
            obstore.put(self._store, name, bytes(content))

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        with self._naming(name, "read"):
            return bytes(obstore.get(self._store, name).bytes())

    def opened(self, name: str) -> pa.NativeFile:
        """Read an object into memory."""
        return pa.BufferReader(self.read(name))

    def exists(self, name: str) -> bool:
        """Return True if there is an object of that name."""
        try:
            self.size_bytes(name)
        except FileNotFoundError:
            return False
        return True

    def size_bytes(self, name: str) -> int:
        """Return the size of an object."""
        with self._naming(name, "checked"):
            return int(obstore.head(self._store, name)["size"])

    def files(self, folder: str, after: str = "") -> Iterator[StoredFile]:
        """Yield the objects in a folder of the prefix."""
        with self._naming(folder, "listed"):
            for page in obstore.list(self._store, folder or None, offset=after or None):
                for file in page:
                    # Azure's list has no start, and a store may ignore it.
                    if file["path"] > after:
                        modified_ms = round(file["last_modified"].timestamp() * 1_000)
                        yield StoredFile(file["path"], file["size"], modified_ms)

    def names(self, folder: str, after: str = "") -> Iterator[str]:
        """Yield the keys in a folder of the prefix."""
        return (file.name for file in self.files(folder, after))

    def delete(self, name: str) -> None:
        """Delete an object."""
        try:
            with self._naming(name, "deleted"):
                obstore.delete(self._store, name)
        except FileNotFoundError:
            return

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete objects, many with one request where the store can do that."""
        present = list(names)
        try:
            with self._naming(", ".join(present[:1]), "deleted"):
                obstore.delete(self._store, present)
        except FileNotFoundError:
            # Another process deletes the same ones.
            for name in present:
                self.delete(name)

    def sync(self, names: Iterable[str]) -> None:
        """Do nothing: an object is durable when the response to its put comes."""

    def sync_table_name(self) -> None:
        """Do nothing: an address is not written anywhere."""

    @contextmanager
    def locked(self, name: str, patience_s: float) -> Iterator[bool]:
        """Keep nobody out: each rewrite of files is a commit that finds out if others have rewritten them."""
        yield True

    def change_mark(self, folder: str) -> None:
        """Return None: only a list shows what is new."""

    def now_ms(self) -> int:
        """Return the time of the store: that of an object which is written now."""
        self.write(_CLOCK, b"")
        with self._naming(_CLOCK, "checked"):
            return round(obstore.head(self._store, _CLOCK)["last_modified"].timestamp() * 1_000)

    def check(self) -> None:
        """Put one key twice, and require that the second put is refused.

        Raises:
            StateTableError: the store ignores the condition: it cannot keep two processors apart.
            OSError: a request failed.
        """
        name = f"_sharegroup_probe-{uuid4().hex}"
        self._is_created(name, b"first")
        is_ignored = self._is_created(name, b"second")
        # The finding counts, also where a probe stays behind.
        with suppress(OSError):
            self.delete(name)
        if is_ignored:
            raise StateTableError(
                f"{self._name_of(name)} was created twice: the store ignores the condition of a put "
                "(If-None-Match: *), so that two processors could commit the same version.",
                "Use a store that has conditional writes, such as S3, Azure Blob Storage or Google Cloud Storage.",
            )

    def _is_created(self, name: str, content: bytes) -> bool:
        with self._naming(name, "written"):
            try:
                obstore.put(self._store, name, content, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    @contextmanager
    def _naming(self, name: str, verb: str) -> Iterator[None]:
        """Let errors of the library name store, bucket and key."""
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise StoreError(f"{self._name_of(name)} cannot be {verb}: {reason_of(error)}") from None
            raise FileNotFoundError(f"{self._name_of(name)} does not exist") from None
        except (BaseError, PermissionError) as error:
            raise StoreError(f"{self._name_of(name)} cannot be {verb}: {reason_of(error)}") from None

    def _name_of(self, name: str) -> str:
        address = self._address
        account = f" of account {address.account}" if address.account else ""
        return f"key {address.prefix}/{name} of {address.scheme} bucket {address.bucket}{account}"


def _opened(address: StoreAddress, options: Mapping[str, str]) -> S3Store | AzureStore | GCSStore:
    client: Any = {name: options[name] for name in CLIENT_OPTIONS if name in options}
    retries: Any = {"max_retries": int(options["max_retries"]), "retry_timeout": _duration(options["retry_timeout"])}
    config: Any = {name: value for name, value in options.items() if name not in (*CLIENT_OPTIONS, *RETRY_OPTIONS)}
    if address.scheme in S3_SCHEMES:
        return S3Store(
            address.bucket, prefix=address.prefix, config=config, client_options=client, retry_config=retries
        )
    if address.scheme in AZURE_SCHEMES:
        emulator = config.pop("azurite_blob_storage_url", None)
        if emulator is not None:
            config["azure_endpoint"] = f"{emulator.rstrip('/')}/{config.get('azure_storage_account_name', '')}"
            config.pop("azure_storage_use_emulator", None)
            client.setdefault("allow_http", "true")
        if address.account:
            config["azure_storage_account_name"] = address.account
        return AzureStore(
            address.bucket, prefix=address.prefix, config=config, client_options=client, retry_config=retries
        )
    return GCSStore(address.bucket, prefix=address.prefix, config=config, client_options=client, retry_config=retries)


def _duration(text: str) -> timedelta:
    """Return a duration such as `10s`, `500ms` or `2m`."""
    for unit, seconds in (("ms", 0.001), ("s", 1.0), ("m", 60.0)):
        if text.endswith(unit):
            return timedelta(seconds=float(text.removesuffix(unit)) * seconds)
    raise ValueError(f"retry_timeout is {text!r}; write it like 10s")
