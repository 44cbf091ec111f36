//! Page frame and small shared HTML pieces.

use std::fmt;

use http::StatusCode;

use super::{HubPageError, HubPageRequest, HubPageResult};
use crate::{
    localhub::{
        model::{HubLabel, HubRepository, HubState},
        server::HubReply,
    },
    types::{RepoId, Timestamp, UserId},
};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("live.js");

/// Text escaped for HTML.
pub(super) struct EscapedHtml<'a>(pub(super) &'a str);

impl fmt::Display for EscapedHtml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// `3 minutes ago`, with the exact time on hover.
pub(super) fn relative_time(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.since(at).as_secs();
    let (count, unit) = match seconds {
        0..=44 => return format!("<time datetime=\"{at}\" title=\"{at}\">just now</time>"),
        45..=3599 => ((seconds + 30) / 60, "minute"),
        3600..=86_399 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("<time datetime=\"{at}\" title=\"{at}\">{} ago</time>", count_label(count as usize, unit))
}

/// `1 comment`, `3 comments`.
pub(super) fn count_label(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A coloured square or circle with the user's initial.
pub(super) fn avatar(state: &HubState, user: UserId, size: u32) -> String {
    let login = state.login(user);
    let bot = state.accounts.get(&user).is_some_and(|a| a.app.is_some());
    let shape = if bot { "avatar bot" } else { "avatar" };
    format!(
        "<img class=\"{shape}\" src=\"/avatars/{user}\" width={size} height={size} alt=\"@{}\">",
        EscapedHtml(&login)
    )
}

/// A login in bold, marked if it is a bot.
pub(super) fn login_html(state: &HubState, user: UserId) -> String {
    let login = state.login(user);
    match login.strip_suffix("[bot]") {
        Some(name) => format!("<b>{}</b> <span class=\"tag\">bot</span>", EscapedHtml(name)),
        None => format!("<b>{}</b>", EscapedHtml(&login)),
    }
}

/// A label as a coloured pill. [`label_styles`] generates the colour classes, since the content policy forbids style
/// attributes.
pub(super) fn label_pill(label: &HubLabel) -> String {
    let title = label.description.as_deref().unwrap_or_default();
    format!(
        "<span class=\"label l{}\" title=\"{}\">{}</span>",
        label.id,
        EscapedHtml(title),
        EscapedHtml(&label.name)
    )
}

fn label_styles(repo: &HubRepository) -> String {
    let rule = |label: &HubLabel| {
        let channel = |at: usize| {
            label.color.get(at..at + 2).and_then(|h| u32::from_str_radix(h, 16).ok()).unwrap_or(200)
        };
        let (r, g, b) = (channel(0), channel(2), channel(4));
        let dark = 299 * r + 587 * g + 114 * b < 150_000;
        let text = if dark { "#fff" } else { "#1f2328" };
        format!(".l{}{{background:rgb({r},{g},{b});color:{text}}}", label.id)
    };
    repo.labels.iter().map(rule).collect()
}

/// Tab of a repository page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RepositoryTab {
    Issues,
    Pulls,
}

impl HubPageRequest<'_> {
    pub(super) fn now(&self) -> Timestamp {
        (self.hub.0.now)()
    }

    /// Hidden CSRF field of every form.
    pub(super) fn csrf_field(&self) -> String {
        format!("<input type=hidden name=csrf value=\"{}\">", self.csrf)
    }

    /// A page of a repository, below its name and tabs.
    pub(super) fn repo_page(
        &self,
        repo: RepoId,
        tab: RepositoryTab,
        title: &str,
        body: &str,
    ) -> HubPageResult {
        let (head, styles) = self.with_repo(repo, |s, r| (repo_head(s, r, tab), label_styles(r)))?;
        let extra = format!("{head}<main id=page data-repo=\"{repo}\">{body}</main>");
        Ok(self.html(StatusCode::OK, title, &extra, &styles))
    }

    pub(super) fn plain_page(&self, title: &str, body: &str) -> HubPageResult {
        Ok(self.html(StatusCode::OK, title, &format!("<main id=page>{body}</main>"), ""))
    }

    pub(super) fn error_page(&self, oops: &HubPageError) -> HubReply {
        let body = format!(
            "<main id=page><div class=blank><h1>{}</h1><p>{}</p><p><a href=\"/\">All repositories</a></p></div></main>",
            oops.status.as_u16(),
            EscapedHtml(&oops.sentence)
        );
        self.html(oops.status, "localhub", &body, "")
    }

    fn html(&self, status: StatusCode, title: &str, body: &str, styles: &str) -> HubReply {
        let nonce = &self.nonce;
        let page = format!(
            "<!doctype html><html lang=en><head><meta charset=utf-8><title>{}</title>\
             <meta name=viewport content=\"width=device-width,initial-scale=1\"><link rel=icon href=\"data:,\">\
             <style nonce=\"{nonce}\">{STYLE}</style>\
             <style nonce=\"{nonce}\" id=labels data-live>{styles}</style></head><body>{}{body}\
             <script nonce=\"{nonce}\">{SCRIPT}</script></body></html>",
            EscapedHtml(title),
            self.header(),
        );
        HubReply::new(status, "text/html; charset=utf-8", page.into_bytes())
    }

    /// The top bar with the user switch.
    fn header(&self) -> String {
        self.hub.read(|s| {
            let mut options = String::new();
            for account in s.accounts.values().filter(|a| a.app.is_none()) {
                let selected = if Some(account.id) == self.acting { " selected" } else { "" };
                options.push_str(&format!("<option{selected}>{}</option>", EscapedHtml(&account.login)));
            }
            let face = self.acting.map(|user| avatar(s, user, 24)).unwrap_or_default();
            format!(
                "<header class=top><a class=home href=\"/\"><span class=mark></span>localhub</a>\
                 <span class=note>a GitHub on this machine</span>\
                 <form class=who method=post action=\"/act-as\">{}<input type=hidden name=back value=\"{}\">{face}\
                 <label><span>act as </span><select name=login>{options}</select></label><button>Switch</button></form></header>",
                self.csrf_field(),
                EscapedHtml(&self.request.path),
            )
        })
    }

    /// Lists the repositories that the acting user may see.
    pub(super) fn home(&self) -> HubPageResult {
        let body = self.hub.read(|s| {
            let mut rows = String::new();
            let seen = |repo: &&HubRepository| {
                self.acting.is_some_and(|u| repo.role_of(u) > crate::types::Role::None)
            };
            for repo in s.repositories.values().filter(seen) {
                let name = s.name_of(repo);
                let open =
                    |pull: bool| repo.issues.values().filter(|i| i.open && i.pull.is_some() == pull).count();
                let sight = if repo.private { "Private" } else { "Public" };
                rows.push_str(&format!(
                    "<li><div><a class=big href=\"/{name}\">{name}</a> <span class=tag>{sight}</span>\
                     <p class=muted>{} · {} · updated {}</p></div></li>",
                    count_label(open(false), "open issue"),
                    count_label(open(true), "open pull request"),
                    relative_time(self.now(), repo.updated_at)
                ));
            }
            if rows.is_empty() {
                rows.push_str("<li class=muted>No repositories that this user may see.</li>");
            }
            format!("<h1>Repositories</h1><ul class=box>{rows}</ul>")
        });
        self.plain_page("localhub", &body)
    }

    pub(super) fn avatar(&self, id: &str) -> HubPageResult {
        let id = id.parse().map(UserId).map_err(|_| HubPageError::not_found())?;
        let account = self.hub.read(|s| s.accounts.get(&id).cloned()).ok_or_else(HubPageError::not_found)?;
        let initial = account.login.chars().next().unwrap_or('?').to_uppercase().to_string();
        let hue = (id.0 * 101) % 360;
        let corner = if account.app.is_some() { 9 } else { 20 };
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 40 40\">\
             <rect width=\"40\" height=\"40\" rx=\"{corner}\" fill=\"hsl({hue},52%,45%)\"/>\
             <text x=\"20\" y=\"27\" font-family=\"sans-serif\" font-size=\"20\" font-weight=\"600\" fill=\"#fff\" \
             text-anchor=\"middle\">{}</text></svg>",
            EscapedHtml(&initial)
        );
        Ok(HubReply::new(StatusCode::OK, "image/svg+xml", svg.into_bytes()))
    }
}

fn repo_head(state: &HubState, repo: &HubRepository, tab: RepositoryTab) -> String {
    let name = state.name_of(repo);
    let open = |pull: bool| repo.issues.values().filter(|i| i.open && i.pull.is_some() == pull).count();
    let item = |this: RepositoryTab, path: &str, text: &str, count: usize| {
        let class = if this == tab { " class=here" } else { "" };
        format!("<a{class} href=\"/{name}{path}\">{text} <span class=count>{count}</span></a>")
    };
    format!(
        "<div class=repo><h2>{} / <a href=\"/{name}\"><b>{}</b></a> <span class=tag>{}</span></h2>\
         <nav id=tabs data-live>{}{}</nav></div>",
        name.owner,
        name.name,
        if repo.private { "Private" } else { "Public" },
        item(RepositoryTab::Issues, "/issues", "Issues", open(false)),
        item(RepositoryTab::Pulls, "/pulls", "Pull requests", open(true)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_html_characters() {
        assert_eq!(EscapedHtml("<a href='x'>&\"").to_string(), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
