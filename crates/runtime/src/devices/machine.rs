//! What machine this is: the CPU's name, its cores, its memory.

/// The CPU's model name, or its architecture where the system tells no name.
pub(super) fn cpu_name() -> String {
    model_name()
        .map(|name| name.trim().to_string())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("{} CPU", std::env::consts::ARCH))
}

/// Physical cores, or the threads that may run at once where the system does not tell.
pub(super) fn cores() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    physical_cores().filter(|&cores| cores > 0).map_or(threads, |cores| cores.min(threads))
}

/// The memory that this process may use: the machine's, or its control group's where that is less.
pub(super) fn memory() -> usize {
    const UNKNOWN: usize = 8 << 30;
    let machine = physical_memory().unwrap_or(UNKNOWN);
    control_group_memory().filter(|&bytes| bytes > 0).map_or(machine, |bytes| bytes.min(machine))
}

#[cfg(unix)]
fn physical_memory() -> Option<usize> {
    // SAFETY: `sysconf` takes a number and returns one.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    usize::try_from(pages).ok()?.checked_mul(usize::try_from(size).ok()?).filter(|&bytes| bytes > 0)
}

#[cfg(not(unix))]
fn physical_memory() -> Option<usize> {
    None
}

/// The limit of the container, in either version of Linux's control groups.
fn control_group_memory() -> Option<usize> {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    files.iter().find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

#[cfg(target_os = "macos")]
fn model_name() -> Option<String> {
    let mut text = [0u8; 256];
    let mut length = text.len();
    let key = c"machdep.cpu.brand_string";
    // SAFETY: the key ends with a zero byte; `length` is the buffer's size, and the call writes no more than that.
    let failed =
        unsafe { libc::sysctlbyname(key.as_ptr(), text.as_mut_ptr().cast(), &mut length, std::ptr::null_mut(), 0) };
    let text = std::ffi::CStr::from_bytes_until_nul(&text).ok()?;
    (failed == 0).then(|| text.to_string_lossy().into_owned())
}

#[cfg(not(target_os = "macos"))]
fn model_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    values(&text, "model name").next().map(str::to_string)
}

fn physical_cores() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let cores = values(&text, "physical id").zip(values(&text, "core id"));
    Some(cores.collect::<std::collections::HashSet<_>>().len())
}

/// The values of a key in the text of `/proc/cpuinfo`, one for each processor.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}
