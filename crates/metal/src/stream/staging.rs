//! Memory that the host's bytes wait in until the GPU has copied them to where they belong.

use crate::arguments::Resolved;
use crate::interface::Metal;
use std::sync::Arc;

/// Bytes of a chunk; a longer write has a chunk of its own.
const CHUNK: usize = 4 << 20;
/// Bytes of all chunks: above this a write waits for the GPU.
const MOST: usize = 256 << 20;
/// Where bytes begin in a chunk.
const ALIGNMENT: usize = 16;

/// The chunks of a stream.
pub(super) struct Staging<M: Metal> {
    chunks: Vec<Chunk<M>>,
}

struct Chunk<M: Metal> {
    buffer: M::Buffer,
    bytes: usize,
    used: usize,
    /// Held by the commands that read it.
    users: Arc<()>,
}

/// Bytes of the host's in staging memory.
pub struct Staged<M: Metal> {
    /// Where they are.
    pub place: Resolved<M::Buffer>,
    /// Keeps them there: for the commands that read them.
    pub user: Arc<()>,
}

impl<M: Metal> Default for Staging<M> {
    fn default() -> Staging<M> {
        Staging { chunks: Vec::new() }
    }
}

impl<M: Metal> Staging<M> {
    /// Copies bytes into staging memory; none where too much is on its way, or the device has no memory.
    pub fn place(&mut self, metal: &M, source: &[u8]) -> Option<Staged<M>> {
        self.recycle();
        let room = |chunk: &Chunk<M>| chunk.used + source.len() <= chunk.bytes;
        let at = match self.chunks.iter().position(room) {
            Some(at) => at,
            None => self.grow(metal, source.len())?,
        };
        let chunk = &mut self.chunks[at];
        let offset = chunk.used;
        chunk.used = (offset + source.len()).next_multiple_of(ALIGNMENT);
        let begin = metal.contents(&chunk.buffer).0 + offset;
        // SAFETY: the chunk has room for the bytes, and no command that is still to come reads them.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), begin as *mut u8, source.len()) };
        let place = Resolved { buffer: chunk.buffer.clone(), offset, extent: begin..begin + source.len() };
        Some(Staged { place, user: chunk.users.clone() })
    }

    /// Chunks that no command reads any more begin anew; those of long writes go.
    fn recycle(&mut self) {
        self.chunks.retain_mut(|chunk| {
            let idle = Arc::strong_count(&chunk.users) == 1;
            if idle {
                chunk.used = 0;
            }
            !idle || chunk.bytes == CHUNK
        });
    }

    fn grow(&mut self, metal: &M, bytes: usize) -> Option<usize> {
        let bytes = bytes.max(CHUNK);
        if self.chunks.iter().map(|chunk| chunk.bytes).sum::<usize>() + bytes > MOST {
            return None;
        }
        let buffer = metal.autorelease_pool(|| metal.allocate(bytes)).ok()?;
        self.chunks.push(Chunk { buffer, bytes, used: 0, users: Arc::default() });
        Some(self.chunks.len() - 1)
    }
}
