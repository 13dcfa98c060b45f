//! Asks the preloaded library who it is: a preload that did not take effect must not be measured
//! under the wrong name.

use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int, c_void};

/// What a probe run prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct Identity {
    /// File that provides `malloc` in this process.
    pub malloc_from: String,
    /// The allocator's own word on its version, where it has one.
    pub version: Option<String>,
}

/// Looks at this process.
pub fn identity() -> Identity {
    Identity {
        malloc_from: provider(c"malloc").unwrap_or_default(),
        version: version(),
    }
}

/// The function of this name, as a program finds it.
pub fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; the default handle needs no other care.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The file that provides the function of this name.
pub fn provider(name: &CStr) -> Option<String> {
    let function = symbol(name)?;
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is valid for writing; on success its name is a C string that stays mapped.
    unsafe {
        if libc::dladdr(function, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(
            CStr::from_ptr(info.dli_fname)
                .to_string_lossy()
                .into_owned(),
        )
    }
}

fn version() -> Option<String> {
    mimalloc().or_else(gperftools).or_else(jemalloc)
}

fn mimalloc() -> Option<String> {
    let function = symbol(c"mi_version")?;
    // SAFETY: mimalloc declares `int mi_version(void)`.
    let number =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(function)() };
    // 215 is 2.1.5 in old releases, 30302 is 3.3.2 in new ones.
    let base = if number >= 10_000 { 100 } else { 10 };
    Some(format!(
        "{}.{}.{}",
        number / (base * base),
        number / base % base,
        number % base
    ))
}

fn gperftools() -> Option<String> {
    type TcVersion = extern "C" fn(*mut c_int, *mut c_int, *mut *const c_char) -> *const c_char;
    let function = symbol(c"tc_version")?;
    let (mut major, mut minor, mut patch) = (0, 0, std::ptr::null());
    // SAFETY: gperftools declares this signature; all three pointers are valid for writing.
    unsafe {
        std::mem::transmute::<*mut c_void, TcVersion>(function)(&mut major, &mut minor, &mut patch)
    };
    Some(format!("{major}.{minor}"))
}

fn jemalloc() -> Option<String> {
    type Mallctl =
        extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
    let function = symbol(c"mallctl")?;
    let mut text: *const c_char = std::ptr::null();
    let mut length = size_of::<*const c_char>();
    // SAFETY: jemalloc declares this signature; "version" reads one `const char *`.
    let text = unsafe {
        let mallctl = std::mem::transmute::<*mut c_void, Mallctl>(function);
        let out = (&raw mut text).cast();
        let failed = mallctl(
            c"version".as_ptr(),
            out,
            &mut length,
            std::ptr::null_mut(),
            0,
        );
        if failed != 0 || text.is_null() {
            return None;
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    };
    text.split('-').next().map(str::to_owned)
}

/// The C library's version, as the peer named glibc reports it.
pub fn glibc_version() -> String {
    // SAFETY: returns a pointer to a static C string.
    unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malloc_comes_from_a_named_file() {
        assert!(identity().malloc_from.contains('/'), "{:?}", identity());
    }
}
