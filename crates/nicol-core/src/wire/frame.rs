//! Frames: what one engine has for another in one poll round.
