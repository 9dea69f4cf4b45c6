//! Formats of texts: which are enforced, and as what.

/// A text of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// llguidance knows this one.
    Engine(&'static str),
    /// It matches this pattern.
    Pattern(&'static str),
    /// It is one of JSON Schema's, and is not enforced.
    NotEnforced,
}

/// A year's days: those that every month has, those of longer months, and those of leap years.
macro_rules! date {
    () => {
        "(?:[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)|[0-9]{2}(?:0[48]|[2468][048]|[13579][26])-02-29)"
    };
}

/// A time without leap seconds, which only some days have.
macro_rules! time {
    () => {
        r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+\-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    };
}

macro_rules! host {
    () => {
        r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?){0,3}"
    };
}

macro_rules! email {
    () => {
        concat!(r"^[A-Za-z0-9_+\-]{1,31}(?:\.[A-Za-z0-9_+\-]{1,31})?@", host!(), "$")
    };
}

/// A path, a query and a fragment, any of which may be missing, behind a scheme and a host or not.
macro_rules! reference {
    () => {
        concat!(
            r"^(?:[A-Za-z][A-Za-z0-9+.\-]*://",
            host!(),
            r"(?::[0-9]{1,4})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@\-]*)*",
            r"|\.{0,2}(?:/[A-Za-z0-9._~!$&'()*+,;=@\-]+)+",
            r"|[A-Za-z0-9._~!$&'()*+,;=@\-]+(?:/[A-Za-z0-9._~!$&'()*+,;=@\-]+)*)?",
            r"(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?\-]*)?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?\-]*)?$"
        )
    };
}

/// The formats of JSON Schema. Any other is an annotation.
const FORMATS: &[(&str, Format)] = &[
    ("date", Format::Pattern(concat!("^", date!(), "$"))),
    ("time", Format::Pattern(concat!("^", time!(), "$"))),
    ("date-time", Format::Pattern(concat!("^", date!(), "T", time!(), "$"))),
    ("duration", Format::Engine("duration")),
    ("email", Format::Pattern(email!())),
    ("idn-email", Format::Pattern(email!())),
    ("hostname", Format::Pattern(concat!("^", host!(), "$"))),
    ("idn-hostname", Format::Pattern(concat!("^", host!(), "$"))),
    ("ipv4", Format::Engine("ipv4")),
    ("ipv6", Format::Engine("ipv6")),
    ("uuid", Format::Engine("uuid")),
    ("uri", Format::Engine("uri")),
    ("iri", Format::Engine("uri")),
    ("uri-reference", Format::Pattern(reference!())),
    ("iri-reference", Format::Pattern(reference!())),
    ("json-pointer", Format::Pattern("^(?:/(?:[^/~]|~[01])*)*$")),
    ("relative-json-pointer", Format::Pattern("^(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^/~]|~[01])*)*)$")),
    ("uri-template", Format::NotEnforced),
    ("regex", Format::NotEnforced),
];

/// The format of a name. `None` for an annotation.
pub(super) fn format(name: &str) -> Option<Format> {
    FORMATS.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
}
