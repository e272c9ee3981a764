//! Tells systemd how the worker is (sd_notify(3)): READY once it could use the file, WATCHDOG while it goes round,
//! STOPPING when it was told to end. Without `NOTIFY_SOCKET` nobody is told anything.
//!
//! The watchdog is about a worker that hangs. One whose file cannot be written still goes round, and may keep results in
//! memory that must not be lost: it is not ended.

use crate::worker::Stop;
use std::ffi::OsString;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// How often it is looked whether there is something to tell.
const LOOK: Duration = Duration::from_millis(200);
/// A round may wait so long: the longest pause between two tries to claim is a minute.
const ROUND_MAX: Duration = Duration::from_secs(90);

/// Where systemd listens, and how often it wants to hear that all is well.
#[derive(Clone)]
pub struct Systemd {
    socket: OsString,
    watchdog: Option<Duration>,
}

impl Systemd {
    /// As the environment says; `None`: nobody listens.
    pub fn from_env() -> Option<Systemd> {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty())?;
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| ours && *usec > 0).map(Duration::from_micros);
        Some(Systemd { socket, watchdog })
    }

    /// Tells of the worker from a thread of its own, until the process ends.
    pub fn watch(&self, stop: &Stop) -> std::io::Result<()> {
        let (systemd, stop) = (self.clone(), stop.clone());
        let tell = move || {
            let mut ready = false;
            let mut told = Instant::now();
            loop {
                if !ready && stop.is_alive() {
                    ready = true;
                    systemd.tell("READY=1");
                }
                // Twice within its time, as sd_watchdog_enabled(3) advises.
                if let Some(span) = systemd.watchdog
                    && told.elapsed() * 2 >= span
                    && stop.goes_round_within(ROUND_MAX)
                {
                    told = Instant::now();
                    systemd.tell("WATCHDOG=1");
                }
                std::thread::sleep(LOOK.min(systemd.watchdog.map_or(LOOK, |span| span / 4)));
            }
        };
        std::thread::Builder::new().name("onceward-notify".into()).spawn(tell).map(drop)
    }

    /// Says that the worker was told to end.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, message: &str) {
        if let Err(e) = self.send(message) {
            log::warn!("systemd could not be told {message}: {e}");
        }
    }

    fn send(&self, message: &str) -> std::io::Result<usize> {
        let socket = UnixDatagram::unbound()?;
        #[cfg(target_os = "linux")]
        if let Some(name) = self.socket.as_encoded_bytes().strip_prefix(b"@") {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            return socket.send_to_addr(message.as_bytes(), &address);
        }
        socket.send_to(message.as_bytes(), &self.socket)
    }
}
