#!/usr/bin/env python3
"""Every crate that is built in has a licence that deny.toml allows, and comes from a registry.

Stands in for `cargo deny check licenses sources` where cargo-deny is not installed; reads the same deny.toml.
"""
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])


def allowed(expression):
    """Is there a way to keep to an SPDX expression with allowed licences alone? Raises on what it cannot read."""
    # A slash is an OR in old manifests.
    tokens = re.findall(r"\(|\)|[^\s()]+(?: WITH [^\s()]+)?", expression.replace("/", " OR "))

    def either():
        value = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value = both() or value
        return value

    def both():
        value = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value = one() and value
        return value

    def one():
        token = tokens.pop(0)
        if token == "(":
            value = either()
            if tokens.pop(0) != ")":
                raise ValueError(expression)
            return value
        if token in ("OR", "AND", ")"):
            raise ValueError(expression)
        return token in ALLOWED or token.split(" WITH ")[0] in ALLOWED

    value = either()
    if tokens:
        raise ValueError(expression)
    return value


def fault(package):
    """What is wrong with a crate, or None."""
    if package["source"] is None:
        return None  # our own
    if not package["source"].startswith("registry+"):
        return f"comes from {package['source']}"
    if not package["license"]:
        return "names no licence"
    try:
        return None if allowed(package["license"]) else f"has the licence {package['license']}"
    except (ValueError, IndexError):
        return f"has a licence that cannot be read: {package['license']}"


def main():
    assert allowed("MIT OR GPL-3.0") and not allowed("MIT AND GPL-3.0") and not allowed("(GPL-3.0 OR LGPL-2.1)")
    found = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1"], cwd=ROOT, check=True, capture_output=True
    )
    packages = json.loads(found.stdout)["packages"]
    faults = [f"{p['name']} {p['version']} {why}" for p in packages if (why := fault(p))]
    print("\n".join(faults) or f"{len(packages)} crates, every licence allowed by deny.toml")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
