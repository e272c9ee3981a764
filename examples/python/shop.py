#!/usr/bin/env python3
"""A shop in Python asks for payouts: in its own transaction, and over HTTP.

    ONCEWARD_TOKEN=… python3 shop.py onceward.db http://127.0.0.1:7117
"""

import json
import os
import sqlite3
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

FILE, URL = sys.argv[1:]
AT_REST = ("settled", "parked", "cancelled")


def payload(invoice, amount):
    return {"invoice_id": invoice, "account_id": "7", "amount_minor": amount, "currency": "EUR"}


# 1. In the shop's own transaction: the invoice and its payout are both there, or neither is.
def book(db, invoice, amount):
    db.execute("INSERT INTO invoices VALUES (?, ?)", (invoice, amount))
    db.execute(
        "INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', ?)", (json.dumps(payload(invoice, amount)),)
    )


# isolation_level=None: the module begins no transaction of its own. IMMEDIATE waits for the lock at the beginning.
db = sqlite3.connect(FILE, timeout=30, isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY, amount_minor INTEGER NOT NULL)")
db.execute("BEGIN IMMEDIATE")
book(db, "INV-1", 1001)
db.execute("ROLLBACK")  # something went wrong: no invoice, no payout
db.execute("BEGIN IMMEDIATE")
book(db, "INV-2", 1002)
db.execute("COMMIT")

# 2. What became of it stands in a view of the same file.
while True:
    row = db.execute("SELECT state, reference FROM onceward_outcomes WHERE key = 'payout:INV-2'").fetchone()
    if row and row[0] in AT_REST:
        print("payout:INV-2", *row)
        break
    time.sleep(0.05)


# 3. Over HTTP. Without an answer, or after a 503, nobody knows whether it was taken: ask again with the same key.
def ask(method, path, body=None, key=None):
    headers = {"Authorization": "Bearer " + os.environ["ONCEWARD_TOKEN"], "Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    data = None if body is None else json.dumps(body).encode()
    for attempt in range(1, 6):
        try:
            with urllib.request.urlopen(urllib.request.Request(URL + path, data, headers, method=method), timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            if refused.code != 503 or attempt == 5:
                sys.exit(f"{refused.code}: {refused.read().decode()}")
        except OSError as lost:
            if attempt == 5:
                sys.exit(f"no answer: {lost}")
        time.sleep(0.2 * attempt)


job = ask("POST", "/v1/jobs", {"kind": "payout", "payload": payload("INV-3", 1003)}, key="payout:INV-3")
print(job["key"], job["outcome"])  # created; or duplicate, if an earlier request had come through after all
while True:
    job = ask("GET", "/v1/jobs/" + urllib.parse.quote(job["key"], safe=""))
    if job["state"] in AT_REST:
        break
    time.sleep(0.05)
print(job["key"], job["state"], job["intent"]["reference"])
