#!/bin/sh
# Makes the Debian package: the program, then the pages and completions that it prints itself, then cargo-deb.
set -eu
cd "$(dirname "$0")/../.."
cargo build --release --locked
mkdir -p target/man target/completions
target/release/onceward man --to target/man
target/release/onceward completions bash > target/completions/onceward
target/release/onceward completions zsh > target/completions/_onceward
target/release/onceward completions fish > target/completions/onceward.fish
cargo deb --no-build
