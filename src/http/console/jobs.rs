//! Jobs: searched, filtered, a page at a time.

use super::page::{self, Here, amount, job_path, number, pill_of, time};
use super::{Visit, words};
use crate::door;
use crate::http::message::{Problem, Response};
use crate::job::{Reason, State};
use crate::outcome::Class;
use crate::store::{Browse, By, Cursor, Line, Page};
use maud::{Markup, html};

/// Rows on a page.
pub const ROWS: usize = 50;

pub fn page(visit: &Visit<'_>) -> Result<Response, Problem> {
    let asked = Asked::read(visit)?;
    if let Some(id) =
        asked.text.strip_prefix('#').filter(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))
        && visit.app.store.find(&asked.text)?.is_some()
    {
        return Ok(super::see(&format!("/job/{id}")));
    }
    let (found, by) = asked.search(visit)?;
    let all = visit.app.store.all_jobs()?;
    let main = html! {
        h1 { "Jobs" }
        (asked.form(visit))
        @if all == 0 {
            div.teach {
                p { "There are no jobs yet. One is asked for like this:" }
                pre { code { "onceward enqueue payout --payload '{\"invoice_id\":\"INV-1001\",\"amount_minor\":1250,\"currency\":\"EUR\"}'" } }
            }
        } @else {
            (heading(&asked, &found, &by))
            (table(&found.lines))
            (asked.further(&found))
        }
    };
    let title = match (&asked.state, found.lines.len(), &found.next) {
        (_, 0, None) => "No such job".into(),
        (Some(state), ..) => format!("Jobs: {}", words::state(*state).to_lowercase()),
        (None, ..) => format!("{} jobs", number(all)),
    };
    visit.page(Here::Jobs, &title, &main)
}

fn heading(asked: &Asked, found: &Page, by: &By) -> Markup {
    let text = &asked.text;
    html! {
        p.found role="status" {
            @match (by, found.lines.is_empty()) {
                (_, true) if found.next.is_some() => {
                    "Nothing among the " (number(found.looked as u64)) " jobs looked at so far."
                }
                (_, true) if asked.is_filtered() => { "No job fits." }
                (_, true) => { "No jobs." }
                (By::Key(_), _) => { "Keys that begin with " code { (text) } "." }
                (By::Reference(_), _) => { "Found by the provider’s reference " code { (text) } "." }
                (By::Account(_), _) => { "Found by account " code { (text) } "." }
                (By::Reason(_), _) => { "The oldest first." }
                (By::All, _) if asked.group.is_some() => { "By place, the last first." }
                (By::All, _) => {
                    @match asked.state {
                        Some(State::Scheduled | State::Ready | State::Waiting | State::Unknown) => { "By when they are due, the soonest first." }
                        Some(State::Parked) => { "By reason, the oldest first." }
                        _ if asked.class.as_deref().is_some_and(|class| Class::parse(class).is_none()) => { "The oldest first." }
                        _ => { "The newest first." }
                    }
                }
            }
        }
    }
}

/// The table of jobs that several pages show.
pub fn table(lines: &[Line]) -> Markup {
    html! {
        @if !lines.is_empty() {
            div.scroll role="region" aria-label="Jobs" tabindex="0" {
                table.list role="table" {
                    thead role="rowgroup" {
                        tr role="row" {
                            th role="columnheader" scope="col" { "Key" } th role="columnheader" scope="col" { "State" } th.n role="columnheader" scope="col" { "Amount" }
                            th.wide role="columnheader" scope="col" { "Account" } th role="columnheader" scope="col" { "Reference or reason" } th.wide role="columnheader" scope="col" { "Last change" }
                        }
                    }
                    tbody role="rowgroup" { @for line in lines { (row(line)) } }
                }
            }
        }
    }
}

fn row(line: &Line) -> Markup {
    html! {
        tr role="row" {
            th role="rowheader" scope="row" { a.key href=(job_path(line.id)) { (line.key) } span.sub { (line.kind) } }
            td role="cell" { (pill_of(line.state, line.intent)) }
            td.n role="cell" { (amount(line.amount_minor, line.currency.as_deref()).unwrap_or_default()) }
            td.wide role="cell" { (line.account.as_deref().unwrap_or_default()) }
            td role="cell" { (last_word(line)) }
            td.wide role="cell" { (time(line.updated)) }
        }
    }
}

/// What is most worth knowing in a word: the reference, why it is parked, or how it last ended.
fn last_word(line: &Line) -> Markup {
    html! {
        @if let Some(reference) = &line.reference { code { (reference) } }
        @else if let Some(reason) = line.reason { (words::reason(reason).0) }
        @else if let Some(class) = line.class { (words::class(class)) }
    }
}

/// What the address asks for.
struct Asked {
    text: String,
    state: Option<State>,
    kind: Option<String>,
    group: Option<String>,
    class: Option<String>,
    by: Option<String>,
    after: Option<Cursor>,
}

impl Asked {
    fn read(visit: &Visit<'_>) -> Result<Asked, Problem> {
        let word = |name: &str| visit.query(name).map(str::to_string);
        let state = visit.query("state").map(|w| door::known(w, State::ALL, State::as_str)).transpose();
        let class = word("class");
        class.as_deref().map(door::known_class).transpose().map_err(Problem::invalid)?;
        let after = match (visit.query("at"), visit.query("id").and_then(|id| id.parse().ok())) {
            (Some(at), Some(id)) => Some(Cursor { at: at.to_string(), id }),
            _ => None,
        };
        Ok(Asked {
            text: word("q").unwrap_or_default(),
            state: state.map_err(Problem::invalid)?,
            kind: word("kind"),
            group: word("group"),
            class,
            by: word("by"),
            after,
        })
    }

    fn is_filtered(&self) -> bool {
        !self.text.is_empty()
            || self.state.is_some()
            || self.kind.is_some()
            || self.group.is_some()
            || self.class.is_some()
    }

    /// The text is a key's beginning if there is such a key, else a reference, else an account.
    fn search(&self, visit: &Visit<'_>) -> Result<(Page, By), Problem> {
        let text = || self.text.clone();
        let tries = match (self.text.is_empty(), self.by.as_deref()) {
            (true, _) => vec![By::All],
            (false, Some("key")) => vec![By::Key(text())],
            (false, Some("reference")) => vec![By::Reference(text())],
            (false, Some("account")) => vec![By::Account(text())],
            (false, _) => vec![By::Key(text()), By::Reference(text()), By::Account(text())],
        };
        let mut last = (Page::default(), By::All);
        for by in tries {
            let browse = Browse {
                by: by.clone(),
                state: self.state,
                kind: self.kind.clone(),
                group: self.group.clone(),
                class: self.class.clone(),
                intent: None,
                after: self.after.clone(),
                limit: ROWS,
            };
            last = (visit.app.store.browse(&browse)?, by);
            if !last.0.lines.is_empty() || last.0.next.is_some() {
                break;
            }
        }
        Ok(last)
    }

    fn form(&self, visit: &Visit<'_>) -> Markup {
        let kinds: Vec<&String> = visit.app.config.kinds.keys().collect();
        let classes = Class::ALL.iter().map(|c| (c.as_str(), words::class(*c)));
        let reasons = Reason::ALL
            .iter()
            .filter(|r| Class::parse(r.as_str()).is_none())
            .map(|r| (r.as_str(), words::reason(*r).0));
        html! {
            form.filters method="get" action="/jobs" role="search" {
                div.grow {
                    label for="q" { "Key, reference, account or #number" }
                    input #q type="search" name="q" value=(self.text) spellcheck="false" autocomplete="off";
                }
                div {
                    label for="state" { "State" }
                    select #state name="state" {
                        option value="" { "Any" }
                        @for state in State::ALL {
                            option value=(state.as_str()) selected[self.state == Some(*state)] { (words::state(*state)) }
                        }
                    }
                }
                div {
                    label for="kind" { "Kind" }
                    select #kind name="kind" {
                        option value="" { "Any" }
                        @for kind in &kinds { option value=(kind) selected[self.kind.as_ref() == Some(*kind)] { (kind) } }
                        // Jobs of a kind that left the config are still there.
                        @if let Some(kind) = self.kind.as_ref().filter(|kind| !kinds.contains(kind)) { option value=(kind) selected { (kind) } }
                    }
                }
                div {
                    label for="class" { "Last ended" }
                    select #class name="class" {
                        option value="" { "Any way" }
                        @for (word, said) in classes.chain(reasons) {
                            option value=(word) selected[self.class.as_deref() == Some(word)] { (said) }
                        }
                    }
                }
                div {
                    label for="group" { "Group" }
                    input #group name="group" value=(self.group.as_deref().unwrap_or_default()) spellcheck="false" autocomplete="off";
                }
                button.main type="submit" { "Search" }
                @if self.is_filtered() { a.clear href="/jobs" { "Clear" } }
            }
        }
    }

    /// On to the next page.
    fn further(&self, found: &Page) -> Markup {
        let Some(next) = &found.next else { return html! {} };
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        if !self.text.is_empty() {
            pairs.push(("q", &self.text));
        }
        let words = [("kind", &self.kind), ("group", &self.group), ("class", &self.class), ("by", &self.by)];
        pairs.extend(words.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))));
        pairs.extend(self.state.map(|state| ("state", state.as_str())));
        let id = next.id.to_string();
        pairs.extend([("at", next.at.as_str()), ("id", id.as_str())]);
        let query: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{name}={}", page::encode(value))).collect();
        let word = if found.lines.is_empty() { "Look further" } else { "Next page" };
        html! { p.further { a.button href={ "/jobs?" (query.join("&")) } { (word) } } }
    }
}
