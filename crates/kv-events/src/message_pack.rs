//! The part of MessagePack that events consist of: nil, unsigned integers, float64, strings and arrays.
//!
//! Source: the MessagePack specification. Each value takes the shortest form.

/// A message while it is written.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// The bytes of all values so far.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn nil(&mut self) {
        self.0.push(0xc0);
    }

    pub(crate) fn float(&mut self, value: f64) {
        self.0.push(0xcb);
        self.0.extend(value.to_be_bytes());
    }

    pub(crate) fn unsigned(&mut self, value: u64) {
        match (u8::try_from(value), u16::try_from(value), u32::try_from(value)) {
            (Ok(value), ..) if value < 0x80 => self.0.push(value),
            (Ok(value), ..) => self.0.extend([0xcc, value]),
            (_, Ok(value), _) => self.marked(0xcd, &value.to_be_bytes()),
            (_, _, Ok(value)) => self.marked(0xce, &value.to_be_bytes()),
            _ => self.marked(0xcf, &value.to_be_bytes()),
        }
    }

    /// A string. One of more than 4 GiB is cut, which no caller has.
    pub(crate) fn string(&mut self, value: &str) {
        match (u8::try_from(value.len()), u16::try_from(value.len())) {
            (Ok(length), _) if length < 32 => self.0.push(0xa0 | length),
            (Ok(length), _) => self.0.extend([0xd9, length]),
            (_, Ok(length)) => self.marked(0xda, &length.to_be_bytes()),
            _ => self.marked(0xdb, &length_of(value.len()).to_be_bytes()),
        }
        self.0.extend(value.bytes().take(length_of(value.len()) as usize));
    }

    /// The head of an array; its values follow.
    pub(crate) fn array(&mut self, values: usize) {
        match (u8::try_from(values), u16::try_from(values)) {
            (Ok(length), _) if length < 16 => self.0.push(0x90 | length),
            (_, Ok(length)) => self.marked(0xdc, &length.to_be_bytes()),
            _ => self.marked(0xdd, &length_of(values).to_be_bytes()),
        }
    }

    /// An array of integers.
    pub(crate) fn integers(&mut self, values: impl ExactSizeIterator<Item = u64>) {
        self.array(values.len());
        values.for_each(|value| self.unsigned(value));
    }

    fn marked(&mut self, marker: u8, value: &[u8]) {
        self.0.push(marker);
        self.0.extend(value);
    }
}

fn length_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        write(&mut writer);
        writer.into_bytes()
    }

    #[test]
    fn integers_take_their_shortest_form() {
        let cases: [(u64, &[u8]); 7] = [
            (0, &[0]),
            (127, &[127]),
            (128, &[0xcc, 128]),
            (256, &[0xcd, 1, 0]),
            (65_536, &[0xce, 0, 1, 0, 0]),
            (u64::from(u32::MAX), &[0xce, 255, 255, 255, 255]),
            (1 << 32, &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0]),
        ];
        for (value, bytes) in cases {
            assert_eq!(written(|writer| writer.unsigned(value)), bytes, "{value}");
        }
    }

    #[test]
    fn heads_of_strings_and_arrays_have_their_length() {
        let head = |length: usize| written(|writer| writer.string(&"a".repeat(length)));
        assert_eq!(head(31).first(), Some(&0xbf));
        assert_eq!(head(32).get(..2), Some(&[0xd9, 32][..]));
        assert_eq!(head(300).get(..3), Some(&[0xda, 1, 44][..]));
        assert_eq!(head(70_000).get(..5), Some(&[0xdb, 0, 1, 0x11, 0x70][..]));
        assert_eq!(written(|writer| writer.array(15)), [0x9f]);
        assert_eq!(written(|writer| writer.array(16)), [0xdc, 0, 16]);
        assert_eq!(written(|writer| writer.array(70_000)), [0xdd, 0, 1, 0x11, 0x70]);
        assert_eq!(written(|writer| writer.float(1.5)), [0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]);
    }
}
