//! A transport that is closed by dropping it.
//!
//! `rmcp` 3.11 closes the transport over HTTP by waiting for its worker, which may wait at the same time to hand on a message that
//! no caller takes any more: for ever, with its requests open. A worker whose transport is dropped ends.

use std::future::{Future, pending};

use futures::future::Either;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// A transport, until it is closed.
pub struct DroppedTransport<T>(Option<T>);

impl<T> DroppedTransport<T> {
    /// An open one.
    pub fn new(transport: T) -> Self {
        Self(Some(transport))
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for DroppedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        match &mut self.0 {
            Some(transport) => Either::Left(transport.send(item)),
            // Nothing is sent after it was closed.
            None => Either::Right(pending()),
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.0.as_mut()?.receive().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.0 = None;
        Ok(())
    }
}
