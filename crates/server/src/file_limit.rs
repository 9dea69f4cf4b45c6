//! The limit of open files. Each connection takes a descriptor; the soft limit that processes start with is often 256 or
//! 1,024, and the hard one far higher.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most that is set: kernels refuse more than they have, and macOS says "unlimited" where it means 10,240.
const STEPS: &[u64] = &[1 << 20, 1 << 16, 10_240];

/// Raises the soft limit of open files towards the hard one. Returns the limit that holds then; `None` is no limit.
pub fn raise_open_files() -> io::Result<Option<u64>> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = STEPS.iter().map(|step| maximum.map_or(*step, |most| most.min(*step)));
    let mut refused = None;
    for limit in wanted {
        if current.is_none_or(|current| current >= limit) {
            return Ok(current);
        }
        match setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }) {
            Ok(()) => return Ok(Some(limit)),
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(current), |error| Err(error.into()))
}
