//! A fleet as its users see it.

mod dispatch;
mod refusals;
mod logs;
mod versions;
