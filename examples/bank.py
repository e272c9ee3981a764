#!/usr/bin/env python3
"""A bank for the examples: `python3 bank.py PORT`. It knows a repeated Idempotency-Key, and can be asked by reference.

POST /v1/payouts {"amount": 1250, "currency": "EUR", "reference": "payout:INV-1"}
GET  /v1/payouts?reference=payout%3AINV-1
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

payouts = {}  # by idempotency key
lock = threading.Lock()


class Bank(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            new = {"id": f"po_{len(payouts) + 1}", "status": "paid", **asked}
            payout = payouts.setdefault(self.headers["Idempotency-Key"], new)
        print("paid" if payout is new else "again", payout["id"], payout["reference"], flush=True)
        self.say(201, payout)

    def do_GET(self):
        reference = parse_qs(urlsplit(self.path).query).get("reference", [""])[0]
        with lock:
            self.say(200, {"data": [payout for payout in payouts.values() if payout["reference"] == reference]})

    def say(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Bank)
print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
