"""A registry of npm on a free port of this machine, with the packages of a folder: registry.py FOLDER.

Prints its address. Any other package is unknown, so that a test that asks for one fails instead of reaching the network.
"""

import base64
import hashlib
import http.server
import json
import sys
import tarfile
from pathlib import Path
from urllib.parse import unquote

FILES = {}
PACKAGES = {}


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = unquote(self.path).lstrip("/")
        content = FILES.get(path)
        if content is None and path in PACKAGES:
            about, file = PACKAGES[path]
            digest = base64.b64encode(hashlib.sha512(FILES[file]).digest()).decode()
            dist = {"tarball": f"http://{self.headers['host']}/{file}", "integrity": f"sha512-{digest}"}
            version = about["version"]
            document = {"name": path, "dist-tags": {"latest": version}, "versions": {version: {**about, "dist": dist}}}
            content = json.dumps(document).encode()
        self.send_response(200 if content is not None else 404)
        self.send_header("content-length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_):
        pass


for path in Path(sys.argv[1]).glob("*.tgz"):
    with tarfile.open(path) as archive:
        about = json.load(archive.extractfile("package/package.json"))
    FILES[path.name] = path.read_bytes()
    PACKAGES[about["name"]] = (about, path.name)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
