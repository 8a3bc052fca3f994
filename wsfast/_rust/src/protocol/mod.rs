pub mod c_core;
pub mod frame;
