// From trained weights to integers on the grid, and their sum (steps 3 to 5 of the way of the data): the same arithmetic as
// privacy::stages and privacy::encoding, a coordinate a thread. Coordinates are those of the flat vector; `place` says where each
// lies on the card. A tile is a run of coordinates of one bounded part: all of the update, or one layer of it.

struct Tile { u32 start, len, part; };

// The model of a round, as it lies on the card.
extern "C" __global__ void place_model(const float* model, const u32* place, float* start) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < PARAMETERS) start[place[i]] = model[i];
}

// Everybody begins with the same model.
extern "C" __global__ void broadcast(const float4* start, float4* weights) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= LENGTH / 4) return;
  float4 v = start[i];
  for (int user = blockIdx.y; user < USERS; user += gridDim.y) weights[(size_t)user * (LENGTH / 4) + i] = v;
}

__device__ __forceinline__ float difference(const float* weights, const float* start, const u32* place, int user, u32 i) {
  u32 at = place[i];
  return weights[(size_t)user * LENGTH + at] - start[at];
}

// The squared norm of each tile of each user's difference; squares of floats are exact in double. One block a tile.
extern "C" __global__ void __launch_bounds__(256) tile_norms(const float* weights, const float* start, const u32* place,
                                                              const Tile* tiles, double* norms) {
  __shared__ double shared[8];
  const Tile tile = tiles[blockIdx.x];
  const int user = blockIdx.y, tid = threadIdx.x;
  double sum = 0;
  for (u32 i = tid; i < tile.len; i += 256) {
    double v = difference(weights, start, place, user, tile.start + i);
    sum += v * v;
  }
  sum = warp_sum(sum);
  if (tid % 32 == 0) shared[tid / 32] = sum;
  __syncthreads();
  if (tid) return;
  for (int w = 1; w < 8; w++) sum += shared[w];
  norms[(size_t)user * gridDim.x + blockIdx.x] = sum;
}

// What each part of a difference is multiplied with to keep its bound, and its squared norm. One block a user.
// The sum of n squares is off by at most n + 4 halves of an epsilon; a factor of 1 leaves the part as it is.
extern "C" __global__ void __launch_bounds__(256) factors(const double* norms, const Tile* tiles, int tile_count, const double* bounds,
                                                           const double* lengths, int parts, double* squared, double* factor) {
  __shared__ double shared[8];
  const int user = blockIdx.x, tid = threadIdx.x;
  for (int part = 0; part < parts; part++) {
    double sum = 0;
    for (int i = tid; i < tile_count; i += 256)
      if (tiles[i].part == part) sum += norms[(size_t)user * tile_count + i];
    sum = warp_sum(sum);
    __syncthreads();
    if (tid % 32 == 0) shared[tid / 32] = sum;
    __syncthreads();
    if (tid) continue;
    for (int w = 1; w < 8; w++) sum += shared[w];
    const double epsilon = 2.220446049250313e-16, bound = bounds[part];
    double least = __dmul_rn(sum, __dadd_rn(1.0, __dmul_rn(__dadd_rn(lengths[part], 4.0), epsilon)));
    double most = __dmul_rn(__dmul_rn(bound, bound), 1.0 - epsilon);
    squared[user * parts + part] = sum;
    // Not a number compares as more.
    factor[user * parts + part] = least <= most ? 1.0 : __dmul_rn(__ddiv_rn(bound, __dsqrt_rn(least)), 1.0 - 2.384185791015625e-07);
  }
}

// Greedy clipping: the difference is brought within its bound after a local step. What is not finite goes back to the start.
extern "C" __global__ void project(const int* step, const int* flags, const double* squared, const double* factor, int parts,
                                   const Tile* tiles, const u32* place, const float* start, float* weights, int* projected) {
  const Tile tile = tiles[blockIdx.x];
  const int user = blockIdx.y;
  if (!(flags_of(step, flags, user) & ACTIVE)) return;
  const double by = factor[user * parts + tile.part];
  const bool finite = isfinite(squared[user * parts + tile.part]);
  if (by == 1.0) return;
  if (threadIdx.x == 0) projected[user] = 1;
  for (u32 i = threadIdx.x; i < tile.len; i += blockDim.x) {
    u32 at = place[tile.start + i];
    float* w = weights + (size_t)user * LENGTH + at;
    *w = finite ? (float)((double)(*w - start[at]) * by) + start[at] : start[at];
  }
}

// What is random in a user's part and how it is scaled.
struct Drawing { u64 user; double scale; };

// The coordinate that is rounded: brought within its bound, scaled to the grid, cut to the largest that is allowed. The
// conversions are those of the host, one by one.
__device__ __forceinline__ float on_grid(float difference, double factor, double scale, float limit) {
  float clipped = factor == 1.0 ? difference : (float)__dmul_rn((double)difference, factor);
  float scaled = (float)__dmul_rn((double)clipped, scale);
  return fminf(fmaxf(scaled, -limit), limit);
}

// Whether every part of a user's difference is a number.
__device__ __forceinline__ bool finite(const double* squared, int parts, int user) {
  bool all = true;
  for (int part = 0; part < parts; part++) all = all && isfinite(squared[user * parts + part]);
  return all;
}

// Rounds every coordinate of users who are not accepted yet, and adds up the exact squared norm of the integers, in halves of
// 32 bits, and the largest. Word 1 + attempt * PARAMETERS + i of the user's stream rounds coordinate i: word 0 decided the batch.
// A thread has the 8 words of a block of the stream, and then those of later blocks where there are fewer threads than blocks. `parts` is
// of the tiles; a thread looks up that of its coordinates. To the nearest is the first attempt without words, towards zero the second.
// Who has nothing, or is not finite, is never accepted, and not rounded either.
extern "C" __global__ void __launch_bounds__(256) round_coordinates(const float* weights, const float* start, const u32* place,
    const double* factor, int parts, const u32* part_ends, const Drawing* drawings, const u32* key, const u8* present,
    const double* squared, float limit, int stochastic, u32 attempt, const int* accepted, int* integers, u64* low, u64* high,
    u32* largest) {
  const int user = blockIdx.y;
  if (accepted[user] || !present[user] || !finite(squared, parts, user)) return;
  const Drawing drawing = drawings[user];
  const u64 first = 1 + (u64)attempt * PARAMETERS;
  u64 own_low = 0, own_high = 0;
  u32 own_largest = 0;
  u32 words[16];
  int rounded[8];
  for (u64 block = first / 8 + (u64)blockIdx.x * blockDim.x + threadIdx.x;; block += (u64)gridDim.x * blockDim.x) {
    const i64 begin = (i64)(block * 8) - (i64)first;
    if (begin >= (i64)PARAMETERS) break;
    if (stochastic) chacha20(key, drawing.user, (u32)block, words);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      i64 i = begin + j;
      rounded[j] = 0;
      if (i < 0 || i >= (i64)PARAMETERS) continue;
      int part = 0;
      while (part + 1 < parts && (u32)i >= part_ends[part]) part++;
      float v = on_grid(difference(weights, start, place, user, (u32)i), factor[user * parts + part], drawing.scale, limit);
      int integer;
      if (stochastic) {
        float below = floorf(v);
        u64 word = (u64)words[2 * j] | (u64)words[2 * j + 1] << 32;
        double uniform = (double)(word >> 11) * 1.1102230246251565e-16;
        integer = (int)below + (uniform < (double)v - (double)below);
      } else {
        integer = attempt ? (int)v : __float2int_rn(v);
      }
      rounded[j] = integer;
      u32 size = integer < 0 ? 0u - (u32)integer : (u32)integer;
      u64 square = (u64)size * size;
      own_low += (u32)square, own_high += square >> 32;
      own_largest = max(own_largest, size);
    }
    int* to = integers + (size_t)user * PARAMETERS + begin;
    // A block begins one coordinate before a multiple of 8 where the vector is one of 8: the next four lie in one piece.
    if (PARAMETERS % 8 == 0 && begin >= 0 && begin + 8 <= (i64)PARAMETERS) {
      to[0] = rounded[0];
      *(int4*)(to + 1) = make_int4(rounded[1], rounded[2], rounded[3], rounded[4]);
      *(int2*)(to + 5) = make_int2(rounded[5], rounded[6]);
      to[7] = rounded[7];
    } else {
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (begin + j >= 0 && begin + j < (i64)PARAMETERS) to[j] = rounded[j];
    }
  }
  // Integers add up to the same in any order.
  own_low = over_warp(own_low, [](u64 a, u64 b) { return a + b; });
  own_high = over_warp(own_high, [](u64 a, u64 b) { return a + b; });
  own_largest = over_warp(own_largest, [](u32 a, u32 b) { return a > b ? a : b; });
  if (leads_warp()) {
    atomicAdd(low + user, own_low), atomicAdd(high + user, own_high);
    atomicMax(largest + user, own_largest);
  }
}

// Whether a user's integers keep their bounds, exactly. Whoever is not finite, or has nothing, is never accepted. One thread a user.
extern "C" __global__ void accept(const double* squared, int parts, const u8* present, u64 most_squared, u32 most, u64* low, u64* high,
                                  u32* largest, int* accepted) {
  const int user = blockIdx.x * blockDim.x + threadIdx.x;
  if (user >= USERS || accepted[user] || !present[user]) return;
  // high * 2^32 + low, where low may itself carry beyond 32 bits.
  u64 carried = high[user] + (low[user] >> 32);
  bool keeps = carried >> 32 == 0 && (carried << 32 | (low[user] & 0xffffffffu)) <= most_squared && largest[user] <= most;
  if (keeps && finite(squared, parts, user)) accepted[user] = 1;
}

// Forgets the sizes of those who are drawn again.
extern "C" __global__ void again(const int* accepted, u64* low, u64* high, u32* largest) {
  const int user = blockIdx.x * blockDim.x + threadIdx.x;
  if (user < USERS && !accepted[user]) low[user] = 0, high[user] = 0, largest[user] = 0;
}

// The integer sum over those who are accepted joins what there is.
extern "C" __global__ void add_integers(const int* integers, const int* accepted, i64* sum) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= PARAMETERS) return;
  i64 all = 0;
  for (int user = 0; user < USERS; user++)
    if (accepted[user]) all += integers[(size_t)user * PARAMETERS + i];
  sum[i] += all;
}

// The sum of others who were trained beside these joins their own.
extern "C" __global__ void join_sums(const i64* other, i64* sum) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < PARAMETERS) sum[i] += other[i];
}

// One user's difference, for the host.
extern "C" __global__ void differences(const float* weights, const float* start, const u32* place, int user, float* to) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < PARAMETERS) to[i] = difference(weights, start, place, user, i);
}
