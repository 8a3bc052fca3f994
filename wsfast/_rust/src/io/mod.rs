pub mod block;
pub mod buffer;
pub mod errno;
pub mod lock;
pub mod socket;
pub mod time;
