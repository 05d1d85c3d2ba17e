// The recurrence of an LSTM of 256 units over all tokens of a batch, its kernel on the chip: a cluster of two blocks for a user, each
// with the four gates of 128 units. The kernel lies there as halves, part of it in registers and the rest in shared memory, and what is
// shown goes from block to block through the cluster's shared memory. Only the part of the gates that comes from below is read from
// memory, and nothing but activations is written. For ROWS up to 8, cards with clusters (compute capability 9.0).
//
// Of the product that is made at every token the gates are the rows, 16 of them at a time (two gates of 8 units), and the sequences of
// the batch the 8 columns. gates: [user][TOKENS][4 * 256]; states, cells: [user][UNROLL + 1][ROWS][256]

#if __CUDA_ARCH__ >= 900 && HIDDEN == 256 && SHOWN == 256 && GATES == 4 && ROWS <= 8

#define UNITS 256
#define WIDTH 1024
// Halves of a sequence's state, padded against bank conflicts.
#define STATE 264
// Of 16 pieces of the kernel, 16 rows each, so many are in registers.
#define KEPT 8
static_assert(SHARED_FORWARD == 16 * (16 - KEPT) * 2 * 32 * 16 + 2 * 8 * STATE * 2, "the launch asks for other memory");
// Gate gradients are scaled by this before they become halves, and by less where a token's share is more than 1, as it is in batches with
// few tokens: the share is in the gradients, and a half is infinite above HALF_MOST. What is larger all the same stays as large as a half
// can be: an infinite one would make weights that are no numbers, and take away somebody whom float32 keeps.
#define GRADIENT_SCALE 256.f
#define HALF_MOST 65504.f

extern __shared__ __align__(16) u8 dynamic[];

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same place in the shared memory of another block of the cluster.
template <class T>
__device__ __forceinline__ T* in_block(T* own, u32 block) {
  u64 there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((u64)own), "r"(block));
  return (T*)there;
}
// A power of 2, so that nothing is rounded by it, and so is 1 over it.
__device__ __forceinline__ float gradient_scale(float share) {
  float scale = GRADIENT_SCALE;
  for (float rest = share; rest > 1.f && scale > 1.f / 65536.f; rest *= 0.5f) scale *= 0.5f;
  return scale;
}
__device__ __forceinline__ unsigned short half_within(float a) {
  return half_of(a == a ? fminf(fmaxf(a, -HALF_MOST), HALF_MOST) : a);
}
__device__ __forceinline__ float fast_sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }
__device__ __forceinline__ float fast_tanh(float x) {
  float e = __expf(2.f * fminf(fmaxf(x, -15.f), 15.f));
  // The least and the most of numbers leave one that is none out: it stays none, as in float32.
  return x == x ? __fdividef(e - 1.f, e + 1.f) : x;
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(512, 1) recur_forward(const int* step, const int* flags,
    const float* __restrict__ kernel, const float* __restrict__ bias, float* __restrict__ gates, float* __restrict__ states,
    float* __restrict__ cells) {
  uint4* in_shared = (uint4*)dynamic;
  unsigned short* shown = (unsigned short*)(dynamic + 16 * (16 - KEPT) * 2 * 32 * 16);
  const int rank = blockIdx.x & 1, user = blockIdx.x >> 1, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, g = lane >> 2, q = lane & 3;
  const int unit = 128 * rank + 8 * warp + g;
  unsigned short* other = in_block(shown, rank ^ 1);
  const float* from = kernel + (size_t)user * LENGTH + unit;
  u32 kept[KEPT][2][4];
  uint4* rest = in_shared + (size_t)warp * (16 - KEPT) * 2 * 32 + lane;
  auto piece = [&](u32 (&a)[4], int k, int pair) {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int gate = 0; gate < 2; gate++) {
        const float* p = from + (size_t)(16 * k + 8 * half + 2 * q) * WIDTH + (2 * pair + gate) * UNITS;
        a[half * 2 + gate] = halves(__ldg(p), __ldg(p + WIDTH));
      }
  };
#pragma unroll 2
  for (int k = KEPT; k < 16; k++)
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
      u32 a[4];
      piece(a, k, pair);
      rest[((k - KEPT) * 2 + pair) * 32] = make_uint4(a[0], a[1], a[2], a[3]);
    }
#pragma unroll
  for (int k = 0; k < KEPT; k++) piece(kept[k][0], k, 0), piece(kept[k][1], k, 1);
  const bool resets = flags_of(step, flags, user) & RESETS;
  float own_bias[4], cell[2], below[4][2];
#pragma unroll
  for (int k = 0; k < 4; k++) own_bias[k] = bias[(size_t)user * LENGTH + k * UNITS + unit];
  float* mine = gates + (size_t)user * TOKENS * WIDTH + unit;
  float* state = states + (size_t)user * (UNROLL + 1) * ROWS * UNITS + unit;
  float* memory = cells + (size_t)user * (UNROLL + 1) * ROWS * UNITS + unit;
  unsigned short first[2];
  // The state of the step before, or zero, is what was shown before the first token.
#pragma unroll
  for (int e = 0; e < 2; e++) {
    const int b = 2 * q + e;
    const bool there = b < ROWS;
    float h = there && !resets ? state[(UNROLL * ROWS + b) * UNITS] : 0.f;
    cell[e] = there && !resets ? memory[(UNROLL * ROWS + b) * UNITS] : 0.f;
    if (there) state[b * UNITS] = h, memory[b * UNITS] = cell[e];
    first[e] = half_of(h);
    shown[b * STATE + unit] = first[e];
#pragma unroll
    for (int k = 0; k < 4; k++) below[k][e] = there ? mine[b * WIDTH + k * UNITS] : 0.f;
  }
  cluster_sync();
  other[(2 * q) * STATE + unit] = first[0], other[(2 * q + 1) * STATE + unit] = first[1];
  cluster_sync();
  const u32 at = shared_address(shown) + ((lane & 7) * STATE + (lane >> 3) * 8) * 2;
#pragma unroll 1
  for (int t = 0; t < UNROLL; t++) {
    float sum[2][2][4];
#pragma unroll
    for (int i = 0; i < 16; i++) ((float*)sum)[i] = 0.f;
    const u32 here = at + (t & 1) * 8 * STATE * 2;
    u32 b[4];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      load_blocks(b, here + 64 * i);
#pragma unroll
      for (int s = 0; s < 2; s++) {
        const int k = 2 * i + s;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
          if (k < KEPT) multiply_add(sum[pair][s], kept[k < KEPT ? k : 0][pair], b[2 * s], b[2 * s + 1]);
          else {
            uint4 v = rest[((k - KEPT) * 2 + pair) * 32];
            u32 a[4] = {v.x, v.y, v.z, v.w};
            multiply_add(sum[pair][s], a, b[2 * s], b[2 * s + 1]);
          }
        }
      }
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int b = 2 * q + e, n = t * ROWS + b;
      float in = fast_sigmoid(sum[0][0][e] + sum[0][1][e] + below[0][e] + own_bias[0]);
      float forget = fast_sigmoid(sum[0][0][2 + e] + sum[0][1][2 + e] + below[1][e] + own_bias[1]);
      float candidate = fast_tanh(sum[1][0][e] + sum[1][1][e] + below[2][e] + own_bias[2]);
      float out = fast_sigmoid(sum[1][0][2 + e] + sum[1][1][2 + e] + below[3][e] + own_bias[3]);
      cell[e] = forget * cell[e] + in * candidate;
      float h = out * fast_tanh(cell[e]);
      if (t < UNROLL - 1) {
        int to = ((t + 1) & 1) * 8 * STATE + b * STATE + unit;
        unsigned short half = half_of(h);
        shown[to] = half, other[to] = half;
      }
      if (b < ROWS) {
        float* z = mine + (size_t)n * WIDTH;
        z[0] = in, z[UNITS] = forget, z[2 * UNITS] = candidate, z[3 * UNITS] = out;
        memory[((t + 1) * ROWS + b) * UNITS] = cell[e], state[((t + 1) * ROWS + b) * UNITS] = h;
        if (t < UNROLL - 1)
#pragma unroll
          for (int k = 0; k < 4; k++) below[k][e] = z[ROWS * WIDTH + k * UNITS];
      }
    }
    cluster_sync();
  }
}

// Of 32 pieces of the transposed kernel, so many are in registers.
#define KEPT_BACK 16
// Halves of a sequence's gate gradients of a block, padded.
#define GRADIENTS 520
static_assert(SHARED_BACKWARD == 16 * (32 - KEPT_BACK) * 32 * 16 + 8 * GRADIENTS * 2 + 3 * 128 * 8 * 4,
              "the launch asks for other memory");

// Activations become gradients of the gates' sums; the bias goes down. d_states: [user][TOKENS][256], from above.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(512, 1) recur_backward(const int* step, const float* shares,
    const float* __restrict__ kernel, float* __restrict__ bias, float* __restrict__ gates, const float* __restrict__ cells,
    const float* __restrict__ d_states, const float* rate) {
  uint4* in_shared = (uint4*)dynamic;
  unsigned short* gradients = (unsigned short*)(dynamic + 16 * (32 - KEPT_BACK) * 32 * 16);
  float *own = (float*)(gradients + 8 * GRADIENTS), *received = own + 1024;
  const int rank = blockIdx.x & 1, user = blockIdx.x >> 1, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, g = lane >> 2, q = lane & 3;
  const int local = 8 * warp + g, unit = 128 * rank + local;
  float* sent = in_block(received, rank ^ 1);
  const float* from = kernel + (size_t)user * LENGTH + (size_t)(16 * warp + g) * WIDTH + 128 * rank + 4 * q;
  u32 kept[KEPT_BACK][4];
  uint4* rest = in_shared + (size_t)warp * (32 - KEPT_BACK) * 32 + lane;
  auto piece = [&](u32 (&a)[4], int k) {
    const float* p = from + (k >> 3) * UNITS + 16 * (k & 7);
    float4 e = __ldg((const float4*)p), f = __ldg((const float4*)(p + 8 * WIDTH));
    a[0] = halves(e.x, e.y), a[1] = halves(f.x, f.y), a[2] = halves(e.z, e.w), a[3] = halves(f.z, f.w);
  };
#pragma unroll 4
  for (int k = KEPT_BACK; k < 32; k++) {
    u32 a[4];
    piece(a, k);
    rest[(k - KEPT_BACK) * 32] = make_uint4(a[0], a[1], a[2], a[3]);
  }
#pragma unroll
  for (int k = 0; k < KEPT_BACK; k++) piece(kept[k], k);
  // Four neighbouring columns of the kernel are one thread's; the gradients lie so that they meet.
  const int within = local & 15, column = (local & ~15) + ((within & 3) < 2 ? 2 * (within >> 2) + (within & 3) : 8 + 2 * (within >> 2) + (within & 3) - 2);
  const u32 at = shared_address(gradients) + ((lane & 7) * GRADIENTS + (lane >> 3) * 8) * 2;
  float d_cell[2] = {0, 0}, d_bias[4] = {0, 0, 0, 0};
  // Both ways; there is no register for them.
  __shared__ float scales[2];
  if (tid == 0) scales[0] = gradient_scale(shares[turn(step, user)]), scales[1] = 1.f / scales[0];
  const bool is_own = (warp >> 3) == rank;
  float* to = is_own ? own : sent;
  const int to_row = (16 * warp + g) & 127;
  for (int i = tid; i < 8 * GRADIENTS; i += 512) gradients[i] = 0;
  cluster_sync();
#pragma unroll 1
  for (int t = UNROLL - 1; t >= 0; t--) {
    float z[4][2], now[2], before[2], d[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int b = 2 * q + e, n = t * ROWS + b;
      const bool there = b < ROWS;
      const float* p = gates + ((size_t)user * TOKENS + n) * WIDTH + unit;
      const float* c = cells + (((size_t)user * (UNROLL + 1) + t) * ROWS + b) * UNITS + unit;
#pragma unroll
      for (int k = 0; k < 4; k++) z[k][e] = there ? p[k * UNITS] : 0.f;
      now[e] = there ? c[ROWS * UNITS] : 0.f, before[e] = there ? c[0] : 0.f;
      d[e] = there ? d_states[((size_t)user * TOKENS + n) * UNITS + unit] : 0.f;
    }
    if (t < UNROLL - 1) {
      float sum[4][4];
#pragma unroll
      for (int i = 0; i < 16; i++) ((float*)sum)[i] = 0.f;
      u32 b[4];
#pragma unroll
      for (int i = 0; i < 16; i++) {
        load_blocks(b, at + 64 * i);
#pragma unroll
        for (int s = 0; s < 2; s++) {
          const int k = 2 * i + s;
          if (k < KEPT_BACK) multiply_add(sum[(i & 1) * 2 + s], kept[k < KEPT_BACK ? k : 0], b[2 * s], b[2 * s + 1]);
          else {
            uint4 v = rest[(k - KEPT_BACK) * 32];
            u32 a[4] = {v.x, v.y, v.z, v.w};
            multiply_add(sum[(i & 1) * 2 + s], a, b[2 * s], b[2 * s + 1]);
          }
        }
      }
#pragma unroll
      for (int k = 0; k < 4; k++) sum[0][k] = (sum[0][k] + sum[1][k] + sum[2][k] + sum[3][k]) * scales[1];
      // Each block has a part of the sum for all units; the other's half goes to the other.
      float* p = to + (is_own ? 0 : (t & 1) * 1024) + to_row * 8 + 2 * q;
      *(float2*)p = make_float2(sum[0][0], sum[0][1]), *(float2*)(p + 64) = make_float2(sum[0][2], sum[0][3]);
      cluster_sync();
      float2 a = *(float2*)&own[local * 8 + 2 * q], c = *(float2*)&received[(t & 1) * 1024 + local * 8 + 2 * q];
      d[0] += a.x + c.x, d[1] += a.y + c.y;
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int b = 2 * q + e, n = t * ROWS + b;
      float in = z[0][e], forget = z[1][e], candidate = z[2][e], out = z[3][e], tanh_c = fast_tanh(now[e]);
      float all = d_cell[e] + d[e] * out * (1 - tanh_c * tanh_c);
      float d0 = all * candidate * in * (1 - in), d1 = all * before[e] * forget * (1 - forget);
      float d2 = all * in * (1 - candidate * candidate), d3 = d[e] * tanh_c * out * (1 - out);
      d_cell[e] = all * forget;
      if (b < ROWS) {
        float* p = gates + ((size_t)user * TOKENS + n) * WIDTH + unit;
        p[0] = d0, p[UNITS] = d1, p[2 * UNITS] = d2, p[3 * UNITS] = d3;
        d_bias[0] += d0, d_bias[1] += d1, d_bias[2] += d2, d_bias[3] += d3;
        if (t) {
          const float scale = scales[0];
          unsigned short* y = gradients + b * GRADIENTS + column;
          y[0] = half_within(d0 * scale), y[128] = half_within(d1 * scale);
          y[256] = half_within(d2 * scale), y[384] = half_within(d3 * scale);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    d_bias[k] += __shfl_xor_sync(~0u, d_bias[k], 1), d_bias[k] += __shfl_xor_sync(~0u, d_bias[k], 2);
    if (q == 0) bias[(size_t)user * LENGTH + k * UNITS + unit] -= *rate * d_bias[k];
  }
}

#endif
