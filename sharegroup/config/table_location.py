"""TableLocation: where a Delta state table is, a folder or an address of an object store, with the store's options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

_UNREADABLE = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
"""Parts of a path that the Delta library decodes or refuses."""

S3_SCHEMES = ("s3", "s3a")
AZURE_SCHEMES = ("az", "abfs", "abfss")
GOOGLE_SCHEMES = ("gs",)
STORE_SCHEMES = (*S3_SCHEMES, *AZURE_SCHEMES, *GOOGLE_SCHEMES)

_S3 = """access_key_id bucket checksum_algorithm conditional_put container_authorization_token_file
container_credentials_full_uri container_credentials_relative_uri default_region disable_tagging endpoint endpoint_url
metadata_endpoint region request_payer role_arn role_session_name secret_access_key server_side_encryption session_token
skip_signature sse_bucket_key_enabled sse_kms_key_id sts_endpoint unsigned_payload virtual_hosted_style_request
web_identity_token_file allow_http"""
_AZURE = """storage_account_key storage_account_name storage_authority_host storage_client_id storage_client_secret
storage_endpoint storage_sas_key storage_sas_token storage_tenant_id storage_token storage_use_emulator client_id
client_secret container_name disable_tagging endpoint federated_token_file msi_endpoint msi_resource_id object_id
skip_signature tenant_id use_azure_cli use_fabric_endpoint"""
_GOOGLE = "application_credentials bucket service_account service_account_key service_account_path skip_signature"
_CLIENT = """allow_http allow_invalid_certificates connect_timeout http1_only http2_only pool_idle_timeout
pool_max_idle_per_host proxy_ca_certificate proxy_excludes proxy_url randomize_addresses read_timeout root_certificate
timeout user_agent"""
RETRY_OPTIONS = ("max_retries", "retry_timeout")

CLIENT_OPTIONS = tuple(_CLIENT.split())
"""Options of the HTTP client, whichever the store."""

_OF_STORES = (
    *(f"aws_{name}" for name in _S3.split()),
    *(f"azure_{name}" for name in _AZURE.split()),
    "azurite_blob_storage_url",
    *(f"google_{name}" for name in _GOOGLE.split()),
)

STORAGE_OPTIONS = (*_OF_STORES, *CLIENT_OPTIONS, *RETRY_OPTIONS)
"""Names of all options, as delta-rs has them; it ignores unknown ones silently."""


class StoreAddress(NamedTuple):
    """The parts of an address of an object store.

    Attributes:
        scheme: in lower case.
        bucket: bucket, or Azure's container.
        account: Azure's storage account, where the address names it; else empty.
        prefix: path within the bucket, without slashes at its ends.
    """

    scheme: str
    bucket: str
    account: str
    prefix: str


class TableLocation(str):
    """The address of a state table as text, which carries the options of its store; they are never shown.

    Everything that takes the path of a table as text takes a location, too.

    Args:
        address: a path, or an address such as `s3://bucket/table`.
        options: name in lower case → value, as delta-rs has them.

    Attributes:
        folder: on a local disk; None on an object store.
    """

    options: Mapping[str, str]
    folder: Path | None

    def __new__(cls, address: str, options: Mapping[str, str] | None = None) -> TableLocation:
        """Make a location; text is made before `__init__`."""
        location = super().__new__(cls, address)
        location.options = dict(options or {})
        location.folder = None if is_in_store(address) else Path(address)
        return location


def location_of(path: str) -> TableLocation:
    """Return the location of a table; a text without options has none."""
    return path if isinstance(path, TableLocation) else TableLocation(path)


def is_in_store(path: str) -> bool:
    """Return True if text is an address of an object store, False if it is a path on a local disk."""
    return "://" in path


def unreadable_part(path: str) -> str:
    """Return the part of a folder's path for which the Delta library looks in another folder; "" when there is none."""
    part = _UNREADABLE.search(path)
    return "" if part is None or is_in_store(path) else part[0]


def absolute_address(path: str) -> str:
    """Return where a table is, for processes with another working directory; an address of a store as it is."""
    folder = location_of(path).folder
    return path if folder is None else str(folder.absolute())


def store_address(path: str) -> StoreAddress:
    """Return the parts of an address of an object store.

    Raises:
        ValueError: it is none; the text says why, and how it is written.
    """
    uri = urlsplit(path)
    scheme = uri.scheme.lower()
    if scheme not in STORE_SCHEMES:
        raise ValueError("The scheme must be one of file, s3, az, abfss or gs, or none for a local path")
    container, at, host = uri.netloc.partition("@")
    bucket, account = (container, host.partition(".")[0]) if at else (uri.netloc, "")
    prefix = uri.path.strip("/")
    if not bucket or not prefix or uri.query or uri.fragment:
        form = "abfss://container@account.dfs.core.windows.net/path" if scheme.startswith("abfs") else None
        raise ValueError(f"An address of an object store has the form {form or f'{scheme}://bucket/path'}")
    if scheme.startswith("abfs") and not account:
        raise ValueError("The address must name the account: abfss://container@account.dfs.core.windows.net/path")
    return StoreAddress(scheme, bucket, account, prefix)


def environment_options(path: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table's store that environment variables set, such as `AWS_REGION`."""
    scheme = store_address(path).scheme
    start = "aws_" if scheme in S3_SCHEMES else "azur" if scheme in AZURE_SCHEMES else "google_"
    return {name: environ[name.upper()] for name in _OF_STORES if name.startswith(start) and name.upper() in environ}
