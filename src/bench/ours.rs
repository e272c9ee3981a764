//! Onceward itself, through the same doors as an embedding app.

use super::{Failed, rate, rest};
use crate::clock::SystemClock;
use crate::config::{Config, Request};
use crate::provider::{Call, Handler, HandlerCall, HandlerOutcome};
use crate::store::{self, Store};
use crate::worker::{self, Ended, Trade, Until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Numbers the jobs of this process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A store in a folder, a kind that does nothing, and one that calls a provider on this machine.
struct Shop {
    config: Arc<Config>,
    trade: Arc<Trade>,
    store: Arc<Store>,
}

impl Shop {
    fn open(dir: &Path, provider: &str, handler: Handler) -> Result<Shop, Failed> {
        let path = dir.join("onceward.toml");
        let text = format!(
            "[store]\npath = \"bench.db\"\n[limits]\nfree_disk = \"0\"\n\
             [providers.loopback]\nprofile = \"generic\"\nbase_url = \"{provider}\"\nconcurrency = 1000\n\
             [kinds.noop]\nkey = \"noop:{{n}}\"\n\
             [kinds.call]\nprovider = \"loopback\"\nkey = \"call:{{n}}\"\nrequest = {{ path = \"/\" }}\n"
        );
        std::fs::write(&path, &text)?;
        let config = Arc::new(Config::parse(&text, &path)?);
        let clock = Arc::new(SystemClock::new());
        let trade = Trade::builder(Arc::clone(&config), clock.clone())
            .handler("noop", handler.repeat_safe())
            .build()?;
        let trade = Arc::new(trade);
        let options =
            store::Options { create: true, namespace: String::new(), watch: Some(config.worker.poll) };
        let store = Arc::new(Store::open(&config.store.path, options, clock, trade.clone())?);
        Ok(Shop { config, trade, store })
    }

    fn idle(dir: &Path) -> Result<Shop, Failed> {
        Shop::open(dir, "http://127.0.0.1:9", Handler::new(done))
    }

    fn job(&self, kind: &str) -> Result<crate::job::NewJob, Failed> {
        let payload = format!(r#"{{"n":{}}}"#, NEXT.fetch_add(1, Ordering::Relaxed));
        let request = Request { kind: kind.into(), payload, ..Request::default() };
        Ok(self.config.prepare(request)?)
    }

    fn enqueue(&self, kind: &str) -> Result<(), Failed> {
        self.store.enqueue(self.job(kind)?, "bench")?;
        Ok(())
    }

    fn enqueue_many(&self, kind: &str, many: usize) -> Result<(), Failed> {
        let jobs = (0..many).map(|_| self.job(kind)).collect::<Result<Vec<_>, _>>()?;
        for answer in self.store.enqueue_many(jobs, "bench")? {
            answer?;
        }
        Ok(())
    }

    fn options(&self, threads: usize, until: Until) -> worker::Options {
        worker::Options { threads, until, ..worker::Options::new(&self.config) }
    }

    /// Carries out `many` jobs of a kind: jobs a second, from the worker's start to its end.
    fn drain(&self, kind: &str, many: usize, threads: usize) -> Result<f64, Failed> {
        for _ in 0..many.div_ceil(500) {
            self.enqueue_many(kind, 500)?;
        }
        let begun = Instant::now();
        let options = self.options(threads, Until::Idle);
        let ended = worker::spawn(Arc::clone(&self.store), Arc::clone(&self.trade), options)?.join()?;
        match ended {
            Ended::Finished => Ok((many.div_ceil(500) * 500) as f64 / begun.elapsed().as_secs_f64()),
            Ended::Abandoned(calls) => Err(Failed(format!("{calls} jobs did not end"))),
        }
    }

    /// The same for about `time`: a short run says how many that is.
    fn drained(&self, kind: &str, time: Duration, threads: usize) -> Result<f64, Failed> {
        let short = self.drain(kind, 1000, threads)?;
        self.drain(kind, (short * time.as_secs_f64()) as usize, threads)
    }
}

fn done(_: &HandlerCall) -> HandlerOutcome {
    HandlerOutcome::Settled { reference: None, result: None }
}

/// Jobs a second that so many callers enqueue, each waiting for its own.
pub fn enqueue(dir: &Path, time: Duration, callers: usize) -> Result<f64, Failed> {
    let shop = Shop::idle(dir)?;
    shop.enqueue("noop")?;
    together(callers, || rate(time, 1, || shop.enqueue("noop")))
}

/// The sum of what so many threads reach at once.
fn together(threads: usize, one: impl Fn() -> Result<f64, Failed> + Sync) -> Result<f64, Failed> {
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(&one)).collect();
        let gone = |_| Failed("a thread panicked".into());
        all.into_iter().map(|thread| thread.join().map_err(gone)?).sum()
    })
}

/// Jobs a second that one caller enqueues, so many at a time.
pub fn enqueue_many(dir: &Path, time: Duration, each: usize) -> Result<f64, Failed> {
    let shop = Shop::idle(dir)?;
    shop.enqueue("noop")?;
    rate(time, each, || shop.enqueue_many("noop", each))
}

/// A closed store with one job in it.
pub fn one_job(dir: &Path) -> Result<PathBuf, Failed> {
    let shop = Shop::idle(dir)?;
    shop.enqueue("noop")?;
    Ok(shop.config.store.path.clone())
}

/// No-op jobs a second, from claim to settled.
pub fn work(dir: &Path, time: Duration, threads: usize) -> Result<f64, Failed> {
    Shop::idle(dir)?.drained("noop", time, threads)
}

/// Jobs a second that call a provider on this machine.
pub fn http(dir: &Path, time: Duration, threads: usize) -> Result<f64, Failed> {
    let provider = Loopback::start(None)?;
    Shop::open(dir, &provider.url, Handler::new(done))?.drained("call", time, threads)
}

/// The same calls, made and read in the same way, with no store around them.
pub fn bare_calls(dir: &Path, time: Duration, threads: usize) -> Result<f64, Failed> {
    let provider = Loopback::start(None)?;
    let shop = Shop::open(dir, &provider.url, Handler::new(done))?;
    shop.enqueue("call")?;
    let (owner, _lock) = shop.store.register("bench:1")?;
    let claimed = shop.store.claim(&owner, 1, Duration::from_secs(60))?;
    let claim = claimed.claims.first().ok_or_else(|| Failed("nothing could be claimed".into()))?;
    let call = || Call {
        step: claim.step(),
        job: claim.job(),
        intent: claim.intent(),
        frozen: claim.frozen(),
        scope: Some(claim.scope()),
        before_first_byte: &|| Ok(()),
        program: None,
    };
    together(threads, || {
        rate(time, 1, || match shop.trade.call(&call()).class {
            crate::outcome::Class::Ok => Ok(()),
            other => Err(Failed(format!("the provider on this machine did not answer: {other}"))),
        })
    })
}

/// How long from asking to the handler's start, in a worker that waits.
pub fn wake_here(dir: &Path, time: Duration) -> Result<Vec<Duration>, Failed> {
    let (started, starts) = channel();
    let started = Mutex::new(started);
    let handler = Handler::new(move |call: &HandlerCall| {
        let _ = started.lock().unwrap_or_else(PoisonError::into_inner).send(Instant::now());
        done(call)
    });
    let shop = Shop::open(dir, "http://127.0.0.1:9", handler)?;
    let options = shop.options(2, Until::Stopped);
    let worker = worker::spawn(Arc::clone(&shop.store), Arc::clone(&shop.trade), options)?;
    let ask = || -> Result<(), Failed> {
        shop.enqueue("noop")?;
        worker.wake();
        Ok(())
    };
    latencies(time, &starts, ask)
}

/// What another process does, as the provider sees it.
pub struct There {
    /// From its start to its first request.
    pub start: Duration,
    /// From asking to the request, once it waits.
    pub times: Vec<Duration>,
    /// Its memory in MB, where the system tells it.
    pub memory: Option<f64>,
}

/// A worker as a process of its own.
pub fn wake_there(dir: &Path, time: Duration, program: &Path) -> Result<There, Failed> {
    let (started, starts) = channel();
    let provider = Loopback::start(Some(started))?;
    let shop = Shop::open(dir, &provider.url, Handler::new(done))?;
    shop.enqueue("call")?;
    let mut command = Command::new(program);
    command.arg("--config").arg(dir.join("onceward.toml")).arg("work");
    let begun = Instant::now();
    let mut worker = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let start = next_start(&starts).map(|at| at.saturating_duration_since(begun));
    let times = start.and_then(|start| Ok((start, latencies(time, &starts, || shop.enqueue("call"))?)));
    let memory = resident(worker.id());
    worker.kill()?;
    worker.wait()?;
    let (start, times) = times?;
    Ok(There { start, times, memory })
}

fn next_start(starts: &Receiver<Instant>) -> Result<Instant, Failed> {
    starts.recv_timeout(Duration::from_secs(30)).map_err(|e| Failed(format!("no job began: {e}")))
}

/// Asks, waits for the start, rests until the worker is idle again, five times at least. One more warms up.
fn latencies(
    time: Duration,
    starts: &Receiver<Instant>,
    ask: impl Fn() -> Result<(), Failed>,
) -> Result<Vec<Duration>, Failed> {
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < 6 || begun.elapsed() < time {
        let asked = Instant::now();
        ask()?;
        times.push(next_start(starts)?.saturating_duration_since(asked));
        rest();
    }
    times.remove(0);
    Ok(times)
}

fn resident(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? / 1024.0)
}

/// A provider on this machine that says yes to everything. Its threads end with the process.
struct Loopback {
    url: String,
}

impl Loopback {
    /// `arrivals` hears of each request.
    fn start(arrivals: Option<std::sync::mpsc::Sender<Instant>>) -> Result<Loopback, Failed> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let url = format!("http://{}", listener.local_addr()?);
        let listener = Arc::new(listener);
        for _ in 0..32 {
            let (listener, arrivals) = (Arc::clone(&listener), arrivals.clone());
            std::thread::Builder::new().name("loopback".into()).spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    let _ = serve(stream, arrivals.as_ref());
                }
            })?;
        }
        Ok(Loopback { url })
    }
}

/// Answers the requests of one connection until the other end closes it.
fn serve(stream: TcpStream, arrivals: Option<&std::sync::mpsc::Sender<Instant>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        let mut length = 0u64;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if header.trim().is_empty() {
                break;
            }
        }
        if let Some(arrivals) = arrivals {
            let _ = arrivals.send(Instant::now());
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        let body = format!(r#"{{"id":"bench_{}"}}"#, NEXT.fetch_add(1, Ordering::Relaxed));
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
        reader.get_mut().write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes())?;
    }
}
