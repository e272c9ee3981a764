//! A server that answers whatever a test wants, by what was asked. The demonstration's provider stands for a bank; this
//! one for any API.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Got {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Got {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }
}

/// The running server. Its threads end with the test's process.
pub struct Script {
    pub base_url: String,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Script {
    /// `answer` gets the request and how many came before it, and gives the whole reply; `None` closes without one.
    pub fn start(answer: impl Fn(&Got, usize) -> Option<String> + Send + Sync + 'static) -> Script {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let base_url = format!("http://{}", listener.local_addr().expect("an address"));
        let got = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&got);
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &seen, answer.as_ref()));
            }
        });
        Script { base_url, got }
    }

    /// What came so far.
    pub fn got(&self) -> MutexGuard<'_, Vec<Got>> {
        self.got.lock().expect("no test panics while it holds this")
    }
}

fn serve(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Got>>,
    answer: &(dyn Fn(&Got, usize) -> Option<String> + Send + Sync),
) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let Some(got) = read(&mut stream) else { return };
    let before = {
        let mut seen = seen.lock().expect("not poisoned");
        seen.push(got.clone());
        seen.len() - 1
    };
    if let Some(text) = answer(&got, before) {
        let _ = stream.write_all(text.as_bytes());
    }
}

fn read(stream: &mut TcpStream) -> Option<Got> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).ok()?;
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.to_string(), v.to_string())).collect();
    let length = headers.iter().find(|(n, _)| n.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.map_or(0, |(_, v)| v.parse().unwrap_or(0))];
    stream.read_exact(&mut body).ok()?;
    Some(Got { method, path, headers, body })
}

/// A whole reply. `headers` are lines that end in CRLF.
pub fn reply(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}
