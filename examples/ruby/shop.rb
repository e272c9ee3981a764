# A shop in Ruby asks for payouts: in its own transaction, and over HTTP. Needs the gem sqlite3.
#
#   ONCEWARD_TOKEN=… ruby shop.rb onceward.db http://127.0.0.1:7117
require "json"
require "net/http"
require "sqlite3"

FILE, URL = ARGV
AT_REST = %w[settled parked cancelled].freeze

def payload(invoice, amount)
  { invoice_id: invoice, account_id: "7", amount_minor: amount, currency: "EUR" }
end

# 1. In the shop's own transaction: the invoice and its payout are both there, or neither is.
def book(db, invoice, amount)
  db.execute("INSERT INTO invoices VALUES (?, ?)", [invoice, amount])
  db.execute("INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', ?)", [JSON.generate(payload(invoice, amount))])
end

db = SQLite3::Database.new(FILE)
db.busy_timeout = 30_000
db.execute("CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY, amount_minor INTEGER NOT NULL)")
db.transaction(:immediate)
book(db, "INV-1", 1001)
db.rollback # something went wrong: no invoice, no payout
db.transaction(:immediate) { book(db, "INV-2", 1002) }

# 2. What became of it stands in a view of the same file.
loop do
  state, reference = db.get_first_row("SELECT state, reference FROM onceward_outcomes WHERE key = 'payout:INV-2'")
  if AT_REST.include?(state)
    puts "payout:INV-2 #{state} #{reference}"
    break
  end
  sleep 0.05
end

# 3. Over HTTP. Without an answer, or after a 503, nobody knows whether it was taken: ask again with the same key.
LOST = [SystemCallError, IOError, Net::OpenTimeout, Net::ReadTimeout, Net::HTTPBadResponse].freeze

def ask(request_class, path, body: nil, key: nil)
  uri = URI(URL + path)
  request = request_class.new(uri, "Authorization" => "Bearer #{ENV.fetch('ONCEWARD_TOKEN')}", "Content-Type" => "application/json")
  request["Idempotency-Key"] = key if key
  request.body = JSON.generate(body) if body
  1.upto(5) do |attempt|
    begin
      # Ruby itself repeats what is idempotent by its method only; here the key makes a POST so, and we say when.
      answer = Net::HTTP.start(uri.host, uri.port, max_retries: 0, read_timeout: 30) { |http| http.request(request) }
      return JSON.parse(answer.body) if answer.is_a?(Net::HTTPSuccess)
      abort "#{answer.code}: #{answer.body}" unless answer.code == "503"
    rescue *LOST => e
      abort "no answer: #{e.message}" if attempt == 5
    end
    sleep 0.2 * attempt
  end
  abort "503, five times"
end

job = ask(Net::HTTP::Post, "/v1/jobs", body: { kind: "payout", payload: payload("INV-3", 1003) }, key: "payout:INV-3")
puts "#{job['key']} #{job['outcome']}" # created; or duplicate, if an earlier request had come through after all
loop do
  job = ask(Net::HTTP::Get, "/v1/jobs/#{URI.encode_www_form_component(job['key'])}")
  break if AT_REST.include?(job["state"])
  sleep 0.05
end
puts "#{job['key']} #{job['state']} #{job['intent']['reference']}"
