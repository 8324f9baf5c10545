mod encoding;
mod judged;
mod properties;
mod read;
