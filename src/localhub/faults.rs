//! What can be made to go wrong, from Rust only.

use super::{Hub, lock};

/// A fault that hits the next matching REST requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The request takes effect; its answer is lost to a 502.
    AnswerBadGatewayAfter { method: String, path_contains: String, times: u32 },
    /// The request is answered with this status and has no effect.
    Status { method: String, path_contains: String, status: u16, times: u32 },
}

/// What a request meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hit {
    LoseAnswer,
    Instead(u16),
}

impl Hub {
    /// Arms a fault; several may be armed at once, the first that matches is used up first.
    pub fn fault(&self, fault: Fault) {
        lock(&self.0.faults).push(fault);
    }

    /// Disarms what is left.
    pub(super) fn meet_fault(&self, method: &str, path: &str) -> Option<Hit> {
        lock(&self.0.faults).iter_mut().find_map(|fault| fault.hit(method, path))
    }
}

impl Fault {
    fn hit(&mut self, on: &str, path: &str) -> Option<Hit> {
        let (method, part, times, hit) = match self {
            Self::AnswerBadGatewayAfter { method, path_contains, times } => {
                (method, path_contains, times, Hit::LoseAnswer)
            }
            Self::Status { method, path_contains, status, times } => {
                (method, path_contains, times, Hit::Instead(*status))
            }
        };
        let meant = method.eq_ignore_ascii_case(on) && path.contains(part.as_str()) && *times > 0;
        meant.then(|| {
            *times -= 1;
            hit
        })
    }
}
