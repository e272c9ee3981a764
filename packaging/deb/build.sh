#!/bin/sh
# Makes the Debian package: the program, then the pages and completions that it prints itself, then cargo-deb.
#   packaging/deb/build.sh [--debug] [further options of cargo deb]
# --debug packs the binary that `cargo build` makes, for packaging/deb/test.sh.
set -eu
cd "$(dirname "$0")/../.."
program=target/dist/onceward
if [ "${1-}" = --debug ]; then
    shift
    cargo build --locked
    program=target/debug/onceward
    set -- --profile dev --strip --fast "$@"
else
    cargo build --profile dist --locked
    set -- --profile dist "$@"
fi
mkdir -p target/man target/completions
"$program" man --to target/man
"$program" completions bash > target/completions/onceward
"$program" completions zsh > target/completions/_onceward
"$program" completions fish > target/completions/onceward.fish
cargo deb --no-build "$@"
