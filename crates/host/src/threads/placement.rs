//! Which CPU a thread is on, and from which one it is kept.
//!
//! A system may wake a helping thread on the CPU of the thread that wakes it, although others are idle, and leave it there: it then waits for
//! milliseconds, or the two take turns, and a kernel takes up to twice as long as without help. So helpers are kept from the CPU of the thread that calls.

/// No CPU, or one that is not known.
pub(super) const UNKNOWN: usize = usize::MAX;

#[cfg(target_os = "linux")]
pub(super) use linux::{Thread, current, keep};

#[cfg(target_os = "linux")]
mod linux {
    use super::UNKNOWN;

    /// The system's number of a thread.
    #[derive(Clone, Copy, Debug)]
    pub struct Thread(libc::pid_t);

    impl Thread {
        /// The calling one.
        pub fn current() -> Thread {
            // SAFETY: it takes nothing, and gives a number.
            Thread(unsafe { libc::gettid() })
        }

        /// The CPUs that it may use.
        fn allowed(self) -> Option<libc::cpu_set_t> {
            // SAFETY: a set of CPUs is plain bits, for which there is room.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                (libc::sched_getaffinity(self.0, size_of_val(&set), &mut set) == 0).then_some(set)
            }
        }
    }

    /// Whether a set has room for this CPU.
    fn fits(cpu: usize) -> bool {
        cpu < 8 * size_of::<libc::cpu_set_t>()
    }

    /// The CPU that the calling thread is on now.
    pub fn current() -> usize {
        // SAFETY: it takes nothing, and gives a number.
        usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(UNKNOWN)
    }

    /// Keeps a thread from this CPU, if that leaves it any, rather than from the one that it was kept from `before`, if the process may use that.
    pub fn keep(thread: Thread, from: usize, before: usize) {
        let process = Thread(std::process::id() as libc::pid_t);
        let (Some(mut set), Some(all)) = (thread.allowed(), process.allowed()) else { return };
        // SAFETY: the CPUs fit the sets.
        unsafe {
            if fits(before) && libc::CPU_ISSET(before, &all) {
                libc::CPU_SET(before, &mut set);
            }
            if fits(from) {
                libc::CPU_CLR(from, &mut set);
            }
            // The system moves a thread at once from a CPU that it may no longer use. A refusal changes nothing.
            if libc::CPU_COUNT(&set) > 0 {
                libc::sched_setaffinity(thread.0, size_of_val(&set), &set);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn allowed() -> Vec<usize> {
            let set = Thread::current().allowed().unwrap();
            // SAFETY: these CPUs fit the set.
            (0..8 * size_of_val(&set)).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
        }

        #[test]
        fn a_thread_is_kept_from_one_cpu_after_the_other() {
            let (all, mut before) = (allowed(), UNKNOWN);
            for &cpu in &all {
                keep(Thread::current(), cpu, before);
                let want: Vec<usize> = all.iter().copied().filter(|&other| other != cpu || all.len() == 1).collect();
                assert_eq!(allowed(), want);
                assert!(want.contains(&current()));
                before = cpu;
            }
            keep(Thread::current(), UNKNOWN, before);
            assert_eq!(allowed(), all);
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{Thread, current, keep};

/// Other systems do not tell, or do not let choose.
#[cfg(not(target_os = "linux"))]
mod elsewhere {
    #[derive(Clone, Copy, Debug)]
    pub struct Thread;

    impl Thread {
        pub fn current() -> Thread {
            Thread
        }
    }

    pub fn current() -> usize {
        super::UNKNOWN
    }

    pub fn keep(_: Thread, _: usize, _: usize) {}
}
