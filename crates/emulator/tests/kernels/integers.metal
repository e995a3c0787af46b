#include <metal_stdlib>
using namespace metal;

// out[function * count + index]; 64-bit results.
template <typename T> void functions(device const T* a, device const T* b, device long* out, uint count, uint index) {
    if (index >= count) return;
    T x = a[index], y = b[index];
    device long* to = out + index;
    *to = long(mulhi(x, y));
    to += count;
    *to = long(popcount(x));
    to += count;
    *to = long(clz(x));
    to += count;
    *to = long(ctz(x));
    to += count;
    *to = long(rotate(x, y));
    to += count;
    *to = long(addsat(x, y));
    to += count;
    *to = long(subsat(x, y));
    to += count;
    *to = long(absdiff(x, y));
    to += count;
    *to = long(hadd(x, y));
    to += count;
    *to = long(rhadd(x, y));
    to += count;
    *to = long(reverse_bits(x));
    to += count;
    *to = long(max(x, y));
    to += count;
    *to = long(min(x, y));
    to += count;
    *to = long(clamp(x, min(x, y), y > x ? y : x));
    to += count;
    *to = long(extract_bits(x, 3, 4));
    to += count;
    *to = long(insert_bits(x, y, 2, 5));
    to += count;
    *to = long(abs(x));
    to += count;
    *to = long(madhi(x, y, x));
    to += count;
    *to = long(madsat(x, y, x));
    to += count;
    *to = long(median3(x, y, T(7)));
    to += count;
}
kernel void of_int(device const int* a [[buffer(0)]], device const int* b [[buffer(1)]], device long* out [[buffer(2)]],
                    constant uint& count [[buffer(3)]], uint index [[thread_position_in_grid]]) {
    functions(a, b, out, count, index);
}
kernel void of_uint(device const uint* a [[buffer(0)]], device const uint* b [[buffer(1)]], device long* out [[buffer(2)]],
                    constant uint& count [[buffer(3)]], uint index [[thread_position_in_grid]]) {
    functions(a, b, out, count, index);
}
kernel void of_short(device const short* a [[buffer(0)]], device const short* b [[buffer(1)]], device long* out [[buffer(2)]],
                    constant uint& count [[buffer(3)]], uint index [[thread_position_in_grid]]) {
    functions(a, b, out, count, index);
}
kernel void of_uchar(device const uchar* a [[buffer(0)]], device const uchar* b [[buffer(1)]], device long* out [[buffer(2)]],
                    constant uint& count [[buffer(3)]], uint index [[thread_position_in_grid]]) {
    functions(a, b, out, count, index);
}
kernel void of_long(device const long* a [[buffer(0)]], device const long* b [[buffer(1)]], device long* out [[buffer(2)]],
                    constant uint& count [[buffer(3)]], uint index [[thread_position_in_grid]]) {
    functions(a, b, out, count, index);
}
kernel void of_ulong(device const ulong* a [[buffer(0)]], device const ulong* b [[buffer(1)]], device long* out [[buffer(2)]],
                    constant uint& count [[buffer(3)]], uint index [[thread_position_in_grid]]) {
    functions(a, b, out, count, index);
}
