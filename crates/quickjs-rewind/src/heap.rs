//! The memory of QuickJS: one block, with an allocator whose state can be put back.
//!
//! This file has the crate's only unsafe code, except for its use in [`engine`](crate::engine). It
//! rests on two facts.
//!
//! *QuickJS keeps no state elsewhere.* All its memory comes from the allocator of its runtime, the
//! runtime's own structure included (`JS_NewRuntime2`; in quickjs.c `malloc` is a macro that does
//! not compile). Its C files have no mutable statics except the lock of `Atomics`, which needs
//! threads.
//!
//! *No reference outlives the rewind.* [`Heap::rewind`] is unsafe for that reason, and only
//! [`engine`](crate::engine) calls it.
//!
//! The allocator is simple: it cuts blocks from the unused end, and keeps freed blocks in a list
//! for each size. QuickJS itself cuts small objects out of pages of 4 KiB (1 KiB in the module,
//! where the scripts that compile it have made them smaller), so only pages and larger blocks come
//! from here. Blocks are never joined, because the heap is put back before that would matter. The
//! content of free blocks, like the bytes beyond the end, is not put back: it is written before it
//! is read.
//!
//! When a call is out of memory or time, requests for pages are still served at first. QuickJS
//! expects a refusal when it allocates a string or an array. It does not handle a refusal for every
//! small object (`bind`, for one, does not). Pages then come from a reserve until QuickJS next asks
//! if it may go on.
#![expect(unsafe_code, reason = "an allocator for C, and memory that is put back beneath it")]

use std::alloc::Layout;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use rquickjs::allocator::Allocator;

use crate::bounds::{Ended, Watch};

/// The size in which QuickJS requests memory for small objects.
const PAGE: usize = 4096;
/// More than a script allocates for small objects in ten thousand steps, after which QuickJS asks.
const RESERVE: usize = 4 * 1024 * 1024;
/// The bytes before every block, which hold its size. As long as the alignment of C's
/// `max_align_t`.
const HEADER: usize = 16;
/// The number of sizes: four for each power of two, up to 32 bits.
const SIZES: usize = 112;
/// The end of a list of free blocks. No block is at position 0, where the first header is.
const NONE: usize = 0;

pub(crate) struct Heap {
    memory: NonNull<u8>,
    layout: Layout,
    /// The start of the reserve.
    limit: usize,
    watch: Rc<Watch>,
    /// The start of the unused end. Positions count from the start of the memory.
    end: Cell<usize>,
    /// The first free block of each size; each holds the position of the next.
    free: [Cell<usize>; SIZES],
}

/// A copy of the heap's state.
pub(crate) struct Snapshot {
    end: usize,
    /// All memory in use, in pieces. Free blocks are left out, except for the position of the next
    /// free block.
    pieces: Box<[Piece]>,
    free: [usize; SIZES],
}

struct Piece {
    start: usize,
    bytes: Box<[MaybeUninit<u8>]>,
}

impl Heap {
    /// Creates a heap of this many bytes and a reserve. Returns `None` if there is not enough
    /// memory.
    pub(crate) fn new(limit: usize, watch: Rc<Watch>) -> Option<Rc<Self>> {
        let layout = Layout::from_size_align(limit.checked_add(RESERVE)?, HEADER).ok()?;
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
        let free = [const { Cell::new(NONE) }; SIZES];
        Some(Rc::new(Self { memory, layout, limit, watch, end: Cell::new(0), free }))
    }

    /// Copies everything in use.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut pieces = Vec::new();
        let mut start = 0;
        for (unused, next) in self.unused() {
            pieces.push(self.piece(start, unused));
            start = next;
        }
        pieces.push(self.piece(start, self.end.get()));
        let free = self.free.each_ref().map(Cell::get);
        Snapshot { end: self.end.get(), pieces: pieces.into(), free }
    }

    /// Returns the start and end of the unused content of each free block, in the order of the
    /// memory.
    fn unused(&self) -> Vec<(usize, usize)> {
        let mut unused = Vec::new();
        for first in &self.free {
            let mut block = first.get();
            while block != NONE {
                // SAFETY: these lists hold free blocks, each of which begins with the position of
                // the next.
                let (size, next) =
                    unsafe { (block_size(self.at(block)), self.at(block).cast::<usize>().read()) };
                unused.push((block.saturating_add(size_of::<usize>()), block.saturating_add(size)));
                block = next;
            }
        }
        unused.sort_unstable();
        unused
    }

    fn piece(&self, start: usize, end: usize) -> Piece {
        // SAFETY: all bytes up to `self.end` are in the memory, and a piece ends there or before.
        // `MaybeUninit` allows that some were never written. QuickJS does not run meanwhile: it has
        // no threads here.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                self.at(start).cast::<MaybeUninit<u8>>(),
                end.saturating_sub(start),
            )
        };
        Piece { start, bytes: bytes.into() }
    }

    /// Restores the heap to the state of `snapshot`.
    ///
    /// # Safety
    ///
    /// The snapshot is of this heap. Every pointer into the heap, and every handle of rquickjs with
    /// one, must have existed when the snapshot was taken and have been held ever since. Memory
    /// outside the heap that a finalizer has freed since must not have been reachable when the
    /// snapshot was taken.
    pub(crate) unsafe fn rewind(&self, snapshot: &Snapshot) {
        self.end.set(snapshot.end);
        for (now, then) in self.free.iter().zip(snapshot.free) {
            now.set(then);
        }
        for Piece { start, bytes } in &snapshot.pieces {
            // SAFETY: the piece was copied from there.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(*start).cast(), bytes.len());
            }
        }
    }

    /// Returns all bytes in use, except for the content of free blocks.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> (Vec<u8>, [usize; SIZES]) {
        // SAFETY: all bytes up to `end` are in the memory. Only tests read blocks beyond the bytes
        // that were written, on machines where that yields plain bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.end.get()) };
        let mut bytes = bytes.to_vec();
        for (start, end) in self.unused() {
            bytes[start..end].fill(0);
        }
        (bytes, self.free.each_ref().map(Cell::get))
    }

    fn allocate(&self, size: usize) -> *mut u8 {
        let Some((class, size)) = size_class(size) else { return self.refuse() };
        let Some(first) = self.free.get(class) else { return self.refuse() };
        if self.watch.is_over_after(size) && size > PAGE {
            return ptr::null_mut();
        }
        let block = match first.get() {
            NONE => {
                let block = self.end.get().saturating_add(HEADER);
                if !self.has_room(block, size) {
                    return ptr::null_mut();
                }
                self.end.set(block.saturating_add(size));
                block
            }
            block => {
                // SAFETY: these lists hold free blocks, each of which begins with the position of
                // the next.
                first.set(unsafe { self.at(block).cast::<usize>().read() });
                block
            }
        };
        let pointer = self.at(block);
        // SAFETY: the header is before the block and in the memory.
        unsafe { pointer.sub(HEADER).cast::<usize>().write(size) };
        pointer
    }

    /// # Safety
    ///
    /// `pointer` came from `allocate` and has not been freed since.
    unsafe fn free(&self, pointer: *mut u8) {
        // SAFETY: by the caller's promise, it is a block.
        let size = unsafe { block_size(pointer) };
        let block = self.position(pointer);
        if block.saturating_add(size) == self.end.get() {
            self.end.set(block.saturating_sub(HEADER));
        } else if let Some(first) = size_class(size).and_then(|(class, _)| self.free.get(class)) {
            // SAFETY: the block is at least 16 bytes long, and free.
            unsafe { pointer.cast::<usize>().write(first.get()) };
            first.set(block);
        }
    }

    /// # Safety
    ///
    /// `pointer` came from `allocate` and has not been freed since.
    unsafe fn reallocate(&self, pointer: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: by the caller's promise, it is a block.
        let old = unsafe { block_size(pointer) };
        if size <= old {
            return pointer;
        }
        let block = self.position(pointer);
        if block.saturating_add(old) == self.end.get()
            && let Some((_, size)) = size_class(size)
        {
            if self.watch.is_over_after(size) && size > PAGE || !self.has_room(block, size) {
                return ptr::null_mut();
            }
            self.end.set(block.saturating_add(size));
            // SAFETY: the header is before the block and in the memory.
            unsafe { pointer.sub(HEADER).cast::<usize>().write(size) };
            return pointer;
        }
        let new = self.allocate(size);
        if !new.is_null() {
            // SAFETY: both are blocks of at least `old` bytes, and not the same one.
            unsafe {
                ptr::copy_nonoverlapping(pointer, new, old);
                self.free(pointer);
            }
        }
        new
    }

    /// Returns true if there is room for a block at the unused end.
    fn has_room(&self, block: usize, size: usize) -> bool {
        let end = block.saturating_add(size);
        if end > self.limit {
            self.watch.end(Ended::OutOfMemory);
        }
        end <= if size > PAGE { self.limit } else { self.layout.size() }
    }

    fn refuse(&self) -> *mut u8 {
        self.watch.end(Ended::OutOfMemory);
        ptr::null_mut()
    }

    fn at(&self, position: usize) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(position)
    }

    fn position(&self, pointer: *mut u8) -> usize {
        pointer.addr().saturating_sub(self.memory.as_ptr().addr())
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), self.layout) }
    }
}

/// Rounds a size up to one of `SIZES`, and returns its index and the rounded size.
fn size_class(size: usize) -> Option<(usize, usize)> {
    // Count in units of 16 bytes, less one: 0 for 1..=16.
    let units = size.max(1).checked_sub(1)? / 16;
    let Some(shift) = units.checked_ilog2().unwrap_or(0).checked_sub(2) else {
        return Some((units, units.checked_add(1)?.checked_mul(16)?));
    };
    // The three highest bits: 4 to 7.
    let leading = units.checked_shr(shift)?;
    let class = usize::try_from(shift).ok()?.checked_mul(4)?.checked_add(leading)?;
    let rounded = leading.checked_add(1)?.checked_shl(shift)?.checked_mul(16)?;
    (class < SIZES).then_some((class, rounded))
}

/// # Safety
///
/// `pointer` is a block of a heap.
unsafe fn block_size(pointer: *mut u8) -> usize {
    // SAFETY: a block has its header before it.
    unsafe { pointer.sub(HEADER).cast::<usize>().read() }
}

/// The allocator of a QuickJS runtime.
pub(crate) struct HeapAllocator(pub(crate) Rc<Heap>);

// SAFETY: blocks are in memory that lives as long as the heap, do not overlap, are aligned to 16
// bytes, and are at least as long as requested; `usable_size` is their real length.
unsafe impl Allocator for HeapAllocator {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        self.0.allocate(size)
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let Some(size) = count.checked_mul(size) else { return self.0.refuse() };
        let pointer = self.0.allocate(size);
        if !pointer.is_null() {
            // SAFETY: the block is at least that long.
            unsafe { pointer.write_bytes(0, size) };
        }
        pointer
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: as promised by the caller; `js_free` of null does not come here.
        unsafe { self.0.free(ptr) }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if ptr.is_null() {
            return self.0.allocate(new_size);
        }
        // SAFETY: as promised by the caller.
        unsafe { self.0.reallocate(ptr, new_size) }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: as promised by the caller.
        unsafe { block_size(ptr) }
    }
}

#[cfg(test)]
#[expect(clippy::undocumented_unsafe_blocks, reason = "the assertions say what must hold")]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::bounds::{Host, Next};

    struct Frozen;

    impl Host for Frozen {
        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn random(&self) -> f64 {
            0.0
        }

        fn receive(&self, _: &str, _: &str) -> Next {
            Next::Continue
        }
    }

    fn heap(limit: usize) -> (Rc<Heap>, Rc<Watch>) {
        let watch = Rc::new(Watch::new(Rc::new(Frozen)));
        (Heap::new(limit, Rc::clone(&watch)).unwrap(), watch)
    }

    #[test]
    fn sizes_are_rounded_up_by_at_most_a_quarter() {
        let mut last = (0, 0);
        for size in (1..100_000).chain((17..31).map(|power| (1 << power) + 1)) {
            let (class, rounded) = size_class(size).unwrap();
            assert!(rounded >= size && rounded % 16 == 0, "{size}: {rounded}");
            assert!(rounded <= size.max(16) + (size / 4).max(16), "{size}: {rounded}");
            assert_eq!(size_class(rounded), Some((class, rounded)), "{size}");
            assert!((class, rounded) >= last, "{size}");
            last = (class, rounded);
        }
        assert_eq!(size_class(usize::MAX), None);
    }

    /// Blocks, each filled with its own byte, are allocated, freed and grown in a pseudorandom
    /// order.
    #[test]
    fn blocks_never_overlap() {
        let (heap, _) = heap(1 << 20);
        let mut allocator = HeapAllocator(Rc::clone(&heap));
        let mut blocks = BTreeMap::<usize, (*mut u8, usize, u8)>::new();
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for round in 0..20_000 {
            let size = 1 << random(12);
            let size = size + random(size);
            let fill = u8::try_from(round % 256).unwrap();
            let key = random(100);
            let (pointer, old) = match blocks.remove(&key) {
                Some((pointer, old, was)) => {
                    let bytes = unsafe { std::slice::from_raw_parts(pointer, old) };
                    assert!(bytes.iter().all(|byte| *byte == was), "round {round}");
                    if random(2) == 0 {
                        unsafe { allocator.dealloc(pointer) };
                        continue;
                    }
                    let new = unsafe { allocator.realloc(pointer, size) };
                    let kept = unsafe { std::slice::from_raw_parts(new, old.min(size)) };
                    assert!(kept.iter().all(|byte| *byte == was), "round {round}");
                    (new, size)
                }
                None if random(2) == 0 => (allocator.alloc(size), size),
                None => {
                    let pointer = allocator.calloc(1, size);
                    let bytes = unsafe { std::slice::from_raw_parts(pointer, size) };
                    assert!(bytes.iter().all(|byte| *byte == 0), "round {round}");
                    (pointer, size)
                }
            };
            assert!(!pointer.is_null() && pointer.addr() % 16 == 0);
            assert!(unsafe { HeapAllocator::usable_size(pointer) } >= old);
            unsafe { pointer.write_bytes(fill, old) };
            blocks.insert(key, (pointer, old, fill));
        }
    }

    #[test]
    fn rewinding_undoes_what_was_allocated_freed_and_written() {
        let (heap, _) = heap(1 << 20);
        let kept = heap.allocate(100);
        let freed = heap.allocate(200);
        let last = heap.allocate(300);
        unsafe {
            kept.write_bytes(1, 100);
            freed.write_bytes(2, 200);
            last.write_bytes(3, 300);
            heap.free(freed);
        }
        let (before, snapshot) = (heap.bytes(), heap.snapshot());
        for _ in 0..3 {
            unsafe {
                kept.write_bytes(9, 100);
                heap.free(last);
                heap.allocate(150).write_bytes(8, 150);
                heap.allocate(50_000).write_bytes(7, 50_000);
                heap.free(kept);
                assert_ne!(heap.bytes(), before);
                heap.rewind(&snapshot);
            }
            assert_eq!(heap.bytes(), before);
        }
    }

    #[test]
    fn free_blocks_are_not_copied() {
        let (heap, _) = heap(1 << 20);
        let [kept, freed, last] = [100, 50_000, 300].map(|size| heap.allocate(size));
        unsafe {
            freed.write_bytes(1, 50_000);
            heap.free(freed);
        }
        let snapshot = heap.snapshot();
        let copied: usize = snapshot.pieces.iter().map(|piece| piece.bytes.len()).sum();
        assert!((400..1000).contains(&copied), "{copied}");
        for _ in 0..2 {
            unsafe {
                kept.write_bytes(9, 100);
                last.write_bytes(9, 300);
                let again = heap.allocate(50_000);
                assert_eq!(again, freed);
                again.write_bytes(9, 50_000);
                heap.rewind(&snapshot);
            }
        }
    }

    #[test]
    fn an_exhausted_heap_still_serves_pages() {
        let (heap, watch) = heap(1 << 20);
        assert!(!heap.allocate(1 << 19).is_null());
        assert_eq!(watch.ended(), None);
        assert!(heap.allocate(1 << 20).is_null());
        assert_eq!(watch.ended(), Some(Ended::OutOfMemory));
        assert!(heap.allocate(PAGE + 1).is_null(), "though there is room");
        assert!(!heap.allocate(PAGE).is_null());
        let pages =
            std::iter::from_fn(|| Some(heap.allocate(PAGE))).take_while(|page| !page.is_null());
        let pages = pages.count() * (PAGE + HEADER);
        assert!((RESERVE..RESERVE + (1 << 20)).contains(&pages), "{pages}");
        assert!(heap.allocate(usize::MAX).is_null());
    }
}
