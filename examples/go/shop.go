// A shop in Go asks for payouts: in its own transaction, and over HTTP.
//
//	go mod init shop && go mod tidy      (fetches github.com/mattn/go-sqlite3; needs a C compiler)
//	ONCEWARD_TOKEN=… go run shop.go onceward.db http://127.0.0.1:7117
//
// With Debian's golang-github-mattn-go-sqlite3-dev instead: GO111MODULE=off GOPATH=/usr/share/gocode go run shop.go …
package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"time"

	_ "github.com/mattn/go-sqlite3"
)

type payload struct {
	Invoice  string `json:"invoice_id"`
	Account  string `json:"account_id"`
	Amount   int64  `json:"amount_minor"`
	Currency string `json:"currency"`
}

type job struct {
	Key     string
	Outcome string
	State   string
	Intent  struct{ Reference string }
}

func atRest(state string) bool {
	return state == "settled" || state == "parked" || state == "cancelled"
}

// 1. In the shop's own transaction: the invoice and its payout are both there, or neither is.
func book(tx *sql.Tx, invoice string, amount int64) error {
	if _, err := tx.Exec("INSERT INTO invoices VALUES (?, ?)", invoice, amount); err != nil {
		return err
	}
	text, err := json.Marshal(payload{invoice, "7", amount, "EUR"})
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', ?)", string(text))
	return err
}

func inOneTransaction(db *sql.DB, invoice string, amount int64, keep bool) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	if err := book(tx, invoice, amount); err != nil || !keep {
		return err
	}
	return tx.Commit()
}

// 3. Over HTTP. Without an answer, or after a 503, nobody knows whether it was taken: ask again with the same key.
var client = &http.Client{Timeout: 30 * time.Second}

func ask(method, address string, body []byte, key string) (*job, error) {
	last := errors.New("503, five times")
	for attempt := 1; attempt <= 5; attempt++ {
		request, err := http.NewRequest(method, address, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+os.Getenv("ONCEWARD_TOKEN"))
		request.Header.Set("Content-Type", "application/json")
		if key != "" {
			request.Header.Set("Idempotency-Key", key)
		}
		answer, err := client.Do(request)
		if err == nil {
			var said []byte
			said, err = io.ReadAll(answer.Body)
			answer.Body.Close()
			if err == nil && answer.StatusCode/100 == 2 {
				var j job
				return &j, json.Unmarshal(said, &j)
			}
			if err == nil && answer.StatusCode != 503 {
				return nil, fmt.Errorf("%s: %s", answer.Status, said)
			}
		}
		if err != nil {
			last = err
		}
		time.Sleep(time.Duration(attempt) * 200 * time.Millisecond)
	}
	return nil, last
}

func shop(file, base string) error {
	// _txlock: a transaction waits for the lock at its beginning, _busy_timeout at most.
	db, err := sql.Open("sqlite3", "file:"+file+"?_txlock=immediate&_busy_timeout=30000")
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY, amount_minor INTEGER NOT NULL)")
	if err != nil {
		return err
	}
	// Something went wrong: no invoice, no payout.
	if err := inOneTransaction(db, "INV-1", 1001, false); err != nil {
		return err
	}
	if err := inOneTransaction(db, "INV-2", 1002, true); err != nil {
		return err
	}

	// 2. What became of it stands in a view of the same file.
	for {
		var state string
		var reference sql.NullString
		row := db.QueryRow("SELECT state, reference FROM onceward_outcomes WHERE key = 'payout:INV-2'")
		err := row.Scan(&state, &reference)
		if err == nil && atRest(state) {
			fmt.Println("payout:INV-2", state, reference.String)
			break
		}
		if err != nil && err != sql.ErrNoRows {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}

	body, err := json.Marshal(map[string]any{"kind": "payout", "payload": payload{"INV-3", "7", 1003, "EUR"}})
	if err != nil {
		return err
	}
	j, err := ask("POST", base+"/v1/jobs", body, "payout:INV-3")
	if err != nil {
		return err
	}
	fmt.Println(j.Key, j.Outcome) // created; or duplicate, if an earlier request had come through after all
	for {
		if j, err = ask("GET", base+"/v1/jobs/"+url.PathEscape(j.Key), nil, ""); err != nil {
			return err
		}
		if atRest(j.State) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Println(j.Key, j.State, j.Intent.Reference)
	return nil
}

func main() {
	if err := shop(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}
