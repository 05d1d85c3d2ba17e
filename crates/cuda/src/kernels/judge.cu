// What one model says of each token, as lm::metrics counts it: how likely the truth is, how many entries stand before it, and which
// words come first. The order is that of lm::rank: the likelier first, of equals the lower id; what is no number stands nowhere.

// A value and the entry that it is of; -1 for none.
struct Place { float value; int entry; };

__device__ __forceinline__ Place first_of(Place a, Place b) {
  if (b.entry < 0) return a;
  if (a.entry < 0) return b;
  return a.value > b.value || (a.value == b.value && a.entry < b.entry) ? a : b;
}

// The first place of a block of 256 threads; everybody knows it.
__device__ __forceinline__ Place first_of_block(Place own, Place* shared) {
#pragma unroll
  for (int o = 16; o; o >>= 1)
    own = first_of(own, Place{__shfl_xor_sync(~0u, own.value, o), __shfl_xor_sync(~0u, own.entry, o)});
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  own = shared[0];
#pragma unroll
  for (int w = 1; w < 8; w++) own = first_of(own, shared[w]);
  return own;
}

// One block a token. logits: [TOKENS][ENTRIES]; judged: [step][TOKENS][2 + LISTED], the bits of the logarithm of the target's
// probability, its rank (all ones where that is no number), and the first words (all ones where there are no more).
extern "C" __global__ void __launch_bounds__(256) judge(const int* step, const int* targets, const float* __restrict__ bias,
                                                         const float* __restrict__ logits, u32* judged) {
  __shared__ float floats[8];
  __shared__ u32 numbers[8];
  __shared__ Place places[8];
  const int tid = threadIdx.x;
  const size_t token = (size_t)step[0] * TOKENS + blockIdx.x;
  const int target = targets[token];
  if (target < 0) return;
  const float* row = logits + (size_t)blockIdx.x * ENTRIES;
  auto logit = [&](int j) { return bias ? row[j] + bias[j] : row[j]; };
  float most = -INFINITY_F, sum = 0.f;
  for (int j = tid; j < VOCABULARY; j += 256) most = fmaxf(most, logit(j));
  most = over_block(most, floats, [](float a, float b) { return fmaxf(a, b); });
  // Powers are cut at 2^-126, and what is no number counts as that, as on threads.
  for (int j = tid; j < VOCABULARY; j += 256) sum += expf(fmaxf(logit(j) - most, -126.f * 0.6931471805599453f));
  sum = over_block(sum, floats, [](float a, float b) { return a + b; });
  const float log_sum = most + logf(sum);
  auto value = [&](int j) { return logit(j) - log_sum; };
  const float truth = value(target);
  // The first of this thread's words that stands after a place.
  auto next = [&](Place after) {
    Place best = {0.f, -1};
    for (int j = FIRST_WORD + tid; j < VOCABULARY; j += 256) {
      float v = value(j);
      bool later = after.entry < 0 || v < after.value || (v == after.value && j > after.entry);
      if (v == v && later && (best.entry < 0 || v > best.value)) best = Place{v, j};
    }
    return best;
  };
  u32 before = 0;
  for (int j = tid; j < VOCABULARY; j += 256) {
    float v = value(j);
    before += j < target ? v >= truth : j > target && v > truth;
  }
  before = over_block(before, numbers, [](u32 a, u32 b) { return a + b; });
  u32* to = judged + token * (2 + LISTED);
  if (tid == 0) to[0] = __float_as_int(truth), to[1] = truth == truth ? before : ~0u;
  Place own = next(Place{0.f, -1});
  for (int k = 0; k < LISTED; k++) {
    Place best = first_of_block(own, places);
    if (tid == 0) to[2 + k] = (u32)best.entry;
    if (best.entry >= 0 && own.entry == best.entry) own = next(best);
  }
}
