//! Our GPU kernels without a GPU: their texts, compiled for the CPU against `emulator.h`, beside plain references, and
//! seen to fail when a line is broken on purpose.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod attention;
mod blocks;
mod choose;
mod compiler;
mod elementwise;
mod embed;
mod emulator;
mod environment;
mod experts;
mod gated;
mod grouped;
mod latent;
mod limits;
mod linear;
mod peers;
mod pools;
mod recurrent;
mod rotary;
mod route;
mod take;
mod text;
mod tiled;
mod unpack;
