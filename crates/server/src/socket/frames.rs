//! The messages of a WebSocket as their bytes pass by: where they end, and how many bytes they have.

use std::io::Cursor;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::OpCode;

/// Bytes of the message that arrives, as its frames announce them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    /// Of all of it.
    All(u64),
    /// Of the frames up to now; more follow.
    Part(u64),
}

/// Follows frames (RFC 6455, section 5.2).
#[derive(Debug, Default)]
pub struct Frames {
    /// What has come of the next frame's header.
    header: Vec<u8>,
    /// Bytes to come of a frame's payload.
    left: u64,
    /// Frames of control come between those of a message.
    is_control: bool,
    message: Option<Announced>,
}

impl Frames {
    /// The message that arrives.
    pub fn message(&self) -> Option<Announced> {
        self.message
    }

    /// Follows the bytes up to the end of a header or of a payload. How many those are, and whether a message ends with them.
    pub fn follow(&mut self, bytes: &[u8]) -> (usize, bool) {
        let followed = match self.left {
            0 => self.follow_header(bytes),
            left => {
                let followed = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.left -= followed as u64;
                followed
            }
        };
        let is_end = self.left == 0 && self.header.is_empty() && !self.is_control;
        let ends = is_end && matches!(self.message, Some(Announced::All(_)));
        if ends {
            self.message = None;
        }
        (followed, ends)
    }

    fn follow_header(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            self.header.push(*byte);
            if self.begin_frame() {
                return at + 1;
            }
        }
        bytes.len()
    }

    /// Begins a frame if its header is complete.
    fn begin_frame(&mut self) -> bool {
        let (header, payload) = match FrameHeader::parse(&mut Cursor::new(&self.header)) {
            Ok(Some(frame)) => frame,
            Ok(None) => return false,
            Err(_) => {
                // The reader of the messages refuses the rest.
                (self.left, self.is_control) = (u64::MAX, true);
                self.header.clear();
                return true;
            }
        };
        self.header.clear();
        self.left = payload;
        self.is_control = matches!(header.opcode, OpCode::Control(_));
        if !self.is_control {
            let before = match self.message {
                Some(Announced::Part(bytes)) => bytes,
                Some(Announced::All(_)) | None => 0,
            };
            let bytes = before.saturating_add(payload);
            let announced = if header.is_final { Announced::All } else { Announced::Part };
            self.message = Some(announced(bytes));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use tungstenite::protocol::frame::Frame;
    use tungstenite::protocol::frame::coding::{Data, OpCode};

    use super::*;

    fn data(bytes: usize, kind: Data, is_final: bool) -> Vec<u8> {
        formatted(Frame::message(vec![7; bytes], OpCode::Data(kind), is_final))
    }

    fn formatted(frame: Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.format(&mut bytes).unwrap();
        bytes
    }

    /// How many messages end in the bytes.
    fn pass(frames: &mut Frames, bytes: &[u8]) -> usize {
        let (mut at, mut ended) = (0, 0);
        while at < bytes.len() {
            let (followed, ends) = frames.follow(&bytes[at..]);
            at += followed;
            ended += usize::from(ends);
        }
        ended
    }

    #[test]
    fn messages_end_wherever_the_bytes_are_cut() {
        let wire = [
            data(3, Data::Text, true),
            data(0, Data::Binary, true),
            data(70_000, Data::Text, false),
            formatted(Frame::ping(vec![1; 5])),
            data(200, Data::Continue, true),
            formatted(Frame::pong(Vec::new())),
            data(1, Data::Text, true),
        ]
        .concat();
        for step in [1, 2, 3, 7, 125, 4096, wire.len()] {
            let mut frames = Frames::default();
            let ended: usize = wire.chunks(step).map(|part| pass(&mut frames, part)).sum();
            assert_eq!((ended, frames.message()), (4, None), "cut every {step} bytes");
        }
    }

    #[test]
    fn a_message_is_announced_before_it_is_there() {
        let mut frames = Frames::default();
        let first = data(70_000, Data::Text, false);
        assert_eq!(pass(&mut frames, &first[..20]), 0);
        assert_eq!(frames.message(), Some(Announced::Part(70_000)));
        pass(&mut frames, &first[20..]);
        pass(&mut frames, &formatted(Frame::ping(Vec::new())));
        assert_eq!(frames.message(), Some(Announced::Part(70_000)), "a ping ends nothing");
        let last = data(300, Data::Continue, true);
        pass(&mut frames, &last[..5]);
        assert_eq!(frames.message(), Some(Announced::All(70_300)));
    }

    #[test]
    fn a_wrong_header_takes_no_memory() {
        let mut frames = Frames::default();
        // A length of 64 bits whose highest bit is set.
        let wrong = [[0x81, 127].as_slice(), &[0xff; 8]].concat();
        assert_eq!(pass(&mut frames, &wrong), 0);
        assert_eq!(pass(&mut frames, &[0; 100_000]), 0);
        assert!(frames.header.len() <= wrong.len());
    }
}
