#!/usr/bin/env bash
# The Debian package in a Debian root of its own: installed, used, upgraded over live jobs, removed, purged, installed again.
#   packaging/deb/test.sh [PACKAGE.deb]     without one it packs the binary of `cargo build`
#   packaging/deb/test.sh --ready           whether it can be run here
# Needs root, debootstrap, cargo-deb and Debian's archive. The bare root is kept in target/deb for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=()
[ "$(id -u)" -eq 0 ] || missing+=(root)
for tool in debootstrap dpkg-deb; do command -v $tool >/dev/null || missing+=($tool); done
[ -f "${1:-}" ] || command -v cargo-deb >/dev/null || missing+=(cargo-deb)
if [ ${#missing[@]} -gt 0 ]; then
    echo "SKIPPED the Debian package in a root of its own: it needs ${missing[*]}"
    [ "${1:-}" = --ready ] && exit 1
    exit 0
fi
[ "${1:-}" != --ready ] || exit 0
work=$PWD/target/deb
base=$work/base root=$work/root
mkdir -p "$work"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
within() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$root" "$@"; }
as_user() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C chroot --userspec=onceward:onceward "$root" "$@"; }
stat_of() { within stat -c '%U %a' "$1"; }
settled() { within onceward --json stats | grep -o '"settled":[0-9]*' | head -1 | cut -d: -f2; }
# until_settled N: looks until at least N jobs are settled.
until_settled() {
    for _ in $(seq 600); do
        [ "$(settled)" -lt "$1" ] || return 0
        kill -0 "$worker" 2>/dev/null || fail "the worker has ended: $(cat "$work/worker.log")"
        sleep 0.2
    done
    fail "$(settled) jobs are settled, not $1: $(cat "$work/worker.log")"
}
start_worker() {
    # No function here: its shell, and not the worker, would have the process id.
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot --userspec=onceward:onceward "$root" /usr/bin/onceward work \
        2>"$work/worker.log" &
    worker=$!
}
stop_worker() {
    local pid=$worker
    worker=
    kill -TERM "$pid"
    wait "$pid" || fail "the worker's exit code at SIGTERM is $?: $(cat "$work/worker.log")"
}
worker=
clean_up() {
    [ -z "$worker" ] || kill "$worker" 2>/dev/null || true
    ! mountpoint -q "$root/proc" || umount "$root/proc"
}
trap clean_up EXIT

echo "-- the packages"
if [ $# -gt 0 ]; then
    cp "$1" "$work/one.deb"
else
    packaging/deb/build.sh --debug --output "$work/one.deb" 2>&1 | grep -v warning || true
fi
# The next version brings another config too, as a real one may: dpkg then has to choose between it and the edited one.
rm -rf "$work/two"
dpkg-deb -R "$work/one.deb" "$work/two"
next=$(dpkg-deb -f "$work/one.deb" Version)+next
sed -i "s/^Version:.*/Version: $next/" "$work/two/DEBIAN/control"
echo "# what the next version says" >>"$work/two/etc/onceward/onceward.toml"
dpkg-deb -Zgzip -z1 -b "$work/two" "$work/two.deb" >/dev/null

echo "-- a bare root"
if [ ! -e "$base/.whole" ]; then
    rm -rf "$base"
    debootstrap --variant=minbase bookworm "$base" http://deb.debian.org/debian >"$work/debootstrap.log" 2>&1 || {
        echo "SKIPPED the Debian package in a root of its own: debootstrap failed ($(tail -1 "$work/debootstrap.log"))"
        exit 0
    }
    chroot "$base" apt-get update -qq
    touch "$base/.whole"
fi
rm -rf "$root"
cp -a "$base" "$root"
mount -t proc proc "$root/proc" || {
    echo "SKIPPED the Debian package in a root of its own: nothing can be mounted here"
    exit 0
}
# No service manager, so nothing may be started by the packages.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
cp "$work/one.deb" "$work/two.deb" "$root/root/"

echo "-- install"
within dpkg -i /root/one.deb >"$work/install.log" 2>&1 && fail "the root has ca-certificates already: nothing was to be fetched"
within apt-get install -f -y -qq >>"$work/install.log" 2>&1 || fail "$(tail -20 "$work/install.log")"
within getent passwd onceward >/dev/null || fail "there is no user"
[ "$(stat_of /var/lib/onceward)" = "onceward 700" ] || fail "the folder: $(stat_of /var/lib/onceward)"
[ "$(stat_of /var/lib/onceward/onceward.db)" = "onceward 600" ] || fail "the file: $(stat_of /var/lib/onceward/onceward.db)"
for file in /usr/lib/systemd/system/onceward.service /usr/share/bash-completion/completions/onceward \
    /usr/share/zsh/vendor-completions/_onceward /usr/share/fish/vendor_completions.d/onceward.fish \
    /usr/share/man/man1/onceward.1.gz /usr/share/man/man1/onceward-enqueue.1.gz /usr/share/doc/onceward/copyright; do
    [ -s "$root$file" ] || within dpkg -L onceward | grep -qx "$file" || fail "$file is not there"
done
[ "$(within dpkg-query -W -f '${Conffiles}' onceward | grep -c onceward.toml)" = 1 ] || fail "the config is no conffile"
within onceward check || fail "check finds fault with the package's own config"

echo "-- jobs, with the edited config"
cat >>"$root/etc/onceward/onceward.toml" <<'TOML'
# edited by hand
[kinds.note]
key = "note:{n}"
exec = { command = ["/usr/local/bin/effect"], concurrency = 2, timeout = "10m" }
TOML
edited=$(sha256sum <"$root/etc/onceward/onceward.toml")
cat >"$root/usr/local/bin/effect" <<'SH'
#!/bin/sh
# From the tenth on they wait until the upgrade is done.
while [ "$(wc -l </var/lib/onceward/effects)" -ge 10 ] && [ ! -e /var/lib/onceward/go ]; do sleep 0.1; done
echo "$ONCEWARD_KEY" >>/var/lib/onceward/effects
echo "ref-$ONCEWARD_KEY"
SH
chmod 755 "$root/usr/local/bin/effect"
as_user /usr/bin/touch /var/lib/onceward/effects
jobs=60
for n in $(seq $jobs); do echo "{\"kind\":\"note\",\"payload\":{\"n\":$n}}"; done >"$root/root/jobs.jsonl"
within onceward import /root/jobs.jsonl # by root, while the worker is another user
start_worker
until_settled 5

echo "-- upgrade over live jobs"
within dpkg -i --force-confold /root/two.deb >"$work/upgrade.log" 2>&1 || fail "$(cat "$work/upgrade.log")"
[ "$(within dpkg-query -W -f '${Version}' onceward)" = "$next" ] || fail "the version did not change"
[ "$(settled)" -lt $jobs ] || fail "all was done before the upgrade: it was not over live jobs"
[ "$(sha256sum <"$root/etc/onceward/onceward.toml")" = "$edited" ] || fail "the edited config was overwritten"
[ -e "$root/etc/onceward/onceward.toml.dpkg-dist" ] || fail "the next version's config was not offered"
touch "$root/var/lib/onceward/go"
# systemd would try-restart it: the same signal, then the new program.
stop_worker
start_worker
until_settled $jobs
stop_worker
once() { # every effect, and none twice
    [ "$(sort -u "$root/var/lib/onceward/effects" | wc -l)" = $jobs ] || fail "effects are missing"
    [ "$(wc -l <"$root/var/lib/onceward/effects")" = $jobs ] || fail "doubled: $(sort "$root/var/lib/onceward/effects" | uniq -d)"
}
once
within onceward audit verify || fail "the ledger does not verify"

echo "-- remove, purge, and back"
within dpkg -r onceward >"$work/remove.log" 2>&1 || fail "$(cat "$work/remove.log")"
[ ! -e "$root/usr/bin/onceward" ] || fail "the program is still there"
[ -e "$root/etc/onceward/onceward.toml" ] || fail "a removal took the config"
within dpkg -P onceward >"$work/purge.log" 2>&1 || fail "$(cat "$work/purge.log")"
[ ! -e "$root/etc/onceward/onceward.toml" ] || fail "a purge left the config"
grep -q 'ledger in /var/lib/onceward .* kept' "$work/purge.log" || fail "a purge did not say what it keeps"
[ "$(stat_of /var/lib/onceward/onceward.db)" = "onceward 600" ] || fail "a purge took the ledger, or its user"
within dpkg -i /root/two.deb >"$work/again.log" 2>&1 || fail "$(cat "$work/again.log")"
[ "$(settled)" = $jobs ] || fail "after all that $(settled) jobs are settled, not $jobs"
cat >>"$root/etc/onceward/onceward.toml" <<'TOML'
[kinds.note]
key = "note:{n}"
exec = { command = ["/usr/local/bin/effect"], concurrency = 2 }
TOML
within onceward enqueue note --payload '{"n":1}' | grep -q duplicate || fail "a key is not known any more"
as_user /usr/bin/onceward work --once
once
rm -rf "$work/two"
umount "$root/proc"
rm -rf "$root"
echo "the Debian package: $jobs jobs, each once, through install, upgrade, removal, purge and back"
