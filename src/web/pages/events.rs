//! `GET /events`: a page hears that something changed, not what, and asks for itself again.

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

/// Half of the connections that the door has: the other half is for pages.
pub(super) const STREAMS: usize = crate::limits::OPERATOR_CONNECTIONS / 2;

/// Between two hints: a page is drawn anew for each.
const GAP: Duration = Duration::from_secs(1);

/// One word at a time is under way, whatever happens meanwhile and however slowly it is read: the next is made when it
/// was taken.
pub(super) async fn stream(
    State(room): PagesState,
    Extension(visit): Extension<PageSession>,
) -> OperatorPageResult {
    let place = Arc::clone(&room.streams).try_acquire_owned().map_err(|_| {
        let why =
            "Too many pages are open for all to be kept fresh; close some, or load this one again by hand.";
        OperatorPageError::Refused(StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
    })?;
    let control = &room.operator.control;
    let first = (
        control.store.subscribe_changes(),
        control.store.clone(),
        control.clock.clone(),
        room.operator.stop.clone(),
        place,
    );
    let hints =
        stream::unfold((first, false), move |((mut changes, store, clock, stop, place), again)| async move {
            let hint = async {
                if again {
                    clock.sleep(GAP).await;
                }
                changes.changed().await.ok()?;
                // One that was taken back, or is over, hears no more.
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
