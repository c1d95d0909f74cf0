"""A real nginx that ends TLS between a site and its coordinator; what it has before it, opened, is recorded."""

from __future__ import annotations

import shutil
import socket
import socketserver
import subprocess
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from pfl_common.identity import Authority

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")

CONFIG = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.error.log;
events {{ worker_connections 128; }}
http {{
  access_log {folder}/nginx.access.log;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_max_body_size 0; grpc_read_timeout 1h; grpc_send_timeout 1h; client_body_timeout 1h; grpc_buffer_size 32k;
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {folder}/proxy.pem; ssl_certificate_key {folder}/proxy.key;
    location / {{ grpc_set_header X-Forwarded-For $remote_addr; grpc_pass grpc://127.0.0.1:{tap}; }}
  }}
  server {{
    listen 127.0.0.1:{inner} http2;
    grpc_ssl_verify on; grpc_ssl_trusted_certificate {folder}/federation.pem; grpc_ssl_name localhost;
    location /pfl.v1.Enrolment/ {{ grpc_pass grpcs://127.0.0.1:{enrolment}; }}
    location / {{ grpc_pass grpcs://127.0.0.1:{control}; }}
  }}
}}
"""


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Tap(socketserver.ThreadingTCPServer):
    """Passes bytes on and keeps them: it stands where nginx has them open."""

    daemon_threads = True

    def __init__(self, target: int) -> None:
        self.target, self.seen = target, bytearray()
        super().__init__(("127.0.0.1", 0), _Passing)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


class _Passing(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.target)) as target:
            back = threading.Thread(target=self._pump, args=(target, self.request), daemon=True)
            back.start()
            self._pump(self.request, target)
            back.join(10)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while piece := source.recv(1 << 16):
                self.server.seen += piece
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Nginx:
    """nginx before one coordinator, on a port of its own."""

    def __init__(
        self, folder: Path, port: int, *, control: int, enrolment: int, federation_ca: bytes
    ) -> None:
        folder.mkdir()
        now, inner = datetime.now(UTC), free_port()
        company = Authority.open_or_create(folder / "company", now=now)
        pair = company.server_certificate(["localhost"], now=now)
        files = {
            "proxy.pem": pair.certificate_pem,
            "proxy.key": pair.key_pem,
            "federation.pem": federation_ca,
        }
        for name, content in files.items():
            (folder / name).write_bytes(content)
        self.ca = folder / "company.pem"
        self.ca.write_bytes(company.ca_pem)
        self.tap = Tap(inner)
        places = {"control": control, "enrolment": enrolment, "tap": self.tap.port, "inner": inner}
        (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port, **places))
        command = [str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait_for(port)

    def stop(self) -> None:
        """End it, and what it started."""
        self.process.terminate()
        self.process.wait(10)
        self.tap.shutdown()
        self.tap.server_close()

    def _wait_for(self, port: int) -> None:
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < end, "nginx does not listen"
                assert self.process.poll() is None, "nginx ended"
                threading.Event().wait(0.02)
