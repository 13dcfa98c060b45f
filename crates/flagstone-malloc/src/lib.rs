//! libflagstone
#![no_std]
