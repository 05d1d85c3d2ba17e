// Runs the kernels that round, accept and add up, thread by thread, on what the test wrote, and writes what they came to.
#include "cuda.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "shared.cu"
#include "encode.cu"

template <class T>
static std::vector<T> read(size_t count) {
  std::vector<T> values(count);
  if (std::fread(values.data(), sizeof(T), count, stdin) != count) std::exit(1);
  return values;
}

template <class F>
static void launch(unsigned blocks, unsigned users, unsigned threads, F kernel) {
  gridDim = {blocks, users, 1}, blockDim = {threads, 1, 1};
  for (blockIdx.y = 0; blockIdx.y < users; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
      for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) kernel();
}

int main() {
  auto place = read<u32>(PARAMETERS);
  auto start = read<float>(LENGTH), weights = read<float>((size_t)USERS * LENGTH);
  // Where each bounded part of an update ends.
  const int parts = (int)read<u64>(1)[0];
  auto ends = read<u32>(parts);
  auto factor = read<double>((size_t)USERS * parts), squared = read<double>((size_t)USERS * parts);
  auto drawings = read<u64>(2 * USERS);
  auto key = read<u32>(8);
  auto limits = read<u64>(5);  // stochastic, the bits of the limit, the largest squared norm, the largest, the attempts
  auto present = read<u8>(USERS);
  std::vector<int> accepted(USERS), integers((size_t)USERS * PARAMETERS);
  std::vector<u64> low(USERS), high(USERS);
  std::vector<u32> largest(USERS);
  for (u32 attempt = 0; attempt < limits[4]; attempt++) {
    // Later attempts have fewer threads, each with several blocks of the stream.
    unsigned blocks = attempt < 3 ? (PARAMETERS / 8 + 2 + 255) / 256 : 1, threads = attempt < 3 ? 256 : 32;
    launch(1, 1, USERS, [&] { again(accepted.data(), low.data(), high.data(), largest.data()); });
    launch(blocks, USERS, threads, [&] {
      round_coordinates(weights.data(), start.data(), place.data(), factor.data(), parts, ends.data(), (const Drawing*)drawings.data(), key.data(),
                        present.data(), squared.data(), __int_as_float((int)limits[1]), (int)limits[0], attempt, accepted.data(), integers.data(), low.data(), high.data(),
                        largest.data());
    });
    launch(1, 1, USERS, [&] {
      accept(squared.data(), parts, present.data(), limits[2], (u32)limits[3], low.data(), high.data(), largest.data(), accepted.data());
    });
  }
  // Something is in the sum already: chunks before this one.
  std::vector<i64> sum(PARAMETERS, 7);
  launch((PARAMETERS + 255) / 256, 1, 256, [&] { add_integers(integers.data(), accepted.data(), sum.data()); });
  std::fwrite(accepted.data(), sizeof(int), USERS, stdout);
  std::fwrite(low.data(), sizeof(u64), USERS, stdout);
  std::fwrite(high.data(), sizeof(u64), USERS, stdout);
  std::fwrite(sum.data(), sizeof(i64), sum.size(), stdout);
  std::fwrite(integers.data(), sizeof(int), integers.size(), stdout);
}
