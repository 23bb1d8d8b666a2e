import http.server
import threading
import time

import pytest

from sleuth.retrieval.client import web_pages
from sleuth.retrieval.client.web_pages import NotRead, WebPages

HTML = """<html><head><title> São  Paulo </title><style>p {}</style></head><body><script>var x = "secret"</script>
<h1>City</h1><p>Beyoncé &mdash; <b>sang</b> here.</p><p>Twice.</body></html>"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.split("?")[0]
        if name == "/page":
            self.send(200, "text/html; charset=utf-8", HTML.encode())
        elif name == "/latin":
            self.send(200, "text/plain; charset=latin-1", "café".encode("latin-1"))
        elif name == "/image":
            self.send(200, "image/png", b"\x89PNG")
        elif name == "/there":
            self.send(302, "text/html", b"", location="/page")
        elif name == "/loop":
            self.send(302, "text/html", b"", location="/loop")
        elif name == "/inside":
            self.send(302, "text/html", b"", location="file:///etc/passwd")
        elif name == "/endless":
            self.send_response(200)
            self.send_header("content-type", "text/plain")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"word " * 10_000)
            except OSError:
                pass
        elif name == "/drip":
            self.send_response(200)
            self.send_header("content-length", "1000")
            self.end_headers()
            try:
                for _ in range(100):
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    time.sleep(0.05)
            except OSError:
                pass
        else:
            self.send(404, "text/plain", b"no")

    def send(self, status, kind, body, **headers):
        self.send_response(status)
        for key, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


PRIVATE = WebPages(private=True, seconds=5.0, megabytes=0.1)


def test_a_page_is_its_title_and_its_text(site):
    url, title, text = PRIVATE.read(f"{site}/there?x=1")
    assert (url, title) == (f"{site}/page", "São Paulo")
    assert text == "City\nBeyoncé — sang here.\nTwice."
    assert PRIVATE.read(f"{site}/latin")[2] == "café"
    assert PRIVATE.page(f"{site}/page")[0].text == text


def test_an_endless_page_is_cut(site):
    assert len(PRIVATE.read(f"{site}/endless")[2]) == pytest.approx(0.1 * (1 << 20), rel=0.01)


def test_a_slow_page_is_given_up_in_time(site):
    started = time.monotonic()
    with pytest.raises(NotRead, match="Timeout"):
        WebPages(private=True, seconds=0.5).read(f"{site}/drip")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("path", "says"), [("/none", "HTTP 404"), ("/image", "no text"), ("/loop", "redirects"), ("/inside", "file")]
)
def test_what_is_no_page_is_not_read(site, path, says):
    with pytest.raises(NotRead, match=says):
        PRIVATE.read(site + path)
    assert PRIVATE.page(site + path) == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:127.0.0.1]/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://[fe80::1%25eth0]/",
        "http://224.0.0.1/",
        "http://100.64.0.1/",
        "http://8.8.8.8:22/",
        "http://u:p@8.8.8.8/",
        "file:///etc/passwd",
        "ftp://8.8.8.8/",
        "gopher://8.8.8.8/",
        "javascript:alert(1)",
        "not an address",
        "http://",
        "",
    ],
)
def test_private_addresses_and_other_schemes_are_refused(url, monkeypatch):
    def no_connection(*args):
        raise AssertionError("connected")

    monkeypatch.setattr(web_pages.socket, "create_connection", no_connection)
    with pytest.raises(NotRead):
        WebPages().read(url)


def test_a_redirect_to_a_private_address_is_refused(site, monkeypatch):
    monkeypatch.setattr(web_pages, "_is_public", lambda number: calls.append(number) or len(calls) == 1)
    calls = []
    port = int(site.rpartition(":")[2])
    real = web_pages.socket.create_connection
    monkeypatch.setattr(web_pages.socket, "create_connection", lambda to, wait: real(("127.0.0.1", port), wait))
    with pytest.raises(NotRead, match="private"):
        WebPages().read("http://127.0.0.1/there")
    assert len(calls) == 2


def test_the_number_that_was_checked_is_the_one_connected_to(monkeypatch):
    connected = []

    def connect(number, wait):
        connected.append(number)
        raise OSError

    monkeypatch.setattr(web_pages.socket, "getaddrinfo", lambda *a, **k: [(2, 1, 6, "", ("93.184.216.34", 80))])
    monkeypatch.setattr(web_pages.socket, "create_connection", connect)
    with pytest.raises(NotRead):
        WebPages().read("http://rebinding.example/")
    assert connected == [("93.184.216.34", 80)]
