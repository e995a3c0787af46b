//! What the rewriting makes of single texts.

use super::*;

fn unit(text: &str) -> Unit {
    rewrite(text, &BTreeMap::new()).unwrap()
}

fn refused(text: &str) -> String {
    rewrite(text, &BTreeMap::new()).unwrap_err().to_string()
}

#[test]
fn plain_kernels_stay_as_they_are() {
    let text = "// kernel void not_this(\n#include <metal_stdlib>\nkernel void add(device float* a [[buffer(0)]]) { threadgroup float s[4]; }\n\
                [[host_name(\"pair\")]] [[kernel]] [[max_total_threads_per_threadgroup(64)]]\nvoid two() {}";
    let unit = unit(text);
    let names: Vec<_> =
        unit.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.callee.as_str(), kernel.line)).collect();
    assert_eq!(names, [("add", "::add", 3), ("pair", "::two", 5)]);
    assert_eq!(unit.kernels[1].most_threads, Some(64));
    assert!(
        unit.text.contains("kernel void add(device float* a              ) { threadgroup float s[4]; }"),
        "{}",
        unit.text
    );
    assert_eq!(unit.text.lines().count(), text.lines().count());
}

#[test]
fn instantiations_of_templates_are_kernels() {
    let unit = unit(
        "namespace n { template <typename T, int N = (1 > 0)>\n[[kernel]] void f(device T* a, constant uint& n [[buffer(3)]]) {} }\n\
         typedef decltype(n::f<float>) type;\n\
         template [[host_name(\"f_\" \"float\")]] [[kernel]] decltype(n::f<float>) n::f<float>;\n\
         template [[host_name(\"g\")]] kernel type n::f<half, 2>;\ntemplate struct other<int>;\n",
    );
    let [one, two] = &unit.kernels[..] else { panic!("{:?}", unit.kernels) };
    assert_eq!(
        (one.name.as_str(), one.callee.as_str(), one.parameters.len()),
        ("f_float", "::n::f<openmps_kernel_0, float>", 2)
    );
    assert_eq!((two.name.as_str(), two.callee.as_str(), two.line), ("g", "::n::f<openmps_kernel_1, half, 2>", 5));
    assert_eq!(
        unit.text,
        "namespace n { template <class openmps_kernel, typename T, int N = (1 > 0)>\n\
         METAL_FUNC void f(device T* a, constant uint& n              ) {} }\n\
         typedef decltype(n::f<void, float>) type;\n\n\ntemplate struct other<int>;\n"
    );
}

#[test]
fn threadgroup_variables_in_blocks_and_templates_are_references() {
    let text = unit(
        "kernel void k() { threadgroup float outer[2]; if (1) { threadgroup vec<float, 2> a[N][3], b; threadgroup float* p = a; } }\n\
         template <class T> [[kernel]] void f() { threadgroup T s; }",
    )
    .text;
    let (plain, template) = text.split_once('\n').unwrap();
    assert_eq!(
        plain,
        "struct openmps_kernel_0; kernel void k() { threadgroup float outer[2]; if (1) { \
         threadgroup vec<float, 2> (&a)[N][3] = openmps::memory<vec<float, 2> [N][3], openmps_kernel_0, 0>();\
         threadgroup vec<float, 2> (&b) = openmps::memory<vec<float, 2> , openmps_kernel_0, 1>(); threadgroup float* p = a; } }"
    );
    assert!(template.contains("{ threadgroup T (&s) = openmps::memory<T , openmps_kernel, 2>(); }"), "{template}");
}

#[test]
fn function_constants_get_their_values() {
    let text = "constant bool a [[function_constant(0)]];\nconstant int b [[function_constant(7)]];\n\
                constant bool c = is_function_constant_defined(a) && is_function_constant_defined(b);";
    let unit = rewrite(text, &BTreeMap::from([(7, Value::Int(-3))])).unwrap();
    let lines: Vec<_> = unit.text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines[..2], ["constant bool a = (bool)(0);", "constant int b = (int)(-3l);"]);
    assert_eq!(lines[2], "constant bool c = false && true;");
    assert_eq!(unit.unset, [(0, "a".to_owned())]);
}

#[test]
fn one_defaulted_constructor_is_left() {
    let text = "struct A { A() thread = default; A() device = default; }; template <class T> struct B { constexpr B<T>() threadgroup = default; };\
                struct C { C() = default; C() threadgroup = default; ~C() = default; };";
    assert_eq!(
        unit(text).text,
        "struct A { A() = default;  }; template <class T> struct B { B() = default; };struct C { C() = default;  ~C() = default; };"
    );
}

#[test]
fn members_work_on_objects_of_the_thread() {
    let text = "template <class T> struct S : B<T> { S(int a) : n(a), m((a)) {} static_assert(f(1), \"\"); S() thread {} static int f() { return 1; } int n = g(1);\
                int a() const { return n; } template <int N = (1)> T operator()(T x); T b() device { return 0; } };\
                struct P p = {f(1)}; template <class T, void (*F)(int)> void h(thread const short& n, const thread vec<T, 2>& v);";
    assert_eq!(
        unit(text).text,
        "template <class T> struct S : B<T> { S(int a) : n(a), m((a)) {} static_assert(f(1), \"\"); S()  {} static int f() { return 1; } int n = g(1);\
         int a() const thread { return n; } template <int N = (1)> T operator()(T x) thread; T b() __global { return 0; } };\
         struct P p = {f(1)}; template <class T, void F(int)> void h(short  n, const thread vec<T, 2>& v);"
    );
}

#[test]
fn a_constructor_serves_every_address_space() {
    let text = "struct A { int n; constexpr A(int n) thread : n(n), m{0} {} constexpr A(int n) device : n(n), m{0} {}\
                template <class U, class = B<U>> A(U x) threadgroup { n = x; } template <class U, class = B<U>> A(U x) constant { n = x; } };";
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(&unit(text).text),
        "struct A { int n; constexpr A(int n) : n(n), m{0} {} template <class U, class = B<U>> A(U x) { n = x; } };"
    );
}

#[test]
fn members_for_device_and_constant_objects_are_one_where_they_would_be() {
    let text = "struct A { int n; operator int() const device { return n; } operator int() const constant { return n; } void set(int x) device { n = x; } };";
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(&unit(text).text),
        "struct A { int n; operator int() const __global { return n; } void set(int x) __global { n = x; } };"
    );
}

#[test]
fn elements_and_names_beside_them_become_values() {
    let of = |text: &str| unit(text).text;
    assert_eq!(of("x = c ? a[i] : T(0);"), "x = c ? openmps::element(a[i]) : T(0);");
    assert_eq!(
        of("f(c ? B::init : p->a[i][j], 1);"),
        "f(c ? openmps::element(B::init) : openmps::element(p->a[i][j]), 1);"
    );
    assert_eq!(of("x = c ? cast<U>(a[i]) : op.init;"), "x = c ? cast<U>(a[i]) : openmps::element(op.init);");
    for text in ["(c ? a[i] : b[i]) = 1;", "x = c ? a : b;", "x = c ? -1 : 1;", "for (int x : c ? a : b);"] {
        assert_eq!(of(text), text);
    }
}

#[test]
fn strings_are_in_constant_memory() {
    let text = "constant log l(\"a\", \"b\"); void f() { static_assert(true, \"c\"); p = \"d\"; asm(\"e\"); }";
    assert_eq!(
        unit(text).text,
        "constant log l((constant char*)(ulong)\"a\", (constant char*)(ulong)\"b\"); \
         void f() { static_assert(true, \"c\"); p = (constant char*)(ulong)\"d\"; asm(\"e\"); }"
    );
}

#[test]
fn arrays_of_functions_are_the_threads() {
    let text = "template <class T> void f(T a[N], device T b[2], const int c[N + 1]) { g(a[0]); if (a[1]) { } }";
    assert_eq!(
        unit(text).text,
        "template <class T> void f(thread T a[N], device T b[2], thread const int c[N + 1]) { g(a[0]); if (a[1]) { } }"
    );
}

#[test]
fn a_reference_to_a_pointer_is_to_one_of_the_thread() {
    let text = "void f(const device T*& a, device T* thread& b, int n) { x = a *& n; }";
    assert_eq!(unit(text).text, text.replace("T*& a", "T* thread& a"));
}

#[test]
fn zeros_that_threadgroup_memory_begins_with_are_left_out() {
    let text = unit("template <class T> [[kernel]] void f() { threadgroup T s[A == 0 ? 1 : A] = {0}; }").text;
    let expected = "threadgroup T (&s)[A = = 0 ? 1 : A] = openmps::memory<T [A = = 0 ? 1 : A], openmps_kernel, 0>();";
    assert!(text.replace("==", "= =").contains(expected), "{text}");
    let other = unit("template <class T> [[kernel]] void f() { threadgroup T s[2] = {1}; }").text;
    assert!(other.contains("threadgroup T s[2] = {1};"), "{other}");
}

#[test]
fn numbers_without_suffix_are_float() {
    let text = "float x = 1.5 + 2. + .5e-3 + 1e6 + 0x1p-3 - 1.0f - 2h - 0xE - a.x1 - 7;";
    assert_eq!(unit(text).text, "float x = 1.5f + 2.f + .5e-3f + 1e6f + 0x1p-3f - 1.0f - 2h - 0xE - a.x1 - 7;");
}

#[test]
fn what_is_not_understood_is_named() {
    assert!(refused("\nkernel void k(uint i) {}").contains("program_source:2: kernel k: `uint i` has no attribute"));
    assert!(refused("kernel void k(").contains("no end"));
    assert!(
        refused("template [[host_name(\"x\")]] [[kernel]] decltype(f<int>) f<int>;").contains("no kernel template")
    );
    assert!(refused("kernel void k() {}\nkernel void k() {}").contains("in line 1 already"));
    let late = "template <class T> kernel void f(uint i) {}\ntemplate [[host_name(\"x\")]] kernel void f<int>(uint i);";
    assert!(refused(late).contains("program_source:1: kernel f: `uint i` has no attribute"));
    // What nobody instantiates is no kernel.
    assert!(unit("template <class T> kernel void f(uint i) {}").kernels.is_empty());
}
