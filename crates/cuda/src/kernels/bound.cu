// The steps of one model that learns public text, brought within a bound: a step of plain SGD is its gradient times the rate, so a step that
// is cut to a share of itself is that of a gradient that was. As federated::engine::central::Clipped has it. For one user.

// The squared norm of a step, a part for each block. before: the weights as they were.
extern "C" __global__ void __launch_bounds__(256) step_norms(const float* weights, const float* before, double* parts) {
  __shared__ double shared[8];
  double sum = 0;
  for (u32 i = blockIdx.x * 256 + threadIdx.x; i < LENGTH; i += gridDim.x * 256) {
    const double v = weights[i] - before[i];
    sum += v * v;
  }
  sum = over_block(sum, shared, [](double a, double b) { return a + b; });
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// A step that is longer than `most` times the rate is cut to that, and what stands is what the next step is measured from. One that is not
// finite is only said: what comes of it is taken back by the host.
extern "C" __global__ void __launch_bounds__(256) bring_within(const double* parts, int count, const float* rate, float most, float* weights,
                                                               float* before, int* broken) {
  __shared__ double shared[8];
  double own = 0;
  for (int i = threadIdx.x; i < count; i += 256) own += parts[i];
  const double length = sqrt(over_block(own, shared, [](double a, double b) { return a + b; })), bound = (double)most * (double)*rate;
  if (!isfinite(length)) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *broken = 1;
    return;
  }
  const bool cuts = length > bound;
  const float share = cuts ? (float)(bound / length) : 1.f;
  for (u32 i = blockIdx.x * 256 + threadIdx.x; i < LENGTH; i += gridDim.x * 256) {
    float now = weights[i];
    if (cuts) weights[i] = now = before[i] + share * (now - before[i]);
    before[i] = now;
  }
}
