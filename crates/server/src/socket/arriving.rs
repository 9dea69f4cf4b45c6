//! How messages arrive: one that needs room in memory is announced to its reader, who allocates it, when it has that.
//!
//! Invariant: a message has its whole room or none: those that each have a part would wait for each other.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::READ_BYTES;
use super::frames::{Announced, Frames};
use crate::limits::{MessageLimits, SMALL_BYTES};
use crate::room::Place;

/// Whether a message that needs room may take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It arrives.
    Now,
    /// It stays in the connection.
    Later,
}

/// Why a message is not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Others had the room for too long.
    #[error("the server is receiving too many large requests; send it again later")]
    Busy,
    /// It did not arrive in time.
    #[error("a message must arrive within {0} seconds")]
    Late(u64),
}

/// What a connection and the receiver of its messages share.
#[derive(Debug)]
pub struct Arriving(Mutex<State>);

struct State {
    limits: MessageLimits,
    turn: Turn,
    frames: Frames,
    /// Room for the message that arrives.
    place: Option<Place>,
    waiting: Option<BoxFuture<'static, Option<Place>>>,
    /// When a message that has room must have arrived.
    deadline: Option<Pin<Box<Sleep>>>,
    /// The room of the messages that are there, in their order.
    arrived: VecDeque<Option<Place>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("State").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl Arriving {
    /// For a new connection.
    pub fn new(limits: MessageLimits) -> Self {
        Self(Mutex::new(State {
            limits,
            turn: Turn::Now,
            frames: Frames::default(),
            place: None,
            waiting: None,
            deadline: None,
            arrived: VecDeque::new(),
        }))
    }

    /// Whether messages that need room may take it from now on.
    pub fn set_turn(&self, turn: Turn) {
        self.lock().turn = turn;
    }

    /// The room that the next of the messages that are there has taken.
    pub fn take(&self) -> Option<Place> {
        self.lock().arrived.pop_front().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Bytes of room that the message that arrives lacks. One that is too large needs none: it is refused.
    fn lacks(&self) -> Option<usize> {
        let message = self.frames.message().filter(|_| self.place.is_none())?;
        let (bytes, wanted) = match message {
            Announced::All(bytes) => (bytes, usize::try_from(bytes).ok()?),
            Announced::Part(bytes) => (bytes, self.limits.most_bytes),
        };
        (bytes > SMALL_BYTES as u64 && bytes <= self.limits.most_bytes as u64).then_some(wanted)
    }

    /// Waits until the message that arrives lacks no room. Fails when it has had that for too long.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(bytes) = self.lacks() {
            if self.turn == Turn::Later {
                return Poll::Pending;
            }
            let room = self.limits.room.clone();
            let place = async move { room.place(bytes).await };
            let waiting = self.waiting.get_or_insert_with(|| place.boxed());
            let place = ready!(waiting.poll_unpin(context));
            self.waiting = None;
            self.place = Some(place.ok_or_else(|| io::Error::other(Refused::Busy))?);
            self.deadline = Some(Box::pin(tokio::time::sleep(self.limits.timeout)));
        }
        let is_late = self.deadline.as_mut().is_some_and(|deadline| deadline.poll_unpin(context).is_ready());
        match is_late {
            true => Poll::Ready(Err(io::Error::other(Refused::Late(self.limits.timeout.as_secs())))),
            false => Poll::Ready(Ok(())),
        }
    }

    /// Follows the bytes up to where the message may begin to lack room. How many those are.
    fn follow(&mut self, bytes: &[u8]) -> usize {
        let (followed, ends) = self.frames.follow(bytes);
        if ends {
            self.arrived.push_back(self.place.take());
            self.deadline = None;
        }
        followed
    }
}

/// A connection that is read as far as there is room for its messages.
pub struct Gate<S> {
    connection: S,
    arriving: Arc<Arriving>,
    /// What was read of the connection.
    held: BytesMut,
    /// Bytes of those whose frames are known.
    followed: usize,
    /// Bytes of those whose message has room.
    passed: usize,
}

impl<S> Gate<S> {
    /// Before a connection.
    pub fn new(connection: S, arriving: Arc<Arriving>) -> Self {
        Self { connection, arriving, held: BytesMut::new(), followed: 0, passed: 0 }
    }

    /// Waits for room for the message that is next, if it needs any, and lets bytes pass up to the next one that lacks it.
    fn poll_pass(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.arriving.lock();
        loop {
            if state.lacks().is_some() && self.passed > 0 {
                return Poll::Ready(Ok(()));
            }
            ready!(state.poll_room(context))?;
            self.passed = self.followed;
            match self.held.get(self.followed..) {
                None | Some([]) => return Poll::Ready(Ok(())),
                Some(bytes) => self.followed += state.follow(bytes),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> Gate<S> {
    /// Reads until some bytes may pass, or none are left.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.passed == 0 {
            ready!(self.poll_pass(context))?;
            if self.passed == 0 {
                let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
                let mut bytes = ReadBuf::uninit(&mut bytes);
                ready!(Pin::new(&mut self.connection).poll_read(context, &mut bytes))?;
                if bytes.filled().is_empty() {
                    break;
                }
                self.held.extend_from_slice(bytes.filled());
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_held(context))?;
        let bytes = this.held.split_to(this.passed.min(buffer.remaining()));
        this.passed -= bytes.len();
        this.followed -= bytes.len();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tungstenite::protocol::frame::Frame;
    use tungstenite::protocol::frame::coding::{Data, OpCode};

    use super::*;
    use crate::room::Room;

    const LARGE: usize = SMALL_BYTES + 1;
    const EVER: Duration = Duration::from_secs(1_000_000);

    fn limits(timeout: Duration) -> MessageLimits {
        MessageLimits { most_bytes: 2 * LARGE, room: Room::new(LARGE, EVER), timeout }
    }

    /// A connection on which these messages were sent.
    async fn sent(messages: &[usize], limits: &MessageLimits) -> (Gate<DuplexStream>, Arc<Arriving>) {
        let (mut client, connection) = duplex(1 << 20);
        for bytes in messages {
            let frame = Frame::message(vec![7; *bytes], OpCode::Data(Data::Binary), true);
            let mut wire = Vec::new();
            frame.format(&mut wire).unwrap();
            client.write_all(&wire).await.unwrap();
        }
        let arriving = Arc::new(Arriving::new(limits.clone()));
        (Gate::new(connection, Arc::clone(&arriving)), arriving)
    }

    /// What can be read now.
    fn read(gate: &mut Gate<DuplexStream>) -> usize {
        let (mut all, mut bytes) = (0, [0; 4096]);
        while let Some(Ok(more @ 1..)) = gate.read(&mut bytes).now_or_never() {
            all += more;
        }
        all
    }

    #[tokio::test]
    async fn a_large_message_waits_for_room_and_those_before_it_do_not() {
        let limits = limits(EVER);
        let (mut first, received) = sent(&[LARGE], &limits).await;
        let (mut second, later) = sent(&[10, 20, LARGE], &limits).await;
        assert_eq!(read(&mut first), LARGE + 10);
        assert_eq!(read(&mut second), 12 + 22);
        assert!(later.take().is_none() && later.take().is_none(), "small ones take no room");
        drop(received.take());
        assert_eq!(read(&mut second), LARGE + 10);
        assert!(later.take().is_some());
    }

    #[tokio::test]
    async fn a_large_message_stays_in_the_connection_until_its_turn() {
        let (mut gate, arriving) = sent(&[10, LARGE], &limits(EVER)).await;
        arriving.set_turn(Turn::Later);
        assert_eq!(read(&mut gate), 12);
        arriving.set_turn(Turn::Now);
        assert_eq!(read(&mut gate), LARGE + 10);
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_takes_no_room() {
        let (mut gate, _) = sent(&[3 * LARGE], &limits(EVER)).await;
        assert_eq!(read(&mut gate), 3 * LARGE + 10, "its reader refuses it");
    }

    #[tokio::test]
    async fn a_message_that_stalls_loses_its_room() {
        let limits = limits(Duration::ZERO);
        let (mut client, connection) = duplex(1 << 20);
        // The first frame of several.
        let mut wire = Vec::new();
        Frame::message(vec![7; LARGE], OpCode::Data(Data::Binary), false).format(&mut wire).unwrap();
        client.write_all(&wire).await.unwrap();
        let mut gate = Gate::new(connection, Arc::new(Arriving::new(limits.clone())));
        let error = gate.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.to_string(), Refused::Late(0).to_string());
        drop(gate);
        assert!(limits.room.place(LARGE).now_or_never().is_some());
    }
}
