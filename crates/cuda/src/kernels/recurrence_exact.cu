// The recurrence of an LSTM of 256 units over all tokens of a batch in float32, its kernel on the chip: a cluster of eight blocks for
// eight sequences of a user, each block with the four gates of 32 units. A thread keeps 128 numbers of the kernel in registers from the
// first token to the last, and what is shown, or its gradient, goes from block to block through the cluster's shared memory. Sums are
// made in one order, whatever else runs. For cards with clusters (compute capability 9.0).
//
// gates: [user][TOKENS][4 * 256]; states, cells: [user][UNROLL + 1][ROWS][256]

#if __CUDA_ARCH__ >= 900 && HIDDEN == 256 && SHOWN == 256 && GATES == 4

#define UNITS 256
#define WIDTH 1024
#define BLOCKS 8
// Units of a block.
#define OWN 32
// Sequences of a cluster, and clusters of a user.
#define SIDE 8
#define GROUPS ((ROWS + SIDE - 1) / SIDE)

extern __shared__ __align__(16) float dynamic[];
static_assert(SHARED_FORWARD == 4 * (2 * SIDE * UNITS + 8 * SIDE * 4 * OWN), "the launch asks for other memory");
static_assert(SHARED_BACKWARD == 4 * (SIDE * 4 * OWN + 4 * SIDE * UNITS + 2 * BLOCKS * SIDE * OWN), "the launch asks for other memory");

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same place in the shared memory of another block of the cluster.
__device__ __forceinline__ float* in_block(float* own, u32 block) {
  u64 there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((u64)own), "r"(block));
  return (float*)there;
}
// sum[b] += eight rows of 32 numbers times the thread's four columns. The rows are `pitch` apart.
__device__ __forceinline__ void multiply_rows(float (&sum)[SIDE][4], const float* rows, int pitch, const float (&kept)[32][4]) {
#pragma unroll
  for (int b = 0; b < SIDE; b++) sum[b][0] = sum[b][1] = sum[b][2] = sum[b][3] = 0.f;
#pragma unroll
  for (int k = 0; k < 32; k += 4)
#pragma unroll
    for (int b = 0; b < SIDE; b++) {
      const float4 v = *(const float4*)(rows + b * pitch + k);
#pragma unroll
      for (int c = 0; c < 4; c++) {
        sum[b][c] = fmaf(v.x, kept[k][c], sum[b][c]), sum[b][c] = fmaf(v.y, kept[k + 1][c], sum[b][c]);
        sum[b][c] = fmaf(v.z, kept[k + 2][c], sum[b][c]), sum[b][c] = fmaf(v.w, kept[k + 3][c], sum[b][c]);
      }
    }
}

// A warp has 32 rows of the kernel and all 128 columns of the block for the product, and one sequence for what comes of it.
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(256, 1) recur_forward(const int* step, const int* flags,
    const float* __restrict__ kernel, const float* __restrict__ bias, float* __restrict__ gates, float* __restrict__ states,
    float* __restrict__ cells) {
  float* shown = dynamic;                        // [2][SIDE][UNITS]
  float* parts = dynamic + 2 * SIDE * UNITS;     // [8][SIDE][4 * OWN]
  const int rank = blockIdx.x % BLOCKS, user = blockIdx.x / BLOCKS / GROUPS, group = blockIdx.x / BLOCKS % GROUPS;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, unit = OWN * rank + lane, row = SIDE * group + warp;
  const bool there = row < ROWS;
  float kept[32][4];
  const float* from = kernel + (size_t)user * LENGTH + (size_t)(32 * warp) * WIDTH + (lane >> 3) * UNITS + OWN * rank + 4 * (lane & 7);
#pragma unroll
  for (int k = 0; k < 32; k++) {
    const float4 v = __ldg((const float4*)(from + (size_t)k * WIDTH));
    kept[k][0] = v.x, kept[k][1] = v.y, kept[k][2] = v.z, kept[k][3] = v.w;
  }
  const bool resets = flags_of(step, flags, user) & RESETS;
  float own_bias[4], below[4];
  float* mine = gates + ((size_t)user * TOKENS + row) * WIDTH + unit;
  float* state = states + ((size_t)user * (UNROLL + 1) * ROWS + row) * UNITS + unit;
  float* memory = cells + ((size_t)user * (UNROLL + 1) * ROWS + row) * UNITS + unit;
  // The state of the step before, or zero, is what was shown before the first token.
  float h = there && !resets ? state[(size_t)UNROLL * ROWS * UNITS] : 0.f;
  float cell = there && !resets ? memory[(size_t)UNROLL * ROWS * UNITS] : 0.f;
  if (there) state[0] = h, memory[0] = cell;
#pragma unroll
  for (int g = 0; g < 4; g++) {
    own_bias[g] = bias[(size_t)user * LENGTH + g * UNITS + unit];
    below[g] = there ? mine[g * UNITS] : 0.f;
  }
  auto show = [&](int buffer, float value) {
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) in_block(shown, block)[(buffer * SIDE + warp) * UNITS + unit] = value;
  };
  cluster_sync();
  show(0, h);
  cluster_sync();
#pragma unroll 1
  for (int t = 0; t < UNROLL; t++) {
    float sum[SIDE][4];
    multiply_rows(sum, shown + (t & 1) * SIDE * UNITS + 32 * warp, UNITS, kept);
#pragma unroll
    for (int b = 0; b < SIDE; b++)
      *(float4*)(parts + (warp * SIDE + b) * 4 * OWN + 4 * lane) = make_float4(sum[b][0], sum[b][1], sum[b][2], sum[b][3]);
    __syncthreads();
    float z[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
      float all = 0.f;
#pragma unroll
      for (int w = 0; w < 8; w++) all += parts[(w * SIDE + warp) * 4 * OWN + g * OWN + lane];
      z[g] = all + below[g] + own_bias[g];
    }
    const float in = sigmoid(z[0]), forget = sigmoid(z[1]), candidate = tanhf(z[2]), out = sigmoid(z[3]);
    cell = forget * cell + in * candidate;
    h = out * tanhf(cell);
    if (t < UNROLL - 1) show((t + 1) & 1, h);
    if (there) {
      float* to = mine + (size_t)t * ROWS * WIDTH;
      to[0] = in, to[UNITS] = forget, to[2 * UNITS] = candidate, to[3 * UNITS] = out;
      state[(size_t)(t + 1) * ROWS * UNITS] = h, memory[(size_t)(t + 1) * ROWS * UNITS] = cell;
      if (t < UNROLL - 1)
#pragma unroll
        for (int g = 0; g < 4; g++) below[g] = to[(size_t)ROWS * WIDTH + g * UNITS];
    }
    cluster_sync();
  }
}

// Activations become gradients of the gates' sums. A thread has four rows of the kernel and one gate of the block's units for the
// product: each block has a part of the sum over all gates for all units, and sends every other block the part that is of its units.
// d_states: [user][TOKENS][256], from above.
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(256, 1) recur_backward(const float* __restrict__ kernel,
    float* __restrict__ gates, const float* __restrict__ cells, const float* __restrict__ d_states) {
  float* gradients = dynamic;                     // [SIDE][4 * OWN]
  float* parts = gradients + SIDE * 4 * OWN;      // [4][SIDE][UNITS]
  float* received = parts + 4 * SIDE * UNITS;     // [2][BLOCKS][SIDE][OWN]
  const int rank = blockIdx.x % BLOCKS, user = blockIdx.x / BLOCKS / GROUPS, group = blockIdx.x / BLOCKS % GROUPS;
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, unit = OWN * rank + lane, row = SIDE * group + warp;
  const bool there = row < ROWS;
  const int gate = tid >> 6, first = 4 * (tid & 63);
  float kept[32][4];
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int c = 0; c < 32; c += 4) {
      const float4 v = __ldg((const float4*)(kernel + (size_t)user * LENGTH + (size_t)(first + j) * WIDTH + gate * UNITS + OWN * rank + c));
      kept[c][j] = v.x, kept[c + 1][j] = v.y, kept[c + 2][j] = v.z, kept[c + 3][j] = v.w;
    }
  // A warp sends what is of the units of the block of its number.
  float* sent = in_block(received, warp) + rank * SIDE * OWN + lane;
  float d_cell = 0.f;
  cluster_sync();
#pragma unroll 1
  for (int t = UNROLL - 1; t >= 0; t--) {
    float* z = gates + ((size_t)user * TOKENS + t * ROWS + row) * WIDTH + unit;
    const float* c = cells + (((size_t)user * (UNROLL + 1) + t) * ROWS + row) * UNITS + unit;
    float in = 0.f, forget = 0.f, candidate = 0.f, out = 0.f, before = 0.f, now = 0.f, d = 0.f;
    if (there) {
      in = z[0], forget = z[UNITS], candidate = z[2 * UNITS], out = z[3 * UNITS], before = c[0], now = c[ROWS * UNITS];
      d = d_states[((size_t)user * TOKENS + t * ROWS + row) * UNITS + unit];
    }
    if (t < UNROLL - 1) {
      float all = 0.f;
#pragma unroll
      for (int block = 0; block < BLOCKS; block++) all += received[(((t & 1) * BLOCKS + block) * SIDE + warp) * OWN + lane];
      d += all;
    }
    const float tanh_c = tanhf(now);
    const float all = d_cell + d * out * (1.f - tanh_c * tanh_c);
    const float d_gates[4] = {all * candidate * in * (1.f - in), all * before * forget * (1.f - forget),
                              all * in * (1.f - candidate * candidate), d * tanh_c * out * (1.f - out)};
    d_cell = all * forget;
#pragma unroll
    for (int g = 0; g < 4; g++) {
      if (there) z[g * UNITS] = d_gates[g];
      gradients[warp * 4 * OWN + g * OWN + lane] = there ? d_gates[g] : 0.f;
    }
    if (t == 0) break;
    __syncthreads();
    float sum[SIDE][4];
    multiply_rows(sum, gradients + gate * OWN, 4 * OWN, kept);
#pragma unroll
    for (int b = 0; b < SIDE; b++)
      *(float4*)(parts + (gate * SIDE + b) * UNITS + first) = make_float4(sum[b][0], sum[b][1], sum[b][2], sum[b][3]);
    __syncthreads();
#pragma unroll
    for (int b = 0; b < SIDE; b++) {
      float of_unit = 0.f;
#pragma unroll
      for (int g = 0; g < 4; g++) of_unit += parts[(g * SIDE + b) * UNITS + tid];
      sent[(((t - 1) & 1) * BLOCKS * SIDE + b) * OWN] = of_unit;
    }
    cluster_sync();
  }
}

#endif
