#!/usr/bin/env python3
"""Compares what `cargo doc` shows of the library with tests/surface.txt, so that it changes only on purpose.

    cargo doc --no-deps && python3 tests/surface.py [--write]
"""

import re
import sys
from pathlib import Path

here = Path(__file__).parent
docs = here.parent / "target" / "doc" / "onceward"

surface = []
for href, name in re.findall(r'href="([^"#]+)">([^<]+)</a>', (docs / "all.html").read_text().split('id="structs"')[-1]):
    if "/" in href or not re.match(r"(struct|enum|trait|fn|type|constant|macro|union)\.", href):
        continue
    kind = href.split(".")[0]
    surface.append(f"{kind} {name}")
    page = (docs / href).read_text()
    # What traits give (Debug, From, …) is left out: rustdoc itself adds to it from version to version.
    own = re.split(r'id="(?:trait-implementations|synthetic-implementations|blanket-implementations)"', page)[0]
    for sort, member in re.findall(r'id="(structfield|variant|method|tymethod|associatedconstant)\.(\w+)"', own):
        surface.append(f"  {name}::{member} ({sort})")
found = "\n".join(surface) + "\n"
if not surface:
    sys.exit(f"nothing was found in {docs}: run cargo doc --no-deps first")

listed = here / "surface.txt"
if "--write" in sys.argv[1:]:
    listed.write_text(found)
    sys.exit()
before, now = listed.read_text().splitlines(), found.splitlines()
gone = [line for line in before if line not in now]
new = [line for line in now if line not in before]
for line in gone:
    print(f"- {line.strip()}: a promise that apps rely on is gone")
for line in new:
    print(f"+ {line.strip()}: a new promise")
if gone or new:
    sys.exit("the public surface has changed; if that is meant, run tests/surface.py --write and say so in CHANGELOG.md")
print(f"the public surface is as listed: {len(now)} items")
