//! Minimal browser. It keeps cookies, submits forms with their hidden fields and follows redirects.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use url::{Url, form_urlencoded};

use super::process::PATIENCE;

#[derive(Default)]
pub(crate) struct Browser {
    cookies: BTreeMap<String, String>,
}

pub(crate) struct Page {
    pub(crate) at: Url,
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Browser {
    pub(crate) fn open(&mut self, address: &Url) -> Page {
        self.send("GET", address, "")
    }

    /// Submits the page's form whose action ends in `action`, with the hidden fields of the form and these `fields`.
    pub(crate) fn submit(&mut self, page: &Page, action: &str, fields: &[(&str, &str)]) -> Page {
        let form = page.form(action);
        let mut body = form_urlencoded::Serializer::new(String::new());
        for (name, value) in
            form.hidden.iter().map(|(n, v)| (n.as_str(), v.as_str())).chain(fields.iter().copied())
        {
            body.append_pair(name, value);
        }
        self.send("POST", &form.action, &body.finish())
    }

    /// Reloads the page until it contains `words`, and returns it.
    pub(crate) fn wait_for(&mut self, address: &Url, words: &str) -> Page {
        let until = Instant::now() + PATIENCE;
        loop {
            let page = self.open(address);
            if page.body.contains(words) {
                return page;
            }
            assert!(Instant::now() < until, "`{words}` did not appear:\n{}", page.body);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn send(&mut self, method: &str, address: &Url, body: &str) -> Page {
        let (mut at, mut method, mut body) = (address.clone(), method, body);
        for _ in 0..5 {
            let (page, location) = self.once(method, &at, body);
            let Some(location) = location else { return page };
            at = at.join(&location).unwrap();
            (method, body) = ("GET", "");
        }
        panic!("{address} redirects in a loop");
    }

    fn once(&mut self, method: &str, at: &Url, body: &str) -> (Page, Option<String>) {
        let host = format!("{}:{}", at.host_str().unwrap(), at.port().unwrap());
        let target = &at[url::Position::BeforePath..url::Position::AfterQuery];
        let cookies: Vec<_> = self.cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nCookie: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            cookies.join("; "),
            body.len()
        );
        let mut stream = TcpStream::connect(&host).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut location = None;
        for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
            match name.to_ascii_lowercase().as_str() {
                "location" => location = Some(value.to_owned()),
                "set-cookie" => {
                    let (name, value) = value.split(';').next().unwrap().split_once('=').unwrap();
                    self.cookies.insert(name.to_owned(), value.to_owned());
                }
                _ => {}
            }
        }
        (Page { at: at.clone(), status, body: body.to_owned() }, location)
    }
}

struct Form {
    action: Url,
    hidden: Vec<(String, String)>,
}

impl Page {
    fn form(&self, action: &str) -> Form {
        for form in self.body.split("<form").skip(1) {
            let form = form.split("</form>").next().unwrap();
            let found = attribute(form, "action").unwrap();
            if found.ends_with(action) {
                let inputs = form
                    .split("<input")
                    .skip(1)
                    .filter(|i| attribute(i, "type").as_deref() == Some("hidden"));
                return Form {
                    action: self.at.join(&found).unwrap(),
                    hidden: inputs
                        .map(|i| (attribute(i, "name").unwrap(), attribute(i, "value").unwrap()))
                        .collect(),
                };
            }
        }
        panic!("{} has no form {action}:\n{}", self.at, self.body);
    }

    /// Returns the first link whose address ends in `end`.
    pub(crate) fn link(&self, end: &str) -> Url {
        let links = self.body.split("<a ").skip(1).filter_map(|a| attribute(a, "href"));
        let mut links = links.filter(|href| href.ends_with(end));
        self.at.join(&links.next().unwrap_or_else(|| panic!("no link …{end}:\n{}", self.body))).unwrap()
    }

    /// Returns the value of the checkbox in the `<li>` that contains `words`.
    pub(crate) fn value_beside(&self, words: &str) -> String {
        let item = self.body.split("<li").find(|item| item.contains(words)).unwrap();
        attribute(item, "value").unwrap()
    }
}

/// Returns the value of an attribute of the tag with which `tag` begins. The value may be quoted or not.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!("{name}="))?;
    let value = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => rest.split([' ', '>']).next()?,
    };
    let plain = value.replace("&quot;", "\"").replace("&#39;", "'").replace("&#x27;", "'");
    Some(plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}
