//! The allocator below: what the loader finds after this library.
//!
//! Looking a function up may itself allocate (old C libraries); until it is found, requests are served
//! from a small piece of static memory, which is never given back.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// A function of the allocator below.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

macro_rules! below {
    ($($constant:ident $function:ident $name:literal ($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            static $constant: Next = Next { name: $name, found: AtomicPtr::new(null_mut()) };
            /// That function of the allocator below.
            ///
            /// # Safety
            /// 1. As the C library says of it.
            #[inline]
            pub unsafe fn $function($($argument: $kind),*) -> Option<$result> {
                let address = $constant.address()?;
                // SAFETY: the loader found a function of this name, whose type the C library fixes.
                let function: unsafe extern "C" fn($($kind),*) -> $result =
                    unsafe { core::mem::transmute(address) };
                // SAFETY: obligation 1.
                Some(unsafe { function($($argument),*) })
            }
        )*
    };
}

below! {
    MALLOC malloc c"malloc" (size: usize) -> *mut c_void;
    CALLOC calloc c"calloc" (count: usize, size: usize) -> *mut c_void;
    REALLOC realloc c"realloc" (address: *mut c_void, size: usize) -> *mut c_void;
    FREE free c"free" (address: *mut c_void) -> ();
    MEMALIGN memalign c"memalign" (align: usize, size: usize) -> *mut c_void;
    ALIGNED_ALLOC aligned_alloc c"aligned_alloc" (align: usize, size: usize) -> *mut c_void;
    POSIX_MEMALIGN posix_memalign c"posix_memalign" (out: *mut *mut c_void, align: usize, size: usize) -> i32;
    VALLOC valloc c"valloc" (size: usize) -> *mut c_void;
    PVALLOC pvalloc c"pvalloc" (size: usize) -> *mut c_void;
    TRIM malloc_trim c"malloc_trim" (keep: usize) -> i32;
    EXIT exit_now c"_exit" (status: i32) -> ();
    EXECVE execve c"execve" (path: *const i8, arguments: *const *const i8, environment: *const *const i8) -> i32;
    EXECV execv c"execv" (path: *const i8, arguments: *const *const i8) -> i32;
    EXECVP execvp c"execvp" (file: *const i8, arguments: *const *const i8) -> i32;
}

/// Where the loader finds `name` after this library; null if nowhere.
pub fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends in a zero.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

impl Next {
    #[inline]
    fn address(&self) -> Option<*mut c_void> {
        let found = self.found.load(Relaxed);
        if found.is_null() {
            self.find()
        } else {
            Some(found)
        }
    }

    #[cold]
    #[inline(never)]
    fn find(&self) -> Option<*mut c_void> {
        let local = crate::tls::local();
        // SAFETY: this thread's own words.
        unsafe {
            if (*local).depth & FINDING != 0 {
                return None;
            }
            (*local).depth |= FINDING;
        }
        let found = look_up(self.name);
        // SAFETY: as above.
        unsafe { (*local).depth &= !FINDING };
        self.found.store(found, Relaxed);
        (!found.is_null()).then_some(found)
    }
}

/// The bit of [`crate::tls::Local::depth`] that says: a look-up is under way.
const FINDING: u64 = 1 << 32;

/// Bytes served before the first look-up is done.
pub const EARLY_BYTES: usize = 64 << 10;

#[repr(align(64))]
struct Early(UnsafeCell<[u8; EARLY_BYTES]>);

// SAFETY: pieces are handed out once each, by an atomic counter.
unsafe impl Sync for Early {}

static EARLY: Early = Early(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// Zeroed memory for a request that came while a function was looked up; null when it is used up.
#[cold]
pub fn early(size: usize, align: usize) -> *mut c_void {
    let align = align.max(16);
    let take = size.saturating_add(align);
    let start = EARLY_USED.fetch_add(take, Relaxed);
    if start.checked_add(take).is_none_or(|end| end > EARLY_BYTES) {
        return null_mut();
    }
    let base = EARLY.0.get() as usize;
    ((base + start + align - 1) & !(align - 1)) as *mut c_void
}

/// Whether a block is one of [`early`]: it is never given to the allocator below.
#[inline]
pub fn is_early(address: *mut c_void) -> bool {
    (address as usize).wrapping_sub(EARLY.0.get() as usize) < EARLY_BYTES
}

/// Where those blocks begin.
pub fn early_base() -> usize {
    EARLY.0.get() as usize
}

/// Where the library of the allocator below lies: from its first byte to the end of its last segment.
pub fn library() -> [usize; 2] {
    let Some(function) = MALLOC.address() else {
        return [0; 2];
    };
    // SAFETY: plain addresses; all zeroes is a value.
    let mut about: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: an address, and a structure to fill.
    if unsafe { libc::dladdr(function, &raw mut about) } == 0 || about.dli_fbase.is_null() {
        return [0; 2];
    }
    let base = about.dli_fbase as usize;
    // SAFETY: a loaded library begins with its ELF header, and the table of segments is in it.
    unsafe {
        let header = &*(base as *const libc::Elf64_Ehdr);
        let table = (base + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        let segments = (0..usize::from(header.e_phnum)).map(|at| &*table.add(at));
        let ends = segments
            .filter(|segment| segment.p_type == libc::PT_LOAD)
            .map(|segment| base + (segment.p_vaddr + segment.p_memsz) as usize);
        [base, ends.max().unwrap_or(base)]
    }
}
