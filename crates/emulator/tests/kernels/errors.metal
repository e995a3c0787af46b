#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

kernel void fill(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = i; }

[[max_total_threads_per_threadgroup(64)]]
kernel void few_threads(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = i; }

kernel void given_memory(device uint* out [[buffer(0)]], threadgroup uint* given [[threadgroup(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup uint declared[4096];
    declared[i] = i;
    given[i] = i;
    out[i] = declared[i] + given[i];
}

kernel void offset(device uint* out [[buffer(0)]], constant uint4& by [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = by.w;
}

kernel void barrier_in_branch(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
    threadgroup float shared[64];
    shared[i] = i;
    if (i < 40) threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = shared[63 - i];
}

kernel void barrier_after_return(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
    if (i == 63) return;
    out[i] = 1;
    threadgroup_barrier(mem_flags::mem_device);
    out[i] += 1;
}

kernel void two_barriers(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
    if (i < 10) {
        threadgroup_barrier(mem_flags::mem_device);
    } else {
        threadgroup_barrier(mem_flags::mem_device);
    }
    out[i] = 1;
}

kernel void simdgroup_barrier_in_branch(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
    if (i < 8) simdgroup_barrier(mem_flags::mem_device);
    out[i] = 1;
}

kernel void matrix_in_branch(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
    simdgroup_float8x8 a = simdgroup_float8x8(1.0f);
    if (i == 5) return;

    simdgroup_multiply(a, a, a);
    simdgroup_store(a, out);
}

kernel void all_barriers(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
    threadgroup float shared[64];
    shared[i] = i + 1;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = shared[63 - i] + i;
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

kernel void far_away(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    int far = out[i];
    out[far] = 0;
}

kernel void divide(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = 100 / out[i]; }

// More variables than a thread can have.
kernel void deep(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    int large[100000];
    for (uint k = 0; k < 100000; k++) large[k] = out[(i + k) & 63];
    out[i] = large[(i * 1001) % 100000];
}

kernel void spin(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    device volatile uint* flag = out;
    while (flag[1] == 0) {}
    out[i] = 1;
}

kernel void spin_at_barriers(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    device volatile uint* flag = out;
    while (flag[1] == 0) threadgroup_barrier(mem_flags::mem_device);
}

kernel void spin_in_sums(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    while (simd_sum(out[i]) == 0) {}
}

// Waits for a thread of its own threadgroup, which comes later.
kernel void spin_on_flag(device atomic_uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if (i == 63) atomic_store_explicit(&out[0], 1u, memory_order_relaxed);
    while (atomic_load_explicit(&out[0], memory_order_relaxed) == 0) {}
}
