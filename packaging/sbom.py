#!/usr/bin/env python3
"""The bill of materials of the program for this platform, as CycloneDX 1.5 JSON, from cargo's own list; needs no network
once the crates are fetched. The same lock file gives the same bytes.

    packaging/sbom.py > onceward.cdx.json

Only what is linked into the program is in it: neither tests' crates nor those that only run while it is built. The bundled
SQLite is named by itself, since that is what advisories name."""

import json, pathlib, re, subprocess, tomllib

root = pathlib.Path(__file__).resolve().parent.parent
host = re.search(r"host: (\S+)", subprocess.check_output(["rustc", "-vV"], text=True))[1]
command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host]
cargo = json.loads(subprocess.check_output(command, cwd=root))
packages = {p["id"]: p for p in cargo["packages"]}
links = {}
for node in cargo["resolve"]["nodes"]:
    normal = [d["pkg"] for d in node["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
    macros = lambda id: any("proc-macro" in t["kind"] for t in packages[id]["targets"])
    links[node["id"]] = sorted((id for id in normal if not macros(id)), key=lambda id: packages[id]["name"])
lock = tomllib.loads((root / "Cargo.lock").read_text())
sums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}


def purl(id):
    return f"pkg:cargo/{packages[id]['name']}@{packages[id]['version']}"


def component(id, kind="library"):
    package = packages[id]
    entry = {"type": kind, "bom-ref": purl(id), "name": package["name"], "version": package["version"], "purl": purl(id)}
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := sums.get((package["name"], package["version"])):
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


top = cargo["resolve"]["root"]
seen, todo = set(), [top]
while todo:
    id = todo.pop()
    if id not in seen:
        seen.add(id)
        todo += links[id]
linked = sorted(seen - {top}, key=purl)
components = [component(id) for id in linked]
depends = [{"ref": purl(id), "dependsOn": [purl(d) for d in links[id]]} for id in [top, *linked]]
for id in linked:
    if packages[id]["name"] == "libsqlite3-sys":
        header = (pathlib.Path(packages[id]["manifest_path"]).parent / "sqlite3/sqlite3.h").read_text()
        version = re.search(r'#define SQLITE_VERSION\s+"([^"]+)"', header)[1]
        sqlite = {"type": "library", "bom-ref": "sqlite", "name": "sqlite", "version": version}
        sqlite |= {"cpe": f"cpe:2.3:a:sqlite:sqlite:{version}:*:*:*:*:*:*:*"}
        sqlite |= {"licenses": [{"expression": "blessing"}]}
        components.append(sqlite)
        next(d for d in depends if d["ref"] == purl(id))["dependsOn"].append("sqlite")
bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1}
bom |= {"metadata": {"component": component(top, "application")}, "components": components, "dependencies": depends}
print(json.dumps(bom, indent=1))
