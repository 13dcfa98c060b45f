//! The loops in Rust, for architectures without the assembly: a new-handler that throws ends the
//! program here.

use super::super::Align;
use super::{attempt, handler_or_thrower, new_handler};
use core::ffi::c_void;
use core::ptr::null_mut;

/// As in looped.rs, without its exceptions.
pub extern "C" fn new_again(align: Align, size: usize) -> *mut c_void {
    loop {
        let block = attempt(align, size);
        if !block.is_null() {
            return block;
        }
        handler_or_thrower()();
    }
}

/// As in looped.rs, without its exceptions.
pub extern "C" fn new_again_nothrow(align: Align, size: usize) -> *mut c_void {
    loop {
        let block = attempt(align, size);
        if !block.is_null() {
            return block;
        }
        match new_handler() {
            Some(handler) => handler(),
            None => return null_mut(),
        };
    }
}
