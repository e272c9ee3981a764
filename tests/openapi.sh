#!/usr/bin/env bash
# Holds the OpenAPI document against the server: schemathesis makes requests from it, right ones and wrong ones, and looks
# whether every answer is one that the document allows. Needs python3; schemathesis is installed under target/.
set -euo pipefail
cd "$(dirname "$0")/.."
VERSION=4.32.5
venv=$PWD/target/schemathesis
if ! "$venv/bin/schemathesis" --version 2>/dev/null | grep -qF "$VERSION"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$VERSION"
fi
dir=$(mktemp -d)
worker=
trap 'if [ -n "$worker" ]; then kill "$worker" 2>/dev/null || true; wait "$worker" 2>/dev/null || true; fi; rm -rf "$dir"' EXIT
export API_TOKEN=token-of-the-openapi-test
cat >"$dir/onceward.toml" <<TOML
[http]
listen = "127.0.0.1:0"
token = { env = "API_TOKEN" }

[providers.bank]
profile = "generic"
base_url = "http://127.0.0.1:9"

[kinds.raw]
provider = "bank"
request = { method = "POST", path = "/v1/payouts", encoding = "json" }
TOML
target/debug/onceward --config "$dir/onceward.toml" work 2>"$dir/log" &
worker=$!
for _ in $(seq 300); do
    url=$(sed -n 's/.*listening on \(http:.*\)/\1/p' "$dir/log")
    if [ -n "$url" ] && curl -fsS "$url/healthz" >/dev/null 2>&1; then break; fi
    sleep 0.1
done
curl -fsS -X POST "$url/v1/jobs" -H "Authorization: Bearer $API_TOKEN" -H 'Content-Type: application/json' \
    -d '{"kind":"raw","key":"order:1","payload":{"n":1}}' >/dev/null
# Left out: that everything the document allows is accepted. What a kind, a key or a state allows is the config's and
# the file's to say, not a schema's.
cd "$dir" # it leaves files where it runs
"$venv/bin/schemathesis" run "$url/openapi.json" --url "$url" \
    --header "Authorization: Bearer $API_TOKEN" --exclude-checks positive_data_acceptance \
    --seed 1 --max-examples "${EXAMPLES:-30}" --no-color "$@"
if grep -q panicked "$dir/log"; then
    cat "$dir/log"
    exit 1
fi
