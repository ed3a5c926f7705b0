// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>

#include "kernels/join.cuh"
#include "kernels/pack.cuh"
#include "kernels/ptx.cuh"
#include "kernels/queue.h"
#include "kernels/together.h"
#include "kernels/view.cuh"
#include "kernels/words.cuh"

namespace tidemark::kernels::cuda {

// One body, two ways to run it. A kernel is a function object over an element, over a row with a team, or over columns
// (columns.cuh). On the GPU a team is a thread block; on the host it is the calling thread, which joins partial results
// in the block's order, so that what can be wrong about a sum is wrong on the host as well.
//
// Teams join in a fixed order: thread t takes pack t, t + kThreads, ... and of the elements beside packs the t-th, then
// the threads of a warp fold in halves, then the warps. The error of a sum of n is about (n / kThreads + kPack + log2
// kThreads) roundings, and its last bit may depend on where in a tensor it begins.

/// A view of what lies `less` before.
template <class View>
struct Beside {
  View view;
  std::int64_t less;
  template <class At>
  __host__ __device__ auto operator[](At at) const {
    return view[at - less];
  }
};

class Team {
 public:
  __host__ __device__ int rank() const {
#ifdef __CUDA_ARCH__
    return static_cast<int>(threadIdx.x);
#else
    return 0;
#endif
  }
  __host__ __device__ int size() const {
#ifdef __CUDA_ARCH__
    return kThreads;
#else
    return 1;
#endif
  }

  /// In a block.
  int threads() const { return kThreads; }

  /// What a view has at `at - less`. Teams of another kind read it once (kernels/held.cuh).
  template <class View>
  __host__ __device__ Beside<View> Hold(const View& view, std::int64_t, std::int64_t less) const {
    return {view, less};
  }

  /// Calls `body()` on one thread.
  template <class Body>
  __host__ __device__ void Once(const Body& body) const {
    if (rank() == 0) {
      body();
    }
  }

  /// Calls `body(i)` for i in [0, count), each i on one thread. No thread waits for the others.
  template <class Body>
  __host__ __device__ void Each(std::int64_t count, Body body) const {
    for (std::int64_t i = rank(); i < count; i += size()) {
      body(i);
    }
  }

  /// Calls `body(at)` for [begin, end), in packs if it takes them, and elements.
  template <class Body>
  __host__ __device__ void Each(std::int64_t begin, std::int64_t end, const Body& body) const {
    EachOf(begin, end, rank(), size(), body);
  }

  // The following need all threads of the team, and give each the same. What any thread read before, another may write
  // after.

  /// Of `term(at)` for [begin, end).
  template <class C, class Term>
  __host__ __device__ C Sum(std::int64_t begin, std::int64_t end, Term term) const {
    return Join(begin, end, C(0), term, std::plus<>());
  }
  /// The largest; NaN where there is one, -infinity where there are none.
  template <class C, class Term>
  __host__ __device__ C Max(std::int64_t begin, std::int64_t end, Term term) const {
    return Join(begin, end, -std::numeric_limits<C>::infinity(), term,
                [](C a, C b) { return a > b || a != a ? a : b; });
  }
  /// Whether `holds(i)` of any i in [begin, end).
  template <class Predicate>
  __host__ __device__ bool Any(std::int64_t begin, std::int64_t end, Predicate holds) const {
    bool is_any = false;
    for (std::int64_t at = begin; at < end && !is_any; at += size()) {
      const std::int64_t i = at + rank();
      is_any = i < end && holds(i);
#ifdef __CUDA_ARCH__
      is_any = __syncthreads_or(is_any ? 1 : 0) != 0;
#endif
    }
    return is_any;
  }
  /// Calls `body(i, holds(i), n)` for each i in [begin, end), each i on one thread, n being how many i before it hold.
  template <class Predicate, class Body>
  __host__ __device__ void EachCounted(std::int64_t begin, std::int64_t end, Predicate holds, Body body) const {
    std::int64_t before = 0;
#ifdef __CUDA_ARCH__
    __shared__ int of_warps[kWarps];
    const int own_warp = rank() / kWarp;
    for (std::int64_t at = begin; at < end; at += kThreads) {
      const std::int64_t i = at + rank();
      const bool mine = i < end && holds(i);
      const unsigned bits = __ballot_sync(0xFFFFFFFFU, mine);
      __syncthreads();  // the last round's have been read
      if (rank() % kWarp == 0) {
        of_warps[own_warp] = __popc(bits);
      }
      __syncthreads();
      std::int64_t own = before + __popc(bits & ((1U << (rank() % kWarp)) - 1));
      for (int warp = 0; warp < kWarps; ++warp) {
        own += warp < own_warp ? of_warps[warp] : 0;
        before += of_warps[warp];
      }
      if (i < end) {
        body(i, mine, own);
      }
    }
    __syncthreads();
#else
    for (std::int64_t i = begin; i < end; ++i) {
      const bool mine = holds(i);
      body(i, mine, before);
      before += mine ? 1 : 0;
    }
#endif
  }
  /// Calls `body(i)` for each i in [begin, end) of which `holds(i)`, in order, on all threads at once.
  template <class Predicate, class Body>
  __host__ __device__ void EachThat(std::int64_t begin, std::int64_t end, Predicate holds, Body body) const {
#ifdef __CUDA_ARCH__
    __shared__ unsigned found[kWarps];
    for (std::int64_t at = begin; at < end; at += kThreads) {
      const unsigned mine = __ballot_sync(0xFFFFFFFFU, at + rank() < end && holds(at + rank()));
      if (__syncthreads_or(mine != 0) == 0) {  // the last round's have been read
        continue;
      }
      if (rank() % kWarp == 0) {
        found[rank() / kWarp] = mine;
      }
      __syncthreads();
      for (int warp = 0; warp < kWarps; ++warp) {
        for (unsigned bits = found[warp]; bits != 0; bits &= bits - 1) {
          body(at + warp * kWarp + __ffs(static_cast<int>(bits)) - 1);
        }
      }
    }
    __syncthreads();
#else
    for (std::int64_t i = begin; i < end; ++i) {
      if (holds(i)) {
        body(i);
      }
    }
#endif
  }

 private:
  /// Calls `take(thread, what term gives)` for the calling threads' packs and elements of [begin, end), or elements
  /// alone if the term takes no packs.
  template <class Term, class Take>
  __host__ __device__ void EachTerm(std::int64_t begin, std::int64_t end, const Term& term, Take take) const {
    if constexpr (kTakesPacks<Term>) {
      const PackRange range(begin, end);
      Each(range.packs(), [&](std::int64_t i) { take(i % kThreads, term(range.pack(i))); });
      Each(range.others(), [&](std::int64_t i) { take(i % kThreads, term(range.other(i))); });
    } else {
      Each(end - begin, [&](std::int64_t i) { take(i % kThreads, term(begin + i)); });
    }
  }

  template <class C, class Term, class Two>
  __host__ __device__ C Join(std::int64_t begin, std::int64_t end, C start, Term term, Two join) const {
#ifdef __CUDA_ARCH__
    C value = start;
    EachTerm(begin, end, term, [&](std::int64_t, const auto& some) { value = Fold(value, some, join); });
    return JoinThreads(value, kThreads, join);
#else
    C values[kThreads];
    std::fill_n(values, kThreads, start);
    EachTerm(begin, end, term,
             [&](std::int64_t thread, const auto& some) { values[thread] = Fold(values[thread], some, join); });
    return JoinValues(values, kThreads, join);
#endif
  }
};

#ifdef __CUDACC__

template <class Body>
__global__ void __launch_bounds__(kThreads) ElementsOnDevice(std::int64_t count, Body body) {
  EachOf(0, count, static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
         static_cast<std::int64_t>(gridDim.x) * kThreads, body);
}

/// Bodies of which many are wanted at once say so: `using MayWait = void` (kernels/together.h). Each such kind is
/// compiled once more.
template <class Body>
inline constexpr bool kMayWait = requires {
  typename Body::MayWait;
};

/// Kernels of one kind that are launched as one: bodies, of how many elements each is, and its first block.
template <class Body>
struct WaitingBodies {
  static constexpr int kMost =
      static_cast<int>((Together::kBytes - 32) / (sizeof(Body) + sizeof(std::int64_t) + sizeof(unsigned)));
  int count;
  unsigned first_block[kMost + 1];
  std::int64_t elements[kMost];
  alignas(Body) std::byte bodies[kMost][sizeof(Body)];
};

template <class Body>
__global__ void __launch_bounds__(kThreads) BodiesOnDevice(const __grid_constant__ WaitingBodies<Body> all) {
  int mine = 0;
  while (blockIdx.x >= all.first_block[mine + 1]) {
    ++mine;
  }
  const Body body = *reinterpret_cast<const Body*>(all.bodies[mine]);
  const std::int64_t first = all.first_block[mine], blocks = all.first_block[mine + 1] - first;
  EachOf(0, all.elements[mine], (static_cast<std::int64_t>(blockIdx.x) - first) * kThreads + threadIdx.x,
         blocks * kThreads, body);
}

template <class Body, class Team>
__global__ void __launch_bounds__(kThreads) RowsOnDevice(std::int64_t rows, Body body, Team team) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    if (row != blockIdx.x) {
      __syncthreads();  // this row's writes wait for the last one's reads
    }
    body(team, row);
  }
}

/// Ends the process with CUDA's own words if `status` is an error.
inline void Check(cudaError_t status, const char* file, int line) {
  if (status != cudaSuccess) {
    Fail(cudaGetErrorString(status), file, line);
  }
}
inline cudaStream_t Stream(const Queue& queue) { return static_cast<cudaStream_t>(queue.stream); }

/// Blocks for so many pieces of work; beyond a few per processor a block takes several.
inline unsigned Blocks(std::int64_t pieces) { return static_cast<unsigned>(std::min<std::int64_t>(pieces, 1 << 16)); }

/// Of a kernel over so many elements.
template <class Body>
unsigned BlocksOf(std::int64_t count) {
  return Blocks((kTakesPacks<Body> ? count / kPack : count) / kThreads + 1);
}

template <class Body>
void LaunchBodies(const Queue& queue, const void* waiting) {
  const auto& all = *static_cast<const WaitingBodies<Body>*>(waiting);
  TIDEMARK_LAUNCH(BodiesOnDevice<Body>, all.first_block[all.count], kThreads, 0, Stream(queue), all);
  Check(cudaGetLastError(), __FILE__, __LINE__);
}
template <class Body>
void WaitTogether(Together& together, std::int64_t count, const Body& body) {
  using Waiting = WaitingBodies<Body>;
  if (together.Of<Waiting>(&LaunchBodies<Body>).count == Waiting::kMost) {
    together.Launch();
  }
  auto& all = together.Of<Waiting>(&LaunchBodies<Body>);
  std::memcpy(all.bodies[all.count], &body, sizeof(Body));
  all.elements[all.count] = count;
  all.first_block[all.count + 1] = all.first_block[all.count] + BlocksOf<Body>(count);
  ++all.count;
}

template <class Body>
void LaunchElements(const Queue& queue, std::int64_t count, const Body& body) {
  if constexpr (kMayWait<Body>) {
    if (queue.together != nullptr) {
      WaitTogether(*queue.together, count, body);
      return;
    }
  }
  LaunchWaiting(queue);
  TIDEMARK_LAUNCH(ElementsOnDevice, BlocksOf<Body>(count), kThreads, 0, Stream(queue), count, body);
  Check(cudaGetLastError(), __FILE__, __LINE__);
}
template <class Body, class Team>
void LaunchRows(const Queue& queue, std::int64_t rows, const Body& body, const Team& team) {
  LaunchWaiting(queue);
  TIDEMARK_LAUNCH(RowsOnDevice, Blocks(rows), team.threads(), 0, Stream(queue), rows, body, team);
  Check(cudaGetLastError(), __FILE__, __LINE__);
}

#else  // only the host kind of queues

template <class Body>
void LaunchElements(const Queue&, std::int64_t, const Body&) {
  Fail("a kernel for a GPU, in a program built without CUDA", __FILE__, __LINE__);
}
template <class Body, class Team>
void LaunchRows(const Queue& queue, std::int64_t rows, const Body& body, const Team&) {
  LaunchElements(queue, rows, body);
}

#endif

/// Threads of a team in this queue.
inline std::int64_t TeamSize(const Queue& queue) { return queue.kind == Queue::Kind::host ? 1 : kThreads; }

/// Calls `body` for [0, count), in any order: in packs, if it takes them, and elements.
template <class Body>
void EachElement(const Queue& queue, std::int64_t count, const Body& body) {
  if (queue.kind == Queue::Kind::host) {
    Team().Each(0, count, body);
  } else if (count > 0) {
    LaunchElements(queue, count, body);
  }
}

/// Calls `body(team, row)` for row in [0, rows), in any order.
template <class Body, class Team = cuda::Team>
void EachRow(const Queue& queue, std::int64_t rows, const Body& body, const Team& team = {}) {
  if (queue.kind == Queue::Kind::host) {
    for (std::int64_t row = 0; row < rows; ++row) {
      body(team, row);
    }
  } else if (rows > 0) {
    LaunchRows(queue, rows, body, team);
  }
}

}  // namespace tidemark::kernels::cuda
