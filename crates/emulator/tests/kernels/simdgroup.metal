#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// Counts of 16 values: threadgroup counters, then device counters.
kernel void histogram(device const uint* in [[buffer(0)]], device atomic_uint* counts [[buffer(1)]], constant uint& count [[buffer(2)]],
                      threadgroup atomic_uint* mine [[threadgroup(0)]], uint index [[thread_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]]) {
    if (thread_index < 16) atomic_store_explicit(&mine[thread_index], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < count) atomic_fetch_add_explicit(&mine[in[index] & 15], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index < 16) {
        atomic_fetch_add_explicit(&counts[thread_index], atomic_load_explicit(&mine[thread_index], memory_order_relaxed), memory_order_relaxed);
    }
}

// Every atomic operation on device memory, all threads on the same addresses.
kernel void atomics(device atomic_uint* u [[buffer(0)]], device atomic_int* i [[buffer(1)]], device atomic_float* f [[buffer(2)]],
                    device atomic_ulong* l [[buffer(3)]], uint index [[thread_position_in_grid]]) {
    atomic_fetch_add_explicit(&u[0], 3u, memory_order_relaxed);
    atomic_fetch_sub_explicit(&u[1], 1u, memory_order_relaxed);
    atomic_fetch_or_explicit(&u[2], 1u << (index & 31), memory_order_relaxed);
    atomic_fetch_and_explicit(&u[3], ~(1u << (index & 15)), memory_order_relaxed);
    atomic_fetch_xor_explicit(&u[4], index, memory_order_relaxed);
    uint expected = atomic_load_explicit(&u[5], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&u[5], &expected, expected + 2u, memory_order_relaxed, memory_order_relaxed)) {}
    atomic_exchange_explicit(&u[6], 77u, memory_order_relaxed);
    int value = int(index) * ((index & 1) ? 1 : -1);
    atomic_fetch_max_explicit(&i[0], value, memory_order_relaxed);
    atomic_fetch_min_explicit(&i[1], value, memory_order_relaxed);
    atomic_fetch_add_explicit(&f[0], 0.5f, memory_order_relaxed);
    atomic_max_explicit(&l[0], ulong(index) << 32, memory_order_relaxed);
}

// One simdgroup: out[operation * 32 + lane].
kernel void exchanges(device const float* in [[buffer(0)]], device float* out [[buffer(1)]], ushort lane [[thread_index_in_simdgroup]]) {
    float v = in[lane];
    uint at = lane;
    out[at] = simd_sum(v); at += 32;
    out[at] = simd_max(v); at += 32;
    out[at] = simd_min(v); at += 32;
    out[at] = simd_product(v); at += 32;
    out[at] = simd_prefix_inclusive_sum(v); at += 32;
    out[at] = simd_prefix_exclusive_sum(v); at += 32;
    out[at] = simd_shuffle(v, (lane * 7 + 3) & 31); at += 32;
    out[at] = simd_shuffle_xor(v, 5); at += 32;
    out[at] = simd_shuffle_up(v, 3); at += 32;
    out[at] = simd_shuffle_down(v, 3); at += 32;
    out[at] = simd_broadcast(v, 9); at += 32;
    out[at] = simd_broadcast_first(v); at += 32;
    out[at] = float((ulong)simd_ballot(v > 0.0f)); at += 32;
    out[at] = simd_any(v > 0.9f) ? 1.0f : 0.0f; at += 32;
    out[at] = simd_all(v > -2.0f) ? 1.0f : 0.0f; at += 32;
    out[at] = float(simd_xor(uint(lane) * 3u)); at += 32;
    out[at] = simd_shuffle_rotate_up(v, 3); at += 32;
    out[at] = simd_shuffle_and_fill_down(v, -v, 3); at += 32;
    out[at] = float(simd_sum(half(lane))); at += 32;
    out[at] = simd_sum(float4(v, 1.0f, v, 2.0f)).w;
}

// Branches: each operation is of the lanes that come to it, and they meet again afterwards.
kernel void branches(device uint* out [[buffer(0)]], ushort lane [[thread_index_in_simdgroup]]) {
    uint sum = 0;
    if (lane < 10) {
        sum = simd_sum(1u);
    } else if (lane & 1) {
        sum = simd_sum(100u);
    }
    for (uint i = 0; i < lane; ++i) sum += simd_sum(1u) * 0u;
    out[lane] = sum;
    out[32 + lane] = simd_sum(1u);
}

// One simdgroup computes one 8x8 tile of C(M x N) = A(M x K) B(K x N).
template <typename T> void product(device const T* A, device const T* B, device float* C, uint3 size, uint2 tile) {
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    simdgroup_matrix<T, 8, 8> a, b;
    for (uint k = 0; k < size.z; k += 8) {
        simdgroup_load(a, A + tile.y * 8 * size.z + k, size.z);
        simdgroup_load(b, B, size.y, ulong2(tile.x * 8, k));
        simdgroup_multiply_accumulate(sum, a, b, sum);
    }
    simdgroup_store(sum, C + tile.y * 8 * size.y + tile.x * 8, size.y);
}
kernel void product_float(device const float* A [[buffer(0)]], device const float* B [[buffer(1)]], device float* C [[buffer(2)]],
                          constant uint3& size [[buffer(3)]], uint2 tile [[threadgroup_position_in_grid]]) {
    product(A, B, C, size, tile);
}
kernel void product_half(device const half* A [[buffer(0)]], device const half* B [[buffer(1)]], device float* C [[buffer(2)]],
                         constant uint3& size [[buffer(3)]], uint2 tile [[threadgroup_position_in_grid]]) {
    product(A, B, C, size, tile);
}
kernel void product_bfloat(device const bfloat* A [[buffer(0)]], device const bfloat* B [[buffer(1)]], device float* C [[buffer(2)]],
                           constant uint3& size [[buffer(3)]], uint2 tile [[threadgroup_position_in_grid]]) {
    product(A, B, C, size, tile);
}

// Through threadgroup memory, transposed, elements touched by lane.
kernel void transpose(device const float* in [[buffer(0)]], device float* out [[buffer(1)]], ushort lane [[thread_index_in_simdgroup]]) {
    threadgroup float tile[64];
    simdgroup_float8x8 m;
    simdgroup_load(m, in, 8, ulong2(0, 0), true);
    m.thread_elements()[0] += 1.0f;
    m.thread_elements()[1] += 1.0f;
    simdgroup_store(m, tile, 8);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    out[lane] = tile[lane];
    out[lane + 32] = tile[lane + 32];
}
