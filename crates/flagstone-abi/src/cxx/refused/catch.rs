//! Catching a C++ exception without a C++ compiler.
//!
//! ```text
//!   throw ─► unwinder ─► asks the personality of every frame:  "do you catch?"   HANDLER_FOUND
//!                    └─► asks it again, to go there            registers, place  INSTALL_CONTEXT
//!   landing pad ─► begin catch, end catch ─► null
//! ```
//!
//! A compiler writes a table of call sites for its personality routine to read. Here is one frame
//! that catches everything it calls, so the routine needs no table.
//!
//! Source: Itanium C++ ABI, exception handling, 1.6 (the personality routine) and 2.5 (catching).

use super::{find, find_plain};
use core::ffi::{c_int, c_void};

/// `_Unwind_Reason_Code`: what the unwinder is told.
const HANDLER_FOUND: c_int = 6;
const INSTALL_CONTEXT: c_int = 7;
const CONTINUE_UNWIND: c_int = 8;
/// `_Unwind_Action`: bits of what it wants.
const SEARCH_PHASE: c_int = 1;
const HANDLER_FRAME: c_int = 4;
const FORCE_UNWIND: c_int = 8;
/// The register that brings the exception to a landing pad, by its DWARF number: rax on x86-64,
/// x0 on aarch64.
const EXCEPTION_REGISTER: c_int = 0;

unsafe extern "C" {
    /// The landing pad: a place inside the nothrow loop, not a function to call.
    fn flagstone_new_caught();
}

/// The personality routine of a frame that catches every exception of what it calls. A forced
/// unwind (a thread that is cancelled) is none and passes.
pub extern "C" fn personality(
    version: c_int,
    actions: c_int,
    _class: u64,
    exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    type SetRegister = extern "C" fn(*mut c_void, c_int, usize);
    type SetPlace = extern "C" fn(*mut c_void, usize);
    if version != 1 || actions & FORCE_UNWIND != 0 {
        return CONTINUE_UNWIND;
    }
    let (Some(register), Some(place)) = (find(c"_Unwind_SetGR"), find(c"_Unwind_SetIP")) else {
        return CONTINUE_UNWIND;
    };
    if actions & SEARCH_PHASE != 0 {
        return HANDLER_FOUND;
    }
    if actions & HANDLER_FRAME == 0 {
        return CONTINUE_UNWIND;
    }
    // SAFETY: `void _Unwind_SetGR(struct _Unwind_Context *, int, _Unwind_Word)`.
    let set_register = unsafe { core::mem::transmute::<*mut c_void, SetRegister>(register) };
    // SAFETY: `void _Unwind_SetIP(struct _Unwind_Context *, _Unwind_Ptr)`.
    let set_place = unsafe { core::mem::transmute::<*mut c_void, SetPlace>(place) };
    set_register(context, EXCEPTION_REGISTER, exception.addr());
    set_place(context, flagstone_new_caught as *const () as usize);
    INSTALL_CONTEXT
}

/// Ends an exception that was caught, as the end of a `catch (...)` does; null.
pub extern "C" fn swallow(exception: *mut c_void) -> *mut c_void {
    type Begin = extern "C" fn(*mut c_void) -> *mut c_void;
    if let (Some(begin), Some(end)) = (find(c"__cxa_begin_catch"), find_plain(c"__cxa_end_catch")) {
        // SAFETY: `void *__cxa_begin_catch(void *)`.
        let begin = unsafe { core::mem::transmute::<*mut c_void, Begin>(begin) };
        begin(exception);
        end();
    }
    core::ptr::null_mut()
}
