// The kernels of a layer's gates go down by their gradients, in place: what entered and what was shown before each token, transposed,
// times the gradients of the gates. A weight is read and written once; that is nearly all there is to it, and cuBLAS takes twice as long.
// An operand is the sum of two with mantissas of 10 bits (TF32), and all products but the smallest are taken, so what comes of it is
// float32's; arithmetic is not what takes the time here.
//
//   below     what entered, [user][token], tokens `row` numbers apart, of which `enter` count
//   states    [user][UNROLL + 1][ROWS][SHOWN]: block t is what was shown before token t
//   gates     the gradients, [user][TOKENS][GATES * HIDDEN]
//   kernel    [enter + SHOWN][GATES * HIDDEN] of each user: the input's rows, then the state's
//
// Grid: (row tiles * column tiles, users), 8 warps of 32 rows and 64 columns each.

#define SIDE 128
#define PITCH (SIDE + 8)
#define DEPTH ((TOKENS + 7) / 8 * 8)
#define ACROSS (GATES * HIDDEN)

extern __shared__ __align__(16) u8 dynamic[];

__device__ __forceinline__ u32 tf32(float x) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}
// A number as two.
__device__ __forceinline__ void split(float x, u32& large, u32& small) { large = tf32(x), small = tf32(x - __uint_as_float(large)); }
// d += a b, a of 16 rows and 8 columns, b of 8 rows and 8 columns.
__device__ __forceinline__ void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(256, 2) move_gates(const int* step, const int* flags, const float* __restrict__ below,
    i64 below_user, int row, int enter, const float* __restrict__ states, const float* __restrict__ gates, const float* rate,
    float* __restrict__ kernel) {
  const int user = blockIdx.y, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, g = lane >> 2, q = lane & 3;
  if (!(flags_of(step, flags, user) & ACTIVE)) return;
  const int across = (ACROSS + SIDE - 1) / SIDE, m0 = blockIdx.x / across * SIDE, n0 = blockIdx.x % across * SIDE, rows = enter + SHOWN;
  float* own = kernel + (size_t)user * LENGTH + (size_t)m0 * ACROSS + n0;
  // The weights come near while the operands are brought in.
  for (int i = tid; i < SIDE * 4; i += 256)
    if (m0 + i / 4 < rows && n0 + 32 * (i % 4) < ACROSS) asm volatile("prefetch.global.L2 [%0];" ::"l"(own + (size_t)(i / 4) * ACROSS + 32 * (i % 4)));
  float *a = (float*)dynamic, *b = a + DEPTH * PITCH;
  const float4 zero = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
  for (int i = tid; i < DEPTH * (SIDE / 4); i += 256) {
    const int n = i / (SIDE / 4), c = i % (SIDE / 4) * 4, m = m0 + c;
    const float* entered = below + user * below_user + (size_t)n * row + m;
    const float* shown = states + ((size_t)user * (UNROLL + 1) * ROWS + n) * SHOWN + m - enter;
    const bool there = TOKENS == DEPTH || n < TOKENS;
    *(float4*)(a + n * PITCH + c) = there && m < rows ? __ldg((const float4*)(m < enter ? entered : shown)) : zero;
    const float* gradient = gates + ((size_t)user * TOKENS + n) * ACROSS + n0 + c;
    *(float4*)(b + n * PITCH + c) = there && n0 + c < ACROSS ? __ldg((const float4*)gradient) : zero;
  }
  __syncthreads();
  const int wm = 32 * (warp >> 1), wn = 64 * (warp & 1);
  float sum[2][8][4];
#pragma unroll
  for (int i = 0; i < 64; i++) ((float*)sum)[i] = 0.f;
#pragma unroll 1
  for (int k = 0; k < DEPTH; k += 8) {
    u32 large[2][4], small[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float* p = a + (k + q) * PITCH + wm + 16 * i + g;
      split(p[0], large[i][0], small[i][0]), split(p[8], large[i][1], small[i][1]);
      split(p[4 * PITCH], large[i][2], small[i][2]), split(p[4 * PITCH + 8], large[i][3], small[i][3]);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const float* p = b + (k + q) * PITCH + wn + 8 * j + g;
      u32 l0, l1, s0, s1;
      split(p[0], l0, s0), split(p[4 * PITCH], l1, s1);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        multiply_add(sum[i][j], small[i], l0, l1);
        multiply_add(sum[i][j], large[i], s0, s1);
        multiply_add(sum[i][j], large[i], l0, l1);
      }
    }
  }
  const float by = *rate;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if (m0 + wm + 16 * i >= rows) break;
    float* p = own + (size_t)(wm + 16 * i + g) * ACROSS + wn + 2 * q;
    float2 old[8][2];
#pragma unroll
    for (int j = 0; j < 8; j++)
      if (n0 + wn + 8 * j < ACROSS) old[j][0] = *(float2*)(p + 8 * j), old[j][1] = *(float2*)(p + 8 * ACROSS + 8 * j);
#pragma unroll
    for (int j = 0; j < 8; j++)
      if (n0 + wn + 8 * j < ACROSS) {
        *(float2*)(p + 8 * j) = make_float2(old[j][0].x - by * sum[i][j][0], old[j][0].y - by * sum[i][j][1]);
        *(float2*)(p + 8 * ACROSS + 8 * j) = make_float2(old[j][1].x - by * sum[i][j][2], old[j][1].y - by * sum[i][j][3]);
      }
  }
}
