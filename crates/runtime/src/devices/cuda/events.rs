//! Events on a stream: the host hears of them by a function on the stream; how long lies between two the GPU itself measures.

use super::Gpu;
use super::api::Handle;
use crate::error::Result;
use crate::event::{Event, Timed};
use std::any::Any;
use std::ffi::c_void;
use std::mem;
use std::sync::{Arc, PoisonError};

/// A point of a stream in CUDA's own terms.
struct Point {
    gpu: Arc<Gpu>,
    event: usize,
}

impl Timed for Point {
    fn since(&self, earlier: &dyn Any) -> Option<f64> {
        let earlier = earlier.downcast_ref::<Point>().filter(|earlier| Arc::ptr_eq(&earlier.gpu, &self.gpu))?;
        self.gpu.enter().ok()?;
        let mut milliseconds = 0.0;
        // SAFETY: two events of this context, each recorded once; writes one number, unless one of them is still to come.
        let status =
            unsafe { (self.gpu.api.event_elapsed)(&mut milliseconds, earlier.event as Handle, self.event as Handle) };
        (status == 0).then_some(milliseconds.into())
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: created once, destroyed once; the driver keeps what streams still have to reach.
            unsafe { (self.gpu.api.event_destroy)(self.event as Handle) };
        }
    }
}

/// What a function on a stream is given.
struct Reached {
    gpu: Arc<Gpu>,
    event: Event,
}

impl Gpu {
    /// Sets an event when the stream gets there.
    pub(super) fn record(self: &Arc<Self>, queue: u64, event: &Event) -> Result<()> {
        unsafe extern "C" fn reach(reached: *mut c_void) {
            // SAFETY: made by `Box::into_raw` below, and passed on once.
            let Reached { gpu, event } = *unsafe { Box::from_raw(reached.cast::<Reached>()) };
            event.reach();
            // Whoever drops the last one destroys CUDA's event, which a function on a stream must not.
            gpu.reached.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        }
        // Dropped when the lock is free again: the function below takes it too.
        let reached = mem::take(&mut *self.reached.lock().unwrap_or_else(PoisonError::into_inner));
        drop(reached);
        let stream = self.stream(queue)?;
        let point = self.point(stream)?;
        event.announce();
        event.set_timed(Arc::new(point));
        let argument = Box::into_raw(Box::new(Reached { gpu: self.clone(), event: event.clone() }));
        // SAFETY: the function takes over the box; it calls nothing of CUDA's.
        let status = unsafe { (self.api.host_function)(stream, reach, argument.cast()) };
        // Nobody shall wait for what never comes.
        self.api.check("cuLaunchHostFunc", status).inspect_err(|_| {
            // SAFETY: the function was not taken over, and neither was the box.
            drop(unsafe { Box::from_raw(argument) });
            event.reach();
        })
    }

    fn point(self: &Arc<Self>, stream: Handle) -> Result<Point> {
        const DEFAULT: u32 = 0;
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle.
        self.api.check("cuEventCreate", unsafe { (self.api.event_create)(&mut event, DEFAULT) })?;
        let point = Point { gpu: self.clone(), event: event as usize };
        // SAFETY: an event and a stream of this context.
        self.api.check("cuEventRecord", unsafe { (self.api.event_record)(event, stream) })?;
        Ok(point)
    }
}
