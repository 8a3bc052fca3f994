pub mod block;
pub mod buffer;
pub mod lock;
pub mod socket;
