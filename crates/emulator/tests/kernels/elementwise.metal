#include <metal_stdlib>
using namespace metal;

struct Parameters {
    uint count;
    float scale;
};
constant float COEFFICIENTS[3] = {0.5f, 0.044715f, 0.7978845608f};

kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* out [[buffer(2)]],
                constant uint& count [[buffer(3)]], uint index [[thread_position_in_grid]]) {
    if (index < count) out[index] = a[index] + b[index];
}

template <typename T> T gelu(T value) {
    float x = float(value);
    float inner = COEFFICIENTS[2] * (x + COEFFICIENTS[1] * x * x * x);
    return T(COEFFICIENTS[0] * x * (1.0f + precise::tanh(inner)));
}

kernel void gelu_half(device const half* in [[buffer(0)]], device half* out [[buffer(1)]], constant Parameters& p [[buffer(2)]],
                      uint index [[thread_position_in_grid]]) {
    if (index >= p.count) return;
    out[index] = gelu(in[index]) * half(p.scale);
}

kernel void gelu_bfloat(device const bfloat* in [[buffer(0)]], device bfloat* out [[buffer(1)]], constant Parameters& p [[buffer(2)]],
                        uint index [[thread_position_in_grid]]) {
    if (index >= p.count) return;
    out[index] = gelu(in[index]) * bfloat(p.scale);
}

// A grid of any size in threads; rows are known from the position alone.
kernel void ragged(device const float* in [[buffer(0)]], device float* out [[buffer(1)]], uint2 at [[thread_position_in_grid]],
                   uint2 size [[threads_per_grid]], ushort2 local [[thread_position_in_threadgroup]],
                   ushort2 group_size [[threads_per_threadgroup]], uint2 group [[threadgroup_position_in_grid]],
                   uint2 whole [[dispatch_threads_per_threadgroup]]) {
    uint index = at.y * size.x + at.x;
    bool same = all(group * whole + uint2(local) == at) && all(local < group_size);
    out[index] = same ? in[index] * 2.0f + float(at.y) : -1.0f;
}

// One thread four numbers, with swizzles, conversions and comparisons of vectors.
kernel void vectors(device const float4* in [[buffer(0)]], device float4* out [[buffer(1)]], constant Parameters& p [[buffer(2)]],
                    uint index [[thread_position_in_grid]]) {
    Parameters copy = p;
    float4 v = in[index];
    float4 w = float4(v.wz, v.yx) + float4(1.0f, 2.0f, 3.0f, 4.0f);
    w.xy = w.yx;
    w.zw *= 2.0f;
    w.x += 1;
    half4 h = half4(w);
    w = fma(float4(h), float4(copy.scale), v.xxxx);
    w = select(w, max(w, 0.5f), v.wzyx < v);
    out[index].xyz = w.zyx;
    out[index].w = dot(v.xyz, w.yzw) + (any(isnan(v)) ? 1.0f : 0.0f);
}

// What it can read of its place, written out: one number a thread.
kernel void places(device uint* out [[buffer(0)]], uint flat [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
                   uint width [[threads_per_simdgroup]], uint3 local [[thread_position_in_threadgroup]],
                   uint3 groups [[threadgroups_per_grid]], uint3 group [[threadgroup_position_in_grid]],
                   uint3 size [[threads_per_threadgroup]]) {
    uint index = ((group.z * groups.y + group.y) * groups.x + group.x) * (size.x * size.y * size.z) + flat;
    bool right = flat == (local.z * size.y + local.y) * size.x + local.x && flat == simdgroup * width + lane && simdgroup < simdgroups;
    out[index] = right ? flat : ~0u;
}

// Addresses that come as numbers.
kernel void by_address(constant ulong* addresses [[buffer(0)]], uint index [[thread_position_in_grid]]) {
    device const float* in = reinterpret_cast<device const float*>(addresses[0]);
    device float* out = (device float*)addresses[1];
    out[index] = in[index] + 1.0f;
}
