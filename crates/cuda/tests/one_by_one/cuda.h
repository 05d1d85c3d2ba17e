// As much of CUDA as the encoding kernels use, for a host that runs one thread after the other.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __restrict__
#define ONE_BY_ONE

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

inline void __syncthreads() {}
inline float __int_as_float(int bits) { float f; std::memcpy(&f, &bits, 4); return f; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline int __float2int_rn(float a) { return (int)std::nearbyintf(a); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) { return by ? high << by | low >> (32 - by) : high; }
template <class T>
void atomicAdd(T* to, T by) { *to += by; }
template <class T>
void atomicMax(T* to, T by) { *to = std::max(*to, by); }
using std::isfinite;
using std::max;
