//! Where a system cannot tell whose a folder is, compiled kernels are not kept on disk.

/// There is none.
pub(super) enum Place {}

impl Place {
    pub fn of(_parts: &[&str]) -> Option<Place> {
        None
    }

    pub fn read(&self) -> Option<Vec<u8>> {
        match *self {}
    }

    pub fn keep(&self, _code: &[u8]) {
        match *self {}
    }
}
