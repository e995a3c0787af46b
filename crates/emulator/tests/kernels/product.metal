#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// C = A B for square matrices of a multiple of 32: a threadgroup of four simdgroups computes a tile of 32x32, staged in threadgroup memory.
kernel void product(device const float* A [[buffer(0)]], device const float* B [[buffer(1)]], device float* C [[buffer(2)]],
                    constant uint& n [[buffer(3)]], uint2 tile [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float a_tile[32 * 32];
    threadgroup float b_tile[32 * 32];
    simdgroup_float8x8 sums[2][2];
    for (uint i = 0; i < 2; i++)
        for (uint j = 0; j < 2; j++) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    uint y = simdgroup / 2 * 16, x = simdgroup % 2 * 16;
    for (uint k = 0; k < n; k += 32) {
        for (uint e = thread_index; e < 1024; e += 128) {
            a_tile[e] = A[(tile.y * 32 + e / 32) * n + k + e % 32];
            b_tile[e] = B[(k + e / 32) * n + tile.x * 32 + e % 32];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint inner = 0; inner < 32; inner += 8) {
            simdgroup_float8x8 a[2], b[2];
            for (uint i = 0; i < 2; i++) {
                simdgroup_load(a[i], a_tile + (y + i * 8) * 32 + inner, 32);
                simdgroup_load(b[i], b_tile + inner * 32 + x + i * 8, 32);
            }
            for (uint i = 0; i < 2; i++)
                for (uint j = 0; j < 2; j++) simdgroup_multiply_accumulate(sums[i][j], a[i], b[j], sums[i][j]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint i = 0; i < 2; i++)
        for (uint j = 0; j < 2; j++)
            simdgroup_store(sums[i][j], C + (tile.y * 32 + y + i * 8) * n + tile.x * 32 + x + j * 8, n);
}
