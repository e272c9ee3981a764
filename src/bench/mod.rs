//! What this machine can do: raw appends and raw SQLite commits on the file system of the store, and Onceward beside
//! them at the same durability, each pair one after the other.
//!
//! Disks stall now and then. So the raw append is measured before and after each pair; where the two differ by half, the
//! pair is measured again, and at the third time shown as unsteady. Nothing is printed here.

mod ours;
mod raw;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to do.
pub struct Options<'a> {
    /// The folder whose file system is measured. A folder is made in it, and removed in the end.
    pub dir: PathBuf,
    /// How long each figure is measured.
    pub time: Duration,
    /// The program that is started as another process: this one.
    pub program: PathBuf,
    /// Called with the name of what is measured next; `false` ends it there.
    pub go_on: &'a dyn Fn(&str) -> bool,
}

/// One figure, beside its limit if it has one.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// Its unit: `/s`, `ms`, `MB`.
    pub unit: &'static str,
    /// The value.
    pub value: f64,
    /// What it is held against, and that one's value.
    pub limit: Option<(String, f64)>,
    /// The disk was as quick after the measurement as before.
    pub steady: bool,
}

impl Figure {
    /// The value over its limit's.
    pub fn ratio(&self) -> Option<f64> {
        self.limit.as_ref().filter(|(_, limit)| *limit > 0.0).map(|(_, limit)| self.value / limit)
    }
}

/// Why it could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(String);

macro_rules! failed_from {
    ($($error:ty),*) => { $(impl From<$error> for Failed {
        fn from(e: $error) -> Failed {
            Failed(e.to_string())
        }
    })* };
}
failed_from!(std::io::Error, rusqlite::Error, crate::store::StoreError, crate::config::ConfigError);
failed_from!(crate::job::Refusal, crate::worker::TradeError);

/// Times a piece of work for about `time`: units a second, `each` units a call.
fn rate(time: Duration, each: usize, mut work: impl FnMut() -> Result<(), Failed>) -> Result<f64, Failed> {
    let begun = Instant::now();
    let mut done = 0usize;
    while begun.elapsed() < time {
        work()?;
        done += each;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

/// Off the beat of any poll.
fn rest() {
    std::thread::sleep(Duration::from_micros(fastrand::u64(3_000..30_000)));
}

/// The value that so much of them is within, in milliseconds.
fn within(times: &mut [Duration], part: f64) -> f64 {
    times.sort_unstable();
    let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
    times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

/// Measures everything, in this order. Takes about sixty times `options.time`.
pub fn run(options: &Options<'_>) -> Result<Vec<Figure>, Failed> {
    let folder = Folder(options.dir.join(format!("onceward-bench-{}", std::process::id())));
    std::fs::create_dir(folder.path())?;
    Bench { options, dir: folder.path().to_path_buf() }.all()
}

struct Bench<'a> {
    options: &'a Options<'a>,
    dir: PathBuf,
}

/// The disk's speed may differ so much before and after.
const STEADY: f64 = 1.5;

impl Bench<'_> {
    fn all(&self) -> Result<Vec<Figure>, Failed> {
        let mut figures = self.raw()?;
        figures.extend(self.enqueue()?);
        figures.extend(self.work()?);
        figures.extend(self.http()?);
        figures.extend(self.waiting()?);
        Ok(figures)
    }

    fn time(&self) -> Duration {
        self.options.time
    }

    fn begin(&self, name: &str) -> Result<(), Failed> {
        if (self.options.go_on)(name) { Ok(()) } else { Err(Failed("stopped before its end".into())) }
    }

    /// A folder of its own for each measurement, so that none reads another's rows.
    fn fresh(&self) -> Result<Folder, Failed> {
        let folder = Folder(self.dir.join(format!("{:016x}", fastrand::u64(..))));
        std::fs::create_dir(folder.path())?;
        Ok(folder)
    }

    /// A limit and a figure in turn, until the disk was steady around them.
    fn pair(
        &self,
        name: &str,
        limit_name: &str,
        limit: impl Fn(&Path) -> Result<f64, Failed>,
        ours: impl Fn(&Path) -> Result<f64, Failed>,
    ) -> Result<Figure, Failed> {
        let probe = || raw::appends(&self.dir, Duration::from_millis(100));
        let mut tries = 0;
        loop {
            self.begin(name)?;
            tries += 1;
            let (under, over) = (self.fresh()?, self.fresh()?);
            let before = probe()?;
            let limit = limit(under.path())?;
            let value = ours(over.path())?;
            let after = probe()?;
            let steady = before < after * STEADY && after < before * STEADY;
            if steady || tries == 3 {
                let limit = Some((limit_name.to_string(), limit));
                return Ok(Figure { name: name.into(), unit: "/s", value, limit, steady });
            }
        }
    }

    fn alone(&self, name: &str, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), unit, value, limit: None, steady: true }
    }

    fn raw(&self) -> Result<Vec<Figure>, Failed> {
        self.begin("raw appends and commits")?;
        let appends = raw::appends(&self.dir, self.time())?;
        let mut figures = vec![self.alone("raw: 4 KiB appends, each synchronised", "/s", appends)];
        for each in [1usize, 10, 100, 1000] {
            let value = raw::rows(self.fresh()?.path(), self.time(), each)?;
            figures.push(self.alone(&format!("raw: rows into SQLite, {each} a commit"), "/s", value));
        }
        Ok(figures)
    }

    fn enqueue(&self) -> Result<Vec<Figure>, Failed> {
        let time = self.time();
        let single = |dir: &Path| raw::rows(dir, time, 1);
        let one = |dir: &Path| ours::enqueue(dir, time, 1);
        let mut figures = vec![self.pair("enqueue one by one, 1 caller", "raw commits", single, one)?];
        for callers in [8, 32] {
            let name = format!("enqueue one by one, {callers} callers");
            let many = |dir: &Path| ours::enqueue(dir, time, callers);
            figures.push(self.pair(&name, "one caller", one, many)?);
        }
        let bare = |dir: &Path| raw::same_rows(&ours::one_job(dir)?, time, 100);
        let ours = |dir: &Path| ours::enqueue_many(dir, time, 100);
        figures.push(self.pair("enqueue 100 at a time", "the same rows by SQL alone", bare, ours)?);
        Ok(figures)
    }

    fn work(&self) -> Result<Vec<Figure>, Failed> {
        let time = self.time();
        let one = |threads: usize| {
            let name = format!("no-op jobs, {threads} threads");
            let limit = |dir: &Path| raw::cycles(dir, time, threads);
            self.pair(&name, "bare claim and finish by SQL", limit, |dir: &Path| {
                ours::work(dir, time, threads)
            })
        };
        [2, 8, 32].into_iter().map(one).collect()
    }

    fn http(&self) -> Result<Vec<Figure>, Failed> {
        let time = self.time();
        let one = |threads: usize| {
            let name = format!("HTTP jobs to this machine, {threads} threads");
            let bare = |dir: &Path| ours::bare_calls(dir, time, threads);
            self.pair(&name, "the same calls alone", bare, |dir: &Path| ours::http(dir, time, threads))
        };
        [8, 32].into_iter().map(one).collect()
    }

    fn waiting(&self) -> Result<Vec<Figure>, Failed> {
        self.begin("how soon a job begins")?;
        let mut bare = raw::two_after_rest(self.fresh()?.path(), self.time())?;
        let here = ours::wake_here(self.fresh()?.path(), self.time())?;
        let there = ours::wake_there(self.fresh()?.path(), self.time(), &self.options.program)?;
        let start = there.start.as_secs_f64() * 1e3;
        let mut figures = vec![self.alone("a worker's start to its first request", "ms", start)];
        for (what, mut times) in [("in this process", here), ("from another process", there.times)] {
            for (word, part) in [("half", 0.5), ("99 %", 0.99)] {
                let figure = self.alone(
                    &format!("enqueue to start, {what}, {word} within"),
                    "ms",
                    within(&mut times, part),
                );
                let limit = Some(("two bare commits after a rest".into(), within(&mut bare, part)));
                figures.push(Figure { limit, ..figure });
            }
        }
        if let Some(memory) = there.memory {
            figures.push(self.alone("memory of an idle worker", "MB", memory));
        }
        Ok(figures)
    }
}

/// A folder that goes away with its measurement.
struct Folder(PathBuf);

impl Folder {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
