//! Linker flags of the native module.

fn main() {
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    match target("OS").as_str() {
        // Paddle closes its plug-ins when the process ends, while worker threads may still be inside: the module stays.
        "linux" => println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete"),
        // Python's symbols come from the interpreter that loads the module.
        "macos" => {
            println!("cargo::rustc-cdylib-link-arg=-undefined");
            println!("cargo::rustc-cdylib-link-arg=dynamic_lookup");
        }
        _ => {}
    }
    println!("cargo::rerun-if-changed=build.rs");
}
