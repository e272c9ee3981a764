#!/bin/sh
# A shop in shell asks for payouts: in its own transaction (sqlite3), and over HTTP (curl).
#
#   ONCEWARD_TOKEN=… ./shop.sh onceward.db http://127.0.0.1:7117
set -eu
file=$1
url=$2

sql() {
    sqlite3 -bail -cmd '.timeout 30000' "$file"
}

payload() {
    printf '{"invoice_id":"%s","account_id":"7","amount_minor":%s,"currency":"EUR"}' "$1" "$2"
}

# 1. In the shop's own transaction: the invoice and its payout are both there, or neither is.
book() {
    printf "INSERT INTO invoices VALUES ('%s', %s);\n" "$1" "$2"
    printf "INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', '%s');\n" "$(payload "$1" "$2")"
}

echo "CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY, amount_minor INTEGER NOT NULL);" | sql
{ echo "BEGIN IMMEDIATE;"; book INV-1 1001; echo "ROLLBACK;"; } | sql # something went wrong: no invoice, no payout
{ echo "BEGIN IMMEDIATE;"; book INV-2 1002; echo "COMMIT;"; } | sql

# 2. What became of it stands in a view of the same file.
outcome=
while [ -z "$outcome" ]; do
    sleep 0.05
    outcome=$(echo "SELECT state || ' ' || coalesce(reference, '') FROM onceward_outcomes
        WHERE key = 'payout:INV-2' AND state IN ('settled', 'parked', 'cancelled');" | sql)
done
echo "payout:INV-2 $outcome"

# 3. Over HTTP. Without an answer, or after a 503, nobody knows whether it was taken: curl asks again, with the same key.
# The token comes by stdin, so that it stands in no list of processes.
ask() {
    printf 'header = "Authorization: Bearer %s"\n' "$ONCEWARD_TOKEN" |
        curl --silent --show-error --fail-with-body --max-time 30 --retry 5 --retry-all-errors --config - "$@"
}
# A value out of JSON: sqlite3 is here anyway.
field() {
    printf "SELECT json_extract('%s', '%s');" "$(printf %s "$1" | sed "s/'/''/g")" "$2" | sqlite3 :memory:
}

job=$(ask -H 'Content-Type: application/json' -H 'Idempotency-Key: payout:INV-3' \
    -d "{\"kind\":\"payout\",\"payload\":$(payload INV-3 1003)}" "$url/v1/jobs")
echo "payout:INV-3 $(field "$job" '$.outcome')" # created; or duplicate, if an earlier request had come through after all
state=
until [ "$state" = settled ] || [ "$state" = parked ] || [ "$state" = cancelled ]; do
    sleep 0.05
    job=$(ask "$url/v1/jobs/payout%3AINV-3")
    state=$(field "$job" '$.state')
done
echo "payout:INV-3 $state $(field "$job" '$.intent.reference')"
