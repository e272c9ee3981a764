"""Celery carries the call out, Onceward is its ledger: kind `charge` with profile `external`.

    pip install celery
    export SHOP=/tmp/shop ONCEWARD_CONFIG=onceward.toml BANK=http://127.0.0.1:8080     (onceward.toml is beside this file)
    celery -A tasks worker --pool prefork --concurrency 1 &
    python3 -m tasks ORD-17 1250

A queue delivers a task at least once: again after a worker has died, again if it was sent twice. `enqueue` says `created`
to one delivery only, which makes the call. Every other one asks the bank what became of it, and calls nothing.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

from celery import Celery
from celery.utils.log import get_task_logger

SHOP, BANK = Path(os.environ["SHOP"]), os.environ["BANK"]
for folder in ("queue", "control"):
    (SHOP / folder).mkdir(parents=True, exist_ok=True)

log = get_task_logger(__name__)
app = Celery("tasks", broker="filesystem://")
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(SHOP / "queue"),
        "data_folder_out": str(SHOP / "queue"),
        "control_folder": str(SHOP / "control"),
    },
    # A task counts as delivered when it has ended, and comes again when its process was killed.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
)


def onceward(*words):
    """One command of Onceward's. `check=True`: a refusal is an error of the task."""
    program = os.environ.get("ONCEWARD", "onceward")
    done = subprocess.run([program, "--json", *words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def pay(key, wire_key, amount):
    body = json.dumps({"amount": amount, "currency": "EUR", "reference": key}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": wire_key}
    with urllib.request.urlopen(urllib.request.Request(BANK + "/v1/payouts", body, headers), timeout=30) as answer:
        return json.load(answer)["id"]


def find(key):
    query = urllib.parse.urlencode({"reference": key})
    with urllib.request.urlopen(f"{BANK}/v1/payouts?{query}", timeout=30) as answer:
        found = json.load(answer)["data"]
    return found[0]["id"] if found else None


@app.task
def charge(order, amount):
    key = f"charge:{order}"
    payload = json.dumps({"order": order, "amount_minor": amount, "currency": "EUR"})
    asked = onceward("enqueue", "charge", "--payload", payload)
    log.info("delivery %s %s %s", key, asked["outcome"], asked["state"])
    if asked["outcome"] in ("created", "again"):
        reference = pay(key, asked["wire_key"], amount)
        power_cut()
    elif asked["state"] == "unknown":
        # Somebody has begun. If the bank knows nothing of it, this stays in doubt: after `confirm_within` a person is
        # told, for the first delivery may be on its way still.
        reference = find(key)
    else:
        return  # it is known what became of it
    if reference:
        onceward("confirm", key, "--reference", reference)


def power_cut():
    """For the test of this example: dies once, between the bank's answer and the end of the task."""
    fuse = SHOP / "fuse"
    if fuse.exists():
        fuse.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    app.tasks["tasks.charge"].delay(sys.argv[1], int(sys.argv[2]))
