// One local step of SGD for all users of a chunk, but for the products: reading, cells, softmax, and what moves tables and biases.

extern "C" __global__ void advance(int* step) { step[0] += 1; }

// Whoever comes in later than others begins with the model of the round. Until then a place computes with that model and learns nothing from
// it; where the model is such that this overflows, zero times infinity is not a number, and would be in the weights.
extern "C" __global__ void __launch_bounds__(256) come_in(const int* step, const int* flags, const float4* start, float4* weights, float4* aside) {
  const int user = blockIdx.y;
  if (!(flags_of(step, flags, user) & ENTERS)) return;
  const size_t own = (size_t)user * (LENGTH / 4);
  for (u32 i = blockIdx.x * 256 + threadIdx.x; i < LENGTH / 4; i += gridDim.x * 256) {
    weights[own + i] = start[i];
    if (aside) aside[own + i] = make_float4(0.f, 0.f, 0.f, 0.f);
  }
}

// The state of the last step becomes the one before the first of this step. states: [user][UNROLL + 1][ROWS][width]
extern "C" __global__ void carry(const int* step, const int* flags, float* states, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, each = ROWS * width;
  if (i >= USERS * each) return;
  int user = i / each;
  float* own = states + (size_t)user * (UNROLL + 1) * each + i % each;
  own[0] = flags_of(step, flags, user) & RESETS ? 0.f : own[UNROLL * each];
}

// What enters the first layer: the row of each token, and what is known of the user. x: [user][TOKENS][enter]
// features: [user][CONTEXT], or [user][step][ROWS][CONTEXT] where the sequences of a batch are of different people.
extern "C" __global__ void gather(const int* step, const int* inputs, const float* table, const float* features, float* x, int enter) {
  int token = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (token >= USERS * TOKENS) return;
  int user = token / TOKENS, id = inputs[turn(step, user) * TOKENS + token % TOKENS];
  const float* row = table + (size_t)user * LENGTH + (size_t)id * TABLE;
  for (int c = lane; c < enter; c += 32) {
    float v = 0.f;
    if (c < EMBEDDING) v = row[c];
#if MANY_PEOPLE
    else if (c < EMBEDDING + CONTEXT) v = features[(turn(step, user) * ROWS + token % ROWS) * CONTEXT + c - EMBEDDING];
#else
    else if (c < EMBEDDING + CONTEXT) v = features[user * CONTEXT + c - EMBEDDING];
#endif
    x[(size_t)token * enter + c] = v;
  }
}

// Units are left out: `to` is `from` with each unit times its factor, 0 or `scale`, by the words of lm::model::dropout. For one user.
// number: which step of the run the first of these is; rule: below how much of 24 bits a unit is left out, and the bits of `scale`.
// places: the block that the words of a mask begin with, and how many there are; what comes after them repeats them. A thread has the
// 16 words of a block. from, to: [TOKENS][padded], of which the first `width` columns are units.
extern "C" __global__ void leave_out(const int* step, const u64* number, const u32* rule, const u32* key, const u32* places, int place,
                                     const float* from, float* to, int width, int padded) {
  const u32 block = blockIdx.x * blockDim.x + threadIdx.x, drawn = places[2 * place + 1];
  if (16 * block >= drawn) return;
  u32 words[16];
  chacha20(key, number[0] + step[0], places[2 * place] + block, words);
  const float scale = __int_as_float(rule[1]);
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const u32 first = 16 * block + i;
    if (first >= drawn) return;
    const float factor = words[i] >> 8 < rule[0] ? 0.f : scale;
    for (u32 unit = first; unit < (u32)(TOKENS * width); unit += drawn) {
      const size_t at = (size_t)(unit / width) * padded + unit % width;
      to[at] = from[at] * factor;
    }
  }
}

// LSTM: i f g o. CIFG: i g o, f = 1 - i. Gates become their activations; units are what the cell shows.
extern "C" __global__ void lstm_forward(float* gates, const float* bias, float* cells, float* units, i64 units_user, int t) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= USERS * ROWS * HIDDEN) return;
  int user = i / (ROWS * HIDDEN), b = i / HIDDEN % ROWS, k = i % HIDDEN;
  float* z = gates + ((size_t)user * TOKENS + t * ROWS + b) * GATES * HIDDEN + k;
  const float* own = bias + (size_t)user * LENGTH + k;
  float* c = cells + (((size_t)user * (UNROLL + 1) + t) * ROWS + b) * HIDDEN + k;
  const int g = GATES - 2, o = GATES - 1;
  float in = sigmoid(z[0] + own[0]);
#if GATES == 4
  float forget = sigmoid(z[HIDDEN] + own[HIDDEN]);
  z[HIDDEN] = forget;
#else
  float forget = 1.f - in;
#endif
  float candidate = tanhf(z[g * HIDDEN] + own[g * HIDDEN]), out = sigmoid(z[o * HIDDEN] + own[o * HIDDEN]);
  z[0] = in, z[g * HIDDEN] = candidate, z[o * HIDDEN] = out;
  float cell = forget * c[0] + in * candidate;
  c[ROWS * HIDDEN] = cell;
  units[user * units_user + (t * ROWS + b) * HIDDEN + k] = out * tanhf(cell);
}

// Activations become gradients of the gates' sums.
extern "C" __global__ void lstm_backward(float* gates, const float* cells, const float* d_units, i64 units_user, float* d_cells, int t) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= USERS * ROWS * HIDDEN) return;
  int user = i / (ROWS * HIDDEN), b = i / HIDDEN % ROWS, k = i % HIDDEN;
  float* z = gates + ((size_t)user * TOKENS + t * ROWS + b) * GATES * HIDDEN + k;
  const float* c = cells + (((size_t)user * (UNROLL + 1) + t) * ROWS + b) * HIDDEN + k;
  const int g = GATES - 2, o = GATES - 1;
  float in = z[0], candidate = z[g * HIDDEN], out = z[o * HIDDEN], before = c[0], tanh_c = tanhf(c[ROWS * HIDDEN]);
  float d = d_units[user * units_user + (t * ROWS + b) * HIDDEN + k];
  float d_cell = (t < UNROLL - 1 ? d_cells[i] : 0.f) + d * out * (1.f - tanh_c * tanh_c);
#if GATES == 4
  float forget = z[HIDDEN];
  z[0] = d_cell * candidate * in * (1.f - in);
  z[HIDDEN] = d_cell * before * forget * (1.f - forget);
#else
  float forget = 1.f - in;
  z[0] = d_cell * (candidate - before) * in * (1.f - in);
#endif
  z[g * HIDDEN] = d_cell * in * (1.f - candidate * candidate);
  z[o * HIDDEN] = d * tanh_c * out * (1.f - out);
  d_cells[i] = d_cell * forget;
}

// GRU, first half: z and r, and the state that the candidate sees. states: [user][UNROLL + 1][ROWS][HIDDEN]
extern "C" __global__ void gru_gates(float* gates, const float* bias, const float* states, float* seen, int t) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= USERS * ROWS * HIDDEN) return;
  int user = i / (ROWS * HIDDEN), b = i / HIDDEN % ROWS, k = i % HIDDEN;
  size_t token = (size_t)user * TOKENS + t * ROWS + b;
  float* z = gates + token * GATES * HIDDEN + k;
  const float* own = bias + (size_t)user * LENGTH + k;
  float reset = sigmoid(z[HIDDEN] + own[HIDDEN]);
  z[0] = sigmoid(z[0] + own[0]);
  z[HIDDEN] = reset;
  seen[token * HIDDEN + k] = reset * states[(((size_t)user * (UNROLL + 1) + t) * ROWS + b) * HIDDEN + k];
}

// Second half: the candidate, and the state after the step.
extern "C" __global__ void gru_state(float* gates, const float* bias, float* states, int t) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= USERS * ROWS * HIDDEN) return;
  int user = i / (ROWS * HIDDEN), b = i / HIDDEN % ROWS, k = i % HIDDEN;
  float* z = gates + ((size_t)user * TOKENS + t * ROWS + b) * GATES * HIDDEN + k;
  float* h = states + (((size_t)user * (UNROLL + 1) + t) * ROWS + b) * HIDDEN + k;
  float candidate = tanhf(z[2 * HIDDEN] + bias[(size_t)user * LENGTH + 2 * HIDDEN + k]);
  z[2 * HIDDEN] = candidate;
  h[ROWS * HIDDEN] = (1.f - z[0]) * h[0] + z[0] * candidate;
}

// Backwards, first half: the candidate and the update gate. What the state before owes to this step's begins in d_before.
extern "C" __global__ void gru_candidate_back(float* gates, const float* states, const float* d_states, float* d_before, int t) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= USERS * ROWS * HIDDEN) return;
  int user = i / (ROWS * HIDDEN), b = i / HIDDEN % ROWS, k = i % HIDDEN;
  size_t token = (size_t)user * TOKENS + t * ROWS + b;
  float* z = gates + token * GATES * HIDDEN + k;
  float before = states[(((size_t)user * (UNROLL + 1) + t) * ROWS + b) * HIDDEN + k];
  float update = z[0], candidate = z[2 * HIDDEN], d = d_states[token * HIDDEN + k];
  z[0] = d * (candidate - before) * update * (1.f - update);
  z[2 * HIDDEN] = d * update * (1.f - candidate * candidate);
  d_before[i] = d * (1.f - update);
}

// Second half: the reset gate, from the gradient of what the candidate saw; the rest goes to the step before.
extern "C" __global__ void gru_reset_back(float* gates, const float* states, const float* d_seen, const float* d_before, float* d_states, int t) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= USERS * ROWS * HIDDEN) return;
  int user = i / (ROWS * HIDDEN), b = i / HIDDEN % ROWS, k = i % HIDDEN;
  size_t token = (size_t)user * TOKENS + t * ROWS + b;
  float* z = gates + token * GATES * HIDDEN + k;
  float before = states[(((size_t)user * (UNROLL + 1) + t) * ROWS + b) * HIDDEN + k];
  float reset = z[HIDDEN], d = d_seen[i];
  z[HIDDEN] = d * before * reset * (1.f - reset);
  if (t > 0) d_states[(token - ROWS) * HIDDEN + k] += d_before[i] + d * reset;
}

// Every row of `to` becomes the bias of its user, for a product that is added to it. to: [user][TOKENS][width]
extern "C" __global__ void fill_rows(float* to, const float* bias, int width) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (size_t)USERS * TOKENS * width) return;
  to[i] = bias[i / ((size_t)TOKENS * width) * LENGTH + i % width];
}

// Logits become share * (p - truth), or zero where nothing is to be predicted; one block a token. A user's share is TOKENS / counted,
// and the rate, over TOKENS, is taken where weights move.
// logits: [user][TOKENS][ENTRIES], of which the last ENTRIES - VOCABULARY are padding.
extern "C" __global__ void __launch_bounds__(256) softmax(const int* step, const int* targets, const float* shares, const float* bias,
                                                           float* logits, float* losses) {
  __shared__ float shared[8];
  const int user = blockIdx.x / TOKENS, tid = threadIdx.x;
  const int target = targets[turn(step, user) * TOKENS + blockIdx.x % TOKENS];
  const float share = shares[turn(step, user)];
  float* row = logits + (size_t)blockIdx.x * ENTRIES;
  if (target < 0) {
    for (int j = tid; j < ENTRIES; j += 256) row[j] = 0.f;
    if (tid == 0) losses[blockIdx.x] = 0.f;
    return;
  }
  const float* own = bias ? bias + (size_t)user * LENGTH : nullptr;
  auto logit = [&](int j) { return row[j] + (own ? own[j] : 0.f); };
  const float truth = logit(target);
  float most = -INFINITY_F, sum = 0.f;
#if VOCABULARY <= 256 * 48
  // A thread keeps its logits: they are read once and written once.
  const int EACH = (VOCABULARY + 255) / 256;
  float kept[EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int j = tid + 256 * i;
    kept[i] = j < VOCABULARY ? logit(j) : -INFINITY_F;
    most = fmaxf(most, kept[i]);
  }
  most = over_block(most, shared, [](float a, float b) { return fmaxf(a, b); });
#pragma unroll
  for (int i = 0; i < EACH; i++) sum += kept[i] = expf(kept[i] - most);
  sum = over_block(sum, shared, [](float a, float b) { return a + b; });
  const float factor = share / sum;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int j = tid + 256 * i;
    if (j < VOCABULARY) row[j] = j == target ? factor * kept[i] - share : factor * kept[i];
  }
#else
  for (int j = tid; j < VOCABULARY; j += 256) most = fmaxf(most, logit(j));
  most = over_block(most, shared, [](float a, float b) { return fmaxf(a, b); });
  for (int j = tid; j < VOCABULARY; j += 256) sum += expf(logit(j) - most);
  sum = over_block(sum, shared, [](float a, float b) { return a + b; });
  const float factor = share / sum;
  for (int j = tid; j < VOCABULARY; j += 256) {
    const float d = factor * expf(logit(j) - most);
    row[j] = j == target ? d - share : d;
  }
#endif
  for (int j = VOCABULARY + tid; j < ENTRIES; j += 256) row[j] = 0.f;
  if (tid == 0) losses[blockIdx.x] = most + logf(sum) - truth;
}

// The loss of a step joins that of the reading; one warp a user.
extern "C" __global__ void add_losses(const int* step, const int* flags, const float* losses, double* loss) {
  const int user = blockIdx.x, lane = threadIdx.x;
  if (!(flags_of(step, flags, user) & COUNTS_LOSS)) return;
  double sum = 0;
  for (int n = lane; n < TOKENS; n += 32) sum += losses[user * TOKENS + n];
  sum = warp_sum(sum);
  if (lane == 0) loss[user] += sum;
}

// A bias goes down by the sum of its gradients over the tokens. d: [user][TOKENS][stride]
extern "C" __global__ void move_bias(float* bias, const float* d, int width, int stride, const float* rate) {
  int user = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= width) return;
  const float* own = d + (size_t)user * TOKENS * stride + j;
  float sum = 0.f;
#pragma unroll 8
  for (int n = 0; n < TOKENS; n++) sum += own[(size_t)n * stride];
  bias[(size_t)user * LENGTH + j] -= *rate * sum;
}

// Rows of the input's table go down by the gradients of the tokens that read them, in the order of the tokens: a warp for each
// entry that was read. `order` has the tokens of a user sorted by entry.
extern "C" __global__ void scatter(const int* step, const int* inputs, const int* order, const float* d_x, int enter, float* table,
                                   const float* rate) {
  int at = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (at >= USERS * TOKENS) return;
  int user = at / TOKENS, j = at % TOKENS;
  const size_t start = turn(step, user) * TOKENS;
  const int *ids = inputs + start, *sorted = order + start;
  int id = ids[sorted[j]];
  if (j > 0 && ids[sorted[j - 1]] == id) return;
  float* row = table + (size_t)user * LENGTH + (size_t)id * TABLE;
  for (int c = lane; c < EMBEDDING; c += 32) {
    float sum = 0.f;
    for (int k = j; k < TOKENS && ids[sorted[k]] == id; k++) sum += d_x[((size_t)user * TOKENS + sorted[k]) * enter + c];
    row[c] -= *rate * sum;
  }
}

// Rows of a table have norm 1 after every step (McMahan et al. 2018, appendix); one that is zero or not finite stays. Eight threads a
// row, four columns at a time.
extern "C" __global__ void normalise(const int* step, const int* flags, float* table, int width) {
  const size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 8;
  const int user = at / VOCABULARY, sub = threadIdx.x % 8;
  const bool moves = at < (size_t)USERS * VOCABULARY && (flags_of(step, flags, user) & ACTIVE);
  float4* row = (float4*)(table + (size_t)user * LENGTH + at % VOCABULARY * width);
  const int quads = moves ? width / 4 : 0;
  float squared = 0.f;
  for (int c = sub; c < quads; c += 8) {
    const float4 v = row[c];
    squared += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
#pragma unroll
  for (int o = 4; o; o >>= 1) squared += __shfl_xor_sync(~0u, squared, o);
  if (!(squared > 0.f && squared < INFINITY_F)) return;
  const float factor = 1.f / sqrtf(squared);
  for (int c = sub; c < quads; c += 8) {
    float4 v = row[c];
    v.x *= factor, v.y *= factor, v.z *= factor, v.w *= factor;
    row[c] = v;
  }
}

// FedSGD over all batches: what a step moved is kept aside, and the model is put back.
extern "C" __global__ void fold(const float* start, float* weights, float* moved) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (size_t)USERS * LENGTH) return;
  float from = start[i % LENGTH];
  moved[i] += weights[i] - from;
  weights[i] = from;
}

// The other way: the model is the start plus all that was moved.
extern "C" __global__ void unfold(const float* start, float* weights, const float* moved) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < (size_t)USERS * LENGTH) weights[i] = start[i % LENGTH] + moved[i];
}

// The penalty on the difference to the start (McMahan et al. 2017): where it stood before a step ...
extern "C" __global__ void remember(const float* start, const float* weights, float* before) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < (size_t)USERS * LENGTH) before[i] = weights[i] - start[i % LENGTH];
}

// ... and how far it is pulled back after it.
extern "C" __global__ void pull(const int* step, const int* flags, const float* start, float* weights, const float* before,
                                const float* rate, float penalty) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (size_t)USERS * LENGTH || !(flags_of(step, flags, i / LENGTH) & ACTIVE)) return;
  float from = start[i % LENGTH];
  weights[i] = (weights[i] - from - 2.f * *rate * penalty * before[i]) + from;
}
