//! The reference is what the code says: each key of the config with its default, each figure with its labels. (The
//! commands are in `src/cli/tests.rs`.) `ONCEWARD_BLESS=1` writes the generated pages anew.

use crate::harness::*;
use onceward::config::Config;
use onceward::demo::provider::{Answer, Family, Fault};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn config_page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/config.md");
    std::fs::read_to_string(path).expect("the page is there")
}

/// A section of the page, and a config in which `%` is where a further field of its table would stand (`%,` after
/// another one on the same line); `{p}` is a provider.
const TABLES: &[(&str, &str)] = &[
    ("The file", "%"),
    ("`[store]`", "[store]\n%"),
    ("`[worker]`", "[worker]\n%"),
    ("`[limits]`", "[limits]\n%"),
    ("`[http]`", "[http]\ntoken = { env = \"T\" }\n%"),
    ("A secret", "[http]\ntoken = { % }"),
    ("`[audit]`", "[audit]\n%"),
    ("`anchor` of `[audit]`", "[audit]\nanchor = { file = \"a\"%, }"),
    ("`[providers.NAME]`", "{p}%"),
    ("`auth` of a provider", "{p}auth = { % }"),
    ("`basic` of `auth`", "{p}auth = { basic = { % } }"),
    ("`header` of `auth`", "{p}auth = { header = { % } }"),
    ("`oauth2` of `auth`", "{p}auth = { oauth2 = { % } }"),
    ("`tls` of a provider", "{p}tls = { % }"),
    ("`timeout` of a provider", "{p}timeout = { % }"),
    ("`breaker` of a provider", "{p}breaker = { % }"),
    ("`idempotency` of a provider", "{p}idempotency = { % }"),
    ("`statuses`, each item", "{p}statuses = [{ status = 409, class = \"rejected\"%, }]"),
    ("`duplicate`", "{p}duplicate = { status = 409, code = \"/c\", is = \"d\", reference = \"/r\"%, }"),
    ("`[profiles.NAME]`", "[profiles.p]\nfamily = \"B\"\nkey = { header = \"K\" }\n%"),
    ("`key` of a profile", "[profiles.p]\nfamily = \"B\"\nkey = { header = \"K\"%, }"),
    ("`replay` of a profile", "[profiles.p]\nfamily = \"B\"\nkey = { header = \"K\" }\nreplay = { % }"),
    (
        "`facts` of a profile, each item",
        "[profiles.p]\nfamily = \"B\"\nkey = { header = \"K\" }\nfacts = [{ % }]",
    ),
    ("`[kinds.NAME]`", "[kinds.k]\n%"),
    ("`request` of a kind", "{p}[kinds.k]\nprovider = \"p\"\nrequest = { path = \"/\"%, }"),
    (
        "`reply` of a kind",
        "{p}[kinds.k]\nprovider = \"p\"\nrequest = { path = \"/\" }\nreply = { amount = \"/a\"%, }",
    ),
    (
        "`lookup` of a kind",
        "{p}[kinds.k]\nprovider = \"p\"\nrequest = { path = \"/\" }\nlookup = { path = \"/\", amount = \"/a\"%, }",
    ),
    (
        "`not_found` of a `lookup`",
        "{p}[kinds.k]\nprovider = \"p\"\nrequest = { path = \"/\" }\nlookup = { path = \"/\", not_found = { status = 200%, } }",
    ),
    ("`retry` of a kind", "[kinds.k]\nretry = { % }"),
    ("`exec` of a kind", "[kinds.k]\nexec = { command = [\"/bin/true\"], lookup = [\"/bin/true\"]%, }"),
    ("`[schedules.NAME]`", "[kinds.k]\n[schedules.s]\ncron = \"0 2 * * *\"\nkind = \"k\"\n%"),
    ("`[alerts]`", "[kinds.k]\n[alerts]\nkind = \"k\"\n%"),
    (
        "`quiet` of `[alerts]`",
        "[kinds.k]\n[alerts]\nkind = \"k\"\nquiet = { from = \"22:00\", to = \"07:00\"%, }",
    ),
];

const PROVIDER: &str = "[providers.p]\nprofile = \"generic\"\nbase_url = \"https://a.example\"\n";

fn read(config: &str, field: &str) -> Result<String, String> {
    let config = config.replace("{p}", PROVIDER);
    let text = match field {
        "" => config.replace("%,", "").replace('%', ""),
        field => config.replace("%,", &format!(", {field}")).replace('%', field),
    };
    let read = Config::parse(&text, Path::new("onceward.toml"));
    read.map(|config| format!("{config:?}")).map_err(|e| e.to_string())
}

/// The rows of the tables of a section: key, value, default, meaning.
fn rows(page: &str) -> BTreeMap<&str, Vec<Vec<&str>>> {
    let mut sections = BTreeMap::new();
    for section in page.split("\n## ").skip(1) {
        let (heading, text) = section.split_once('\n').expect("a heading");
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let rows = rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect();
        sections.insert(heading, rows);
    }
    sections
}

#[test]
fn the_reference_has_every_key_that_the_config_knows_and_no_other() {
    let page = config_page();
    let mut sections = rows(&page);
    for (heading, config) in TABLES {
        let told: Vec<Vec<&str>> = sections.remove(heading).unwrap_or_else(|| panic!("no section {heading}"));
        let told: BTreeSet<&str> = told.iter().map(|row| row[0].trim_matches('`')).collect();
        let why = read(config, "zzzzzzzzzzzzzzzz = 1").expect_err("nobody knows this");
        let (_, known) = why.split_once("known are ").unwrap_or_else(|| panic!("{heading}: {why}"));
        assert_eq!(told, known.split(", ").collect(), "{heading}");
    }
    let left: Vec<_> = sections.iter().filter(|(_, rows)| !rows.is_empty()).collect();
    assert!(left.is_empty(), "sections with keys that are compared with nothing: {left:?}");
}

#[test]
fn every_default_of_the_reference_is_what_the_config_takes_when_it_is_left_out() {
    let page = config_page();
    let sections = rows(&page);
    let mut tried = 0;
    for (heading, config) in TABLES {
        for row in sections.get(heading).unwrap_or_else(|| panic!("no section {heading}")) {
            let [key, _, default, _] = row[..] else { panic!("{heading}: {row:?} has not four columns") };
            let Some(default) = default.strip_prefix('`').and_then(|d| d.strip_suffix('`')) else { continue };
            let given = read(config, &format!("{} = {default}", key.trim_matches('`')));
            assert_eq!(given, read(config, ""), "{heading}: {key} = {default}");
            assert!(given.is_ok(), "{heading}: {key}: {given:?}");
            tried += 1;
        }
    }
    assert!(tried > 30, "{tried}");
}

#[test]
fn the_reference_of_figures_is_what_is_scraped() {
    let h = Scene::new(Family::B).with_http().start();
    h.env("API_TOKEN", TOKEN);
    h.payout(1);
    h.work_until_idle();
    h.provider.script(vec![Fault::Answer(Answer::json(422, r#"{"error":"no"}"#))]);
    h.payout(2);
    h.work_until_idle();
    h.run(&["pause", "kind", "payout"]).ok();
    let text = h.serve().get("/metrics").text();
    let told = |what: &str, name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(&format!("# {what} {name} ")));
        line.unwrap_or_default().to_string()
    };
    let mut page = FIGURES.to_string();
    for name in text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()) {
        let kind = told("TYPE", name);
        let sample = text.lines().find(|l| !l.starts_with('#') && l.starts_with(name)).unwrap_or_default();
        assert!(!sample.is_empty(), "{name} has no sample, so its labels cannot be told: {text}");
        let labels = sample.split_once('{').and_then(|(_, l)| l.split_once('}')).map_or("", |(l, _)| l);
        let labels: Vec<String> = labels
            .split(',')
            .filter_map(|l| Some(l.split_once('=')?.0))
            .filter(|l| *l != "le")
            .map(|l| format!("`{l}`"))
            .collect();
        let end = if kind == "counter" { "_total" } else { "" };
        let help = told("HELP", name);
        let help = help.trim_end_matches('.');
        page += &format!("| `{name}{end}` | {kind} | {} | {help} |\n", labels.join(", "));
    }
    same("metrics.md", &page);
}

const FIGURES: &str = "# Figures

`GET /metrics` of the API (`[http]`, with the token) gives these in OpenMetrics' text form. They are the file's, not the
process's: a restart loses none, but `onceward_denied_requests_total` counts from the start. `onceward stats` has the same
for people, and `stats --json` for programs. What to alert on: `packaging/alerts.rules.yml`.

This page is made from a scrape by a test.

| series | type | labels | what it says |
| --- | --- | --- | --- |
";

/// Compares a generated page with the one in the repository.
#[track_caller]
fn same(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference").join(name);
    if std::env::var_os("ONCEWARD_BLESS").is_some() {
        std::fs::write(&path, page).expect("the page is written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, page, "{} differs: run this test with ONCEWARD_BLESS=1", path.display());
}
