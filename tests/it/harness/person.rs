use super::{Answer, TOKEN, Web};

/// Somebody who is logged in.
pub struct Person<'w> {
    pub web: &'w Web,
    pub cookie: String,
}

/// An attempt to log in.
pub fn login(web: &Web, token: &str) -> Answer {
    let body = format!("token={token}");
    let request = format!(
        "POST /login HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        web.address,
        body.len()
    );
    web.raw(request.as_bytes()).expect("an answer to the login")
}

impl<'w> Person<'w> {
    #[track_caller]
    pub fn enter(web: &'w Web) -> Person<'w> {
        let answer = login(web, TOKEN);
        assert_eq!((answer.status, answer.field("location")), (303, Some("/")), "{answer}");
        let cookie = answer.field("set-cookie").expect("a cookie").split(';').next().unwrap_or_default();
        Person { web, cookie: cookie.to_string() }
    }

    pub fn ask(&self, method: &str, target: &str, fields: &str, body: &str) -> Answer {
        let length =
            if method == "POST" { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nCookie: {}\r\n{length}{fields}\r\n{body}",
            self.web.address, self.cookie
        );
        self.web.raw(request.as_bytes()).unwrap_or_else(|| panic!("no answer to {method} {target}"))
    }

    pub fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, "", "")
    }

    pub fn post(&self, target: &str, fields: &str, body: &str) -> Answer {
        let fields = format!("Content-Type: application/x-www-form-urlencoded\r\n{fields}");
        self.ask("POST", target, &fields, body)
    }

    /// What a form of this session must carry.
    #[track_caller]
    pub fn csrf(&self) -> String {
        let page = self.get("/");
        assert_eq!(page.status, 200, "{page}");
        let text = page.text();
        let (_, rest) = text.split_once("name=\"csrf\" value=\"").expect("a CSRF token on the page");
        rest.split('"').next().unwrap_or_default().to_string()
    }
}
