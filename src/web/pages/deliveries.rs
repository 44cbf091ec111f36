//! `GET /deliveries`: the latest deliveries, and the deliveries that were given up.

use askama::Template;
use axum::{
    Extension,
    extract::{Query, State},
};
use serde::Deserialize;
use url::form_urlencoded;

use super::{OperatorPageResult, PageFrame, PagesState, filters, page_sessions::PageSession, render_page};
use crate::store::{DeliveryRow, InboxCounts};

#[derive(Deserialize)]
pub(super) struct DeliveriesQuery {
    #[serde(default)]
    given_up: bool,
}

#[derive(Template)]
#[template(path = "deliveries.html")]
struct DeliveriesPage {
    page: PageFrame,
    given_up: bool,
    counts: InboxCounts,
    rows: Vec<DeliveryTableRow>,
}

struct DeliveryTableRow {
    row: DeliveryRow,
    /// Current name of the repository, if known.
    repository: String,
    age: String,
    /// Delivery id, encoded as a URL path segment. GitHub's ids need no encoding, but anybody who knows the webhook
    /// secret can send other ids.
    path: String,
}

pub(super) async fn page(
    State(pages): PagesState,
    Extension(visit): Extension<PageSession>,
    Query(DeliveriesQuery { given_up }): Query<DeliveriesQuery>,
) -> OperatorPageResult {
    let control = &pages.operator.control;
    let (inbox, now) = (control.store.inbox(), control.clock.now());
    let mut rows = Vec::new();
    for row in inbox.list_deliveries(given_up).await? {
        let repository = match row.subject.repository {
            Some(id) => super::runs::repository_name(&pages, id).await?,
            None => String::new(),
        };
        let path: String = form_urlencoded::byte_serialize(row.id.0.as_bytes()).collect();
        let path = path.replace('+', "%20");
        rows.push(DeliveryTableRow { path, age: super::relative_age(now, row.received_at), repository, row });
    }
    let page = PageFrame::new("Deliveries", &visit);
    render_page(&DeliveriesPage { page, given_up, counts: inbox.counts().await?, rows })
}
