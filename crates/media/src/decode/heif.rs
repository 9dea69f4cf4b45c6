//! What AVIF and HEIC files have beside one coded picture. Source: ISO/IEC 23008-12.
//!
//! Invariant: only the boxes' headers and the box `meta` are read; compressed data is not.

/// Types of items, references and properties that a decoder of one coded item leaves out.
const BEYOND: &[(&[u8; 4], &str)] = &[
    (b"grid", "tiles"),
    (b"iovl", "overlays"),
    (b"irot", "a rotation"),
    (b"imir", "a mirror image"),
    (b"clap", "a clean aperture"),
    (b"auxl", "transparency or another picture beside it"),
];

/// What a file has that one coded item does not show; `None` where that is all.
pub(super) fn beyond_one_item(bytes: &[u8]) -> Option<&'static str> {
    let meta = top_level(bytes, b"meta").unwrap_or_default();
    let has = |kind: &[u8; 4]| meta.windows(kind.len()).any(|window| window == kind);
    BEYOND.iter().find(|(kind, _)| has(kind)).map(|(_, what)| *what)
}

/// The content of the first box of a type. One that is cut or says that it is longer than the file is as long as there is.
fn top_level<'a>(mut bytes: &'a [u8], wanted: &[u8; 4]) -> Option<&'a [u8]> {
    loop {
        let (size, rest) = bytes.split_first_chunk::<4>()?;
        let (kind, mut content) = rest.split_first_chunk::<4>()?;
        let mut size = u64::from(u32::from_be_bytes(*size));
        let mut header = 8;
        if size == 1 {
            let (long, behind) = content.split_first_chunk::<8>()?;
            (size, content, header) = (u64::from_be_bytes(*long), behind, 16);
        }
        let len = if size == 0 { u64::MAX } else { size.checked_sub(header)? };
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(content.len());
        let (content, behind) = content.split_at(len);
        if kind == wanted {
            return Some(content);
        }
        bytes = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(8 + content.len() as u32).to_be_bytes(), &kind[..], content].concat()
    }

    #[test]
    fn what_one_item_does_not_show_is_named() {
        let file =
            |meta: &[u8]| [boxed(b"ftyp", b"avif"), boxed(b"meta", meta), boxed(b"mdat", b"grid")].concat();
        assert_eq!(beyond_one_item(&file(b"\0\0\0\0infe av01")), None);
        assert_eq!(beyond_one_item(&file(b"\0\0\0\0infe grid")), Some("tiles"));
        assert_eq!(beyond_one_item(&file(b"\0\0\0\x09irot\x01")), Some("a rotation"));
        let long = [b"\0\0\0\x01meta".as_slice(), &u64::MAX.to_be_bytes(), b"auxl"].concat();
        assert_eq!(beyond_one_item(&long), Some("transparency or another picture beside it"));
        for cut in [&b""[..], b"\0\0", b"\0\0\0\x01meta\0", b"\0\0\0\x02meta", b"\0\0\0\0free"] {
            assert_eq!(beyond_one_item(cut), None);
        }
    }
}
