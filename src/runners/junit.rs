//! Parses JUnit XML, a report format that many test tools write.

use quick_xml::{
    Reader,
    escape::{resolve_predefined_entity, unescape},
    events::{BytesStart, Event},
};

const TEXT_BYTES: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct JunitCase {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: Option<u32>,
    pub(super) result: JunitResult,
    /// Type of the failure or skip, from the report's result element. `message` and `text` hold that element's message
    /// and text.
    pub(super) kind: String,
    pub(super) message: String,
    pub(super) text: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum JunitResult {
    #[default]
    Passed,
    Failure,
    Error,
    Skipped,
}

/// Calls `each` for every test of a report.
///
/// # Errors
///
/// Returns a one-line description of the error in the report. Tests before the error have already been passed to
/// `each`.
pub(super) fn read_junit(xml: &str, mut each: impl FnMut(JunitCase)) -> Result<(), String> {
    let mut reader = Reader::from_str(xml);
    let (mut case, mut depth, mut within) = (None::<JunitCase>, 0usize, false);
    loop {
        let event = reader.read_event();
        let event = event
            .map_err(|error| format!("the report is no XML at byte {}: {error}", reader.error_position()))?;
        match event {
            Event::Start(tag) => {
                depth += 1;
                within |= open_tag(&tag, &mut case);
            }
            Event::Empty(tag) => {
                open_tag(&tag, &mut case);
                if tag.local_name().as_ref() == "testcase" {
                    case.take().into_iter().for_each(&mut each);
                }
            }
            Event::End(tag) => {
                depth -= 1;
                match tag.local_name().as_ref() {
                    "testcase" => case.take().into_iter().for_each(&mut each),
                    "failure" | "error" | "skipped" => within = false,
                    _ => {}
                }
            }
            Event::Text(text) if within => append_text(&mut case, &text.into_inner()),
            Event::CData(text) if within => append_text(&mut case, &text.into_inner()),
            Event::GeneralRef(reference) if within => match reference.resolve_char_ref() {
                Ok(Some(c)) => append_text(&mut case, c.encode_utf8(&mut [0; 4])),
                _ => {
                    append_text(&mut case, resolve_predefined_entity(&reference.into_inner()).unwrap_or("?"))
                }
            },
            Event::DocType(_) => {
                return Err("the report declares a document type, which no test report does".to_owned());
            }
            Event::Eof if depth > 0 => return Err("the report ends in the middle".to_owned()),
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

fn append_text(case: &mut Option<JunitCase>, text: &str) {
    if let Some(case) = case.as_mut().filter(|case| case.text.len() < TEXT_BYTES) {
        let room = text.floor_char_boundary(TEXT_BYTES);
        case.text.push_str(&text[..room]);
    }
}

/// Handles an opening tag. Returns whether the text after the tag is the message of a result.
fn open_tag(tag: &BytesStart<'_>, case: &mut Option<JunitCase>) -> bool {
    let name = tag.local_name();
    let result = match name.as_ref() {
        "testcase" => {
            let mut new = JunitCase::default();
            for_each_attribute(tag, |key, value| match key {
                "classname" => new.class = value,
                "name" => new.name = value,
                "file" => new.file = value,
                "line" => new.line = value.parse().ok(),
                _ => {}
            });
            *case = Some(new);
            return false;
        }
        "failure" => JunitResult::Failure,
        "error" => JunitResult::Error,
        "skipped" => JunitResult::Skipped,
        _ => return false,
    };
    // Only the first result counts: an expected failure is written as both skipped and failed.
    let Some(case) = case.as_mut().filter(|case| case.result == JunitResult::Passed) else { return false };
    case.result = result;
    for_each_attribute(tag, |key, value| match key {
        "type" => case.kind = value,
        "message" => case.message = value,
        _ => {}
    });
    true
}

fn for_each_attribute(tag: &BytesStart<'_>, mut each: impl FnMut(&str, String)) {
    for attribute in tag.attributes().with_checks(false).flatten() {
        let value = unescape(&attribute.value).unwrap_or_else(|_| attribute.value.clone());
        each(attribute.key.local_name().as_ref(), value.into_owned());
    }
}
