//! One file per capability; `sim` is the disk that loses power.

mod concurrent;
mod crash;
mod fixture;
mod full;
mod kill;
mod model;
mod sim;
mod watch;
mod write;
