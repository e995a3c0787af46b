//! Where the threads of a threadgroup wait for each other, and who goes on.

use super::{Runner, Wait};
use crate::error::{Error, Result};
use crate::frame::Stop;
use crate::limits::SIMD_WIDTH;

impl Runner {
    /// Notes that a thread waits.
    pub(super) fn stopped(&mut self, index: u32) {
        let (group, lane) = (&mut self.groups[(index / SIMD_WIDTH) as usize], 1 << (index % SIMD_WIDTH));
        // SAFETY: the meeting is this runner's own, and no thread runs now.
        match unsafe { (&(*self.meeting).waits)[index as usize].stop } {
            Stop::Barrier => group.barrier |= lane,
            _ => group.waiting |= lane,
        }
        self.switches += 1;
    }

    /// Lets the lanes of a simdgroup run until all wait at a threadgroup barrier or are over.
    pub(super) fn settle(&mut self, group: u32) -> Result<()> {
        loop {
            self.resume_ready(group)?;
            let waiting = self.groups[group as usize].waiting;
            if waiting == 0 {
                self.meet();
                return Ok(());
            }
            self.check_time()?;
            let came = self.furthest_behind(group, waiting);
            let first = self.wait(group * SIMD_WIDTH + came.trailing_zeros());
            let all = self.lanes_of(group);
            if first.stop != Stop::Collective && came != all {
                let state = self.groups[group as usize];
                let elsewhere = ((waiting | state.barrier) & !came).count_ones();
                return Err(self.divergent(first.line, came.count_ones(), elsewhere, all.count_ones()));
            }
            self.count(first.stop);
            if let Some(resolve) = first.resolve {
                // SAFETY: the frame is this runner's own; the resolver is the image's, and works on the frame.
                unsafe {
                    (*self.frame).active = came;
                    resolve(came);
                }
            }
            let state = &mut self.groups[group as usize];
            state.waiting &= !came;
            state.ready |= came;
        }
    }

    /// Of waiting lanes, those at the lowest address of the code: lanes that took a branch come back to those that did not.
    fn furthest_behind(&self, group: u32, waiting: u32) -> u32 {
        let (mut lowest, mut came, mut rest) = (u64::MAX, 0, waiting);
        while rest != 0 {
            let lane = rest.trailing_zeros();
            rest &= rest - 1;
            // SAFETY: the meeting is this runner's own, and no thread runs now.
            let site = unsafe { (&(*self.meeting).waits)[(group * SIMD_WIDTH + lane) as usize].site };
            if site < lowest {
                (lowest, came) = (site, 0);
            }
            if site == lowest {
                came |= 1 << lane;
            }
        }
        came
    }

    fn wait(&self, thread: u32) -> Wait {
        // SAFETY: the meeting is this runner's own, and no thread runs now.
        unsafe { (&(*self.meeting).waits)[thread as usize] }
    }

    /// Mask of the lanes that the simdgroup has in this threadgroup.
    fn lanes_of(&self, group: u32) -> u32 {
        // SAFETY: the frame is this runner's own.
        let threads = unsafe { (*self.frame).threads };
        let count = (threads - group * SIMD_WIDTH).min(SIMD_WIDTH);
        u32::MAX >> (SIMD_WIDTH - count)
    }

    /// Resumes the lanes that may go on, in the schedule's order.
    fn resume_ready(&mut self, group: u32) -> Result<()> {
        let ready = std::mem::take(&mut self.groups[group as usize].ready);
        if ready == 0 {
            return Ok(());
        }
        let begin = self.order.begins[group as usize] as usize;
        let count = self.lanes_of(group).count_ones() as usize;
        for at in begin..begin + count {
            let index = self.order.threads[at];
            if ready >> (index % SIMD_WIDTH) & 1 == 0 {
                continue;
            }
            self.resume(index)?;
        }
        Ok(())
    }

    /// Lets all threads pass barrier after barrier until they are over.
    pub(super) fn pass_barriers(&mut self, threads: u32) -> Result<()> {
        loop {
            let arrived: u32 = self.groups.iter().map(|group| group.barrier.count_ones()).sum();
            if arrived == 0 {
                return Ok(());
            }
            let waits = || (0..threads).filter(|t| self.groups[(t / 32) as usize].barrier >> (t % 32) & 1 == 1);
            let line = waits().map(|thread| self.wait(thread).line).min().unwrap_or(0);
            let here = waits().filter(|thread| self.wait(*thread).line == line).count() as u32;
            if here != if self.ignore_finished { arrived } else { threads } {
                return Err(self.divergent(line, here, arrived - here, threads));
            }
            self.check_time()?;
            self.count(Stop::Barrier);
            self.order.renew(threads, self.switches);
            for at in 0..self.order.groups.len() {
                let group = self.order.groups[at];
                let state = &mut self.groups[group as usize];
                state.ready = std::mem::take(&mut state.barrier);
                self.settle(group)?;
            }
        }
    }

    fn divergent(&self, line: u32, arrived: u32, elsewhere: u32, threads: u32) -> Error {
        // SAFETY: the frame is this runner's own.
        let threadgroup = unsafe { (*self.frame).threadgroup_position_in_grid };
        let finished = threads - arrived - elsewhere;
        Error::DivergentBarrier {
            kernel: self.kernel.clone(),
            threadgroup,
            line,
            arrived,
            finished,
            elsewhere,
            threads,
        }
    }
}
