#!/usr/bin/env python3
"""An app that carries Onceward as a child process: no port to agree on, no token on disk, no service to install.

    python3 app.py ONCEWARD onceward.toml INV-7 1250

The app makes up a token and writes it into the child's stdin; the child says on stdout, in one line of JSON, where it
listens. The child stops when that pipe is closed: by the app when it ends, or by the system if the app is killed.
"""

import json
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


class Onceward:
    """A worker of our own. Leaving the `with` closes its stdin, waits until what is in flight is done, and gives its exit code."""

    def __init__(self, program, config):
        self.token = secrets.token_urlsafe(32)
        command = [program, "--config", config, "work", "--child"]
        # Pipes that Python makes are closed in other children, so nobody else keeps this one open after us.
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.child.stdin.write(self.token + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"onceward did not start: exit code {self.child.wait()}; its log says why")
        self.url = json.loads(line)["url"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        self.exit_code = self.child.wait()

    def ask(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


def main():
    program, config, invoice, amount = sys.argv[1:]
    with Onceward(program, config) as onceward:
        print(f"child {onceward.child.pid} {onceward.url}", flush=True)
        payload = {"invoice_id": invoice, "account_id": "7", "amount_minor": int(amount), "currency": "EUR"}
        job = onceward.ask("POST", "/v1/jobs", {"kind": "payout", "payload": payload})
        print(job["key"], job["outcome"], flush=True)
        while True:
            job = onceward.ask("GET", "/v1/jobs/" + urllib.parse.quote(job["key"], safe=""))
            if job["state"] in ("settled", "parked", "cancelled"):
                break
            time.sleep(0.05)
        print(job["key"], job["state"], job["intent"]["reference"], flush=True)
    print("the child has ended:", onceward.exit_code, flush=True)


main()
