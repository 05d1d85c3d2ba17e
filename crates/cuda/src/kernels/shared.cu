// What every kernel knows: the shape of a chunk, as numbers that the host defines when it compiles.
//
//   USERS       users of a chunk, each with weights of their own, LENGTH numbers apart
//   ROWS        sequences of a batch (B), UNROLL tokens of each (T), TOKENS = ROWS * UNROLL; token n is (t, b) = (n / ROWS, n % ROWS)
//   VOCABULARY  entries; TABLE and OUTPUT are the padded widths of the input's and the output's rows
//   HIDDEN      units of a layer, padded; GATES of them side by side; SHOWN what a layer shows, padded
//
// A step of all users is one graph, launched again and again: which one it is, and how many there are, stands in `step`. What users
// read lies user by user, step by step.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define RESETS 1       // the state is zero before this step: a reading begins
#define COUNTS_LOSS 2  // its loss is of the first reading
#define ACTIVE 4       // there is something to learn from
#define ENTERS 8       // the user's first step, after others of the chunk have had some

#define INFINITY_F __int_as_float(0x7f800000)

// Which of all turns a user has in this step.
__device__ __forceinline__ size_t turn(const int* step, int user) { return (size_t)user * step[1] + step[0]; }

__device__ __forceinline__ int flags_of(const int* step, const int* flags, int user) { return flags[turn(step, user)]; }

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// A value over the threads of a warp, and who says it. A test runs kernels on the host, one thread after the other: there every thread
// is a warp of its own.
#ifdef ONE_BY_ONE
template <class T, class F>
T over_warp(T x, F) { return x; }
inline bool leads_warp() { return true; }
#else
template <class T, class F>
__device__ __forceinline__ T over_warp(T x, F f) {
#pragma unroll
  for (int o = 16; o; o >>= 1) x = f(x, __shfl_xor_sync(~0u, x, o));
  return x;
}
__device__ __forceinline__ bool leads_warp() { return threadIdx.x % 32 == 0; }
#endif
// The same over a block of 256 threads, all of which know it; `shared` has room for 8.
template <class T, class F>
__device__ __forceinline__ T over_block(T own, T* shared, F f) {
  own = over_warp(own, f);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  own = shared[0];
#pragma unroll
  for (int w = 1; w < 8; w++) own = f(own, shared[w]);
  return own;
}
__device__ __forceinline__ float warp_sum(float x) { return over_warp(x, [](float a, float b) { return a + b; }); }
__device__ __forceinline__ double warp_sum(double x) { return over_warp(x, [](double a, double b) { return a + b; }); }
__device__ __forceinline__ float warp_max(float x) { return over_warp(x, [](float a, float b) { return fmaxf(a, b); }); }

__device__ __forceinline__ void quarter(u32& a, u32& b, u32& c, u32& d) {
  a += b, d ^= a, d = __funnelshift_l(d, d, 16);
  c += d, b ^= c, b = __funnelshift_l(b, b, 12);
  a += b, d ^= a, d = __funnelshift_l(d, d, 8);
  c += d, b ^= c, b = __funnelshift_l(b, b, 7);
}

// One block of ChaCha20 (RFC 8439): a key, and the number of a user or of a step as nonce.
__device__ __forceinline__ void chacha20(const u32* key, u64 number, u32 counter, u32 (&out)[16]) {
  const u32 in[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7],
                      counter, (u32)number, (u32)(number >> 32), 0};
#pragma unroll
  for (int i = 0; i < 16; i++) out[i] = in[i];
#pragma unroll
  for (int round = 0; round < 10; round++) {
    quarter(out[0], out[4], out[8], out[12]), quarter(out[1], out[5], out[9], out[13]);
    quarter(out[2], out[6], out[10], out[14]), quarter(out[3], out[7], out[11], out[15]);
    quarter(out[0], out[5], out[10], out[15]), quarter(out[1], out[6], out[11], out[12]);
    quarter(out[2], out[7], out[8], out[13]), quarter(out[3], out[4], out[9], out[14]);
  }
#pragma unroll
  for (int i = 0; i < 16; i++) out[i] += in[i];
}
