//! Speed of the emulator: compiling, elements of a sum a second, thread switches a second in a softmax with barriers.

#[cfg(target_os = "linux")]
fn main() {
    linux::measure();
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use openmps_emulator::{Argument, Dispatch, Grid, Library};
    use std::time::{Duration, Instant};

    const ELEMENTWISE: &str = include_str!("../tests/kernels/elementwise.metal");
    const SOFTMAX: &str = include_str!("../tests/kernels/softmax.metal");

    const PRODUCT: &str = include_str!("../tests/kernels/product.metal");

    pub fn measure() {
        let fresh = format!("{SOFTMAX}// {:?}\n", std::time::SystemTime::now());
        let warm = Library::compile(ELEMENTWISE).expect("the text compiles");
        let timed = |name: &str, text: &str| {
            let begun = Instant::now();
            let library = Library::compile(text).expect("the text compiles");
            println!("{name:<40} {:>10.2?}", begun.elapsed());
            library
        };
        let softmax = timed("compile softmax", &fresh);
        timed("compile softmax again", &fresh);
        let product = Library::compile(PRODUCT).expect("the text compiles");
        for sequential in [true, false] {
            let name = if sequential { "one thread" } else { "all threads" };
            let (best, _) = sum(&warm, 1_000_000, sequential);
            println!("{:<40} {:>10.2?}", format!("sum of 1M elements, {name}"), best);
            let (best, _) = sum(&warm, 32, sequential);
            println!("{:<40} {:>10.2?}", format!("sum of 32 elements, {name}"), best);
            let (best, switches) = rows(&softmax, sequential);
            let rate = switches as f64 / best.as_secs_f64() / 1e6;
            println!("{:<40} {best:>10.2?}  {rate:.1} M switches/s", format!("softmax 256x1000, {name}"));
            let (best, switches) = multiply(&product, sequential);
            let rate = switches as f64 / best.as_secs_f64() / 1e6;
            println!("{:<40} {best:>10.2?}  {rate:.1} M switches/s", format!("matrix product of 256, {name}"));
        }
    }

    fn sum(library: &Library, count: u32, sequential: bool) -> (Duration, u64) {
        let [mut a, mut b, mut c] = [1.0, 2.0, 3.0].map(|value: f32| vec![value; count as usize]);
        let bytes = count.to_ne_bytes();
        let pointers = [a.as_mut_ptr(), b.as_mut_ptr(), c.as_mut_ptr()].map(|pointer| Argument::Buffer(pointer.cast()));
        let arguments = [pointers[0], pointers[1], pointers[2], Argument::Bytes(&bytes)];
        best(
            library,
            "add",
            &Dispatch { sequential, ..Dispatch::new(Grid::Threads([count, 1, 1]), [256, 1, 1], &arguments) },
        )
    }

    fn rows(library: &Library, sequential: bool) -> (Duration, u64) {
        let (rows, columns) = (256_u32, 1000_u32);
        let mut x = vec![1.0_f32; (rows * columns) as usize];
        let mut y = x.clone();
        let bytes = columns.to_ne_bytes();
        let arguments =
            [Argument::Buffer(x.as_mut_ptr().cast()), Argument::Buffer(y.as_mut_ptr().cast()), Argument::Bytes(&bytes)];
        let grid = Grid::Threadgroups([rows, 1, 1]);
        best(library, "softmax_row", &Dispatch { sequential, ..Dispatch::new(grid, [256, 1, 1], &arguments) })
    }

    fn multiply(library: &Library, sequential: bool) -> (Duration, u64) {
        let n = 256_u32;
        let [mut a, mut b, mut c] = [1.0, 2.0, 3.0].map(|value: f32| vec![value; (n * n) as usize]);
        let bytes = n.to_ne_bytes();
        let pointers = [a.as_mut_ptr(), b.as_mut_ptr(), c.as_mut_ptr()].map(|pointer| Argument::Buffer(pointer.cast()));
        let arguments = [pointers[0], pointers[1], pointers[2], Argument::Bytes(&bytes)];
        let grid = Grid::Threadgroups([n / 32, n / 32, 1]);
        best(library, "product", &Dispatch { sequential, ..Dispatch::new(grid, [128, 1, 1], &arguments) })
    }

    fn best(library: &Library, kernel: &str, dispatch: &Dispatch) -> (Duration, u64) {
        let function = library.function(kernel).expect("the kernel is there");
        let one = || {
            let begun = Instant::now();
            // SAFETY: the buffers live in the caller and are as long as the kernel uses.
            let report = unsafe { function.dispatch(dispatch) }.expect("the kernel runs");
            (begun.elapsed(), report.switches)
        };
        (0..30).map(|_| one()).min().expect("it ran")
    }
}
