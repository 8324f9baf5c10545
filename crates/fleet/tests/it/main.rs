//! A fleet as its users see it.

mod dispatch;
mod logs;
mod refusals;
mod versions;
