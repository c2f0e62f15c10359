"""Webhooks: events sent to a web server, by HTTP POST.

Certificates are checked. Plain HTTP is for addresses of this machine only. Redirects are not
followed: a message goes to the address that was configured, or nowhere. With a secret, each request
has the HMAC-SHA256 of its body, so that the receiver knows who sent it.

Addresses and secrets are never shown: an address may contain a token. Messages name the host.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from tidelog.database.messages import Message
from tidelog.errors import DataError, UsageError
from tidelog.runtime.retry import Retry

ID_HEADER = "Tidelog-Delivery"
SIGNATURE_HEADER = "Tidelog-Signature"


class DeliveryError(DataError):
    """A message could not be delivered."""


@dataclass(frozen=True)
class Webhook:
    """A web address that events are sent to.

    `secret_env` names a variable of the environment, which holds the secret for signatures. It is
    read when a message is sent. A message that fails is sent again `retry` times; the wait before
    the first time is `retry_seconds`, and doubles. `timeout` is in seconds. `max_rows` is how many
    rows a message has at most. `ca_file` has certificates to trust instead of those of the system.
    """

    url: str = field(repr=False)
    secret_env: str = ""
    retry: int = 5
    retry_seconds: float = 1.0
    timeout: float = 10.0
    max_rows: int = 1000
    ca_file: str = ""

    def __post_init__(self) -> None:
        Retry(self.retry, self.retry_seconds)
        _checked(self.url)
        if self.timeout <= 0:
            raise UsageError(f"`timeout` must be above 0, and is {self.timeout}")
        if self.max_rows < 1:
            raise UsageError(f"`max_rows` must be 1 or more, not {self.max_rows}")
        if self.secret_env:
            self._secret()

    @property
    def host(self) -> str:
        """The server, without the rest of the address."""
        return _shown(urlsplit(self.url))

    def send(self, message: Message) -> None:
        """Send a message; raise DeliveryError unless the server answers with 2xx."""
        secret = self._secret() if self.secret_env else b""
        post(self.url, message, secret, timeout=self.timeout, ca_file=self.ca_file)

    def _secret(self) -> bytes:
        secret = os.environ.get(self.secret_env, "")
        if not secret:
            raise UsageError(
                f"the environment has no variable `{self.secret_env}`, for the secret of a webhook"
            )
        return secret.encode()


def signature(secret: bytes, body: bytes) -> str:
    """Return the signature of a message, as its header has it."""
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


def check_address(url: str) -> None:
    """Raise UsageError for an address that messages cannot be sent to."""
    _checked(url)


def post(
    url: str, message: Message, secret: bytes = b"", *, timeout: float = 10.0, ca_file: str = ""
) -> None:
    """Send a message, signed if there is a secret; raise DeliveryError unless it is accepted."""
    parts = _checked(url)
    headers = {"Content-Type": "application/json", ID_HEADER: message.id}
    if secret:
        headers[SIGNATURE_HEADER] = signature(secret, message.body)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = _connection(parts, timeout, ca_file)
    try:
        connection.request("POST", target, message.body, headers)
        status = connection.getresponse().status
    except TimeoutError:
        raise DeliveryError(f"{_shown(parts)} did not answer within {timeout:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise DeliveryError(
            f"the certificate of {_shown(parts)} is not valid: {error.verify_message}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise DeliveryError(f"{_shown(parts)} cannot be reached: {why}") from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise DeliveryError(f"{_shown(parts)} answered with status {status}")


def _connection(parts: SplitResult, timeout: float, ca_file: str) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=timeout)
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise DeliveryError(f"cannot read the certificates in `{ca_file}`: {error}") from None
    return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=context)


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError, too
    except ValueError:
        raise UsageError("the address of a webhook is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("the address of a webhook must begin with https:// and a host")
    if any(not " " < c < "\x7f" for c in url):
        raise UsageError("the address of a webhook has characters that a URL cannot have")
    if parts.username is not None:
        raise UsageError("the address of a webhook cannot have a user; sign its messages instead")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise UsageError(
            f"{_shown(parts)} is not on this machine, so its address must begin with https://"
        )
    return parts


def _is_loopback(host: str) -> bool:
    """Return whether a host is this machine.

    >>> [_is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "10.0.0.1", "a.de")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(parts: SplitResult) -> str:
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{parts.hostname}{port}"
