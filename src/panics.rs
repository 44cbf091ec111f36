//! Turns panics in background work into logged errors, so that one bad row cannot end the process or block other work.

use std::{any::Any, panic::AssertUnwindSafe};

use futures_util::FutureExt;

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_else(|| "no message".to_owned()))
}

/// Runs `work`. If it panics, returns `Err` with the panic message. Data that `work` shares with other code must be on
/// disk or behind locks.
pub(crate) fn catch_panic<T>(work: impl Future<Output = T>) -> impl Future<Output = Result<T, String>> {
    let caught = AssertUnwindSafe(Box::pin(work)).catch_unwind();
    caught.map(|done| done.map_err(|panic| message(panic.as_ref())))
}

/// Like [`catch_panic`], but logs the panic and returns `None`. Used in loops that retry later.
pub(crate) fn catch_and_log_panic<T>(
    what: &'static str,
    work: impl Future<Output = T>,
) -> impl Future<Output = Option<T>> {
    let log = move |why: &String| tracing::error!(what, %why, "background work panicked (a bug); will retry");
    catch_panic(work).map(move |done| done.inspect_err(log).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_becomes_an_error_with_its_message() {
        assert_eq!(catch_panic(async { 1 }).await, Ok(1));
        let why = catch_panic(async { Vec::<u8>::new()[3] }).await.unwrap_err();
        assert!(why.starts_with("panicked: index out of bounds"), "{why}");
        assert_eq!(catch_and_log_panic("a test", async { panic!("on purpose") }).await, None::<()>);
    }
}
