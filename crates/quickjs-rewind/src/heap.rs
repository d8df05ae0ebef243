//! The memory that QuickJS lives in: one block, with an allocator that can be put back.
//!
//! This is the crate's only unsafe code. It rests on two things.
//!
//! *QuickJS keeps no state elsewhere.* All its memory comes from the allocator of its runtime, the
//! runtime's own structure included (`JS_NewRuntime2`; in quickjs.c `malloc` is a macro that does not
//! compile), and its C files have no mutable statics but the lock of `Atomics`, which needs threads.
//!
//! *Nobody holds what is undone.* [`Heap::rewind`] is unsafe for that reason, and only
//! [`engine`](crate::engine) calls it.
//!
//! The allocator is a plain one: blocks are cut off the unused end, and freed ones wait in a list for
//! their size. QuickJS cuts what is small out of pages of 4 KiB by itself (of 1 KiB in the module, where
//! the scripts that compile it have made them smaller), so only those pages and what is larger come here. Blocks are never joined: the heap is put back before that would matter.
//! What free blocks hold is no more put back than what is beyond the end: nobody reads it before it is written.
//!
//! A call that is over, for want of memory or time, is refused no page at first. QuickJS expects a
//! refusal where it asks for a string or an array; that it expects one for each small object there is,
//! nobody has ever tested (`bind`, for one, does not). Pages come from a reserve until QuickJS next
//! asks whether to go on.
#![expect(unsafe_code, reason = "an allocator for C, and memory that is put back beneath it")]

use std::alloc::Layout;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use rquickjs::allocator::Allocator;

use crate::bounds::{Ended, Watch};

/// What QuickJS asks for at a time to make small objects out of.
const PAGE: usize = 4096;
/// More than script code makes of small objects in ten thousand steps, after which QuickJS asks.
const RESERVE: usize = 4 * 1024 * 1024;
/// Before every block: its size. As long as the alignment, which is that of C's `max_align_t`.
const HEADER: usize = 16;
/// Four sizes to each power of two, as long as 32 bits can count.
const SIZES: usize = 112;
/// Ends a list of free blocks: no block is at 0, where the first header is.
const NONE: usize = 0;

pub(crate) struct Heap {
    memory: NonNull<u8>,
    layout: Layout,
    /// Where the reserve begins.
    limit: usize,
    watch: Rc<Watch>,
    /// Where the unused end begins. Positions count from the start of the memory.
    end: Cell<usize>,
    /// The first free block of each size; each holds the position of the next.
    free: [Cell<usize>; SIZES],
}

/// The heap as it was.
pub(crate) struct Snapshot {
    end: usize,
    /// All that was in use, piece by piece: what is free has no more than the next of its size to be known by.
    pieces: Box<[Piece]>,
    free: [usize; SIZES],
}

struct Piece {
    start: usize,
    bytes: Box<[MaybeUninit<u8>]>,
}

impl Heap {
    /// A heap of this many bytes, and a reserve; `None` where there is not that much memory.
    pub(crate) fn new(limit: usize, watch: Rc<Watch>) -> Option<Rc<Self>> {
        let layout = Layout::from_size_align(limit.checked_add(RESERVE)?, HEADER).ok()?;
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
        let free = [const { Cell::new(NONE) }; SIZES];
        Some(Rc::new(Self { memory, layout, limit, watch, end: Cell::new(0), free }))
    }

    /// A copy of everything in use.
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

    /// From where to where free blocks hold nothing, in the order of the memory.
    fn unused(&self) -> Vec<(usize, usize)> {
        let mut unused = Vec::new();
        for first in &self.free {
            let mut block = first.get();
            while block != NONE {
                // SAFETY: what is in these lists is a block, is free, and begins with the position of the next.
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
        // SAFETY: all up to `self.end` is in the memory, and a piece ends there or before; that some of it was
        // never written to is what `MaybeUninit` allows. QuickJS does not run meanwhile: it has no threads here.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                self.at(start).cast::<MaybeUninit<u8>>(),
                end.saturating_sub(start),
            )
        };
        Piece { start, bytes: bytes.into() }
    }

    /// Makes the heap what it was when `snapshot` was taken of it.
    ///
    /// # Safety
    ///
    /// The snapshot is of this heap. Nobody holds a pointer into the heap, or a handle of rquickjs
    /// with one, but those who held it when the snapshot was taken and never let go of it since. What
    /// was freed since beyond this heap, by a finalizer, was not reachable when it was taken.
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

    /// Everything in use, byte by byte, but for what free blocks hold.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> (Vec<u8>, [usize; SIZES]) {
        // SAFETY: all up to `end` is in the memory. Blocks are not read past what was written to them
        // but in tests, on machines where that is only bytes.
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
                // SAFETY: what is in these lists is free, and begins with the position of the next.
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
    /// `pointer` came from `allocate` and was not freed since.
    unsafe fn free(&self, pointer: *mut u8) {
        // SAFETY: as promised, it is a block.
        let size = unsafe { block_size(pointer) };
        let block = self.position(pointer);
        if block.saturating_add(size) == self.end.get() {
            self.end.set(block.saturating_sub(HEADER));
        } else if let Some(first) = size_class(size).and_then(|(class, _)| self.free.get(class)) {
            // SAFETY: the block is at least 16 bytes long, and nobody else's now.
            unsafe { pointer.cast::<usize>().write(first.get()) };
            first.set(block);
        }
    }

    /// # Safety
    ///
    /// `pointer` came from `allocate` and was not freed since.
    unsafe fn reallocate(&self, pointer: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: as promised, it is a block.
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

    /// Is there room for a block at the unused end?
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

/// Rounds a size up to one of `SIZES`, and says which it is.
fn size_class(size: usize) -> Option<(usize, usize)> {
    // In units of 16 bytes, less one: 0 for 1..=16.
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
/// `pointer` is a block of some heap.
unsafe fn block_size(pointer: *mut u8) -> usize {
    // SAFETY: a block has its header before it.
    unsafe { pointer.sub(HEADER).cast::<usize>().read() }
}

/// What QuickJS allocates from.
pub(crate) struct HeapAllocator(pub(crate) Rc<Heap>);

// SAFETY: blocks are in memory that lives as long as the heap, do not overlap, are aligned to 16
// bytes, and are as long as asked for; `usable_size` is the length they really have.
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

    /// Blocks, each filled with a byte of its own, come and go and grow as a small generator says.
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
    fn what_is_free_is_not_copied() {
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
    fn when_memory_is_used_up_only_pages_are_left() {
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
