//! Who carries a request out: the CPU, or NVIDIA's library on a stream of the rank's GPU.

use crate::communicator::Communicator;
use crate::element::Reduction;
use crate::error::{Error, Result};
use crate::nccl::{self, Gpus};
use crate::request::Request;
use crate::task::size;

impl Communicator {
    /// Carries an operation out on the CPU.
    ///
    /// # Safety
    /// As for the method of the operation.
    pub unsafe fn perform(&self, request: &Request<'_>) -> Result<()> {
        // SAFETY: the caller's promise, for each of these.
        unsafe {
            match *request {
                Request::AllReduce { input, output, count, element, reduction } => {
                    self.all_reduce_raw(input, output, count, element, reduction)
                }
                Request::Broadcast { memory, count, element, root } => self.broadcast_raw(memory, count, element, root),
                Request::Reduce { input, output, count, element, reduction, root } => {
                    self.reduce_raw(input, output, count, element, reduction, root)
                }
                Request::AllGather { input, output, count, element } => {
                    self.all_gather_raw(input, output, count, element)
                }
                Request::ReduceScatter { input, output, count, element, reduction } => {
                    self.reduce_scatter_raw(input, output, count, element, reduction)
                }
                Request::AllToAll { sends, receives } => self.all_to_all_raw(sends, receives),
                Request::Messages(messages) => self.messages_raw(messages),
            }
        }
    }

    /// Brings the ranks' GPUs together by NVIDIA's library, so that [`Communicator::submit`] can put operations on their streams. All ranks call
    /// it, each with the context of its GPU current on this thread.
    pub fn join_gpus(&mut self) -> Result<()> {
        // All ranks know that all have the library before any waits for the others in it.
        let own = nccl::is_there();
        let mut all = [u8::from(own.is_ok())];
        self.all_reduce(&mut all, Reduction::Minimum)?;
        own?;
        if all == [0] {
            let reason = "another rank of the communicator does not find the library".to_owned();
            return Err(Error::Transport { name: "nccl", reason });
        }
        let mut bytes = [0; 128];
        let made = if self.member.rank == 0 { nccl::unique_bytes().map(|made| bytes = made) } else { Ok(()) };
        self.broadcast(&mut bytes, 0)?;
        made?;
        if bytes == [0; 128] {
            let reason = "rank 0 could not begin: it says why".to_owned();
            return Err(Error::Transport { name: "nccl", reason });
        }
        self.gpus = Some(Gpus::join(bytes, self.member, self.watch(), self.limit)?);
        Ok(())
    }

    /// Whether operations may go to GPUs' streams.
    pub fn has_gpus(&self) -> bool {
        self.gpus.is_some()
    }

    /// Puts an operation on a stream of this rank's GPU, after what is on it; none where the GPUs have not been joined or NVIDIA's library has no
    /// such operation, which is the same on all ranks: [`Communicator::perform`] has it.
    ///
    /// # Safety
    /// As for [`Communicator::perform`], in the order of the stream (a `CUstream` of the context that is current on this thread), on memory that its
    /// GPU reaches; what is read and written is the same or does not overlap, but for a rank's own part of what is gathered or scattered.
    pub unsafe fn submit(&self, request: &Request<'_>, stream: usize) -> Result<Option<()>> {
        let Some(gpus) = &self.gpus else { return Ok(None) };
        if std::process::id() != self.process {
            return Err(Error::Forked);
        }
        self.check(request)?;
        // SAFETY: the caller's promise.
        unsafe { gpus.submit(request, stream) }
    }

    /// Whether a request's ranks and sizes are some.
    fn check(&self, request: &Request<'_>) -> Result<()> {
        match *request {
            Request::AllReduce { count, element, .. } => size(count, element).map(|_| ()),
            Request::Broadcast { count, element, root, .. } | Request::Reduce { count, element, root, .. } => {
                self.check_root(root).and(size(count, element).map(|_| ()))
            }
            Request::AllGather { count, element, .. } | Request::ReduceScatter { count, element, .. } => {
                size(count.saturating_mul(self.member.ranks), element).map(|_| ())
            }
            Request::AllToAll { sends, receives } => self.check_to_all(sends, receives),
            Request::Messages(messages) => self.check_messages(messages),
        }
    }
}
