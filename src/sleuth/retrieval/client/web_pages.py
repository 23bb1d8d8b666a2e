"""Reads a page of the web, for a policy that may ask for any address: only public pages, and no endless ones.

A name is resolved once and that very number is connected to, so that it can't point to a public place when it is looked
at and to a private one when it is fetched. Redirects are followed by the same rules.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import time
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

from sleuth.jsonl import replace_surrogates
from sleuth.types import Document

_REDIRECTS = (301, 302, 303, 307, 308)
_SKIPPED = ("script", "style", "noscript", "template", "svg", "head")
_BLOCKS = ("p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "section", "article", "table", "ul", "ol")


class NotRead(Exception):
    """A page that wasn't read; the reason is ours, not the server's."""


@dataclass(frozen=True, slots=True)
class WebPages:
    """See the module.

    Attributes:
        seconds: for one page, redirects included. ``megabytes``: of a page; what is longer is cut there.
        private: read private and loopback addresses and any port too, for a wiki of one's own.
    """

    seconds: float = 20.0
    megabytes: float = 2.0
    redirects: int = 5
    private: bool = False

    def page(self, name: str) -> list[Document]:
        """The text of the page at this address.

        A page that can't be had (refused, missing, too slow, no text) is no page: an empty list. That is the policy's
        choice of an address, and no failure of ours.
        """
        try:
            url, title, text = self.read(name)
        except NotRead:
            return []
        return [Document(url, title, text)]

    def read(self, url: str) -> tuple[str, str, str]:
        """(final address, title, text).

        Raises:
            NotRead: says why.
        """
        deadline = time.monotonic() + self.seconds
        for _ in range(self.redirects + 1):
            status, headers, body = self._fetch(url, deadline)
            if status in _REDIRECTS and headers.get("location"):
                url = urljoin(url, headers["location"])
                continue
            if status != 200:
                raise NotRead(f"HTTP {status}")
            kind = headers.get("content-type", "text/html")
            if not kind.startswith(("text/", "application/xhtml")):
                raise NotRead(f"{kind} is no text")
            charset = re.search(r"charset=[\"']?([\w-]+)", kind)
            text = _decoded(body, charset[1] if charset else "utf-8")
            title, text = _readable(text) if "html" in kind else ("", text)
            return url, replace_surrogates(title), replace_surrogates(text)
        raise NotRead(f"more than {self.redirects} redirects")

    def _fetch(self, url: str, deadline: float) -> tuple[int, dict[str, str], bytes]:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise NotRead("no address") from None
        if parts.scheme not in ("http", "https") or not host:
            raise NotRead(f"{parts.scheme or 'no scheme'} is not http or https")
        if parts.username is not None or not (self.private or port in (None, 80, 443)):
            raise NotRead("no user names, and ports 80 and 443 only")
        secure = parts.scheme == "https"
        number = self._public(host, port or (443 if secure else 80))
        connection = http.client.HTTPConnection(host, timeout=self.seconds)
        try:
            sock = socket.create_connection(number, _left(deadline))
            if secure:
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
            connection.sock = sock
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", _ascii(path), headers={"host": parts.netloc, "accept": "text/html,text/plain"})
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            body, limit = b"", int(self.megabytes * (1 << 20))
            while len(body) < limit:
                sock.settimeout(_left(deadline))
                part = response.read1(min(1 << 16, limit - len(body)))
                if not part:
                    break
                body += part
            return response.status, headers, body
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotRead(type(error).__name__) from None
        finally:
            connection.close()

    def _public(self, host: str, port: int) -> tuple[str, int]:
        """The number to connect to."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise NotRead("no such host") from None
        numbers = [str(entry[4][0]) for entry in found]
        if not self.private and not all(_is_public(number) for number in numbers):
            raise NotRead("a private address")
        return numbers[0], port


def _is_public(number: str) -> bool:
    address = ipaddress.ip_address(number.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    return address.is_global and not address.is_multicast and (mapped is None or mapped.is_global)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _ascii(path: str) -> str:
    from urllib.parse import quote

    return quote(path, safe="/%?&=+:;,@!$'()*~#[]")


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, errors="replace")
    except LookupError:
        return body.decode("utf-8", errors="replace")


def _readable(html: str) -> tuple[str, str]:
    """Title and text of a page; scripts and the like are left out."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.text).split("\n"))
    return " ".join("".join(reader.title).split()), "\n".join(line for line in lines if line)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.text: list[str] = []
        self._skipped: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title" and not self.title
        if tag == "body":
            self._skipped.clear()
        elif tag in _SKIPPED:
            self._skipped.append(tag)
        elif tag in _BLOCKS:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
        if tag in self._skipped:
            while self._skipped.pop() != tag:
                pass
        elif tag in _BLOCKS:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._skipped:
            self.text.append(data)
