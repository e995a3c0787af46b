#include <metal_stdlib>
using namespace metal;

// Kernels whose accesses are known by hand.
kernel void copied(device const float* from [[buffer(0)]], device float* to [[buffer(1)]], constant uint& stride [[buffer(2)]],
                   uint i [[thread_position_in_grid]]) {
    to[i] = from[i * stride];
}

kernel void copied_wide(device const float4* from [[buffer(0)]], device float4* to [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    to[i] = from[i];
}

// A structure that is copied as a whole, as published products load their tiles.
struct alignas(16) Piece { uchar bytes[32]; };
kernel void copied_pieces(device const Piece* from [[buffer(0)]], device float* to [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    threadgroup Piece pieces[32];
    pieces[i] = from[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    to[i] = ((threadgroup const float*)pieces)[i];
}

// A loop that clang would make a call of memset, and private memory, which does not count.
kernel void cleared(device float* to [[buffer(0)]], constant uint& count [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float kept[4];
    for (uint k = 0; k < 4; k++) kept[(k + i) % 4] = 0.0f;
    for (uint k = 0; k < count; k++) to[i * count + k] = kept[(k * i) % 4];
    for (uint k = 0; k < count; k++) to[i * count + k] = 0.0f;
}

template <int PITCH>
void transposed(device const float* from, device float* to, threadgroup float* tile, uint2 place) {
    for (uint y = place.y; y < 32; y += 4) tile[y * PITCH + place.x] = from[y * 32 + place.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint y = place.y; y < 32; y += 4) to[y * 32 + place.x] = tile[place.x * PITCH + y];
}
kernel void transposed_plain(device const float* from [[buffer(0)]], device float* to [[buffer(1)]],
                             uint2 place [[thread_position_in_threadgroup]]) {
    threadgroup float tile[32 * 32];
    transposed<32>(from, to, tile, place);
}
kernel void transposed_padded(device const float* from [[buffer(0)]], device float* to [[buffer(1)]],
                              uint2 place [[thread_position_in_threadgroup]]) {
    threadgroup float tile[32 * 33];
    transposed<33>(from, to, tile, place);
}

// One sum a simdgroup.
kernel void summed(device const float* from [[buffer(0)]], device float* to [[buffer(1)]], uint i [[thread_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
    float sum = simd_sum(from[i]);
    simdgroup_barrier(mem_flags::mem_none);
    if (lane == 0) to[i / 32] = sum;
}

// A loop of known operations on floats and on integers; what is around it is the same for any number of turns.
kernel void computed(device const float* from [[buffer(0)]], device float* to [[buffer(1)]], constant uint& turns [[buffer(2)]],
                     uint i [[thread_position_in_grid]]) {
    float sum = from[i];
    uint mixed = i;
    for (uint k = 0; k < turns; k++) {
        sum = exp(sum) + 1.0f;
        mixed ^= mixed << 3;
    }
    to[i] = sum + (float)mixed;
}

// The same of vectors.
kernel void computed_wide(device const float4* from [[buffer(0)]], device float4* to [[buffer(1)]], constant uint& turns [[buffer(2)]],
                          uint i [[thread_position_in_grid]]) {
    float4 sum = from[i];
    for (uint k = 0; k < turns; k++) sum = sum * sum + 1.0f;
    to[i] = sum;
}

// Numbers that are read before a barrier and used behind it: four, and twenty-four.
kernel void kept_4(device const float4* from [[buffer(0)]], device float4* to [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float4 a = from[i];
    threadgroup_barrier(mem_flags::mem_device);
    to[i] = a;
}
kernel void kept_24(device const float4* from [[buffer(0)]], device float4* to [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float4 a = from[i], b = from[i + 1], c = from[i + 2], d = from[i + 3], e = from[i + 4], f = from[i + 5];
    threadgroup_barrier(mem_flags::mem_device);
    to[i] = ((((a * b) + c) * d) + e) * f;
}
