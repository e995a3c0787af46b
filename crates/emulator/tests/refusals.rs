//! What Apple's compiler refuses is refused here: each text differs from one that compiles in one place, and the message names the line.
#![cfg(target_os = "linux")]

mod harness;

use harness::compile;
use openmps_emulator::{Error, Library};

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

/// The error of a text whose third line is `line`.
fn refused(line: &str) -> String {
    match Library::compile(&format!("{HEAD}{line}\n")) {
        Ok(_) => panic!("not refused: {line}"),
        Err(error @ (Error::Compile { .. } | Error::AddressSpace { .. } | Error::Signature { .. })) => {
            error.to_string()
        }
        Err(error) => panic!("{line}: {error}"),
    }
}

fn check(line: &str, word: &str) {
    let message = refused(line);
    assert!(message.contains(word) && message.contains("program_source:3"), "{line}\n{message}");
}

#[test]
fn address_spaces_are_kept_apart() {
    compile(&format!(
        "{HEAD}kernel void k(device float* a [[buffer(0)]], constant float* c [[buffer(1)]]) {{ a[0] = c[0]; }}"
    ));
    let kernel = |body: &str| {
        format!(
            "kernel void k(device float* a [[buffer(0)]], constant float* c [[buffer(1)]]) {{ threadgroup float s[4]; s[0] = a[0]; {body} a[1] = s[0]; }}"
        )
    };
    compile(&format!("{HEAD}{}", kernel("")));
    check(&kernel("device float* q = s; q[0] = 1;"), "cannot initialize");
    check(&kernel("threadgroup float* q = a; q[0] = 1;"), "cannot initialize");
    check(&kernel("thread float* q = a; q[0] = 1;"), "cannot initialize");
    check(&kernel("device const float* q = c; a[0] = q[1];"), "cannot initialize");
    check(&kernel("constant float* q = a; a[0] = q[1];"), "which is `constant`");
    check(&kernel("c[0] = 1;"), "not assignable");
    check(&kernel("float x = 0; device float* q = &x; q[0] = 1;"), "cannot initialize");
}

#[test]
fn pointers_have_an_address_space() {
    check("void f(float* p) { p[0] = 1; } kernel void k(device float* a [[buffer(0)]]) { f(a); }", "`p`");
    check(
        "void f(const float& p) {} kernel void k(device float* a [[buffer(0)]]) { f(a[0]); }",
        "has no address space",
    );
    check("kernel void k(device float* a [[buffer(0)]]) { float* p = a; p[0] = 1; }", "has no address space");
    check("struct S { float* p; }; kernel void k(device float* a [[buffer(0)]]) { S s; s.p = a; a[0] = *s.p; }", "`p`");
    check(
        "kernel void k(device float* a [[buffer(0)]]) { float x[2]; float& y = x[0]; y = a[0]; a[0] = x[0]; }",
        "`y`",
    );
    check(
        "template <typename T> void f(T* p) { p[0] = 1; } kernel void k(device float* a [[buffer(0)]]) { f(a); }",
        "`p`",
    );
    check("kernel void k(float* a [[buffer(0)]]) { a[0] = 1; }", "must reside in");
    check("kernel void k(thread float* a [[buffer(0)]]) { a[0] = 1; }", "must reside in");
}

#[test]
fn threadgroup_memory_is_declared_in_kernels() {
    check(
        "void f() { threadgroup float s[4]; s[0] = 1; } kernel void k(device float* a [[buffer(0)]]) { f(); }",
        "kernel function",
    );
    check("kernel void k(device float* a [[buffer(0)]]) { threadgroup float s = 1; a[0] = s; }", "initializer");
    check("threadgroup float s[4]; kernel void k(device float* a [[buffer(0)]]) { a[0] = s[0]; }", "program scope");
}

#[test]
fn variables_outside_of_functions_are_constant() {
    compile(&format!(
        "{HEAD}constant float A[2] = {{1, 2}}; constexpr constant int B = 3; constant constexpr float C = 0.5f;\n\
         struct S {{ static constant constexpr int D = 4; float x; }};\n\
         kernel void k(device float* a [[buffer(0)]]) {{ array<float, 2> v = {{1, 2}}; a[0] = A[1] + B + C + S::D + v[1]; }}"
    ));
    let kernel = "kernel void k(device float* a [[buffer(0)]]) { a[0] = g; }";
    check(&format!("float g = 1; {kernel}"), "`g` lives outside of functions");
    check(&format!("device float g; {kernel}"), "program scope");
    check(&format!("constant float g; {kernel}"), "const");
    check("kernel void k(device float* a [[buffer(0)]]) { static int calls = 0; a[0] = calls++; }", "`calls`");
}

#[test]
fn what_the_language_lacks_is_refused() {
    let kernel = |body: &str| format!("kernel void k(device float* a [[buffer(0)]]) {{ {body} }}");
    check(&kernel("double x = a[0]; a[0] = x;"), "double");
    check(&kernel("a[0] = erf(a[0]);"), "erf");
    check(&kernel("a[0] = erff(a[0]);"), "erff");
    check(&kernel("a[0] = cbrt(a[0]);"), "cbrt");
    check(&kernel("a[0] = __expf(a[0]);"), "__expf");
    check(&kernel("a[0] = *new float(1);"), "new");
    check(&kernel("try { a[0] = 1; } catch (...) {}"), "exceptions");
    check(&kernel("printf(\"x\");"), "printf");
    check(&kernel("a[0] = exp(bfloat(a[1]));"), "deleted");
    check(&kernel("a[0] = simd_sum(bfloat(a[1]));"), "simd_sum");
    check(
        &kernel("atomic_fetch_add_explicit((device atomic_ulong*)a, 1ul, memory_order_relaxed);"),
        "atomic_fetch_add",
    );
    check(
        &kernel("atomic_fetch_max_explicit((device atomic_float*)a, 1.0f, memory_order_relaxed);"),
        "atomic_fetch_max",
    );
    check(&kernel("atomic_load_explicit((device atomic_ulong*)a, memory_order_relaxed);"), "atomic_load");
    check(
        &kernel("threadgroup atomic_float s; atomic_store_explicit(&s, a[0], memory_order_relaxed);"),
        "atomic_store",
    );
    check(&kernel("simdgroup_matrix<float, 4, 4> m; simdgroup_store(m, a);"), "simdgroup");
    check("float f(float x) { } kernel void k(device float* a [[buffer(0)]]) { a[0] = f(a[0]); }", "non-void");
}

#[test]
fn parameters_are_of_the_types_that_their_attributes_allow() {
    let kernel = |parameter: &str| format!("kernel void k(device float* a [[buffer(0)]], {parameter}) {{ }}");
    for allowed in ["uint", "ushort", "uint2", "uint3", "ushort2", "ushort3"] {
        compile(&format!("{HEAD}{}", kernel(&format!("{allowed} i [[thread_position_in_grid]]"))));
    }
    for refused in ["int", "float", "ulong", "uint4", "int2"] {
        let text = format!("{HEAD}{}", kernel(&format!("{refused} i [[thread_position_in_grid]]")));
        assert!(Library::compile(&text).is_err(), "{refused}");
    }
    check(&kernel("texture2d<float> t [[texture(0)]]"), "texture is not covered");
    check(&kernel("device float* b [[buffer(31)]]"), "beyond buffer(30)");
}

#[test]
fn the_attribute_kernel_is_the_keyword() {
    let library = compile(&format!(
        "{HEAD}[[kernel]] void k(device float* a [[buffer(0)]]) {{ threadgroup float s[4]; s[0] = a[0]; a[1] = s[0]; }}"
    ));
    assert!(library.function_names().eq(["k"]));
}

#[test]
fn diagnostics_count_the_lines_of_the_text() {
    let Err(Error::Compile { diagnostics }) = Library::compile(
        "#include <metal_stdlib>\n\n\nkernel void k(device float* a [[buffer(0)]]) {\n  a[0] = nothing;\n}\n",
    ) else {
        panic!("not refused");
    };
    assert!(
        diagnostics.contains("program_source:5:10: error: use of undeclared identifier 'nothing'"),
        "{diagnostics}"
    );
}
