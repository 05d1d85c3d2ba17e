// The output over the whole vocabulary without storing a logit: one pass for the softmax and the gradient of the output, one that
// moves the table. Both walk the table in tiles and compute the logits of a tile anew.
//
//   WIDE     TOKENS rounded up to 16: a warp has 16 tokens
//   OUTPUT   columns of the table, a multiple of 16, at most 128
//   out      [user][token][OUTPUT], users `out_user` numbers apart
//
// Gradients are for each token, times its share (TOKENS / counted, or zero); the rate is taken where weights move.

#define WIDE ((TOKENS + 15) / 16 * 16)
#define DEEP (OUTPUT / 16)
#define PITCH (OUTPUT + 8)
#define TILE 80
#define TILES ((ENTRIES + TILE - 1) / TILE)
#define MASKED (OUTPUT_BIAS || VOCABULARY % TILE)
// Probabilities are scaled by this power of 2 before they become halves.
#define SHIFT 12.f

// The sums of powers of every token over a run of tiles, relative to the largest logit there, and their product with the table.
// Grid: (runs, users), a warp for 16 tokens. most, sums: [user][run][WIDE]; products: [user][run][WIDE][OUTPUT]
extern "C" __global__ void __launch_bounds__(WIDE * 2, WIDE <= 96 ? 2 : 1) read_table(const float* __restrict__ table, const float* __restrict__ bias,
    const float* __restrict__ out, i64 out_user, float* __restrict__ most, float* __restrict__ sums, float* __restrict__ products) {
  __shared__ __align__(16) unsigned short rows[2][TILE * PITCH];
#if MASKED
  __shared__ float biases[2][TILE];
#endif
  const int run = blockIdx.x, runs = gridDim.x, user = blockIdx.y, first = TILES * run / runs, last = TILES * (run + 1) / runs;
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, g = lane >> 2, q = lane & 3;
  const int THREADS = WIDE * 2, QUADS = TILE * OUTPUT / 4, HALF = (QUADS / 2 + THREADS - 1) / THREADS;
  const float* own = out + user * out_user;
  u32 o[DEEP][4];
#pragma unroll
  for (int j = 0; j < DEEP; j++) {
    const int n = 16 * warp + g, c = 16 * j + 2 * q;
    auto two = [&](int n, int c) {
      if (TOKENS < WIDE && n >= TOKENS) return 0u;
      float2 v = *(const float2*)(own + (size_t)n * OUTPUT + c);
      return halves(v.x * LOG2_E, v.y * LOG2_E);
    };
    o[j][0] = two(n, c), o[j][1] = two(n + 8, c), o[j][2] = two(n, c + 8), o[j][3] = two(n + 8, c + 8);
  }
  const float4* from = (const float4*)(table + (size_t)user * LENGTH);
  float4 ahead[HALF];
  // A tile is fetched in two halves, each while the tensor cores are busy with the tile before.
  auto fetch = [&](int tile, int half) {
#pragma unroll
    for (int i = 0; i < HALF; i++) {
      int at = half * (QUADS / 2) + tid + i * THREADS, row = tile * TILE + at / (OUTPUT / 4);
      bool there = (QUADS / 2 % THREADS == 0 || tid + i * THREADS < QUADS / 2) && (ENTRIES % TILE == 0 || row < ENTRIES);
      ahead[i] = there ? __ldg(from + (size_t)tile * QUADS + at) : make_float4(0, 0, 0, 0);
    }
  };
  auto put = [&](int buffer, int half) {
#pragma unroll
    for (int i = 0; i < HALF; i++) {
      int at = half * (QUADS / 2) + tid + i * THREADS, row = at / (OUTPUT / 4), c = at - row * (OUTPUT / 4);
      if (QUADS / 2 % THREADS == 0 || tid + i * THREADS < QUADS / 2)
        *(uint2*)&rows[buffer][row * PITCH + c * 4] = make_uint2(halves(ahead[i].x, ahead[i].y), halves(ahead[i].z, ahead[i].w));
    }
  };
  auto put_bias = [&](int buffer, int tile) {
#if MASKED
    for (int i = tid; i < TILE; i += THREADS) {
      int entry = tile * TILE + i;
#if OUTPUT_BIAS
      biases[buffer][i] = entry < VOCABULARY ? bias[(size_t)user * LENGTH + entry] * LOG2_E : -INFINITY_F;
#else
      biases[buffer][i] = entry < VOCABULARY ? 0.f : -INFINITY_F;
#endif
    }
#endif
  };
  float sum[2 * DEEP][4];
#pragma unroll
  for (int i = 0; i < 2 * DEEP; i++) sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0.f;
  float m0 = -1e30f, m1 = -1e30f, l0 = 0.f, l1 = 0.f;
  if (first < last) fetch(first, 0), put(0, 0), fetch(first, 1), put(0, 1), put_bias(0, first);
  const u32 base = shared_address(&rows[0][0]);
  const u32 straight = (((lane & 7) + (lane >> 4) * 8) * PITCH + ((lane >> 3) & 1) * 8) * 2;
  const u32 across = (((lane & 7) + ((lane >> 3) & 1) * 8) * PITCH + (lane >> 4) * 8) * 2;
  for (int tile = first; tile < last; tile++) {
    __syncthreads();
    const int buffer = (tile - first) & 1;
    const bool more = tile + 1 < last;
    const u32 here = base + buffer * (TILE * PITCH * 2);
    if (more) fetch(tile + 1, 0), put_bias(buffer ^ 1, tile + 1);
#pragma unroll
    for (int group = 0; group < TILE / 16; group++) {
      const u32 at = here + group * 16 * PITCH * 2;
      float s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
      u32 b[4];
#pragma unroll
      for (int j = 0; j < DEEP; j++) {
        load_blocks(b, at + straight + 32 * j);
        multiply_add(s[0], o[j], b[0], b[1]), multiply_add(s[1], o[j], b[2], b[3]);
      }
#if MASKED
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float2 v = *(const float2*)&biases[buffer][group * 16 + i * 8 + 2 * q];
        s[i][0] += v.x, s[i][1] += v.y, s[i][2] += v.x, s[i][3] += v.y;
      }
#endif
      float x0 = fmaxf(fmaxf(s[0][0], s[0][1]), fmaxf(s[1][0], s[1][1])), x1 = fmaxf(fmaxf(s[0][2], s[0][3]), fmaxf(s[1][2], s[1][3]));
      // What stands is scaled down only where a logit exceeds the largest so far by 8 powers of 2.
      if (__any_sync(~0u, x0 > m0 + 8.f || x1 > m1 + 8.f)) {
        x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 1)), x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 2));
        x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 1)), x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 2));
        x0 = fmaxf(x0, m0), x1 = fmaxf(x1, m1);
        float f0 = power_of_2(m0 - x0), f1 = power_of_2(m1 - x1);
        m0 = x0, m1 = x1, l0 *= f0, l1 *= f1;
#pragma unroll
        for (int i = 0; i < 2 * DEEP; i++) sum[i][0] *= f0, sum[i][1] *= f0, sum[i][2] *= f1, sum[i][3] *= f1;
      }
#pragma unroll
      for (int i = 0; i < 2; i++) {
        s[i][0] = power_of_2(s[i][0] - m0), s[i][1] = power_of_2(s[i][1] - m0);
        s[i][2] = power_of_2(s[i][2] - m1), s[i][3] = power_of_2(s[i][3] - m1);
      }
      l0 += (s[0][0] + s[0][1]) + (s[1][0] + s[1][1]), l1 += (s[0][2] + s[0][3]) + (s[1][2] + s[1][3]);
      u32 a[4] = {halves(s[0][0], s[0][1]), halves(s[0][2], s[0][3]), halves(s[1][0], s[1][1]), halves(s[1][2], s[1][3])};
#pragma unroll
      for (int j = 0; j < DEEP; j++) {
        load_transposed(b, at + across + 32 * j);
        multiply_add(sum[2 * j], a, b[0], b[1]), multiply_add(sum[2 * j + 1], a, b[2], b[3]);
      }
      if (group == 1 && more) put(buffer ^ 1, 0), fetch(tile + 1, 1);
    }
    if (more) put(buffer ^ 1, 1);
  }
  l0 += __shfl_xor_sync(~0u, l0, 1), l0 += __shfl_xor_sync(~0u, l0, 2);
  l1 += __shfl_xor_sync(~0u, l1, 1), l1 += __shfl_xor_sync(~0u, l1, 2);
  const size_t at = ((size_t)user * runs + run) * WIDE + 16 * warp + g;
  if (q == 0) most[at] = m0, sums[at] = l0, most[at + 8] = m1, sums[at + 8] = l1;
#pragma unroll
  for (int i = 0; i < 2 * DEEP; i++) {
    *(float2*)(products + at * OUTPUT + 8 * i + 2 * q) = make_float2(sum[i][0], sum[i][1]);
    *(float2*)(products + (at + 8) * OUTPUT + 8 * i + 2 * q) = make_float2(sum[i][2], sum[i][3]);
  }
}

// The runs put together: the logarithm of all powers, the gradient of the output, the loss. A warp a token.
// logs: [user][WIDE], in powers of 2, so large that every probability is zero where nothing is to be predicted.
extern "C" __global__ void merge_runs(const int* step, const int* targets, const float* shares, const float* __restrict__ table,
    const float* __restrict__ bias, const float* __restrict__ out, i64 out_user, int runs, const float* __restrict__ most,
    const float* __restrict__ sums, const float* __restrict__ products, float* logs, float* d_out, float* losses) {
  const int at = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (at >= USERS * WIDE) return;
  const int user = at / WIDE, n = at % WIDE;
  const int target = n < TOKENS ? targets[turn(step, user) * TOKENS + n] : -1;
  if (target < 0) {
    if (lane == 0) logs[at] = 1e30f;
    if (n < TOKENS) {
      for (int c = lane; c < OUTPUT; c += 32) d_out[((size_t)user * TOKENS + n) * OUTPUT + c] = 0.f;
      if (lane == 0) losses[user * TOKENS + n] = 0.f;
    }
    return;
  }
  const float* row = table + (size_t)user * LENGTH + (size_t)target * OUTPUT;
  const float* own = out + user * out_user + (size_t)n * OUTPUT;
  const float share = shares[turn(step, user)];
  float largest = -1e30f, all = 0.f, truth = 0.f;
  for (int r = 0; r < runs; r++) largest = fmaxf(largest, most[((size_t)user * runs + r) * WIDE + n]);
  for (int r = 0; r < runs; r++) {
    size_t i = ((size_t)user * runs + r) * WIDE + n;
    all += power_of_2(most[i] - largest) * sums[i];
  }
  for (int c = lane; c < OUTPUT; c += 32) {
    float sum = 0.f;
    for (int r = 0; r < runs; r++) {
      size_t i = ((size_t)user * runs + r) * WIDE + n;
      sum += power_of_2(most[i] - largest) * products[i * OUTPUT + c];
    }
    truth += row[c] * own[c];
    d_out[((size_t)user * TOKENS + n) * OUTPUT + c] = share * (sum / all - row[c]);
  }
  truth = warp_sum(truth);
  if (lane) return;
#if OUTPUT_BIAS
  truth += bias[(size_t)user * LENGTH + target];
#endif
  const float log = largest + log2f(all);
  logs[at] = log;
  losses[user * TOKENS + n] = log * LN_2 - truth;
}

// What single rows are moved by beside the softmax: towards the output of the tokens that predict them and, where the table is the
// input's too, against the gradient of the tokens that read them. A warp for each row that is touched, tokens in their order.
// touched: [user][step][2 * TOKENS], (row, token) sorted by row, the second half of the numbers for tokens that read; `count` of them.
// slots: [user][ENTRIES], which of a step's moves is a row's: (step + 1) * 1024 + number.
extern "C" __global__ void move_rows(const int* step, const int* touched, const float* shares, const float* rate,
    const float* __restrict__ out, i64 out_user, const float* __restrict__ d_x, int enter, u32* slots, float* moves) {
  const int at = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (at >= USERS * 2 * TOKENS) return;
  const int user = at / (2 * TOKENS), j = at % (2 * TOKENS);
  const int2* own = (const int2*)touched + turn(step, user) * 2 * TOKENS;
  const int row = own[j].x;
  if (row < 0 || (j > 0 && own[j - 1].x == row)) return;
  const float share = shares[turn(step, user)], by = *rate;
  // A lane has every 32nd column.
  const int COLUMNS = (OUTPUT + 31) / 32;
  float sum[COLUMNS] = {};
  for (int k = j; k < 2 * TOKENS && own[k].x == row; k++) {
    const int n = own[k].y;
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
      const int c = lane + 32 * i;
      if (n < TOKENS && c < OUTPUT) sum[i] += share * out[user * out_user + (size_t)n * OUTPUT + c];
#if TIED
      if (n >= TOKENS && c < EMBEDDING) sum[i] -= d_x[((size_t)user * TOKENS + n - TOKENS) * enter + c];
#endif
    }
  }
#pragma unroll
  for (int i = 0; i < COLUMNS; i++)
    if (lane + 32 * i < OUTPUT) moves[((size_t)user * 2 * TOKENS + j) * OUTPUT + lane + 32 * i] = by * sum[i];
  if (lane == 0) slots[(size_t)user * ENTRIES + row] = (*step + 1) * 1024 + j;
}

// The table goes down by its gradient, in place: logits of 16 rows at a time once more, probabilities, their product with the output,
// the moves of single rows, and norms of 1 where the model has them. Grid: (runs, users), a warp for 16 rows at a time.
extern "C" __global__ void __launch_bounds__(256, WIDE <= 96 ? 2 : 1) move_table(const int* step, const int* flags, float* __restrict__ table,
    float* __restrict__ bias, const float* __restrict__ out, i64 out_user, const float* __restrict__ logs, const float* shares,
    const float* rate, const u32* __restrict__ slots, const float* __restrict__ moves) {
  __shared__ __align__(16) unsigned short os[WIDE * PITCH];
  __shared__ __align__(8) float ls[WIDE];
  const int run = blockIdx.x, runs = gridDim.x, user = blockIdx.y, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, g = lane >> 2, q = lane & 3;
  if (!(flags_of(step, flags, user) & ACTIVE)) return;
  const int first = ENTRIES / 16 * run / runs, last = ENTRIES / 16 * (run + 1) / runs;
  const float* own = out + user * out_user;
  // Columns lie so that the four that a thread loads at a time meet as a row of the product's operands.
  for (int i = tid; i < WIDE * (OUTPUT / 4); i += 256) {
    int n = i / (OUTPUT / 4), c = i % (OUTPUT / 4);
    float4 v = n < TOKENS ? *(const float4*)(own + (size_t)n * OUTPUT + 4 * c) : make_float4(0, 0, 0, 0);
    unsigned short* p = os + n * PITCH + 16 * (c >> 2) + 2 * (c & 3);
    *(u32*)p = halves(v.x * LOG2_E, v.y * LOG2_E), *(u32*)(p + 8) = halves(v.z * LOG2_E, v.w * LOG2_E);
  }
  for (int i = tid; i < WIDE; i += 256) ls[i] = logs[user * WIDE + i] - SHIFT;
  __syncthreads();
  const u32 base = shared_address(os);
  const u32 straight = base + (((lane & 7) + (lane >> 4) * 8) * PITCH + ((lane >> 3) & 1) * 8) * 2;
  const u32 across = base + (((lane & 7) + ((lane >> 3) & 1) * 8) * PITCH + (lane >> 4) * 8) * 2;
  // The output is in powers of 2 here, and so is its share of the move.
  const float by = *rate * shares[turn(step, user)] / (LOG2_E * 4096.f);
  float* mine = table + (size_t)user * LENGTH;
  const u32 stamp = *step + 1;
  for (int tile = first + warp; tile < last; tile += 8) {
    float* p = mine + (size_t)(tile * 16 + g) * OUTPUT + 4 * q;
    float4 e[DEEP], f[DEEP];
    u32 b[4];
#pragma unroll
    for (int j = 0; j < DEEP; j++) e[j] = *(float4*)(p + 16 * j), f[j] = *(float4*)(p + 8 * OUTPUT + 16 * j);
    const u32 slot_e = slots[(size_t)user * ENTRIES + tile * 16 + g], slot_f = slots[(size_t)user * ENTRIES + tile * 16 + g + 8];
    u32 probabilities[WIDE / 16][4];
#if OUTPUT_BIAS
    float bias_e = bias[(size_t)user * LENGTH + tile * 16 + g], bias_f = bias[(size_t)user * LENGTH + tile * 16 + g + 8];
    float sum_e = 0.f, sum_f = 0.f;
#endif
#pragma unroll
    for (int k = 0; k < WIDE / 16; k++) {
      float s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
      for (int j = 0; j < DEEP; j++) {
        u32 a[4] = {halves(e[j].x, e[j].y), halves(f[j].x, f[j].y), halves(e[j].z, e[j].w), halves(f[j].z, f[j].w)};
        load_blocks(b, straight + k * 16 * PITCH * 2 + 32 * j);
        multiply_add(s[0], a, b[0], b[1]), multiply_add(s[1], a, b[2], b[3]);
      }
#if OUTPUT_BIAS
      s[0][0] += bias_e * LOG2_E, s[0][1] += bias_e * LOG2_E, s[1][0] += bias_e * LOG2_E, s[1][1] += bias_e * LOG2_E;
      s[0][2] += bias_f * LOG2_E, s[0][3] += bias_f * LOG2_E, s[1][2] += bias_f * LOG2_E, s[1][3] += bias_f * LOG2_E;
#endif
      float2 la = *(float2*)&ls[16 * k + 2 * q], lb = *(float2*)&ls[16 * k + 8 + 2 * q];
      float p0 = power_of_2(s[0][0] - la.x), p1 = power_of_2(s[0][1] - la.y), p2 = power_of_2(s[0][2] - la.x), p3 = power_of_2(s[0][3] - la.y);
      float p4 = power_of_2(s[1][0] - lb.x), p5 = power_of_2(s[1][1] - lb.y), p6 = power_of_2(s[1][2] - lb.x), p7 = power_of_2(s[1][3] - lb.y);
#if OUTPUT_BIAS
      sum_e += (p0 + p1) + (p4 + p5), sum_f += (p2 + p3) + (p6 + p7);
#endif
      probabilities[k][0] = halves(p0, p1), probabilities[k][1] = halves(p2, p3);
      probabilities[k][2] = halves(p4, p5), probabilities[k][3] = halves(p6, p7);
    }
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
      float d[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
      for (int k = 0; k < WIDE / 16; k++) {
        load_transposed(b, across + k * 16 * PITCH * 2 + 32 * j);
        multiply_add(d[0], probabilities[k], b[0], b[1]), multiply_add(d[1], probabilities[k], b[2], b[3]);
      }
      e[j].x -= by * d[0][0], e[j].y -= by * d[0][1], f[j].x -= by * d[0][2], f[j].y -= by * d[0][3];
      e[j].z -= by * d[1][0], e[j].w -= by * d[1][1], f[j].z -= by * d[1][2], f[j].w -= by * d[1][3];
    }
    auto add_move = [&](float4 (&to)[DEEP], u32 slot) {
      if (slot / 1024 != stamp) return;
      const float* move = moves + ((size_t)user * 2 * TOKENS + slot % 1024) * OUTPUT + 4 * q;
#pragma unroll
      for (int j = 0; j < DEEP; j++) {
        float4 v = *(const float4*)(move + 16 * j);
        to[j].x += v.x, to[j].y += v.y, to[j].z += v.z, to[j].w += v.w;
      }
    };
    add_move(e, slot_e), add_move(f, slot_f);
#if UNIT_NORM
    auto normalise_row = [&](float4 (&row)[DEEP]) {
      float squared = 0.f;
#pragma unroll
      for (int j = 0; j < DEEP; j++) squared += row[j].x * row[j].x + row[j].y * row[j].y + row[j].z * row[j].z + row[j].w * row[j].w;
      squared += __shfl_xor_sync(~0u, squared, 1), squared += __shfl_xor_sync(~0u, squared, 2);
      float factor = squared > 0.f && squared < INFINITY_F ? 1.f / sqrtf(squared) : 1.f;
#pragma unroll
      for (int j = 0; j < DEEP; j++) row[j].x *= factor, row[j].y *= factor, row[j].z *= factor, row[j].w *= factor;
    };
    normalise_row(e), normalise_row(f);
#endif
    // Rows of padding stay zero.
    const bool e_there = VOCABULARY == ENTRIES || tile * 16 + g < VOCABULARY, f_there = VOCABULARY == ENTRIES || tile * 16 + g + 8 < VOCABULARY;
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
      if (e_there) *(float4*)(p + 16 * j) = e[j];
      if (f_there) *(float4*)(p + 8 * OUTPUT + 16 * j) = f[j];
    }
#if OUTPUT_BIAS
    // Probabilities carry 2^12; the targets' part is another kernel's.
    sum_e += __shfl_xor_sync(~0u, sum_e, 1), sum_e += __shfl_xor_sync(~0u, sum_e, 2);
    sum_f += __shfl_xor_sync(~0u, sum_f, 1), sum_f += __shfl_xor_sync(~0u, sum_f, 2);
    if (q == 0 && e_there) bias[(size_t)user * LENGTH + tile * 16 + g] = bias_e - by * LOG2_E * sum_e;
    if (q == 0 && f_there) bias[(size_t)user * LENGTH + tile * 16 + g + 8] = bias_f - by * LOG2_E * sum_f;
#endif
  }
}

// The bias of what is predicted goes up; one thread for each row that is touched. After `move_table`, which reads the bias.
extern "C" __global__ void move_target_bias(const int* step, const int* touched, const float* shares, const float* rate, float* bias) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= USERS * 2 * TOKENS) return;
  const int user = at / (2 * TOKENS), j = at % (2 * TOKENS);
  const int2* own = (const int2*)touched + turn(step, user) * 2 * TOKENS;
  const int row = own[j].x;
  if (row < 0 || (j > 0 && own[j - 1].x == row)) return;
  int times = 0;
  for (int k = j; k < 2 * TOKENS && own[k].x == row; k++) times += own[k].y < TOKENS;
  if (times) bias[(size_t)user * LENGTH + row] += *rate * shares[turn(step, user)] * times;
}
