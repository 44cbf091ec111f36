//! `GET /events`: tells an open page that something changed, so that the page reloads itself.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{
        IntoResponse, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures_util::stream;

use super::{OperatorPageError, OperatorPageResult, PagesState, page_sessions::PageSession};

/// Maximum number of concurrent event streams. They may use half of the listener's connections; the other half is for
/// pages.
pub(super) const STREAMS: usize = crate::limits::OPERATOR_CONNECTIONS / 2;

/// Minimum interval between two events of a stream, because the client reloads the page at each event.
const GAP: Duration = Duration::from_secs(1);

/// Streams change events to a page. The next event is created only after the client has taken the previous one, so
/// events never queue up for a slow client.
pub(super) async fn stream(
    State(pages): PagesState,
    Extension(visit): Extension<PageSession>,
) -> OperatorPageResult {
    let place = Arc::clone(&pages.streams).try_acquire_owned().map_err(|_| {
        let why = "Too many pages are open for live updates; close some, or reload this one by hand.";
        OperatorPageError::Refused(StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
    })?;
    let control = &pages.operator.control;
    let first = (
        control.store.subscribe_changes(),
        control.store.clone(),
        control.clock.clone(),
        pages.operator.stop.clone(),
        place,
    );
    let hints =
        stream::unfold((first, false), move |((mut changes, store, clock, stop, place), again)| async move {
            let hint = async {
                if again {
                    clock.sleep(GAP).await;
                }
                changes.changed().await.ok()?;
                // A revoked or expired session gets no more events.
                store.session_scope(visit.session).await.ok()?
            };
            let still = stop.run_until_cancelled(hint).await.flatten();
            still.map(|_| {
                (
                    Ok::<_, Infallible>(Event::default().data("changed")),
                    ((changes, store, clock, stop, place), true),
                )
            })
        });
    Ok(Sse::new(hints).keep_alive(KeepAlive::default()).into_response())
}
