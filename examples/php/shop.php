<?php
// A shop in PHP asks for payouts: in its own transaction, and over HTTP. Needs the extension sqlite3.
//
//   ONCEWARD_TOKEN=… php shop.php onceward.db http://127.0.0.1:7117
declare(strict_types=1);

[, $file, $url] = $argv;
const AT_REST = ['settled', 'parked', 'cancelled'];

function payload(string $invoice, int $amount): array
{
    return ['invoice_id' => $invoice, 'account_id' => '7', 'amount_minor' => $amount, 'currency' => 'EUR'];
}

// 1. In the shop's own transaction: the invoice and its payout are both there, or neither is.
function book(SQLite3 $db, string $invoice, int $amount): void
{
    $row = $db->prepare('INSERT INTO invoices VALUES (?, ?)');
    $row->bindValue(1, $invoice);
    $row->bindValue(2, $amount);
    $row->execute();
    $ask = $db->prepare("INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', ?)");
    $ask->bindValue(1, json_encode(payload($invoice, $amount)));
    $ask->execute();
}

$db = new SQLite3($file);
$db->enableExceptions(true);
$db->busyTimeout(30000);
$db->exec('CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY, amount_minor INTEGER NOT NULL)');
$db->exec('BEGIN IMMEDIATE');
book($db, 'INV-1', 1001);
$db->exec('ROLLBACK'); // something went wrong: no invoice, no payout
$db->exec('BEGIN IMMEDIATE');
book($db, 'INV-2', 1002);
$db->exec('COMMIT');

// 2. What became of it stands in a view of the same file.
do {
    usleep(50_000);
    $row = $db->querySingle("SELECT state, reference FROM onceward_outcomes WHERE key = 'payout:INV-2'", true);
} while (!in_array($row['state'] ?? null, AT_REST, true));
echo "payout:INV-2 {$row['state']} {$row['reference']}\n";

// 3. Over HTTP. Without an answer, or after a 503, nobody knows whether it was taken: ask again with the same key.
function ask(string $method, string $url, ?array $body = null, ?string $key = null): array
{
    $headers = ['Authorization: Bearer ' . getenv('ONCEWARD_TOKEN'), 'Content-Type: application/json'];
    if ($key !== null) {
        $headers[] = "Idempotency-Key: $key";
    }
    $http = ['method' => $method, 'header' => $headers, 'timeout' => 30, 'ignore_errors' => true];
    if ($body !== null) {
        $http['content'] = json_encode($body);
    }
    for ($attempt = 1; $attempt <= 5; $attempt++) {
        $http_response_header = [];
        $answer = @file_get_contents($url, false, stream_context_create(['http' => $http]));
        $status = (int) (explode(' ', $http_response_header[0] ?? '')[1] ?? 0);
        $said = json_decode((string) $answer, true);
        if ($status >= 200 && $status < 300 && is_array($said)) {
            return $said;
        }
        if ($status >= 400 && $status !== 503) {
            throw new RuntimeException("$status: $answer");
        }
        usleep(200_000 * $attempt);
    }
    throw new RuntimeException('no answer, five times');
}

$job = ask('POST', "$url/v1/jobs", ['kind' => 'payout', 'payload' => payload('INV-3', 1003)], 'payout:INV-3');
echo "{$job['key']} {$job['outcome']}\n"; // created; or duplicate, if an earlier request had come through after all
do {
    usleep(50_000);
    $job = ask('GET', "$url/v1/jobs/" . rawurlencode($job['key']));
} while (!in_array($job['state'], AT_REST, true));
echo "{$job['key']} {$job['state']} {$job['intent']['reference']}\n";
