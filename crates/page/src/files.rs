//! The files of the page, which are in the binary.

/// What a browser may do on the page: load its own files, and call its own server. Pictures come from the page itself, so that
/// an answer cannot send anything away in the address of one.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data: blob:; media-src data: blob:; connect-src 'self'; manifest-src 'self'; form-action 'none'; \
    base-uri 'none'; frame-ancestors 'none'";

/// A file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its name below the page's path; empty for the page itself.
    pub name: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
    /// Changes with the content, quoted as in an `ETag` header.
    pub etag: &'static str,
}

macro_rules! files {
    ($($name:literal, $path:literal, $type:literal;)*) => {
        &[$(File {
            name: $name,
            content_type: $type,
            bytes: include_bytes!(concat!("../assets/", $path)),
            etag: {
                const TAG: [u8; 18] = tag(include_bytes!(concat!("../assets/", $path)));
                match std::str::from_utf8(&TAG) {
                    Ok(tag) => tag,
                    Err(_) => "",
                }
            },
        },)*]
    };
}

const FILES: &[File] = files![
    "", "index.html", "text/html; charset=utf-8";
    "style.css", "style.css", "text/css; charset=utf-8";
    "main.js", "main.js", "text/javascript; charset=utf-8";
    "api.js", "api.js", "text/javascript; charset=utf-8";
    "dom.js", "dom.js", "text/javascript; charset=utf-8";
    "chat.js", "chat.js", "text/javascript; charset=utf-8";
    "conversation.js", "conversation.js", "text/javascript; charset=utf-8";
    "store.js", "store.js", "text/javascript; charset=utf-8";
    "message.js", "message.js", "text/javascript; charset=utf-8";
    "options.js", "options.js", "text/javascript; charset=utf-8";
    "engine.js", "engine.js", "text/javascript; charset=utf-8";
    "plots.js", "plots.js", "text/javascript; charset=utf-8";
    "bench.js", "bench.js", "text/javascript; charset=utf-8";
    "adapters.js", "adapters.js", "text/javascript; charset=utf-8";
    "models.js", "models.js", "text/javascript; charset=utf-8";
    "requests.js", "requests.js", "text/javascript; charset=utf-8";
    "recorded.js", "recorded.js", "text/javascript; charset=utf-8";
    "settings.js", "settings.js", "text/javascript; charset=utf-8";
    "icon.svg", "icon.svg", "image/svg+xml";
];

/// The file of a name.
pub fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

/// A hash of a file (FNV-1a, 64 bits) in hexadecimal digits and quotes.
const fn tag(bytes: &[u8]) -> [u8; 18] {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    let (mut text, mut digit) = ([b'"'; 18], 0);
    while digit < 16 {
        text[1 + digit] = b"0123456789abcdef"[(hash >> (60 - 4 * digit)) as usize & 15];
        digit += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_tags_are_unique() {
        for (at, one) in FILES.iter().enumerate() {
            assert_eq!(one.etag.len(), 18);
            assert!(
                FILES[at + 1..].iter().all(|other| other.name != one.name && other.etag != one.etag),
                "{}",
                one.name
            );
        }
    }

    #[test]
    fn every_file_that_another_names_is_there_and_none_is_elsewhere() {
        let text = |file: &File| std::str::from_utf8(file.bytes).unwrap().to_owned();
        for of in FILES {
            let text = text(of);
            // The name space of SVG is no address.
            let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{}", of.name);
            for quoted in text.split(['"', '\'']).filter_map(|part| part.strip_prefix("./")) {
                assert!(file(quoted).is_some(), "{} names {quoted}", of.name);
            }
            assert!(!text.contains(" style=\"") && !text.contains(" onclick="), "{}", of.name);
        }
    }
}
