// What the half-precision kernels share: 16 x 8 x 16 products of tensor cores with half-precision operands and float32 sums. Half
// precision has the mantissa of TF32 at half the bytes; ranges are kept by scaling.

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

// Two floats as halves, the first in the low bits.
__device__ __forceinline__ u32 halves(float a, float b) {
  u32 both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
  return both;
}
__device__ __forceinline__ unsigned short half_of(float a) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(a));
  return h;
}
// d += a b, a of 16 rows and 16 columns, b of 16 rows and 8 columns.
__device__ __forceinline__ void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four 8 x 8 blocks of halves from shared memory, as they lie or transposed.
__device__ __forceinline__ void load_blocks(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void load_transposed(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
