//! The libraries that scripts have besides Lua's own.

pub mod bits;
pub mod cjson;
pub mod cmsgpack;
mod json_text;
pub mod packed;
pub mod redis;
